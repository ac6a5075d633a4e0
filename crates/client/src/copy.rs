//! Copies of files and directories between this machine and a sandbox: `ringfence sandbox cp`.

use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use hyper::Method;
use hyper::body::Bytes;
use ringfence_trust::{CopyGuard, CopyRules, Directory, NamedPathError, NamedPaths, Replacement};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client::{Body, Error, Response};
use super::place::target;
use super::sandbox::{PIECE, Sandbox, UNSENT, pieces};
use super::tree::{self, Bounds, LeftOut, OnProgress, Report, TreeError};

/// Permission bits that let some user execute a file.
const EXECUTE: u64 = 0o111;

/// The caller's choices for a copy.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// The rules by which paths of this machine are resolved.
    pub named_paths: NamedPaths,
    /// Maximum size of a directory that comes out of a sandbox, in bytes.
    pub max_size: u64,
    /// Names and paths that a directory which comes out of a sandbox may not bring or change; `None` if it may.
    pub guard: Option<CopyGuard>,
}

/// A finished copy.
#[derive(Debug)]
pub struct Copied {
    /// The copy, for programs.
    pub described: Value,
    /// Number of entries of a directory that were left out, and the first of them.
    pub skipped: u64,
    pub named: Vec<LeftOut>,
}

impl Copied {
    fn file(described: Value) -> Self {
        Self {
            described,
            skipped: 0,
            named: Vec::new(),
        }
    }

    fn tree(report: Report) -> Self {
        Self {
            described: json!(report),
            skipped: report.skipped,
            named: report.named,
        }
    }
}

/// The type of an entry of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryType {
    Directory,
    Symlink,
    /// Anything else.
    File,
    Nothing,
}

impl Sandbox {
    /// Copies a file or directory of this machine, or standard input, into the sandbox.
    ///
    /// A directory goes into one that is there under its own name, or its entries do if `from` ends with `/.`; else it gets
    /// the name `to`. Standard input is a file, or a tar archive where `to` is a directory.
    ///
    /// # Errors
    /// If it cannot be read or stored.
    pub async fn copy_in(
        &self,
        from: &str,
        to: &str,
        options: &CopyOptions,
        progress: OnProgress,
    ) -> Result<Copied, Error> {
        if from == "-" {
            return match to.ends_with('/') || self.entry_type(to).await == EntryType::Directory {
                true => self.send_archive(to, pieces(io::stdin())).await.map(Copied::tree),
                false => self.upload(io::stdin(), to, None, None).await.map(Copied::file),
            };
        }
        let unusable = |source| Error::Source {
            path: from.into(),
            source,
        };
        let found = options.named_paths.resolve(Path::new(from)).map_err(unusable)?;
        if !found.path.is_dir() {
            let file = options.named_paths.open_content(&found.path).map_err(unusable)?;
            let file = file.ok_or_else(|| Error::SpecialFile {
                message: format!("expected a file or a directory, and {from} is a FIFO, a socket or a device"),
                hint: "read it with another program, and copy its output from standard input: `cp - NAME:PATH`",
            })?;
            return self.copy_file_in(file, from, to).await.map(Copied::file);
        }
        let (handle, path) = options
            .named_paths
            .open_directory(&found.path)
            .map_err(unusable)?;
        let to = self.directory_target(from, path.file_name(), to).await?;
        let (sender, receiver) = mpsc::channel(UNSENT);
        let packing = Worker::start(sender, move |sender| {
            let mut out = PieceWriter {
                sender,
                piece: Vec::with_capacity(PIECE),
            };
            tree::pack(&Directory::from(handle), &mut out, progress)
        });
        let sent = self.send_archive(&to, receiver).await;
        match (packing.finish()?, sent) {
            // It had no reader, or what it says is the cause.
            (Err(TreeError::Output(_)), Ok(_)) => Err(Error::Broken("the server read no further".to_owned())),
            (Err(TreeError::Output(_)), Err(error)) => Err(error),
            (Err(error), _) => Err(error.into()),
            (Ok(packed), sent) => sent.map(|unpacked| Copied::tree(unpacked.and(packed))),
        }
    }

    async fn copy_file_in(&self, file: std::fs::File, from: &str, to: &str) -> Result<Value, Error> {
        let found = file.metadata().map_err(|source| Error::Source {
            path: from.into(),
            source: source.into(),
        })?;
        let is_into = !to.ends_with('/') && self.entry_type(to).await == EntryType::Directory;
        let to = target(from, &if is_into { format!("{to}/") } else { to.to_owned() });
        // Pipes and files of /proc do not know their length.
        let size = Some(found.len()).filter(|size| *size > 0);
        let is_executable = found.is_file() && is_executable(found.permissions().mode().into());
        self.upload(file, &to, size, is_executable.then_some(0o755)).await
    }

