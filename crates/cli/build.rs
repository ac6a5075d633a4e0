//! Has the linker keep one copy of functions that were compiled to the same code: 2.4 MB less in the release binary.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script of the target by variables"
)]

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

/// An option of LLD, which is rustc's default linker for this machine; GNU ld has none like it.
const OPTION: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of = |name| env::var(name).unwrap_or_default();
    // Debug builds link sooner without it.
    if of("PROFILE") == "release" && of("TARGET") == of("HOST") && is_known(&of("RUSTC"), &of("OUT_DIR")) {
        println!("cargo::rustc-link-arg-bins={OPTION}");
    }
}

/// Returns `true` if the linker takes the option, by linking an empty program.
fn is_known(rustc: &str, directory: &str) -> bool {
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
        .arg(format!("-Clink-arg={OPTION}"))
        .arg("-o")
        .arg(source.with_extension("out"))
        .arg(&source)
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
