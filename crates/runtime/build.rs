//! Builds what is carried in this crate: the extension library that a warm interpreter loads, and the agent of containers.
//!
//! Both are the jail crate once more. Cargo cannot yet make one package's artifacts an input of another (`-Z bindeps`), so
//! this calls cargo again, in a target directory of its own that all profiles share.

#![expect(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a build script tells of its failure by a panic, and calls cargo again"
)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

fn main() {
    let jail = Path::new(env!("CARGO_MANIFEST_DIR")).join("../jail");
    for input in ["src", "seccomp", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", jail.join(input).display());
    }
    let library = build(&jail, &["--lib", "--crate-type", "cdylib"], &[]);
    println!(
        "cargo::rustc-env=RINGFENCE_EXTENSION={}",
        library.join("libringfence_jail.so").display()
    );
    // Static: it runs in images that have no C library, or another one.
    let agent = build(
        &jail,
        &["--bin", "ringfence-agent"],
        &["-C", "target-feature=+crt-static", "-C", "strip=symbols"],
    );
    println!(
        "cargo::rustc-env=RINGFENCE_AGENT={}",
        agent.join("ringfence-agent").display()
    );
}

fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name} for build scripts"))
}

/// Builds one artifact, and says where it lies.
fn build(jail: &Path, what: &[&str], compiler: &[&str]) -> PathBuf {
    let out = PathBuf::from(variable("OUT_DIR"));
    // <target>/<profile>/build/<package>/out
    let target_directory = out.ancestors().nth(4).unwrap_or(&out).join("zygote-extension");
    let target = variable("TARGET");
    let status = std::process::Command::new(variable("CARGO"))
        .arg("rustc")
        .args(what)
        .args(["--profile", "extension", "--manifest-path"])
        .arg(jail.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_directory)
        .arg("--target")
        .arg(&target)
        .arg("--")
        .args(compiler)
        // Linters wrap the compiler for the outer build only.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .status()
        .unwrap_or_else(|error| panic!("cannot call cargo again: {error}"));
    assert!(status.success(), "cargo did not build {}", what.join(" "));
    target_directory.join(target).join("extension")
}
