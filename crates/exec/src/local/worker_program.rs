//! The program of Python guests.

use super::job;

/// Returns the arguments by which a Python serves a session on its file descriptor 3, in a place where it finds its own
/// packages. It reads first [`interpreter_greeting`].
pub fn interpreter_command() -> [&'static str; 7] {
    ["-B", "-X", "utf8", "-c", WORKER, "", "call"]
}

/// Returns the message that makes a session of an interpreter in this working directory.
pub fn interpreter_greeting(directory: &str, imports: Imports) -> Vec<u8> {
    let length = u32::try_from(directory.len()).unwrap_or(u32::MAX).to_le_bytes();
    let imports = match imports {
        Imports::Nothing => &[],
        Imports::Packages => job::PRELOADED,
    };
    [&length[..], directory.as_bytes(), imports, job::SESSION].concat()
}

/// The imports of an interpreter before its first code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imports {
    Nothing,
    /// The packages that are mounted at [`ringfence_policy::PACKAGES`].
    Packages,
}

/// Program of a Python guest. A session compiles the code of its rich results, and of what notebooks have beyond
/// Python, when it first has one.
pub(super) const WORKER: &str = concat!(
    "RICH = r'''",
    include_str!("../../python/rich.py"),
    "'''\n",
    "COMMANDS = r'''",
    include_str!("../../python/commands.py"),
    include_str!("../../python/magics.py"),
    "'''\n",
    include_str!("../../python/bridge.py"),
    include_str!("../../python/session.py"),
    include_str!("../../python/worker.py")
);
