//! Files of a sandbox: operations that its init performs inside, with the rights of its programs.
//!
//! Their answers are bytes of the sandbox: bounded, and checked to be of the right shape.

use std::time::Duration;

use ringfence_container::init::{Process, ProcessEvent};
use ringfence_exec::local::Stream;
use ringfence_jail::init::files::{ListEnd, ListLine};
use ringfence_jail::init::frames::{End, Fate, Program, Start};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::error::Error;
use super::pause::Clock;
use super::place::MemoryKills;
use super::process::{FOR_EVER, SIGKILL};
use super::sandbox::Sandbox;

pub use ringfence_jail::init::files::{
    Entry, EntryType, Event, EventType, FileError, FileErrorKind, FileIdentity, FileRange, MadeDirectory,
    Operation, TreeReport, WatchDepth, Written,
};

/// Maximum length of an answer that is read whole, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// Time for an operation to make progress.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Entries of a list, and its length in bytes: more is cut.
const MAX_LISTED: usize = 10_000;
const MAX_LIST: usize = 8 << 20;
/// Maximum length of an error.
const MAX_ERROR: usize = 64 * 1024;
/// Maximum length of a line.
const MAX_LINE: usize = 64 * 1024;

/// The error of an operation that a program of the sandbox ended by SIGTERM, if it had staged a file (errno(3)).
const ECANCELED: i32 = 125;
/// Of signal(7).
const SIGTERM: i32 = 15;

/// A running operation, with a stream of output. Dropping it ends the operation, which leaves no file that is incomplete.
#[derive(Debug)]
pub struct Operating {
    process: Process,
    /// Output that was received with the first line.
    unread: Vec<u8>,
    error: Vec<u8>,
    done: bool,
    clock: Clock,
    memory_kills: MemoryKills,
}

/// The files of a sandbox, for one of its users. Operations have that user's rights; what the user makes where root alone may
/// write is made for the user.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    sandbox: &'a Sandbox,
    user: Option<&'a str>,
}

/// Entries of a directory, at most 10,000 and 8 MiB.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// Set if nothing is missing behind these but entries of directories that cannot be read.
    pub complete: bool,
    /// Path behind which the next entries are listed; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Listing {
    /// Ends the list with what fits, to be gone on with behind its last path that is text.
    fn cut(mut self) -> Self {
        let last = self.entries.iter().rposition(|entry| !entry.lossy);
        if let Some(last) = last {
            self.entries.truncate(last + 1);
            self.next = self.entries.last().map(|entry| entry.path.clone());
        }
        self
    }
}

/// A file that is being read.
#[derive(Debug)]
pub struct FileReader {
    pub entry: Entry,
    operating: Operating,
}

impl Sandbox {
    /// Returns the sandbox's files, as `user` may use them, or the sandbox's own user if `None`.
    pub const fn files_of<'a>(&'a self, user: Option<&'a str>) -> Files<'a> {
        Files { sandbox: self, user }
    }

    /// Starts an operation.
    ///
    /// # Errors
    /// If the sandbox has ended, is paused, or too busy.
    pub async fn operate(&self, operation: &Operation) -> Result<Operating, Error> {
        self.files_of(None).operate(operation).await
    }

    /// Performs an operation whose answer is one value.
    ///
    /// # Errors
    /// If it fails.
    pub async fn change<T: DeserializeOwned>(&self, operation: &Operation) -> Result<T, Error> {
        self.files_of(None).change(operation).await
    }

    /// Removes a file, or a directory with everything in it.
    ///
    /// # Errors
    /// If it fails.
    pub async fn remove_file(&self, path: String) -> Result<(), Error> {
        self.files_of(None).remove(path).await
    }

    /// Lists a directory; `depth` 1 is its own entries.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn list_files(&self, path: String, depth: usize) -> Result<Listing, Error> {
        self.files_of(None).list(path, depth, None).await
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn read_file(&self, path: String, range: FileRange) -> Result<FileReader, Error> {
        self.files_of(None).read(path, range).await
    }
}

