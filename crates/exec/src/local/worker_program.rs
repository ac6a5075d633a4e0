//! The program of Python guests.

/// Returns the arguments by which a Python serves a session on its file descriptor 3, in a place where it finds its own
/// packages. It reads first [`interpreter_greeting`].
pub fn interpreter_command() -> [&'static str; 7] {
    ["-B", "-X", "utf8", "-c", WORKER, "", "call"]
}

/// Returns the message that makes a session of an interpreter in this working directory.
pub fn interpreter_greeting(directory: &str) -> Vec<u8> {
    let length = u32::try_from(directory.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&length[..], directory.as_bytes(), super::job::SESSION].concat()
}

/// Program of a Python guest. A session compiles the code of its rich results, and of commands, when it first has one.
pub(super) const WORKER: &str = concat!(
    "RICH = r'''",
    include_str!("../../python/rich.py"),
    "'''\n",
    "COMMANDS = r'''",
    include_str!("../../python/commands.py"),
    "'''\n",
    include_str!("../../python/bridge.py"),
    include_str!("../../python/session.py"),
    include_str!("../../python/worker.py")
);
