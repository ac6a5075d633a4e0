//! Builds the extension library that a warm interpreter loads: the jail crate once more, as a cdylib.
//!
//! Cargo cannot yet make one package's cdylib an input of another (`-Z bindeps`), so this calls cargo again,
//! in a target directory of its own that all profiles share.

#![expect(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a build script tells of its failure by a panic, and calls cargo again"
)]

use std::path::{Path, PathBuf};

fn main() {
    let jail = Path::new(env!("CARGO_MANIFEST_DIR")).join("../jail");
    for input in ["src", "seccomp", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", jail.join(input).display());
    }
    let library = build_extension(&jail);
    println!("cargo::rustc-env=RINGFENCE_EXTENSION={}", library.display());
}

fn build_extension(jail: &Path) -> PathBuf {
    let variable =
        |name: &str| std::env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name} for build scripts"));
    let out = PathBuf::from(variable("OUT_DIR"));
    // <target>/<profile>/build/<package>/out
    let target_directory = out.ancestors().nth(4).unwrap_or(&out).join("zygote-extension");
    let target = variable("TARGET");
    let status = std::process::Command::new(variable("CARGO"))
        .args([
            "rustc",
            "--lib",
            "--crate-type",
            "cdylib",
            "--profile",
            "extension",
            "--manifest-path",
        ])
        .arg(jail.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_directory)
        .arg("--target")
        .arg(&target)
        // Linters wrap the compiler for the outer build only.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .status()
        .unwrap_or_else(|error| panic!("cannot call cargo again: {error}"));
    assert!(status.success(), "the extension library did not build");
    target_directory
        .join(target)
        .join("extension")
        .join("libringfence_jail.so")
}
