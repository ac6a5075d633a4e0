//! The sessions of a server, with their owners and bounds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Scope;
use ringfence_sandbox::Sandboxes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;
use crate::session::{MAX_FILES, Session, blocking, checked, shown};
use ringfence_multipart::Form;

/// Sessions of one owner, and their bytes: a new one ends the oldest.
const MAX_OF_SCOPE: usize = 256;
const MAX_BYTES_OF_SCOPE: u64 = 1 << 30;

/// Sessions of all owners, each of which takes a descriptor, and their bytes.
const MAX: usize = 2048;
const MAX_BYTES: u64 = 8 << 30;

/// The answer to an upload.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LibreChatUpload")]
pub struct UploadAnswer {
    /// `success`.
    pub message: &'static str,
    pub storage_session_id: String,
    /// The same, for older clients.
    pub session_id: String,
    pub files: Vec<UploadedFile>,
    pub succeeded: usize,
    /// 0: all files are stored, or none.
    pub failed: usize,
}

/// A file that was uploaded.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LibreChatUploadedFile")]
pub struct UploadedFile {
    /// `success`.
    pub status: &'static str,
    #[serde(rename = "fileId")]
    pub file_id: String,
    pub filename: String,
}

/// The sessions of a server.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) sandboxes: Arc<Sandboxes>,
    all: Mutex<BTreeMap<String, Arc<Session>>>,
}

impl Sessions {
    pub(crate) fn new(sandboxes: Arc<Sandboxes>) -> Self {
        Self {
            sandboxes,
            all: Mutex::default(),
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session, which nobody can find before it is published.
    pub(crate) async fn begin(&self, scope: &Scope) -> Result<Session, Error> {
        let sandboxes = Arc::clone(&self.sandboxes);
        let disk = blocking(move || sandboxes.scratch_file().map_err(Error::from)).await?;
        Session::new(scope, disk)
    }

    /// Publishes a session, in the place of its owner's oldest if there are too many.
    pub(crate) fn publish(&self, session: &Arc<Session>) -> Result<(), Error> {
        let mut sessions = self.all();
        sessions.retain(|_, session| !session.is_old());
        let mut own: Vec<_> = sessions
            .values()
            .filter(|other| other.scope == session.scope)
            .cloned()
            .collect();
        own.sort_by_key(|session| session.created);
        let mut length: u64 = session.length() + own.iter().map(|session| session.length()).sum::<u64>();
        let mut count = own.len() + 1;
        for oldest in own {
            if count <= MAX_OF_SCOPE && length <= MAX_BYTES_OF_SCOPE {
                break;
            }
            sessions.remove(&oldest.id);
            length -= oldest.length();
            count -= 1;
        }
        let all: u64 = sessions.values().map(|session| session.length()).sum();
        if sessions.len() >= MAX || all + session.length() > MAX_BYTES {
            return Err(Error::Full);
        }
        sessions.insert(session.id.clone(), Arc::clone(session));
        Ok(())
    }

    /// Returns a session of a scope.
    pub(crate) fn session(&self, scope: &Scope, id: &str) -> Result<Arc<Session>, Error> {
        let found = self.all().get(id).cloned();
        let own = found.filter(|session| session.scope == *scope && !session.is_old());
        own.ok_or_else(|| Error::NoSession(shown(id)))
    }

    /// Stores the files of a form, a body of this media type, in a new session.
    ///
    /// # Errors
    /// If it has none, too many, or one cannot be stored. Then none are kept.
    pub(crate) async fn upload(
        &self,
        scope: &Scope,
        media_type: String,
        body: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<UploadAnswer, Error> {
        let session = Arc::new(self.begin(scope).await?);
        let target = Arc::clone(&session);
        let files = blocking(move || store(&target, &media_type, body.as_ref())).await?;
        self.publish(&session)?;
        Ok(UploadAnswer {
            message: "success",
            storage_session_id: session.id.clone(),
            session_id: session.id.clone(),
            succeeded: files.len(),
            failed: 0,
            files,
        })
    }

    /// Removes a file. The last one ends its session.
    ///
    /// # Errors
    /// If there is none of this id.
    pub(crate) fn remove(&self, scope: &Scope, session: &str, file: &str) -> Result<(), Error> {
        let session = self.session(scope, session)?;
        session.remove(file)?;
        if session.is_empty() {
            self.all().remove(&session.id);
        }
        Ok(())
    }

    /// Removes the sessions of an owner.
    pub(crate) fn clear(&self, scope: &Scope) {
        self.all().retain(|_, session| session.scope != *scope);
    }

    pub(crate) fn close(&self) {
        self.all().clear();
    }
}

/// Stores the files of a form. Blocks on the disk.
fn store(session: &Session, media_type: &str, body: &[u8]) -> Result<Vec<UploadedFile>, Error> {
    let form = Form::parse(media_type, body)?;
    let named = form
        .parts
        .iter()
        .filter_map(|part| Some((part.head.filename.as_deref()?, part.content)));
    let files: Vec<(&str, &[u8])> = named.collect();
    if files.is_empty() || files.len() > MAX_FILES {
        return Err(Error::Invalid(format!(
            "expected 1 to {MAX_FILES} parts with a `filename`, got {}",
            files.len()
        )));
    }
    let mut stored = Vec::new();
    for (name, bytes) in files {
        let name = checked(name)?;
        stored.push(UploadedFile {
            status: "success",
            file_id: session.store(name, bytes)?,
            filename: name.to_owned(),
        });
    }
    Ok(stored)
}
