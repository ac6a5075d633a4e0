//! Builds the init of containers, which this crate carries.

#![expect(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a build script tells of its failure by a panic, and calls cargo again"
)]

#[path = "../jail/carried.rs"]
mod carried;

fn main() {
    // Static: it runs in images that have no C library, or another one.
    let init = carried::build(
        &["--bin", "ringfence-init"],
        &["-C", "target-feature=+crt-static", "-C", "strip=symbols"],
    );
    println!(
        "cargo::rustc-env=RINGFENCE_INIT={}",
        init.join("ringfence-init").display()
    );
}
