//! The hook that makes a program its own launcher.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::launcher::launcher_main;

/// First argument of a launcher process.
pub(crate) const LAUNCHER_ARGUMENT: &str = "__jail";

/// Set once [`init`] has returned.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Turns the process into a launcher if it was started as one, and never returns then; otherwise records that
/// this program can be started as one.
///
/// Call it first in `main`, whatever the arguments are, before any thread starts. [`crate::Launcher::start`]
/// and [`crate::Launcher::spawn`] execute this very program anew: without the hook the new process would run
/// `main`, and start the next one.
pub fn init() {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == LAUNCHER_ARGUMENT)
    {
        launcher_main();
    }
    INSTALLED.store(true, Ordering::Release);
}

/// Returns `true` once [`init`] has been called.
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}