impl Files<'_> {
    /// Starts an operation.
    ///
    /// # Errors
    /// As [`Sandbox::operate`], and if there is no such user.
    pub async fn operate(&self, operation: &Operation) -> Result<Operating, Error> {
        let sandbox = self.sandbox;
        let _starting = sandbox.starting().await?;
        let start = Start {
            arguments: operation.arguments(),
            input: true,
            user: sandbox.other_user(self.user.map(str::to_owned))?,
            ..Start::new(Program::Files, "/".to_owned(), FOR_EVER)
        };
        let memory_kills = sandbox.memory_kills();
        let started = sandbox.init().start(start, None).await;
        Ok(Operating {
            process: started.map_err(|error| Error::no_user(error, self.user))?,
            unread: Vec::new(),
            error: Vec::new(),
            done: false,
            clock: sandbox.pauses().clock(),
            memory_kills,
        })
    }

    /// Performs an operation whose answer is one value.
    ///
    /// # Errors
    /// If it fails.
    pub async fn change<T: DeserializeOwned>(&self, operation: &Operation) -> Result<T, Error> {
        let answer = self.operate(operation).await?.whole().await?;
        parse(&answer)
    }

    /// Removes a file, or a directory with everything in it.
    ///
    /// # Errors
    /// If it fails.
    pub async fn remove(&self, path: String) -> Result<(), Error> {
        let operating = self.operate(&Operation::Remove { path }).await?;
        operating.whole().await.map(drop)
    }

    /// Lists a directory; `depth` 1 is its own entries. `after` is `next` of the list before.
    ///
    /// # Errors
    /// If it cannot be read, or `after` is not the path of an entry below it.
    pub async fn list(&self, path: String, depth: usize, after: Option<String>) -> Result<Listing, Error> {
        let operation = Operation::List { path, depth, after };
        let mut operating = self.operate(&operation).await?;
        operating.end_input();
        let mut listing = Listing {
            entries: Vec::new(),
            complete: false,
            next: None,
        };
        let (mut lines, mut bytes, mut has_ended) = (Vec::new(), 0, false);
        while let Some(piece) = operating.next_with_deadline().await? {
            bytes += piece.len();
            lines.extend(piece);
            let Some(end) = lines.iter().rposition(|byte| *byte == b'\n') else {
                continue;
            };
            let rest = lines.split_off(end + 1);
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                match parse(line)? {
                    ListLine::Entry(_) if listing.entries.len() == MAX_LISTED => return Ok(listing.cut()),
                    ListLine::Entry(entry) => listing.entries.push(entry),
                    ListLine::End(ListEnd { complete, .. }) => {
                        (listing.complete, has_ended) = (complete, true)
                    }
                }
            }
            lines = rest;
            if bytes > MAX_LIST && !has_ended {
                return Ok(listing.cut());
            }
        }
        Ok(listing)
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn read(&self, path: String, range: FileRange) -> Result<FileReader, Error> {
        let mut operating = self.operate(&Operation::Read { path, range }).await?;
        let entry = parse(&operating.first_line().await?)?;
        Ok(FileReader { entry, operating })
    }
}

impl FileReader {
    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// If it cannot be read any further.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.operating.next().await
    }
}

impl Operating {
    /// Sends input. `false` if the operation takes no more.
    pub async fn write(&self, bytes: Vec<u8>) -> bool {
        self.process.stdin.send(bytes).await.is_ok()
    }

    /// Ends the input.
    pub fn end_input(&mut self) {
        drop(self.take_input());
    }

    /// Takes the input. Dropping the sender ends the input.
    pub(crate) fn take_input(&mut self) -> mpsc::Sender<Vec<u8>> {
        let (closed, _) = mpsc::channel(1);
        std::mem::replace(&mut self.process.stdin, closed)
    }

