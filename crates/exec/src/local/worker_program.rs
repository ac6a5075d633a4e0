//! The program of Python guests.

use super::job;

/// Returns the arguments by which a Python serves a session on its file descriptor 3, in a place where it finds its own
/// packages. It reads first [`interpreter_greeting`].
pub fn interpreter_command() -> [&'static str; 7] {
    ["-B", "-X", "utf8", "-c", BOOT, "", "call"]
}

/// Code that runs the program that comes first on descriptor 3, behind its length. As an argument, all who list processes
/// would get it.
macro_rules! boot {
    ($before:literal, $after:literal) => {
        concat!(
            "import marshal, posix
def read(n):
    b = b''
    while len(b) < n:
        p = posix.read(3, n - len(b))
        p or posix._exit(1)
        b += p
    return b
exec(",
            $before,
            "read(int.from_bytes(read(4), 'little'))",
            $after,
            ")
"
        )
    };
}

/// Boot code for a program's text.
const BOOT: &str = boot!("compile(", ", '<worker>', 'exec')");

/// Boot code for a program's bytecode.
pub(super) const BYTECODE_BOOT: &str = boot!("marshal.loads(", ")");

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
    let program = text(INTERPRETER);
    [&program, &text(directory)[..], &texts, imports, job::SESSION].concat()
}

/// The imports of an interpreter before its first code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imports {
    Nothing,
    /// The packages that are mounted at [`ringfence_policy::PACKAGES`].
    Packages,
}

macro_rules! source {
    ($name:literal) => {
        include_str!(concat!("../../python/", $name, ".py"))
    };
}

/// Code that a session compiles when it first has a rich result, or what notebooks have beyond Python.
const RICH: &str = source!("rich");
const COMMANDS: &str = concat!(source!("commands"), source!("magics"));

/// Program of an interpreter that gets the other code after it.
const INTERPRETER: &str = concat!(source!("bridge"), source!("session"), source!("worker"));

/// Program of a Python guest, with the code that it compiles later.
pub(super) const WORKER: &str = concat!(
    "RICH = r'''",
    source!("rich"),
    "'''\nCOMMANDS = r'''",
    source!("commands"),
    source!("magics"),
    "'''\n",
    source!("bridge"),
    source!("session"),
    source!("worker")
);
