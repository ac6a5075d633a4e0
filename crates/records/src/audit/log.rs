//! The audit log of a directory: a chain of all uses of tools, and the host log, which outlasts it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_network::redact::Redactor;
use rustix::fs::StatVfsMountFlags;
use rustix::process::geteuid;

use super::chain::{Chain, Crowded, Limits};
use super::digest::Link;
use super::entry::{Answered, Decision, Entry, Outcome, Written, WrittenAnswer};
use super::error::Error;
use super::files;
use super::refusals::{Refusal, Refusals};

/// Free bytes of the disk from which on records fit.
const MIN_ROOM: u64 = 64 * 1024;

/// An open audit log.
///
/// A use that ran something on the host is in both chains. The host log has only such commands and people's
/// answers, so that no other use can push them out; while it is full of young records, no command begins.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    limits: Limits,
    uses: Chain,
    /// Opened with the first command: most processes run none.
    host: Mutex<Option<Chain>>,
    refusals: Mutex<Refusals>,
}

impl Log {
    /// Opens the log in `directory`, and repairs an end that a crash has torn.
    ///
    /// # Errors
    /// If the directory is open to other users, the log cannot be written, or its end is damaged.
    pub fn open(directory: &Path, limits: Limits) -> Result<Self, Error> {
        Ok(Self {
            directory: directory.to_owned(),
            limits,
            uses: Chain::open(directory, limits, Duration::ZERO)?,
            host: Mutex::default(),
            refusals: Mutex::default(),
        })
    }

    /// Appends the record of a use; it is in the file on return. Returns `None` for a refusal beyond the rate
    /// limit, which is counted and recorded soon after.
    ///
    /// # Errors
    /// If the whole record is not in the log. The tool's answer must then not be sent.
    pub fn append(&self, entry: &Entry<'_>) -> Result<Option<Link>, Error> {
        if entry.decision == Decision::Refused {
            return self.refused(entry);
        }
        self.settle()?;
        let written = Written::from(entry);
        if entry.on_host {
            let crowded = match entry.outcome {
                Outcome::Begun => Crowded::Refuse,
                Outcome::Answered | Outcome::Failed | Outcome::Cancelled => Crowded::Append,
            };
            let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
            let chain = match host.take() {
                Some(chain) => chain,
                None => open_host(&self.directory, self.limits)?,
            };
            host.insert(chain).append(&written, crowded)?;
        }
        self.uses.append(&written, Crowded::Refuse).map(Some)
    }

    /// Returns `false` if the disk of the log is full, or its file system read-only: no use could be recorded.
    pub fn has_room(&self) -> bool {
        // Of a file system that cannot be asked, a record will tell.
        rustix::fs::statvfs(&self.directory).map_or(true, |disk| {
            // One without a size, such as a tmpfs without a limit.
            if disk.f_blocks == 0 {
                return true;
            }
            let blocks = if geteuid().is_root() {
                disk.f_bfree
            } else {
                disk.f_bavail
            };
            let writable = !disk.f_flag.contains(StatVfsMountFlags::RDONLY);
            writable && blocks.saturating_mul(disk.f_frsize) >= MIN_ROOM
        })
    }

    /// Closes the log without a sync to the disk, for a process that lives for one record. The kernel writes the
    /// record back.
    pub fn close_without_sync(self) {
        self.uses.leave_unsynced();
    }

    fn refused(&self, entry: &Entry<'_>) -> Result<Option<Link>, Error> {
        let error = entry.error.unwrap_or("unknown");
        let refusal = self.refusals().add(entry.who.scope, error, Instant::now());
        match refusal {
            Refusal::Recorded => self.uses.append(&Written::from(entry), Crowded::Refuse).map(Some),
            Refusal::Due(counted) => self.uses.append(&counted, Crowded::Refuse).map(|_| None),
            Refusal::Counted => Ok(None),
        }
    }

    /// Records the pending counts of refusals.
    fn settle(&self) -> Result<(), Error> {
        let counts = self.refusals().take();
        counts
            .iter()
            .try_for_each(|counted| self.uses.append(counted, Crowded::Refuse).map(drop))
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A failure cannot be reported any more.
        let _ = self.settle();
    }
}

fn open_host(directory: &Path, limits: Limits) -> Result<Chain, Error> {
    Chain::open(&files::host(directory), limits, limits.keep_host)
}

/// A writer of people's answers to the host log of a directory.
#[derive(Debug)]
pub struct AnswerLog {
    directory: PathBuf,
    limits: Limits,
    redactor: Redactor,
}

impl AnswerLog {
    /// Creates a writer to the log of `directory`, which is opened for each answer; `redactor` redacts the
    /// questions.
    pub fn new(directory: PathBuf, limits: Limits, redactor: Redactor) -> Self {
        Self {
            directory,
            limits,
            redactor,
        }
    }

    /// Appends the record of an answer; it is in the file on return.
    pub fn append(&self, answer: &Answered<'_>) -> Result<(), Error> {
        let text = self.redactor.redact(answer.text);
        let answer = Answered {
            text: &text,
            ..*answer
        };
        // Appended beyond the limit: answers come from people, who cannot flood the log.
        let chain = open_host(&self.directory, self.limits)?;
        chain
            .append(&WrittenAnswer::now(&answer), Crowded::Append)
            .map(drop)
    }
}
