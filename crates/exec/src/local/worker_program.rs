//! The program of Python guests.

use super::job;

/// Returns the arguments by which a Python serves a session on its file descriptor 3, in a place where it finds its own
/// packages. It reads first [`interpreter_greeting`].
pub fn interpreter_command() -> [&'static str; 7] {
    ["-B", "-X", "utf8", "-c", INTERPRETER, "", "call"]
}

/// Returns the message that makes a session of an interpreter in this working directory.
pub fn interpreter_greeting(directory: &str, imports: Imports) -> Vec<u8> {
    let text = |text: &str| {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
        [&length[..], text.as_bytes()].concat()
    };
    let imports = match imports {
        Imports::Nothing => &[],
        Imports::Packages => job::PRELOADED,
    };
    let texts = [job::TEXTS, &text(RICH), &text(COMMANDS)].concat();
    [&text(directory)[..], &texts, imports, job::SESSION].concat()
}

/// The imports of an interpreter before its first code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imports {
    Nothing,
    /// The packages that are mounted at [`ringfence_policy::PACKAGES`].
    Packages,
}

/// Code of rich results, which a session compiles when it first has one.
const RICH: &str = include_str!("../../python/rich.py");

/// Code of what notebooks have beyond Python, which a session compiles when it first has that.
const COMMANDS: &str = concat!(
    include_str!("../../python/commands.py"),
    include_str!("../../python/magics.py")
);

/// Program of an interpreter that gets the other code in its greeting: Python keeps an argument many times.
const INTERPRETER: &str = concat!(
    include_str!("../../python/bridge.py"),
    include_str!("../../python/session.py"),
    include_str!("../../python/worker.py")
);

/// Program of a Python guest, with the code that it compiles later.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_text_is_kept_with_one_byte_for_a_character() {
        assert!(WORKER.is_ascii());
    }

    /// Longer texts would wait for an interpreter that may never read.
    #[test]
    fn a_greeting_fits_into_a_bridge() {
        assert!(interpreter_greeting(&"d".repeat(4096), Imports::Packages).len() < 60 * 1024);
    }
}
