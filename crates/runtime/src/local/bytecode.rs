//! The worker's program, compiled once for each interpreter: compiling it takes longer than most programs run.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::served::WORKER;
use crate::interpreter::Python;

/// Reads the compiled worker from the control descriptor, where the job follows it.
pub(super) const BOOT: &str = "import marshal, posix
def read(n):
    b = b''
    while len(b) < n:
        p = posix.read(3, n - len(b))
        p or posix._exit(1)
        b += p
    return b
exec(marshal.loads(read(int.from_bytes(read(4), 'little'))))
";

/// Compiles what comes on its standard input.
const COMPILE: &str = "import marshal, sys
sys.stdout.buffer.write(marshal.dumps(compile(sys.stdin.buffer.read(), '<worker>', 'exec')))
";

/// The compiled worker, behind its length as [`BOOT`] reads it. `None`: it must be compiled by the guest.
pub(super) fn message(python: &Python, cache: Option<&Path>) -> Option<Vec<u8>> {
    let path = place(python, cache?);
    let bytecode = match fs::read(&path) {
        Ok(bytecode) => bytecode,
        Err(_) => {
            let bytecode = compile(python).ok()?;
            // Not kept is compiled again.
            let _ = keep(&path, &bytecode);
            bytecode
        }
    };
    let length = u32::try_from(bytecode.len()).ok()?;
    Some([&length.to_le_bytes()[..], &bytecode].concat())
}

/// Named by everything that the bytecode depends on.
fn place(python: &Python, cache: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (WORKER, &python.executable, python.version).hash(&mut hasher);
    cache.join(format!("worker-{:016x}.bin", hasher.finish()))
}

/// The interpreter is the person's own; what it compiles is ours.
fn compile(python: &Python) -> io::Result<Vec<u8>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "asks the interpreter once, as the probe does"
    )]
    let mut child = std::process::Command::new(&python.executable)
        .args(["-I", "-S", "-c", COMPILE])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(WORKER.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() && !output.stdout.is_empty() {
        Ok(output.stdout)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn keep(path: &Path, bytecode: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, bytecode)
        .and_then(|()| fs::rename(&temporary, path))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))
}