    /// Returns the path that a directory of this machine gets in the sandbox.
    async fn directory_target(
        &self,
        from: &str,
        name: Option<&std::ffi::OsStr>,
        to: &str,
    ) -> Result<String, Error> {
        let plain = match to.trim_end_matches('/') {
            "" => "/",
            plain => plain,
        };
        let name = name
            .and_then(std::ffi::OsStr::to_str)
            .filter(|_| !is_contents(from));
        match (self.entry_type(plain).await, name) {
            (EntryType::Directory, Some(name)) => Ok(format!("{}/{name}", plain.trim_end_matches('/'))),
            (EntryType::Directory | EntryType::Nothing, _) => Ok(plain.to_owned()),
            (EntryType::Symlink, _) => Err(Error::Copy {
                message: format!("`{plain}` is a symbolic link in the sandbox"),
                hint: "name the directory that it leads to",
            }),
            (EntryType::File, _) => Err(Error::Copy {
                message: format!("`{from}` is a directory, and `{plain}` in the sandbox is none"),
                hint: "name a directory of the sandbox, or a path that does not exist there",
            }),
        }
    }

    /// Sends an archive to be unpacked into a directory of the sandbox.
    async fn send_archive(
        &self,
        to: &str,
        archive: mpsc::Receiver<io::Result<Vec<u8>>>,
    ) -> Result<Report, Error> {
        let path = self.path("/files/archive", &[("path", to)]);
        let sent = self.client().json(Method::PUT, &path, Body::Stream(archive));
        sent.await
    }

    /// Copies a file or directory of the sandbox to this machine, or to standard output: a directory as a tar archive.
    ///
    /// Paths have the same meaning as in [`Sandbox::copy_in`]. Dropping the future leaves no incomplete file.
    ///
    /// # Errors
    /// If it cannot be read or written, or has what must not be on this machine.
    pub async fn copy_out(
        &self,
        from: &str,
        to: &str,
        options: &CopyOptions,
        progress: OnProgress,
    ) -> Result<Copied, Error> {
        let entry = match is_contents(from) {
            true => json!({"type": "directory"}),
            // A read names the error.
            false => self.stat(from).await.unwrap_or_default(),
        };
        let is_directory = entry["type"] == "directory";
        match (is_directory, to) {
            (false, "-") => self.download(from, || Ok(io::stdout())).await.map(received),
            (true, "-") => self.directory_to_stdout(from).await,
            (false, to) => {
                let to = destination(from, to, options)?;
                refuse_special(&to)?;
                self.receive_file(from, &entry, &to).await.map(received)
            }
            (true, to) => self.directory_to(from, to, options, progress).await,
        }
    }

    /// Copies a file of the sandbox to a resolved path, and makes it executable if it is so there.
    async fn receive_file(&self, from: &str, entry: &Value, to: &Path) -> Result<u64, Error> {
        let mut new = None;
        let opened = &mut new;
        let bytes = self
            .download(from, move || Ok(opened.insert(Replacement::begin(to)?)))
            .await?;
        // A link is described itself, and is no reason to fail.
        let is_executable = entry["type"] == "file" && entry["mode"].as_u64().is_some_and(is_executable);
        if let Some(new) = new {
            if is_executable {
                new.make_executable().map_err(Error::Output)?;
            }
            new.commit().map_err(Error::Output)?;
        }
        Ok(bytes)
    }

    async fn directory_to_stdout(&self, from: &str) -> Result<Copied, Error> {
        let name = match is_contents(from) {
            true => PathBuf::new(),
            false => Path::new(from).file_name().unwrap_or_default().into(),
        };
        let passed = self.receive_tree(from, move |input| tree::relay(&name, input, &mut io::stdout()));
        passed.await.map_err(|error| match error {
            Error::Tree(TreeError::Output(error)) => Error::Output(error),
            error => error,
        })
    }

    async fn directory_to(
        &self,
        from: &str,
        to: &str,
        options: &CopyOptions,
        progress: OnProgress,
    ) -> Result<Copied, Error> {
        let found = resolve(Path::new(to), options)?;
        let to = match Path::new(from).file_name() {
            Some(name) if found.is_dir() && !is_contents(from) => resolve(&found.join(name), options)?,
            _ => found,
        };
        if to.exists() && !to.is_dir() {
            return Err(Error::Copy {
                message: format!(
                    "`{from}` is a directory in the sandbox, and {} is none",
                    to.display()
                ),
                hint: "name a directory, or a path that does not exist",
            });
        }
        let rules = rules(&to, options.guard.as_ref())?;
        let most = options.max_size;
        let unpacked = self.receive_tree(from, move |input| {
            // Made with the first bytes: a directory that cannot be read makes none.
            let root = Directory::make(&to).map_err(|source| TreeError::Write {
                path: to.display().to_string(),
                source,
            })?;
            let bounds = Bounds { most, rules };
            tree::unpack(root, input, bounds, progress)
        });
        unpacked.await
    }

