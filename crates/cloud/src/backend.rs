//! The backend. A run ends with its sandbox, even if its caller has gone.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_exec::backend::{self, Fingerprint};
use ringfence_exec::key::Key;
use ringfence_exec::local::{Connection, Fence};
use ringfence_network::secret::KeyError;
use ringfence_policy::{ExecutionResult, Request};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::error::Error;
use crate::run::{Order, run};
use crate::settings::{Settings, SettingsError};

/// Runs requests in sandboxes of a service. Nothing is sent before the first request.
#[derive(Debug)]
pub struct Cloud {
    settings: Result<Arc<Settings>, SettingsError>,
    /// Names that no output file may have.
    protected: Arc<Vec<String>>,
    runs: Mutex<JoinSet<()>>,
}

impl Cloud {
    /// Creates the backend. Invalid settings fail only the requests, because their variables may be meant for
    /// other programs.
    pub fn new(settings: Result<Settings, SettingsError>, protected: Vec<String>) -> Self {
        Self {
            settings: settings.map(Arc::new),
            protected: Arc::new(protected),
            runs: Mutex::default(),
        }
    }

    /// Returns the error that prevents all requests, as far as it is known without asking the service.
    pub fn unavailable(&self) -> Option<Error> {
        match &self.settings {
            Err(error) => Some(error.clone().into()),
            Ok(settings) => match &settings.key {
                Key::Missing(variable) => Some(Error::NoKey(KeyError::Missing(variable.clone()))),
                Key::Known(_) | Key::File(..) | Key::Needless => None,
            },
        }
    }

    /// Returns the fingerprint of the settings that decide how requests run.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.settings.as_ref().ok()?.fingerprint()
    }

    /// Runs a request in a sandbox of its own, which is killed afterwards, even if the returned future is dropped.
    ///
    /// # Errors
    /// If the request could not be run at all. The program's own failure is not an error.
    pub async fn run(
        &self,
        request: &Request,
        fence: Fence,
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Result<ExecutionResult, backend::Error> {
        if let Some(error) = self.unavailable() {
            return Err(error.into());
        }
        let settings = self.settings.clone().map_err(Error::from)?;
        // Held while the result is awaited.
        let (_waiting, caller) = watch::channel(false);
        let order = Order {
            request: request.clone(),
            fence,
            output_directory,
            protected: Arc::clone(&self.protected),
            connection,
            caller,
        };
        let (sender, receiver) = oneshot::channel();
        {
            let mut runs = self.runs();
            while runs.try_join_next().is_some() {}
            runs.spawn(async move {
                // Nobody may wait any more.
                let _ = sender.send(run(settings, order).await);
            });
        }
        receiver.await.unwrap_or_else(|_| Err(Error::Lost.into()))
    }

    /// Waits until all runs have ended and killed their sandboxes.
    pub async fn close(&self) {
        let mut runs = std::mem::take(&mut *self.runs());
        while runs.join_next().await.is_some() {}
    }

    fn runs(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
