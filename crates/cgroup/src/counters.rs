//! A group's counters, read through files that stay open: each reading is one system call.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::{GroupPaths, Usage, Version};

/// Maximum length of a counter's file, which the kernel hands out whole. The longest, `memory.events` and
/// `cpu.stat` of version 2, have a few hundred bytes.
const MAX_TEXT: usize = 2048;

/// The open files of a group's counters; absent where the kernel has none.
#[derive(Debug)]
pub(super) struct Counters {
    version: Version,
    peak_memory: Option<File>,
    memory: Option<File>,
    tasks: Option<Arc<File>>,
    memory_events: Option<File>,
    processor_time: Option<File>,
    task_events: Option<File>,
}

impl Counters {
    /// Returns the counters of a group that does not exist yet.
    pub(super) const fn unopened(version: Version) -> Self {
        Self {
            version,
            peak_memory: None,
            memory: None,
            tasks: None,
            memory_events: None,
            processor_time: None,
            task_events: None,
        }
    }

    /// Opens the counters.
    pub(super) fn open(version: Version, places: &GroupPaths) -> Self {
        let (peak, memory, events, time) = match version {
            Version::V1 => (
                "memory.max_usage_in_bytes",
                "memory.usage_in_bytes",
                "memory.oom_control",
                "cpuacct.usage",
            ),
            Version::V2 => ("memory.peak", "memory.current", "memory.events", "cpu.stat"),
        };
        let open = |folder: &Path, name: &str| File::open(folder.join(name)).ok();
        // Version 1 resets the peak through the same file.
        let peak_memory = File::options()
            .read(true)
            .write(version == Version::V1)
            .open(places.memory.join(peak));
        Self {
            version,
            peak_memory: peak_memory.ok(),
            memory: open(&places.memory, memory),
            tasks: open(&places.pids, "pids.current").map(Arc::new),
            memory_events: open(&places.memory, events),
            processor_time: places.accounting.as_ref().and_then(|folder| open(folder, time)),
            task_events: open(&places.pids, "pids.events"),
        }
    }

    /// Reads the counters. Values that the kernel does not provide are absent, or 0.
    pub(super) fn read(&self) -> Usage {
        let time = self.processor_time.as_ref().and_then(|file| match self.version {
            Version::V1 => number(file).map(|nanoseconds| nanoseconds as f64 / 1e9),
            Version::V2 => keyed(file, "usage_usec").map(|microseconds| microseconds as f64 / 1e6),
        });
        let count = |file: &Option<File>, key| file.as_ref().and_then(|file| keyed(file, key)).unwrap_or(0);
        Usage {
            peak_memory_bytes: self.peak_memory.as_ref().and_then(number),
            cpu_seconds: time,
            oom_kills: count(&self.memory_events, "oom_kill"),
            pids_max_hits: count(&self.task_events, "max"),
        }
    }

    /// Returns the bytes of memory charged now.
    pub(super) fn memory(&self) -> Option<u64> {
        self.memory.as_ref().and_then(number)
    }

    /// Returns the file with the number of processes and threads, including zombies.
    pub(super) fn tasks(&self) -> Option<&Arc<File>> {
        self.tasks.as_ref()
    }

    /// Restarts the peak of memory, which version 2 cannot.
    ///
    /// # Errors
    /// If the kernel does not restart it.
    pub(super) fn reset_peak(&self) -> io::Result<()> {
        match (self.version, &self.peak_memory) {
            (Version::V1, Some(file)) => file.write_all_at(b"0", 0),
            (Version::V1, None) | (Version::V2, _) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Reads a file from its beginning.
pub(super) fn read_text<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    let length = file.read_at(buffer, 0)?;
    std::str::from_utf8(&buffer[..length]).map_err(io::Error::other)
}

fn number(file: &File) -> Option<u64> {
    read_text(file, &mut [0; 32]).ok()?.trim().parse().ok()
}

/// Reads a value from a file of `key number` lines.
fn keyed(file: &File, key: &str) -> Option<u64> {
    let mut buffer = [0; MAX_TEXT];
    let text = read_text(file, &mut buffer).ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}
