//! The Code API of a server.

use std::sync::Arc;

use ringfence_policy::Scope;
use ringfence_sandbox::Sandboxes;

use crate::error::Error;
use crate::exec::{self, Exec, ExecAnswer};
use crate::session::{Download, FileInfo};
use crate::sessions::{Sessions, UploadAnswer};
use crate::tools::{Programmatic, ProgrammaticAnswer, Tools};

/// The sessions of a server, and the programs that wait for their clients.
#[derive(Debug)]
pub struct Service {
    sessions: Arc<Sessions>,
    tools: Tools,
}

impl Service {
    /// Creates a service that runs programs in sandboxes of this registry.
    pub fn new(sandboxes: Arc<Sandboxes>) -> Self {
        let sessions = Arc::new(Sessions::new(sandboxes));
        Self {
            tools: Tools::new(Arc::clone(&sessions)),
            sessions,
        }
    }

    /// Runs a program in a sandbox of its own.
    ///
    /// # Errors
    /// If a file does not exist, the language is unknown, or the sandbox fails. A program's failure is not an error.
    pub async fn exec(&self, scope: &Scope, asked: Exec) -> Result<ExecAnswer, Error> {
        exec::run(&self.sessions, scope, asked).await
    }

    /// Begins a program with tools, or continues one, until it calls tools or ends. Its owner may have at most so many
    /// sandboxes when it begins: it may wait for minutes.
    ///
    /// # Errors
    /// As [`Service::exec`], if no program waits for the results, and if the owner has too many sandboxes.
    pub async fn programmatic(
        &self,
        scope: &Scope,
        most: Option<usize>,
        asked: Programmatic,
    ) -> Result<ProgrammaticAnswer, Error> {
        self.tools.run(scope, most, asked).await
    }

    /// Stores the files of a form, a body of this media type, in a new session.
    ///
    /// # Errors
    /// If it has none, too many, or one cannot be stored. Then none are kept.
    pub async fn upload(
        &self,
        scope: &Scope,
        media_type: String,
        body: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<UploadAnswer, Error> {
        self.sessions.upload(scope, media_type, body).await
    }

    /// Describes the files of a session.
    ///
    /// # Errors
    /// If there is no session with this id.
    pub fn list(&self, scope: &Scope, session: &str) -> Result<Vec<FileInfo>, Error> {
        Ok(self.sessions.session(scope, session)?.list())
    }

    /// Describes a file.
    ///
    /// # Errors
    /// If there is no such session or file.
    pub fn info(&self, scope: &Scope, session: &str, file: &str) -> Result<FileInfo, Error> {
        self.sessions.session(scope, session)?.info(file)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// If there is no such session or file.
    pub fn open(&self, scope: &Scope, session: &str, file: &str) -> Result<Download, Error> {
        self.sessions.session(scope, session)?.open(file)
    }

    /// Removes a file. The last one ends its session.
    ///
    /// # Errors
    /// If there is no such session or file.
    pub fn remove(&self, scope: &Scope, session: &str, file: &str) -> Result<(), Error> {
        self.sessions.remove(scope, session, file)
    }

    /// Removes the sessions of an owner, and ends its programs that wait.
    pub fn clear(&self, scope: &Scope) {
        self.sessions.clear(scope);
        self.tools.clear(scope);
    }

    /// Removes everything.
    pub fn close(&self) {
        self.sessions.close();
        self.tools.close();
    }
}
