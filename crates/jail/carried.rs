//! Builds this crate once more for the build script of a crate that carries a part of it.
//!
//! Cargo cannot yet make one package's artifacts an input of another (`-Z bindeps`), so this calls cargo again, in a
//! target directory of its own that all profiles and both carriers share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Builds one artifact, and returns its directory.
pub(crate) fn build(what: &[&str], compiler: &[&str]) -> PathBuf {
    // Asked now: a copied target directory holds a build script of another source tree.
    let jail = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../jail");
    let seccomp = ["../seccomp/src", "../seccomp/profiles", "../seccomp/Cargo.toml"];
    for input in ["src", "Cargo.toml", "../tar/src", "../tar/Cargo.toml"]
        .into_iter()
        .chain(seccomp)
    {
        println!("cargo::rerun-if-changed={}", jail.join(input).display());
    }
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

fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name} for build scripts"))
}
