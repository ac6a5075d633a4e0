//! The backend of this process.

use std::sync::Arc;

use ringfence_cloud::Cloud;
use ringfence_container::Containers;
use ringfence_container::keepalive::KeptContainer;
use ringfence_exec::backend::{Backend, Error, Fingerprint, Reason, Running, Unavailable};
use ringfence_exec::local::{Connection, FencedRequest, Local};
use ringfence_exec::pyodide::Pyodide;
use ringfence_exec::runner::RunSpec;
use ringfence_policy::{Target, remedy};

use crate::context::Context;
use crate::{cloud, container, failure, pyodide};

/// Runs requests in this process: in the local fence, in containers, in Pyodide, in sandboxes of a
/// service.
#[derive(Debug, Clone)]
pub struct InProcess {
    pub local: Arc<Local>,
    pub containers: Arc<Containers>,
    pub pyodide: Arc<Pyodide>,
    pub cloud: Arc<Cloud>,
}

impl InProcess {
    /// Creates the backend of a process that serves one request.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn for_one(local: Local, context: &Context) -> Result<Self, failure::Error> {
        Ok(Self {
            local: Arc::new(local),
            containers: Arc::new(container::containers(context)?),
            pyodide: Arc::new(pyodide::once(context)?),
            cloud: Arc::new(cloud::cloud(context)?),
        })
    }

    /// Creates the backend of a process that serves many requests, with pools of containers and interpreters.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn for_many(local: Local, context: &Context) -> Result<Self, failure::Error> {
        Ok(Self {
            local: Arc::new(local),
            containers: Arc::new(container::ready(context)?),
            pyodide: Arc::new(pyodide::kept(context)?),
            cloud: Arc::new(cloud::cloud(context)?),
        })
    }

    /// Ends every process and container that no run uses, and waits for that.
    pub async fn close(&self) {
        self.containers.close().await;
        self.pyodide.close().await;
        self.cloud.close().await;
        self.local.close().await;
    }
}

impl Backend for InProcess {
    fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a> {
        let RunSpec {
            request,
            target,
            fence,
            output_directory,
            fallback: _,
        } = spec;
        let (fence, output) = (*fence, output_directory.clone());
        let directory = output.as_ref().map(|output| output.path.clone());
        if request.image.is_some() && *target != Target::Local {
            return Box::pin(std::future::ready(Err(no_image(target))));
        }
        match target {
            Target::Local => Box::pin(async move {
                let running = self.local.run(request, fence, output, connection);
                running.await.map_err(|error| Error::from(&error))
            }),
            Target::Pyodide => Box::pin(async move {
                let running = self.pyodide.run(request, fence, output, connection);
                Ok(running.await?)
            }),
            Target::Container {
                engine,
                keep_alive: None,
            } => {
                let order = FencedRequest { request, fence };
                Box::pin(async move { Ok(self.containers.run(*engine, order, directory, connection).await?) })
            }
            Target::Container {
                engine,
                keep_alive: Some(keep_alive),
            } => Box::pin(async move {
                let container = KeptContainer {
                    engine: *engine,
                    keep_alive,
                };
                let order = FencedRequest { request, fence };
                Ok(self.containers.call(container, order, connection).await?)
            }),
            Target::E2b => Box::pin(self.cloud.run(request, fence, directory, connection)),
        }
    }

    fn unavailable<'a>(&'a self, target: &'a Target) -> Unavailable<'a> {
        match target {
            Target::Container { engine, .. } => Box::pin(async {
                let error = Error::from(self.containers.supervisor(*engine).await.err()?);
                (error.reason == Reason::Unavailable).then_some(error)
            }),
            Target::Local | Target::Pyodide => Box::pin(std::future::ready(None)),
            Target::E2b => Box::pin(std::future::ready(self.cloud.unavailable().map(Error::from))),
        }
    }

    fn fingerprint(&self, spec: &RunSpec) -> Option<Fingerprint> {
        match spec.target {
            Target::Local => self.local.fingerprint(spec.request.language),
            Target::Pyodide => self.pyodide.fingerprint(),
            Target::Container { .. } => Fingerprint::of(self.containers.settings()),
            Target::E2b => self.cloud.fingerprint(),
        }
    }
}

/// Returns the error for an image in a runtime that would leave it out.
fn no_image(target: &Target) -> Error {
    Error {
        reason: Reason::Invalid,
        message: format!(
            "the runtime `{}` has no images of the local store",
            target.runtime()
        ),
        hint: remedy::Run::UseLocal.into(),
    }
}
