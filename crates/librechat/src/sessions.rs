//! The sessions of a server, with their owners and bounds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ringfence_policy::Scope;
use ringfence_sandbox::Sandboxes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;
use crate::session::{Disk, MAX_FILES, Session, blocking, checked, shown};
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
    /// The files of all sessions: of those that nobody can find yet, and of those that have ended while somebody reads them.
    disks: Vec<Weak<Disk>>,
}

/// A number of sessions, and their bytes on the disk or about to be there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Used {
    count: usize,
    bytes: u64,
}

impl Used {
    fn of(lengths: impl Iterator<Item = u64>) -> Self {
        lengths.fold(Self::default(), |used, bytes| Self {
            count: used.count + 1,
            bytes: used.bytes.saturating_add(bytes),
        })
    }

    fn without(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_sub(other.count),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn exceeds(self, count: usize, bytes: u64) -> bool {
        self.count > count || self.bytes > bytes
    }
}

impl Table {
    /// Returns what the sessions of one owner or all use, with `bytes` more.
    fn used(&self, scope: Option<&Scope>, bytes: u64) -> Used {
        let disks = self.disks.iter().filter_map(Weak::upgrade);
        let own = disks.filter(|disk| scope.is_none_or(|scope| *scope == disk.scope));
        let used = Used::of(own.map(|disk| disk.length()));
        Used {
            bytes: used.bytes.saturating_add(bytes),
            ..used
        }
    }

    /// Returns the sessions of one owner or all that nobody uses: their end frees their bytes.
    fn removable(&self, scope: Option<&Scope>) -> impl Iterator<Item = &Session> {
        let idle = self
            .published
            .values()
            .filter(|session| Arc::strong_count(session) == 1 && Arc::strong_count(session.disk()) == 1);
        let own = idle.filter(move |session| scope.is_none_or(|scope| session.scope() == scope));
        own.map(|session| &**session)
    }

    /// Ends old sessions until another `bytes` of an owner are within the bounds. Where that is not enough, ends none.
    fn make_room(&mut self, scope: &Scope, bytes: u64) -> Result<(), Error> {
        for (scope, most, most_bytes) in [
            (Some(scope), MAX_OF_SCOPE, MAX_BYTES_OF_SCOPE),
            (None, MAX, MAX_BYTES),
        ] {
            let removable = Used::of(self.removable(scope).map(|session| session.disk().length()));
            if self
                .used(scope, bytes)
                .without(removable)
                .exceeds(most, most_bytes)
            {
                return Err(Error::Full);
            }
        }
        loop {
            let owner = if self
                .used(Some(scope), bytes)
                .exceeds(MAX_OF_SCOPE, MAX_BYTES_OF_SCOPE)
            {
                Some(scope.clone())
            } else if self.used(None, bytes).exceeds(MAX, MAX_BYTES) {
                self.largest()
            } else {
                return Ok(());
            };
            let oldest = owner.and_then(|owner| {
                let oldest = self.removable(Some(&owner)).min_by_key(|session| session.created);
                oldest.map(|session| session.id.clone())
            });
            self.published.remove(&oldest.ok_or(Error::Full)?);
        }
    }

    /// Returns the owner whose removable sessions have the most bytes.
    fn largest(&self) -> Option<Scope> {
        let mut used: BTreeMap<&Scope, u64> = BTreeMap::new();
        for session in self.removable(None) {
            *used.entry(session.scope()).or_default() += session.disk().length();
        }
        let largest = used.into_iter().max_by_key(|(_, bytes)| *bytes);
        largest.map(|(owner, _)| owner.clone())
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
        table.disks.retain(|disk| disk.strong_count() > 0);
        table.disks.push(Arc::downgrade(session.disk()));
        table.make_room(scope, 0)?;
        Ok(session)
    }

    /// Returns a place in a session for this number of bytes. Where its owner has too many, the oldest sessions end.
    pub(crate) fn reserve(&self, session: &Session, bytes: u64) -> Result<u64, Error> {
        let mut table = self.all();
        table.make_room(session.scope(), bytes)?;
        Ok(session.reserve(bytes))
    }

    /// Lets the session's owner find it.
    pub(crate) fn publish(&self, session: &Arc<Session>) {
        self.all()
            .published
            .insert(session.id.clone(), Arc::clone(session));
    }

    /// Returns a session of a scope.
    pub(crate) fn session(&self, scope: &Scope, id: &str) -> Result<Arc<Session>, Error> {
        let found = self.all().published.get(id).cloned();
        let own = found.filter(|session| session.scope() == scope && !session.is_old());
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
        self.all().published.retain(|_, session| session.scope() != scope);
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Publishes a session with this number of bytes, if there is room.
    fn add(table: &mut Table, owner: &str, bytes: u64) -> Result<Arc<Session>, Error> {
        let owner: Scope = owner.parse().unwrap();
        let session = Arc::new(Session::new(&owner, tempfile::tempfile().unwrap()).unwrap());
        table.disks.push(Arc::downgrade(session.disk()));
        table.make_room(&owner, bytes)?;
        session.reserve(bytes);
        table.published.insert(session.id.clone(), Arc::clone(&session));
        Ok(session)
    }

    fn count(table: &Table, owner: &str) -> usize {
        let owner: Scope = owner.parse().unwrap();
        table
            .published
            .values()
            .filter(|session| *session.scope() == owner)
            .count()
    }

    #[test]
    fn the_oldest_sessions_of_an_owner_make_room() {
        let mut table = Table::default();
        let first = add(&mut table, "ann", 400 * MIB).unwrap().id.clone();
        add(&mut table, "ann", 400 * MIB).unwrap();
        add(&mut table, "bob", 1000 * MIB).unwrap();
        add(&mut table, "ann", 400 * MIB).unwrap();
        assert!(!table.published.contains_key(&first));
        assert_eq!((count(&table, "ann"), count(&table, "bob")), (2, 1));
        for _ in 0..2 * MAX_OF_SCOPE {
            add(&mut table, "eve", 0).unwrap();
        }
        assert_eq!(count(&table, "eve"), MAX_OF_SCOPE);
        assert_eq!(count(&table, "ann"), 2);
    }

    #[test]
    fn what_does_not_fit_ends_no_session() {
        let mut table = Table::default();
        add(&mut table, "ann", 600 * MIB).unwrap();
        assert!(matches!(
            add(&mut table, "ann", MAX_BYTES_OF_SCOPE + 1),
            Err(Error::Full)
        ));
        assert_eq!(count(&table, "ann"), 1);
        // The bytes of a session that somebody reads stay, so that its end would free none.
        let read = add(&mut table, "bob", 600 * MIB).unwrap();
        assert!(matches!(add(&mut table, "bob", 600 * MIB), Err(Error::Full)));
        assert_eq!(count(&table, "bob"), 1);
        table.published.remove(&read.id);
        assert!(matches!(add(&mut table, "bob", 600 * MIB), Err(Error::Full)));
        drop(read);
        add(&mut table, "bob", 600 * MIB).unwrap();
    }

    #[test]
    fn where_all_are_full_the_largest_owner_makes_room() {
        let mut table = Table::default();
        for number in 0..8 {
            add(&mut table, &format!("large{number}"), MAX_BYTES_OF_SCOPE / 2).unwrap();
            add(&mut table, &format!("large{number}"), MAX_BYTES_OF_SCOPE / 2).unwrap();
        }
        add(&mut table, "small", MIB).unwrap();
        assert_eq!((count(&table, "small"), table.published.len()), (1, 16));
    }
}
