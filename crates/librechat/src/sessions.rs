//! The sessions of a server, with their owners and bounds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ringfence_policy::Scope;
use ringfence_sandbox::Sandboxes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;
use crate::session::{MAX_FILES, Session, blocking, checked, shown};
use ringfence_multipart::Form;

/// Sessions of one owner, and their bytes: more end the oldest.
const MAX_OF_SCOPE: usize = 256;
const MAX_BYTES_OF_SCOPE: u64 = 1 << 30;

/// Sessions of all owners, each of which takes a descriptor, and their bytes: more end the oldest of the owner with the most.
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
    all: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    published: BTreeMap<String, Arc<Session>>,
    /// Sessions that nobody can find yet, whose bytes count already.
    unpublished: Vec<Weak<Session>>,
}

impl Table {
    /// Returns the number of sessions of each owner, and of their bytes.
    fn used(&self) -> BTreeMap<Scope, (usize, u64)> {
        let unpublished = self.unpublished.iter().filter_map(Weak::upgrade);
        let mut used = BTreeMap::new();
        for session in self.published.values().cloned().chain(unpublished) {
            let (count, bytes): &mut (usize, u64) = used.entry(session.scope.clone()).or_default();
            *count += 1;
            *bytes += session.length();
        }
        used
    }

    /// Ends old sessions until another `bytes` of an owner, who has a session for them, are within the bounds.
    fn make_room(&mut self, scope: &Scope, bytes: u64) -> Result<(), Error> {
        loop {
            let used = self.used();
            let (own_count, own) = used.get(scope).copied().unwrap_or_default();
            let own = own.saturating_add(bytes);
            let total: u64 = used.values().map(|(_, bytes)| bytes).sum();
            let count: usize = used.values().map(|(count, _)| count).sum();
            let owner = if own_count > MAX_OF_SCOPE || own > MAX_BYTES_OF_SCOPE {
                scope
            } else if total.saturating_add(bytes) > MAX_BYTES {
                let most = used.iter().max_by_key(|(_, (_, bytes))| bytes);
                most.map_or(scope, |(owner, _)| owner)
            } else if count > MAX {
                let most = used.iter().max_by_key(|(_, (count, _))| count);
                most.map_or(scope, |(owner, _)| owner)
            } else {
                return Ok(());
            };
            let own = self.published.values().filter(|session| session.scope == *owner);
            let oldest = own.min_by_key(|session| session.created);
            let id = oldest.map(|session| session.id.clone()).ok_or(Error::Full)?;
            self.published.remove(&id);
        }
    }
}

impl Sessions {
    pub(crate) fn new(sandboxes: Arc<Sandboxes>) -> Self {
        Self {
            sandboxes,
            all: Mutex::default(),
        }
    }

    fn all(&self) -> MutexGuard<'_, Table> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session, which nobody can find before it is published.
    pub(crate) async fn begin(&self, scope: &Scope) -> Result<Arc<Session>, Error> {
        let sandboxes = Arc::clone(&self.sandboxes);
        let disk = blocking(move || sandboxes.scratch_file().map_err(Error::from)).await?;
        let session = Arc::new(Session::new(scope, disk)?);
        let mut table = self.all();
        table.published.retain(|_, session| !session.is_old());
        table.unpublished.retain(|session| session.strong_count() > 0);
        table.unpublished.push(Arc::downgrade(&session));
        table.make_room(scope, 0)?;
        Ok(session)
    }

    /// Returns a place in a session for this number of bytes. Where its owner has too many, the oldest sessions end.
    pub(crate) fn reserve(&self, session: &Session, bytes: u64) -> Result<u64, Error> {
        let mut table = self.all();
        table.make_room(&session.scope, bytes)?;
        Ok(session.reserve(bytes))
    }

    /// Lets the session's owner find it.
    pub(crate) fn publish(&self, session: &Arc<Session>) {
        let mut table = self.all();
        table
            .unpublished
            .retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(session)));
        table.published.insert(session.id.clone(), Arc::clone(session));
    }

    /// Returns a session of a scope.
    pub(crate) fn session(&self, scope: &Scope, id: &str) -> Result<Arc<Session>, Error> {
        let found = self.all().published.get(id).cloned();
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
        let session = self.begin(scope).await?;
        let at = self.reserve(&session, body.as_ref().len() as u64)?;
        let target = Arc::clone(&session);
        let files = blocking(move || store(&target, &media_type, body.as_ref(), at)).await?;
        self.publish(&session);
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
            self.all().published.remove(&session.id);
        }
        Ok(())
    }

    /// Removes the sessions of an owner.
    pub(crate) fn clear(&self, scope: &Scope) {
        self.all().published.retain(|_, session| session.scope != *scope);
    }

    pub(crate) fn close(&self) {
        self.all().published.clear();
    }
}

/// Stores the files of a form in a reserved place. Blocks on the disk.
fn store(session: &Session, media_type: &str, body: &[u8], mut at: u64) -> Result<Vec<UploadedFile>, Error> {
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
            file_id: session.store(name, bytes, at)?,
            filename: name.to_owned(),
        });
        at += bytes.len() as u64;
    }
    Ok(stored)
}
