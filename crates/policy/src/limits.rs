//! The limits of one run and their defaults.

use crate::{Bytes, Cpus, Pids, Timeout};

/// What one run may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Wall time until the run is killed.
    pub timeout: Timeout,
    /// How much of stdout, and how much of stderr, is kept.
    pub max_output: Bytes,
    /// Memory of all processes together, memory-backed files included.
    pub memory: Bytes,
    /// Processor time per wall time.
    pub cpus: Cpus,
    /// Processes and threads at once.
    pub pids: Pids,
    /// Bytes in the writable directories together.
    pub disk: Bytes,
}

impl Limits {
    /// The source's figures for time and output (30 s, 10 KB), and a container's for the rest.
    pub const DEFAULT: Self = Self {
        timeout: Timeout::seconds(30),
        max_output: Bytes::kib(10),
        memory: Bytes::mib(256),
        cpus: Cpus::ONE,
        pids: Pids::DEFAULT,
        disk: Bytes::mib(64),
    };
}
