//! Has the linker keep one copy of functions that were compiled to the same code: a fourteenth of the release binary.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script of the target by variables"
)]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of = |name| env::var(name).unwrap_or_default();
    // The option is one of LLD, which is rustc's default linker for this target only. Debug builds link sooner without it.
    if of("TARGET") == "x86_64-unknown-linux-gnu" && of("PROFILE") == "release" {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
