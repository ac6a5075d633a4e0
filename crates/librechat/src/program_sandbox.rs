//! The sandbox of one program, from its files to those that it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringfence_policy::{Account, Scope, Timeout};
use ringfence_sandbox::files::{Entry, EntryType, FileRange, FileReader, Operation, Written, parse};
use ringfence_sandbox::process::{CommandLine, NewProcess};
use ringfence_sandbox::{NewSandbox, Sandbox, Sandboxes};

use crate::error::Error;
use crate::language::Language;
use crate::session::{DIRECTORY, Download, FileRef, InputFile, MAX_FILES, PROGRAM, Session, checked};
use crate::sessions::Sessions;

/// Levels of directories in which a program's files are found.
const DEPTH: usize = 10;

/// The sandbox of one program, and the session of what it leaves. Dropping it ends the sandbox, with everything in it.
#[derive(Debug)]
pub(crate) struct ProgramSandbox {
    sandboxes: Arc<Sandboxes>,
    scope: Scope,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) session: Arc<Session>,
    /// Files that came with the request, by their names.
    inputs: BTreeMap<String, Input>,
}

/// A file that came with the request, with what its sandbox said of it.
#[derive(Debug)]
struct Input {
    session: Arc<Session>,
    id: String,
    size: u64,
    modified: i64,
}

/// The files after a program.
#[derive(Debug, Default)]
pub(crate) struct RemainingFiles {
    pub(crate) files: Vec<FileRef>,
    /// Names of files that came with the request and are gone.
    pub(crate) deleted: Vec<String>,
    /// Set if there are more than are kept.
    pub(crate) cut: bool,
    /// Number of files for which there is no room beside the others.
    pub(crate) without_room: usize,
    /// Number of files and directories that cannot be read.
    pub(crate) unreadable: usize,
    /// Number of files whose names are not kept, and of directories that are too deep.
    pub(crate) unnamed: usize,
    /// Set if there are more entries than were looked at.
    pub(crate) uncounted: bool,
}

impl RemainingFiles {
    /// Returns the name of a file that is kept, and counts what is not.
    fn name_of<'a>(&mut self, entry: &'a Entry) -> Option<&'a str> {
        let name = entry.path.strip_prefix("/mnt/data/")?;
        let found = match entry.kind {
            EntryType::File if is_cache(name) => return None,
            EntryType::File => Some(name).filter(|_| !entry.lossy),
            EntryType::Directory if is_cache(&format!("{name}/")) => return None,
            EntryType::Directory => {
                self.unreadable += usize::from(entry.unreadable);
                self.unnamed += usize::from(name.split('/').count() > DEPTH);
                return None;
            }
            EntryType::Symlink | EntryType::Fifo | EntryType::Socket | EntryType::Device => return None,
        };
        let name = found.and_then(|name| checked(name).ok());
        self.unnamed += usize::from(name.is_none());
        name
    }
}

impl Drop for ProgramSandbox {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.sandboxes.end(&self.scope, self.sandbox.id().as_str());
    }
}

impl ProgramSandbox {
    /// Describes a sandbox that lives for so long. Its owner may have at most so many.
    pub(crate) fn described(lifetime: Timeout, most: Option<usize>) -> NewSandbox {
        NewSandbox {
            account: Account::Data,
            metadata: BTreeMap::from([("client".to_owned(), "librechat".to_owned())]),
            timeout: Some(lifetime),
            most,
            ..NewSandbox::default()
        }
    }

    /// Makes a sandbox with these files.
    pub(crate) async fn open(
        sessions: &Sessions,
        scope: &Scope,
        files: &[InputFile],
        new: NewSandbox,
    ) -> Result<Self, Error> {
        if files.len() > MAX_FILES {
            return Err(Error::Invalid(format!(
                "a request has at most {MAX_FILES} files, got {}",
                files.len()
            )));
        }
        let mut found = Vec::new();
        for file in files {
            let session = sessions.session(scope, file.session())?;
            found.push((
                checked(&file.name)?,
                file.id.clone(),
                session.open(&file.id)?,
                session,
            ));
        }
        let session = sessions.begin(scope).await?;
        let mut program = Self {
            sandbox: sessions.sandboxes.create(scope, new).await?,
            sandboxes: Arc::clone(&sessions.sandboxes),
            scope: scope.clone(),
            session,
            inputs: BTreeMap::new(),
        };
        for (name, id, content, session) in found {
            let (size, modified) = program.write_input(name, content).await?;
            let input = Input {
                session,
                id,
                size,
                modified,
            };
            program.inputs.insert(name.to_owned(), input);
        }
        Ok(program)
    }

    /// Writes a file of a session. Returns its size and modification time.
    async fn write_input(&self, name: &str, mut content: Download) -> Result<(u64, i64), Error> {
        let operation = Operation::Write {
            path: format!("{DIRECTORY}/{name}"),
            mode: None,
            size: Some(content.size),
        };
        let operating = self.sandbox.operate(&operation).await?;
        while let Some(bytes) = content.next().await? {
            if !operating.write(bytes).await {
                break;
            }
        }
        let written: Written = parse(&operating.whole().await?)?;
        Ok((written.entry.size, written.entry.modified))
    }

