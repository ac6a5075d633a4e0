//! Makes the kernel kill programs rather than the init when memory runs out: proc_pid_oom_score_adj(5).

use std::fs::File;
use std::io::{Read, Seek, Write};

use crate::step_error::{Step, StepError};

/// Adjustment of programs: half of the memory that they may use.
const PROGRAMS: i32 = 500;

/// The adjustment of the calling process, which its children inherit when they are forked. Only a process
/// that opened it before it was confined can change it.
#[derive(Debug)]
pub(crate) struct MemoryGuard {
    file: File,
    /// Adjustment of the init, which it may not go below.
    own: i32,
}

impl MemoryGuard {
    /// Opens the adjustment of the calling process.
    pub(crate) fn open() -> Result<Self, StepError> {
        let path = "/proc/self/oom_score_adj";
        let file = File::options().read(true).write(true).open(path);
        Self::of(file.step("open the out-of-memory adjustment")?)
    }

    /// Takes over an open file of it.
    pub(crate) fn of(mut file: File) -> Result<Self, StepError> {
        const STEP: &str = "read the out-of-memory adjustment";
        file.rewind().step(STEP)?;
        let mut text = String::new();
        file.read_to_string(&mut text).step(STEP)?;
        let own = text.trim().parse().map_err(std::io::Error::other).step(STEP)?;
        Ok(Self { file, own })
    }

    /// Returns the open file.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Forks by `fork`, which must not fork again in this process, with the adjustment of programs.
    pub(super) fn forking<T>(&mut self, fork: impl FnOnce() -> T) -> T {
        self.set(self.own.max(PROGRAMS));
        let forked = fork();
        self.set(self.own);
        forked
    }

    fn set(&mut self, adjustment: i32) {
        // An init with the adjustment of its programs works all the same.
        let _ = self.file.rewind();
        let _ = self.file.write_all(adjustment.to_string().as_bytes());
    }
}
