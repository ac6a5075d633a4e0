//! Makes the release binary smaller at linking: keeps functions of the same code once (2.4 MB less), and leaves out the
//! tables for unwinding (4.0 MB less).

#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script of the target by variables"
)]

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

/// Keeps functions of the same code once. LLD, rustc's default linker for this machine, has it; GNU ld has none like it.
const FOLDING: &str = "-Wl,--icf=all";

/// The script of the linker that leaves out the tables for walking the stack.
const SCRIPT: &str = "no-unwind-tables.ld";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SCRIPT}");
    let of = |name| env::var(name).unwrap_or_default();
    // Debug builds link sooner without these, and unwind.
    if of("PROFILE") != "release" || of("TARGET") != of("HOST") {
        return;
    }
    let no_tables = format!("-Wl,-T,{}/{SCRIPT}", of("CARGO_MANIFEST_DIR"));
    for option in [FOLDING.to_owned(), no_tables] {
        if is_known(&option, &of("RUSTC"), &of("OUT_DIR")) {
            println!("cargo::rustc-link-arg-bins={option}");
        }
    }
}

/// Returns `true` if the linker takes the option, by linking an empty program.
fn is_known(option: &str, rustc: &str, directory: &str) -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let source = Path::new(directory).join("empty.rs");
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut command = Command::new(rustc);
    command.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        command.arg(format!("-Clinker={linker}"));
    }
    command
        .arg(format!("-Clink-arg={option}"))
        .arg("-o")
        .arg(source.with_extension("out"))
        .arg(&source)
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
