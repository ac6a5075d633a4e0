//! Builds the extension library that a warm interpreter loads, which this crate carries.

#![expect(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a build script tells of its failure by a panic, and calls cargo again"
)]

#[path = "../jail/carried.rs"]
mod carried;

fn main() {
    let library = carried::build(&["--lib", "--crate-type", "cdylib"], &[]);
    println!(
        "cargo::rustc-env=RINGFENCE_EXTENSION={}",
        library.join("libringfence_jail.so").display()
    );
}
