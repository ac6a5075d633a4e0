//! The program of Python guests.

/// Program of a Python guest. A session compiles the code of its rich results when it first has one.
pub(super) const WORKER: &str = concat!(
    "RICH = r'''",
    include_str!("../../python/rich.py"),
    "'''\n",
    include_str!("../../python/bridge.py"),
    include_str!("../../python/session.py"),
    include_str!("../../python/worker.py")
);