    /// Writes a text of the server's making.
    pub(crate) async fn write(&self, path: String, text: &str) -> Result<(), Error> {
        let operation = Operation::Write {
            path,
            mode: None,
            size: None,
        };
        let operating = self.sandbox.operate(&operation).await?;
        // A write that is refused is told by its end.
        let _ = operating.write(text.as_bytes().to_vec()).await;
        operating.whole().await?;
        Ok(())
    }

    /// Writes the text of a program.
    pub(crate) async fn write_program(&self, language: Language, code: &str) -> Result<(), Error> {
        self.write(format!("{DIRECTORY}/{}", language.file()), code).await
    }

    /// Returns a process in the directory of the files.
    pub(crate) fn process(command: Vec<String>, timeout: Option<Timeout>) -> NewProcess {
        // Figures without a display, and no caches among the files.
        let env = [
            ("MPLBACKEND", "Agg"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONUNBUFFERED", "1"),
        ];
        NewProcess {
            command: CommandLine::Words(command),
            cwd: Some(DIRECTORY.to_owned()),
            env: env
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            timeout,
            ..NewProcess::default()
        }
    }

    /// Keeps the files that the program has left: those that came with the request and were not changed keep their ids. What
    /// cannot be kept is counted: the program has ended, and its result counts.
    pub(crate) async fn collect_files(&self, sessions: &Sessions) -> Result<RemainingFiles, Error> {
        let mut left = RemainingFiles::default();
        // One more level shows that there is something.
        let listing = match self.sandbox.list_files(DIRECTORY.to_owned(), DEPTH + 1).await {
            Ok(listing) => listing,
            Err(_) => {
                left.unreadable = 1;
                return Ok(left);
            }
        };
        left.uncounted = !listing.complete;
        let mut names = BTreeSet::new();
        // Files with holes seem larger than the disk.
        let mut room = self.sandbox.disk().0;
        for entry in &listing.entries {
            let Some(name) = left.name_of(entry) else { continue };
            if left.files.len() == MAX_FILES {
                left.cut = true;
                break;
            }
            names.insert(name);
            match self.reference(sessions, &mut room, name, entry).await {
                Err(Error::Sandbox(_)) => left.unreadable += 1,
                Err(Error::Full | Error::NoSpace) => left.without_room += 1,
                file => left.files.push(file?),
            }
        }
        // What lies in a directory that cannot be read is not known to be gone.
        let is_whole = listing.complete && !listing.entries.iter().any(|entry| entry.unreadable);
        if is_whole && !left.cut {
            let gone = self.inputs.keys().filter(|name| !names.contains(name.as_str()));
            left.deleted = gone.cloned().collect();
        }
        if !self.session.is_empty() {
            sessions.publish(&self.session);
        }
        Ok(left)
    }

    /// Returns a reference to a file, which is kept if it is new or changed.
    async fn reference(
        &self,
        sessions: &Sessions,
        room: &mut u64,
        name: &str,
        entry: &Entry,
    ) -> Result<FileRef, Error> {
        let input = self.inputs.get(name);
        let unchanged = input.filter(|input| (input.size, input.modified) == (entry.size, entry.modified));
        Ok(match unchanged {
            Some(input) => input.session.reference(input.id.clone(), name, true),
            None => self
                .session
                .reference(self.keep(sessions, room, name).await?, name, false),
        })
    }

    /// Keeps a file, and returns its id.
    async fn keep(&self, sessions: &Sessions, room: &mut u64, name: &str) -> Result<String, Error> {
        let range = FileRange {
            offset: 0,
            length: None,
        };
        let path = format!("{DIRECTORY}/{name}");
        let mut reader = self.sandbox.read_file(path, range).await?;
        let size = reader.entry.size;
        *room = room.checked_sub(size).ok_or(Error::Full)?;
        let at = sessions.reserve(&self.session, size)?;
        match self.copy(&mut reader, at).await {
            Ok(length) => self.session.add(name, at, length),
            Err(error) => {
                // A disk that is full must not stay so by the part that has fitted.
                self.session.give_back(at).await?;
                Err(error)
            }
        }
    }

    /// Copies a file to a reserved place, and returns the length of what was copied.
    async fn copy(&self, reader: &mut FileReader, at: u64) -> Result<u64, Error> {
        // A process of the program that lives on may write.
        let (size, mut read) = (reader.entry.size, 0);
        while let Some(mut bytes) = reader.next().await? {
            bytes.truncate(usize::try_from(size - read).unwrap_or(usize::MAX));
            if bytes.is_empty() {
                break;
            }
            let length = bytes.len() as u64;
            self.session.write(bytes, at + read).await?;
            read += length;
        }
        Ok(read)
    }
}

/// Returns `true` for what programs leave beside their files: hidden directories, and caches of interpreters.
fn is_cache(name: &str) -> bool {
    let mut parts = name.split('/');
    let file = parts.next_back().unwrap_or_default();
    file.starts_with(PROGRAM)
        || parts.any(|part| part.starts_with('.') || matches!(part, "__pycache__" | "node_modules"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_no_files_of_the_program() {
        for name in [
            ".cache/a",
            "a/__pycache__/b.pyc",
            "node_modules/a/b.js",
            ".main.py",
        ] {
            assert!(is_cache(name), "{name}");
        }
        for name in ["a.csv", ".env", "a/.gitignore", "dir/main.py"] {
            assert!(!is_cache(name), "{name}");
        }
    }
}
