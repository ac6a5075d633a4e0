//! Packages of runs.

mod default;

use std::path::Path;
use std::sync::Arc;

use ringfence_exec::artifact::StorePolicy;
use ringfence_exec::backend::Backend;
use ringfence_exec::local::Fence;
use ringfence_exec::runner::{Rules, RunSpec, Runner};
use ringfence_packages::Packages;
use ringfence_packages::packages::Needs;
use ringfence_policy::{ExecutionResult, Language, Mount, Scope, Target};
use ringfence_tools::toolbox::Surface;
use tokio::sync::watch;

use crate::config::Problems;
use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::{AuditedRuns, local, settings};

pub use default::with_defaults;
pub use ringfence_packages::store::Removal;
pub use ringfence_packages::{
    Checkout, Ecosystem, EnvironmentInfo, Index, Requirement, SessionPackages, Store,
};
use ringfence_packages::{check_list, parse_list};

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
            packages: Packages::new(store(context)?, parts.packages.indexes.clone(), private_networks),
            runner: Runner::new(backend, rules),
            surface,
        })
    }

    pub fn index_of(&self, ecosystem: Ecosystem) -> &Index {
        self.packages.index_of(ecosystem)
    }

    /// Provides Python packages that others open by their key, such as the server's sandboxes.
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
            ecosystem: Ecosystem::Python,
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
        let ecosystem = check(spec, self.surface)?;
        check_list(ecosystem, requirements)
            .map_err(|error| Failure::usage(error.to_string(), NAME_OTHERS))?;
        let needs = Needs {
            ecosystem,
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

/// Returns the packages that `--with` names for a program in this language, each once.
///
/// # Errors
/// If one is none, or programs in this language have none.
pub fn named(names: &[String], language: Language) -> Result<Vec<Requirement>, Failure> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let ecosystem = ecosystem(language)?;
    parse_list(ecosystem, &names.join(",")).map_err(|error| {
        let hint = match ecosystem {
            Ecosystem::Python => "name Python packages as in `--with pandas,seaborn==0.13`",
            Ecosystem::Npm => "name packages of npm as in `--with lodash@4,@scope/name@^2`",
        };
        Failure::usage(format!("--with: {error}"), hint)
    })
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

/// Returns the ecosystem of the packages that a run can have. Those of a session are kept by the server that has it ([`SessionPackages`]), for the
/// command line alone.
fn check(spec: &RunSpec, surface: Surface) -> Result<Ecosystem, Failure> {
    if spec.request.session.is_some() && surface != Surface::CommandLine {
        return Err(Failure::usage(
            "a session has the packages of its interpreter alone, unless `ringfence session new --with` names others",
            "leave the session out, or start the server with an interpreter that has them (`sandbox.python`)",
        ));
    }
    check_place(spec)
}

/// Rejects a run where packages of this machine do not work.
fn check_place(spec: &RunSpec) -> Result<Ecosystem, Failure> {
    let ecosystem = check_kind(spec)?;
    let place = Path::new(ecosystem.place());
    let overlaps = |mount: &&Mount| place.starts_with(mount.guest()) || mount.guest().starts_with(place);
    match spec.request.mounts.iter().find(overlaps) {
        None => Ok(ecosystem),
        Some(mount) => Err(Failure::usage(
            format!("`{mount}` lies where the packages are: {}", place.display()),
            "give the mount another path inside",
        )),
    }
}

/// Returns `true` for a run that gets the configured packages. The guide lists the runs without them.
fn has_defaults(spec: &RunSpec) -> bool {
    let ecosystem = check_kind(spec).ok();
    spec.request.session.is_none() && ecosystem == Some(Ecosystem::Python)
}

/// Returns the ecosystem of a language, or the refusal of one that has none.
fn ecosystem(language: Language) -> Result<Ecosystem, Failure> {
    Ecosystem::of(language).ok_or_else(|| {
        Failure::usage(
            format!("packages are for Python and JavaScript, and this program is {language}"),
            "leave --with out",
        )
    })
}

const NAME_OTHERS: &str = "name packages of the program's own language, each once";

/// Rejects a run of a kind that has no packages of this machine.
fn check_kind(spec: &RunSpec) -> Result<Ecosystem, Failure> {
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
    let ecosystem = ecosystem(request.language)?;
    if request.image.is_some() {
        return refused(
            "packages are built for this machine's interpreters, not for an image's".to_owned(),
            "leave --with out, or use an image that has the packages",
        );
    }
    if matches!(spec.fence, Fence::Unfenced | Fence::Host) {
        return refused(
            "packages are installed for programs in a fence".to_owned(),
            "leave --unfenced out, or name an interpreter that has them with `--python`",
        );
    }
    Ok(ecosystem)
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
        | ringfence_packages::Error::NoInterpreter(_) => Failure::refused(message, error.hint()),
    }
}
