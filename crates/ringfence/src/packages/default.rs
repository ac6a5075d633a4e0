//! A backend whose Python programs have the configured packages.

use std::sync::{Arc, Mutex, PoisonError};

use ringfence_exec::backend::{self, Backend, Fingerprint, Reason, Running, Unavailable};
use ringfence_exec::local::Connection;
use ringfence_exec::runner::RunSpec;
use ringfence_policy::Target;
use ringfence_tools::toolbox::Surface;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Checkout, Installer, Requirement, describe, has_defaults};
use crate::context::Context;
use crate::failure::{Error, Failure};

/// Returns `backend` with the packages of `packages.default` for its Python programs, unless there are none.
///
/// # Errors
/// If the configuration cannot be used.
pub fn with_defaults(
    backend: Arc<dyn Backend>,
    surface: Surface,
    context: &Context,
) -> Result<Arc<dyn Backend>, Error> {
    let default = &context.parts()?.packages.default;
    if default.is_empty() {
        return Ok(backend);
    }
    Ok(Arc::new(BackendWithPackages {
        installer: Arc::new(Installer::new(Arc::clone(&backend), surface, context)?),
        requirements: default.clone(),
        backend,
        installing: Mutex::default(),
    }))
}

#[derive(Debug)]
struct BackendWithPackages {
    backend: Arc<dyn Backend>,
    installer: Arc<Installer>,
    requirements: Vec<Requirement>,
    /// Installations under way: the first call of a tool may not wait for one as long as it takes.
    installing: Mutex<JoinSet<()>>,
}

impl BackendWithPackages {
    /// Returns a copy of a specification with the packages. Dropping this does not cancel an installation.
    async fn with_packages(&self, spec: &RunSpec) -> Result<(RunSpec, Checkout), Failure> {
        let (done, added) = oneshot::channel();
        let (installer, requirements) = (Arc::clone(&self.installer), self.requirements.clone());
        let mut spec = spec.clone();
        let task = async move {
            let added = installer.add(&mut spec, &requirements, || {}, None).await;
            // Nobody may wait any more.
            let _ = done.send(added.map(|checkout| (spec, checkout)));
        };
        {
            let mut installing = self.installing.lock().unwrap_or_else(PoisonError::into_inner);
            while installing.try_join_next().is_some() {}
            installing.spawn(task);
        }
        added.await.unwrap_or_else(|_| {
            Err(Failure::refused(
                "the task that installs packages panicked",
                "this is a fault of Ringfence; please report it",
            ))
        })
    }
}

impl Backend for BackendWithPackages {
    fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a> {
        // The others have no packages, as the guide says.
        if !has_defaults(spec) {
            return self.backend.run(spec, connection);
        }
        Box::pin(async move {
            let (spec, checkout) = self.with_packages(spec).await.map_err(unavailable)?;
            let mut result = self.backend.run(&spec, connection).await?;
            describe(&checkout, &mut result);
            Ok(result)
        })
    }

    fn unavailable<'a>(&'a self, target: &'a Target) -> Unavailable<'a> {
        self.backend.unavailable(target)
    }

    fn fingerprint(&self, spec: &RunSpec) -> Option<Fingerprint> {
        self.backend.fingerprint(spec)
    }
}

fn unavailable(failure: Failure) -> backend::Error {
    backend::Error {
        reason: Reason::Unavailable,
        message: failure.message,
        hint: failure.hint.into(),
    }
}
