//! Packages of runs.

use std::sync::Arc;

use ringfence_exec::artifact::StorePolicy;
use ringfence_exec::backend::Backend;
use ringfence_exec::local::{Fence, Local};
use ringfence_exec::runner::{Rules, RunSpec, Runner};
use ringfence_packages::default::{check_mounts, has_defaults};
use ringfence_packages::packages::Needs;
use ringfence_packages::{BackendWithDefaults, Packages};
use ringfence_policy::{Language, Scope, Target};
use ringfence_tools::toolbox::Surface;
use tokio::sync::watch;

use crate::config::Problems;
use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::{AuditedRuns, local, settings};

pub use ringfence_packages::store::Removal;
pub use ringfence_packages::{
    Checkout, DefaultPackages, Ecosystem, EnvironmentInfo, Index, Requirement, SessionPackages, Store,
};
use ringfence_packages::{check_list, parse_list, parse_mixed_list};

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

    /// Provides packages that others open by their keys, such as the server's sandboxes: a set for each ecosystem of
    /// `requirements`, which are in order. `announce` is called before a set is installed.
    ///
    /// # Errors
    /// If they cannot be installed.
    pub async fn provide(
        &self,
        requirements: &[Requirement],
        scope: &Scope,
        announce: impl Fn(&[Requirement]),
        cancelled: watch::Receiver<bool>,
    ) -> Result<Vec<Checkout>, Failure> {
        let mut sets = Vec::new();
        for requirements in requirements.chunk_by(|one, other| one.ecosystem() == other.ecosystem()) {
            let needs = Needs {
                ecosystem: requirements[0].ecosystem(),
                requirements,
                scope,
                fence: Fence::Default,
            };
            let (announce, cancelled) = (|| announce(requirements), Some(cancelled.clone()));
            let providing = self.packages.provide(needs, &self.runner, announce, cancelled);
            sets.push(providing.await.map_err(failure)?);
        }
        Ok(sets)
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

/// Returns the packages that `--with` names for a sandbox, each once, with those of the configuration if there are others for
/// Python, whose place they would take.
///
/// # Errors
/// If one is none, or the configuration cannot be used.
pub fn named_for_sandbox(names: &[String], context: &Context) -> Result<Vec<Requirement>, Error> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let named = parse_mixed_list(&names.join(",")).map_err(|error| {
        Failure::usage(
            format!("--with: {error}"),
            "name packages for Python like `pandas`, and for JavaScript like `npm:lodash@4`",
        )
    })?;
    Ok(beside_defaults(named, context)?)
}

/// Returns the packages that `--with` names for a session, each once, with those of the configuration.
///
/// # Errors
/// If one is none, or the configuration cannot be used.
pub fn named_for_session(names: &[String], context: &Context) -> Result<Vec<Requirement>, Error> {
    Ok(beside_defaults(named(names, Language::Python)?, context)?)
}

/// Adds the packages of the configuration to those that are named for Python, if there are any.
fn beside_defaults(mut named: Vec<Requirement>, context: &Context) -> Result<Vec<Requirement>, Problems> {
    if named.iter().any(|one| one.ecosystem() == Ecosystem::Python) {
        named.extend(context.parts()?.packages.default.iter().cloned());
        named.sort();
        named.dedup();
    }
    Ok(named)
}

/// Returns the packages of a run: those that were named, and those of the configuration if the run can have any. A session that is
/// asked for without a name of a package gets these from the backend that keeps it.
///
/// # Errors
/// If the configuration cannot be used.
pub fn all(
    mut named: Vec<Requirement>,
    spec: &RunSpec,
    context: &Context,
) -> Result<Vec<Requirement>, Problems> {
    if has_defaults(spec) && (spec.request.session.is_none() || !named.is_empty()) {
        named.extend(context.parts()?.packages.default.iter().cloned());
        named.sort();
        named.dedup();
    }
    Ok(named)
}

/// Returns the packages of `packages.default`, which are installed on `backend`, unless there are none.
///
/// # Errors
/// If the configuration or the state directory cannot be used.
pub fn defaults(
    backend: Arc<dyn Backend>,
    surface: Surface,
    context: &Context,
) -> Result<Option<Arc<DefaultPackages>>, Error> {
    let default = &context.parts()?.packages.default;
    if default.is_empty() {
        return Ok(None);
    }
    let Installer { packages, runner, .. } = Installer::new(backend, surface, context)?;
    let defaults = DefaultPackages::new(packages, runner, default.clone());
    Ok(Some(Arc::new(defaults)))
}

/// Returns `backend` with the packages of `packages.default` for its Python programs, unless there are none.
///
/// # Errors
/// If the configuration or the state directory cannot be used.
pub fn with_defaults(
    backend: Arc<dyn Backend>,
    surface: Surface,
    context: &Context,
) -> Result<Arc<dyn Backend>, Error> {
    Ok(match defaults(Arc::clone(&backend), surface, context)? {
        Some(defaults) => Arc::new(BackendWithDefaults::new(backend, defaults)),
        None => backend,
    })
}

/// Returns `backend`, whose sessions are those of `local`, with the packages of `packages.default` for its sessions, unless there are
/// none.
///
/// # Errors
/// If the configuration or the state directory cannot be used.
pub fn with_session_defaults(
    backend: Arc<dyn Backend>,
    local: &Arc<Local>,
    context: &Context,
) -> Result<Arc<dyn Backend>, Error> {
    match context.parts()?.packages.default.is_empty() {
        true => Ok(backend),
        false => Ok(sessions(backend, local, context)?),
    }
}

/// Returns `backend`, whose sessions are those of `local`, with packages that sessions keep.
///
/// # Errors
/// If the configuration or the state directory cannot be used.
pub fn sessions(
    backend: Arc<dyn Backend>,
    local: &Arc<Local>,
    context: &Context,
) -> Result<Arc<SessionPackages>, Error> {
    let defaults = defaults(Arc::clone(&backend), Surface::Library, context)?;
    let sessions = SessionPackages::new(backend, Arc::clone(local), store(context)?, defaults);
    Ok(Arc::new(sessions))
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
            "a session has the packages of `packages.default`, unless `ringfence session new --with` names others",
            "leave the session out, or start the server with an interpreter that has them (`sandbox.python`)",
        ));
    }
    check_place(spec)
}

/// Rejects a run where packages of this machine do not work.
fn check_place(spec: &RunSpec) -> Result<Ecosystem, Failure> {
    let ecosystem = check_kind(spec)?;
    check_mounts(ecosystem, &spec.request.mounts).map_err(failure)?;
    Ok(ecosystem)
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
        ringfence_packages::Error::Hidden { .. } => Failure::usage(message, error.hint()),
        ringfence_packages::Error::Backend(error) => Failure {
            message,
            ..error.into()
        },
        ringfence_packages::Error::Install(_)
        | ringfence_packages::Error::Store(_)
        | ringfence_packages::Error::NoInterpreter(_)
        | ringfence_packages::Error::Panicked => Failure::refused(message, error.hint()),
    }
}