    /// Returns the first line of output, without its end. What follows is left to [`Operating::next`].
    pub(crate) async fn first_line(&mut self) -> Result<Vec<u8>, Error> {
        let mut line = Vec::new();
        loop {
            match self.next_with_deadline().await? {
                Some(bytes) if line.len() <= MAX_LINE => line.extend(bytes),
                _ => return Err(malformed()),
            }
            if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                self.unread = line.split_off(end + 1);
                line.truncate(end);
                return Ok(line);
            }
        }
    }

    /// Returns the next piece of output; `None` after a success. Cancel safe.
    ///
    /// # Errors
    /// If the operation failed.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if !self.unread.is_empty() {
            return Ok(Some(std::mem::take(&mut self.unread)));
        }
        while !self.done {
            match self.process.events.recv().await {
                Some(ProcessEvent::Output(chunk)) => match chunk.stream {
                    Stream::Stdout => return Ok(Some(chunk.bytes)),
                    Stream::Stderr if self.error.len() < MAX_ERROR => self.error.extend(chunk.bytes),
                    Stream::Stderr => {}
                },
                Some(ProcessEvent::Drained) => {}
                Some(ProcessEvent::Ended(end)) => {
                    self.done = true;
                    if end.fate != Fate::Ended(0) {
                        return Err(self.failure(&end));
                    }
                }
                Some(ProcessEvent::Lost(lost)) => return Err(Error::Broken(lost.to_string())),
                None => return Err(Error::Broken("the sandbox has ended".to_owned())),
            }
        }
        Ok(None)
    }

    /// Returns the next chunk of output. Fails after a timeout, because a program may have stopped the
    /// operation.
    pub(crate) async fn next_with_deadline(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let clock = self.clock.clone();
        let next = clock.timeout(TIMEOUT, self.next()).await;
        next.unwrap_or_else(|| Err(Error::Broken("a file operation makes no progress".to_owned())))
    }

    /// Ends the input, and returns all output.
    ///
    /// # Errors
    /// If the operation failed, or its output is longer than 64 MiB.
    pub async fn whole(mut self) -> Result<Vec<u8>, Error> {
        self.end_input();
        let mut whole = Vec::new();
        while let Some(bytes) = self.next_with_deadline().await? {
            if whole.len() + bytes.len() > MAX_ANSWER {
                return Err(malformed());
            }
            whole.extend(bytes);
        }
        Ok(whole)
    }

    /// Returns the report on an archive, once all of it has been read.
    ///
    /// # Errors
    /// If there is none.
    pub fn report(&self) -> Result<TreeReport, Error> {
        parse(&self.error)
    }

    fn failure(&self, end: &End) -> Error {
        let lacks_memory = end.out_of_memory || self.memory_kills.any();
        failure(&self.error, &end.fate, lacks_memory)
    }
}

/// Returns the error that a failed operation reports, or for which it was killed. `lacks_memory`: the kernel killed a process for lack
/// of memory meanwhile.
fn failure(reported: &[u8], fate: &Fate, lacks_memory: bool) -> Error {
    match (serde_json::from_slice::<FileError>(reported), fate) {
        (Ok(error), _) if error.errno == ECANCELED => Error::FileKilled(SIGTERM),
        (Ok(error), _) => Error::File(Box::new(error)),
        (Err(_), Fate::Ended(status)) if *status == -SIGKILL && lacks_memory => Error::FileMemory,
        (Err(_), Fate::Ended(status)) if *status < 0 => Error::FileKilled(status.saturating_neg()),
        (Err(_), Fate::Ended(_) | Fate::NotStarted { .. } | Fate::Lost) => {
            Error::Broken("a file operation failed without an error".to_owned())
        }
    }
}

/// Parses an answer of the sandbox.
///
/// # Errors
/// If it is malformed.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|_| malformed())
}

fn malformed() -> Error {
    Error::Broken("its answer to a file operation is malformed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn an_operation_that_a_limit_ended_says_so() {
        let check = |reported: &str, status: i32, lacks_memory: bool, expected: ErrorKind| {
            let error = failure(reported.as_bytes(), &Fate::Ended(status), lacks_memory);
            assert_eq!(error.kind(), expected, "{reported} {status}");
        };
        let reported = |kind: &str, errno: i32| {
            format!(r#"{{"kind": "{kind}", "errno": {errno}, "path": "/a", "message": "m"}}"#)
        };
        check(&reported("no_space", 28), 1, false, ErrorKind::LimitExceeded);
        for errno in [11, 12, 23, 24] {
            check(&reported("other", errno), 1, false, ErrorKind::LimitExceeded);
        }
        check(&reported("other", 5), 1, false, ErrorKind::InvalidArguments);
        check(&reported("other", ECANCELED), 1, false, ErrorKind::Conflict);
        check("", -SIGKILL, true, ErrorKind::LimitExceeded);
        check("", -SIGKILL, false, ErrorKind::Conflict);
        check("", -15, true, ErrorKind::Conflict);
        check("", 1, false, ErrorKind::Internal);
    }
}
