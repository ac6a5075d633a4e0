//! The program of Python guests.

/// Program of a Python guest.
pub(super) const WORKER: &str = concat!(
    include_str!("../../python/bridge.py"),
    include_str!("../../python/session.py"),
    include_str!("../../python/worker.py")
);
