//! The limits of one run and their defaults.

use crate::{Bytes, Cpus, Pids, Timeout};

/// Resource limits of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Wall-clock limit.
    pub timeout: Timeout,
    /// Capture limit for standard output, and for standard error.
    pub max_output: Bytes,
    /// Memory of all processes together, including tmpfs files.
    pub memory: Bytes,
    /// Processor time per wall time.
    pub cpus: Cpus,
    /// Concurrent processes and threads.
    pub pids: Pids,
    /// Total bytes in the writable directories.
    pub disk: Bytes,
}

impl Limits {
    /// Defaults: 30 s, 10 KiB of each output stream, and typical container limits for the rest.
    pub const DEFAULT: Self = Self {
        timeout: Timeout::seconds(30),
        max_output: Bytes::kib(10),
        memory: Bytes::mib(256),
        cpus: Cpus::ONE,
        pids: Pids::DEFAULT,
        disk: Bytes::mib(64),
    };
}
