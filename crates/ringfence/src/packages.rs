//! Python packages of runs.

mod default;

use std::path::Path;
use std::sync::Arc;

use ringfence_exec::artifact::StorePolicy;
use ringfence_exec::backend::Backend;
use ringfence_exec::local::Fence;
use ringfence_exec::runner::{Rules, RunSpec, Runner};
use ringfence_packages::Packages;
use ringfence_packages::packages::Needs;
use ringfence_policy::{ExecutionResult, Language, Mount, PACKAGES, Scope, Target};
use ringfence_tools::toolbox::Surface;
use tokio::sync::watch;

use crate::config::Problems;
use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::{AuditedRuns, local, settings};

pub use default::with_defaults;
pub use ringfence_packages::store::Removal;
pub use ringfence_packages::{
    Checkout, EnvironmentInfo, Index, Requirement, SessionPackages, Store, parse_list,
};

/// Provides packages of runs, and installs those that are not kept.
#[derive(Debug)]
pub struct Installer {
    packages: Packages,
    runner: Runner,
    surface: Surface,
}

impl Installer {
    /// Creates an installer whose runs are on `backend`, and in the audit log as those of `surface`.
    ///
    /// # Errors
    /// If the configuration or the state directory cannot be used.
    pub fn new(backend: Arc<dyn Backend>, surface: Surface, context: &Context) -> Result<Self, Error> {
        let rules = Rules {
            // The program that installs is ours. It imports what a user may block.
            blocked_imports: None,
            blocked_in_pyodide: None,
            // Its output is an archive.
            store_policy: StorePolicy::Never,
            log: Some(Arc::new(AuditedRuns::new(surface, context)?)),
            ..local::rules(&settings::settings(context)?, context)?
        };
        let parts = context.parts()?;
        let private_networks = parts.egress.policy.private_networks.clone();
        Ok(Self {
            packages: Packages::new(store(context)?, parts.packages.index.clone(), private_networks),
            runner: Runner::new(backend, rules),
            surface,
        })
    }

    pub fn index(&self) -> &Index {
        self.packages.index()
    }

    /// Provides packages that others open by their key, such as the server's sandboxes.
    ///
    /// # Errors
    /// If they cannot be installed.
    pub async fn provide(
        &self,
        requirements: &[Requirement],
        scope: &Scope,
        announce: impl FnOnce(),
        cancelled: Option<watch::Receiver<bool>>,
    ) -> Result<Checkout, Failure> {
        let needs = Needs {
            requirements,
            scope,
            fence: Fence::Default,
        };
        let providing = self.packages.provide(needs, &self.runner, announce, cancelled);
        providing.await.map_err(failure)
    }

    /// Provides the packages of a run, and adds them to its specification. They stay for as long as the returned value.
    /// `announce` is called before they are installed.
    ///
    /// # Errors
    /// If the run cannot have packages, or they cannot be installed.
    pub async fn add(
        &self,
        spec: &mut RunSpec,
        requirements: &[Requirement],
        announce: impl FnOnce(),
        cancelled: Option<watch::Receiver<bool>>,
    ) -> Result<Checkout, Failure> {
        check(spec, self.surface)?;
        let needs = Needs {
            requirements,
            scope: &spec.request.scope,
            fence: spec.fence,
        };
        let providing = self.packages.provide(needs, &self.runner, announce, cancelled);
        let checkout = providing.await.map_err(failure)?;
        checkout.add_to(&mut spec.request.mounts, &mut spec.request.env);
        Ok(checkout)
    }
}

/// Returns the packages of a run: those that were named, and those of the configuration if the run can have any.
///
/// # Errors
/// If the configuration cannot be used.
pub fn all(
    mut named: Vec<Requirement>,
    spec: &RunSpec,
    context: &Context,
) -> Result<Vec<Requirement>, Problems> {
    if has_defaults(spec) {
        named.extend(context.parts()?.packages.default.iter().cloned());
        named.sort();
        named.dedup();
    }
    Ok(named)
}

