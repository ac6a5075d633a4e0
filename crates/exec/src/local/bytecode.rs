//! The worker program's bytecode, cached per interpreter: compiling it takes longer than most programs run.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::fenced;
use super::settings::Settings;
use super::worker_program::WORKER;
use crate::interpreter::{Python, Question};

/// Compiles standard input and prints the bytecode in hexadecimal.
const COMPILE: &str = "import marshal, sys
sys.stdout.write(marshal.dumps(compile(sys.stdin.buffer.read(), '<worker>', 'exec')).hex())
";

/// Returns the compiled worker with the length prefix that its boot code reads. `None`: the guest must compile it.
pub(super) fn message(python: &Python, settings: &Settings) -> Option<Vec<u8>> {
    let path = place(python, settings.cache.as_deref()?);
    let bytecode = match fs::read(&path) {
        Ok(bytecode) => bytecode,
        Err(_) => {
            let bytecode = compile(python, settings)?;
            // If it cannot be cached, it is compiled again next time.
            let _ = keep(&path, &bytecode);
            bytecode
        }
    };
    let length = u32::try_from(bytecode.len()).ok()?;
    Some([&length.to_le_bytes()[..], &bytecode].concat())
}

/// Returns the cache path, named by everything that the bytecode depends on. A program that replaced the
/// interpreter for a while must not leave its bytecode behind.
fn place(python: &Python, cache: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (WORKER, &python.executable, python.version).hash(&mut hasher);
    if let Ok(found) = fs::metadata(&python.executable) {
        let changed = (found.ctime(), found.ctime_nsec());
        (found.dev(), found.ino(), found.size(), changed).hash(&mut hasher);
    }
    cache.join(format!("worker-{:016x}.bin", hasher.finish()))
}

/// Compiles the worker in a fence: the interpreter may be a guest's work. Its output runs only in a fence,
/// too.
fn compile(python: &Python, settings: &Settings) -> Option<Vec<u8>> {
    let said = fenced::ask(
        &Question {
            program: &python.executable,
            arguments: &["-I", "-S", "-c", COMPILE],
            environment: Vec::new(),
            input: WORKER.as_bytes(),
            shown: &python.library_dirs,
            links: &python.links,
        },
        settings,
    );
    let digits = said.ok().filter(|said| said.succeeded)?.stdout;
    let bytes = digits.as_bytes().chunks(2);
    let bytes = bytes.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    bytes
        .collect::<Option<Vec<u8>>>()
        .filter(|bytecode| !bytecode.is_empty())
}

fn keep(path: &Path, bytecode: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, bytecode)
        .and_then(|()| fs::rename(&temporary, path))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))
}
