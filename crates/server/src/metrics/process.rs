//! Memory and descriptors of the server's process, by the names that Prometheus has for them.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::text::{Kind, Text};

/// Renders the kernel's figures about this process. Missing figures are left out.
pub(super) fn render(text: &mut Text) {
    let mut gauge = |name, help, value: Option<u64>| {
        if let Some(value) = value {
            text.family(name, Kind::Gauge, help);
            text.sample(name, &[], value);
        }
    };
    gauge(
        "process_resident_memory_bytes",
        "Resident memory of the server.",
        resident_memory(),
    );
    gauge(
        "process_open_fds",
        "Open file descriptors of the server.",
        open_descriptors(),
    );
    gauge(
        "process_max_fds",
        "Maximum number of open file descriptors.",
        getrlimit(Resource::Nofile).current,
    );
}

fn resident_memory() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Returns the number of descriptors, without the one that lists them.
fn open_descriptors() -> Option<u64> {
    let all = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(all.saturating_sub(1))
}