/// Adds the packages, and the warning about their age, to a result.
pub fn describe(checkout: &Checkout, result: &mut ExecutionResult) {
    result.meta.packages.clone_from(&checkout.packages);
    result.meta.warnings.extend(checkout.warning.clone());
}

/// Returns the kept packages of this user.
///
/// # Errors
/// If the configuration or the state directory cannot be used.
pub fn store(context: &Context) -> Result<Store, Error> {
    let state = context.paths.make_state()?;
    Ok(Store::new(state.join("packages"), context.parts()?.packages.keep))
}

/// Lists kept packages, the last used first.
///
/// # Errors
/// If they cannot be read.
pub fn list(store: &Store) -> Result<Vec<EnvironmentInfo>, Failure> {
    store.list().map_err(|error| failure(error.into()))
}

/// Removes kept packages, unless a program uses them.
///
/// # Errors
/// If they cannot be removed.
pub fn remove(store: &Store, environment: &EnvironmentInfo) -> Result<Removal, Failure> {
    store
        .remove(&environment.key)
        .map_err(|error| failure(error.into()))
}

/// Rejects a run that cannot have packages. Those of a session are kept by the server that has it ([`SessionPackages`]), for the
/// command line alone.
fn check(spec: &RunSpec, surface: Surface) -> Result<(), Failure> {
    if spec.request.session.is_some() && surface != Surface::CommandLine {
        return Err(Failure::usage(
            "a session has the packages of its interpreter alone, unless `ringfence session new --with` names others",
            "leave the session out, or start the server with an interpreter that has them (`sandbox.python`)",
        ));
    }
    check_place(spec)
}

/// Rejects a run where packages of this machine's Python do not work.
fn check_place(spec: &RunSpec) -> Result<(), Failure> {
    check_kind(spec)?;
    let place = Path::new(PACKAGES);
    let overlaps = |mount: &&Mount| place.starts_with(mount.guest()) || mount.guest().starts_with(place);
    match spec.request.mounts.iter().find(overlaps) {
        None => Ok(()),
        Some(mount) => Err(Failure::usage(
            format!("`{mount}` lies where the packages are: {PACKAGES}"),
            "give the mount another path inside",
        )),
    }
}

/// Returns `true` for a run that gets the configured packages. The guide lists the runs without them.
fn has_defaults(spec: &RunSpec) -> bool {
    spec.request.session.is_none() && check_kind(spec).is_ok()
}

/// Rejects a run of a kind that has no packages of this machine.
fn check_kind(spec: &RunSpec) -> Result<(), Failure> {
    let request = &spec.request;
    let refused = |message: String, hint: &str| Err(Failure::usage(message, hint));
    if spec.target != Target::Local {
        return refused(
            format!(
                "the runtime `{}` has no packages of this machine",
                spec.target.runtime()
            ),
            "use `--runtime local`, or an image that has the packages",
        );
    }
    if request.language != Language::Python {
        return refused(
            format!(
                "packages are for Python, and this program is {}",
                request.language
            ),
            "leave --with out",
        );
    }
    if request.image.is_some() {
        return refused(
            "packages are built for this machine's Python, not for an image's".to_owned(),
            "leave --with out, or use an image that has the packages",
        );
    }
    if matches!(spec.fence, Fence::Unfenced | Fence::Host) {
        return refused(
            "packages are installed for programs in a fence".to_owned(),
            "leave --unfenced out, or name an interpreter that has them with `--python`",
        );
    }
    Ok(())
}

fn failure(error: ringfence_packages::Error) -> Failure {
    let message = error.to_string();
    match error {
        ringfence_packages::Error::Backend(error) => Failure {
            message,
            ..error.into()
        },
        ringfence_packages::Error::Install(_)
        | ringfence_packages::Error::Store(_)
        | ringfence_packages::Error::NoPython => Failure::refused(message, error.hint()),
    }
}