    /// Reads a directory of the sandbox as an archive on a thread, which has ended when this is done or dropped.
    async fn receive_tree(
        &self,
        from: &str,
        work: impl FnOnce(&mut dyn Read) -> Result<Report, TreeError> + Send + 'static,
    ) -> Result<Copied, Error> {
        let path = self.path("/files/archive", &[("path", from)]);
        let mut response = self.client().send(Method::GET, &path, Body::Empty, None).await?;
        let (sender, receiver) = mpsc::channel(UNSENT);
        let worker = Worker::start(receiver, |pieces| {
            work(&mut PieceReader {
                pieces,
                piece: Bytes::new(),
            })
        });
        let sent = pass_on(&mut response, sender).await;
        let report = worker.finish()?;
        sent?;
        let report = report?;
        let there = response.trailer("ringfence-left-out");
        let there = there.map_or_else(|| Ok(Report::default()), serde_json::from_slice);
        let there =
            there.map_err(|error| Error::Broken(format!("the report of the copy is invalid: {error}")))?;
        Ok(Copied::tree(report.and(there)))
    }

    /// Returns the type of the entry at a path.
    async fn entry_type(&self, path: &str) -> EntryType {
        match self.stat(path).await {
            Ok(entry) if entry["type"] == "directory" => EntryType::Directory,
            Ok(entry) if entry["type"] == "symlink" => EntryType::Symlink,
            Ok(_) => EntryType::File,
            // The copy itself names the error.
            Err(_) if path == "/" => EntryType::Directory,
            Err(_) => EntryType::Nothing,
        }
    }
}

/// Passes the pieces of an answer on, until its end or until nobody takes them any more.
async fn pass_on(response: &mut Response, sender: mpsc::Sender<Bytes>) -> Result<(), Error> {
    loop {
        let piece = tokio::select! {
            piece = response.piece() => piece?,
            () = sender.closed() => None,
        };
        let Some(piece) = piece else { return Ok(()) };
        // An error means that it is closed, which is noticed above.
        let _ = sender.send(piece).await;
    }
}

/// A thread of a copy. Dropping it waits for its end: whoever drops it has closed its channel.
struct Worker<T>(Option<JoinHandle<T>>);

impl<T: Send + 'static> Worker<T> {
    fn start<C: Send + 'static>(channel: C, work: impl FnOnce(C) -> T + Send + 'static) -> Self {
        Self(Some(std::thread::spawn(move || work(channel))))
    }

    fn finish(mut self) -> Result<T, Error> {
        let ended = self.0.take().and_then(|thread| thread.join().ok());
        ended.ok_or_else(|| Error::Broken("the copy panicked".to_owned()))
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// The pieces of an answer, as a reader on a thread.
struct PieceReader {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.piece.len());
        buffer[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}

/// The pieces of a request, as a writer on a thread.
struct PieceWriter {
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        let sent = self.sender.blocking_send(Ok(piece));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn received(bytes: u64) -> Copied {
    Copied::file(json!({ "bytes": bytes }))
}

const fn is_executable(mode: u64) -> bool {
    mode & EXECUTE != 0
}

/// Returns `true` for a path of which the entries are meant, not the directory itself.
fn is_contents(path: &str) -> bool {
    path == "." || path.ends_with("/.")
}

/// Resolves the path of a copied file: a name below a directory, if `to` is one.
fn destination(from: &str, to: &str, options: &CopyOptions) -> Result<PathBuf, Error> {
    let found = resolve(Path::new(to), options)?;
    match Path::new(from).file_name() {
        Some(name) if to.ends_with('/') || found.is_dir() => resolve(&found.join(name), options),
        _ => Ok(found),
    }
}

/// Refuses to write to a FIFO, whose opening would wait for a reader, and to a socket. Descriptors of this process, such as the pipe
/// of `/dev/stdout`, are open already.
fn refuse_special(to: &Path) -> Result<(), Error> {
    let found = to.symlink_metadata().map(|found| found.file_type());
    match found.is_ok_and(|found| found.is_fifo() || found.is_socket()) {
        false => Ok(()),
        true => Err(Error::SpecialFile {
            message: format!(
                "expected a file, a device or nothing at {}, found a FIFO or a socket",
                to.display()
            ),
            hint: "copy to standard output, and pass that on: `cp NAME:PATH -`",
        }),
    }
}

/// Returns the rules for a directory at a resolved path.
fn rules(to: &Path, guard: Option<&CopyGuard>) -> Result<Option<CopyRules>, Error> {
    let Some(guard) = guard else { return Ok(None) };
    let refused = |message: String| Error::Copy {
        message,
        hint: "copy to another directory and look at it, or pass `--include-protected`",
    };
    if let Some(protected) = guard.protected(to) {
        return Err(refused(format!(
            "`{}` is protected: programs of this machine execute or obey files there",
            protected.display()
        )));
    }
    let rules = guard.rules(to);
    rules.map(Some).map_err(|conflict| refused(conflict.to_string()))
}

fn resolve(path: &Path, options: &CopyOptions) -> Result<PathBuf, Error> {
    let found = options.named_paths.resolve(path);
    let found = found.map_err(|source: NamedPathError| Error::Destination {
        path: path.to_owned(),
        source,
    })?;
    Ok(found.path)
}
