//! The host directory of a run's output files.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Bytes;

use super::destination::{Destination, Spared};
use super::exchange::Exchange;
use super::guest::Output;
use super::output_files::{self, CollectedFiles};
use crate::spec::OutputDirectory;

/// Limit of the bytes that a program finds in its `/output`: they are memory of this process, not of the program.
const MAX_EARLIER: Bytes = Bytes::mib(64);

/// The host directory of a run's output files, and what it shares with the program's.
#[derive(Debug)]
pub(crate) struct HostOutput {
    host: Destination,
    /// Disk limit of the program.
    disk: u64,
    /// Limit of the bytes that it finds.
    earlier: u64,
    /// `None`: the program's `/output` begins empty.
    shared: Option<Mutex<Filled>>,
}

/// An exchange, with warnings about files that the program could not be given.
#[derive(Debug, Default)]
struct Filled {
    exchange: Exchange,
    warnings: Vec<String>,
}

impl Filled {
    fn is_to_be_collected(&self) -> bool {
        !self.exchange.is_empty() || !self.warnings.is_empty()
    }
}

impl HostOutput {
    /// Opens the directory for a program with this disk limit.
    ///
    /// # Errors
    /// As [`Destination::open`].
    pub(crate) fn open(output: &OutputDirectory, spared: Spared<'_>, disk: Bytes) -> io::Result<Self> {
        Ok(Self {
            host: Destination::open(&output.path, spared)?,
            disk: disk.0,
            earlier: MAX_EARLIER.0.min(disk.0 / 2),
            shared: output.shows_earlier.then(Mutex::default),
        })
    }

    /// Limits the bytes that a program finds in its `/output`.
    pub(crate) fn with_earlier_limit(self, limit: Bytes) -> Self {
        Self {
            earlier: self.earlier.min(limit.0),
            ..self
        }
    }

    /// Returns `true` if programs get files before they begin.
    pub(crate) fn has_files(&self) -> bool {
        self.shared.is_some() && !self.host.is_empty()
    }

    /// Takes the exchange of a session, or gives it back. Has no effect if the program's `/output` begins empty.
    pub(super) fn swap_exchange(&self, with: &mut Exchange) {
        if let Some(shared) = &self.shared {
            std::mem::swap(&mut lock(shared).exchange, with);
        }
    }

    /// Copies the files of earlier programs to the `/output` of a new program that has not begun, given the result of opening
    /// it.
    pub(crate) async fn fill_new(self: &Arc<Self>, output: io::Result<OwnedFd>) {
        // Files that were copied to a lost guest are not in this one.
        self.swap_exchange(&mut Exchange::default());
        self.fill(output).await;
    }

    /// Copies the files of earlier programs to the `/output` of an idle one, given the result of opening it.
    pub(super) async fn fill(self: &Arc<Self>, output: io::Result<OwnedFd>) {
        let host_output = Arc::clone(self);
        let filling = tokio::task::spawn_blocking(move || {
            if let Some(shared) = &host_output.shared {
                let mut filled = lock(shared);
                filled.warnings = filled
                    .exchange
                    .fill(&host_output.host, output, host_output.earlier);
            }
        });
        if let (Err(panicked), Some(shared)) = (filling.await, &self.shared) {
            let why = format!("not all files of `/output` are there: {panicked}");
            lock(shared).warnings.push(why);
        }
    }

    /// Collects a program's output files, and delivers those that it changed.
    pub(super) fn collect(&self, output: &Output) -> CollectedFiles {
        let shares = |shared: &Mutex<Filled>| lock(shared).is_to_be_collected();
        match output.is_empty() && !self.shared.as_ref().is_some_and(shares) {
            true => CollectedFiles::default(),
            false => self.collect_from(output.open()),
        }
    }

    /// Collects files as [`Self::collect`] does, given the result of opening the program's `/output`.
    pub(crate) fn collect_from(&self, output: io::Result<OwnedFd>) -> CollectedFiles {
        let Some(shared) = &self.shared else {
            return output_files::collect_from(output, Some(&self.host), self.disk);
        };
        let mut filled = lock(shared);
        let mut collected = filled.exchange.collect(output, &self.host, self.disk);
        collected.warnings.append(&mut filled.warnings);
        collected
    }
}

fn lock(shared: &Mutex<Filled>) -> MutexGuard<'_, Filled> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
