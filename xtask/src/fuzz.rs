//! Runs the fuzz targets, a plain program with its own mutation loop, so that stable Rust suffices.
//!
//! A long run has coverage counters in the crates of the workspace: cargo calls this program in place of the compiler for
//! these alone, so that all other crates are those of the dev build.

use std::path::Path;

use anyhow::{Context, Result};

use crate::process::{build_of, built, dev_program, replaced_by};

const PROGRAM: &str = "ringfence-fuzz";

/// Long enough to catch a careless parser, short enough for every push.
const SECONDS_IN_CI: u64 = 4;

/// Seconds for each target where none are named.
pub(crate) const SECONDS: u64 = 20;

/// Set where cargo calls this program in place of the compiler.
pub(crate) const WRAPPED: &str = "RINGFENCE_COVERAGE";

/// Runs every target briefly in the existing dev build.
pub(crate) fn brief(root: &Path) -> Result<()> {
    built(root, PROGRAM, &["--seconds", &SECONDS_IN_CI.to_string()])?.run()
}

/// Runs every target for `seconds`, with coverage feedback.
pub(crate) fn run(root: &Path, seconds: u64) -> Result<()> {
    let own = std::env::current_exe().context("find this program")?;
    build_of(root, PROGRAM)
        .env("RUSTC_WORKSPACE_WRAPPER", &own.to_string_lossy())
        .env(WRAPPED, "1")
        .run()?;
    dev_program(root, PROGRAM, &["--seconds", &seconds.to_string()])
        // Else it leaves its counters in a file.
        .env("LLVM_PROFILE_FILE", "/dev/null")
        .run()
}

/// Becomes the compiler with these arguments, with coverage counters unless it compiles a build script.
pub(crate) fn compile(arguments: impl Iterator<Item = String>) -> Result<()> {
    let mut words: Vec<String> = arguments.collect();
    words.extend(counted(&words).then(|| "-Cinstrument-coverage".to_owned()));
    replaced_by(&words)
}

fn counted(words: &[String]) -> bool {
    let name = words.windows(2).find(|pair| pair[0] == "--crate-name");
    name.is_some_and(|pair| !pair[1].starts_with("build_script"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_counted_and_neither_build_scripts_nor_questions() {
        let check = |words: &str, expected: bool| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(counted(&words), expected, "{words:?}");
        };
        check("rustc --crate-name ringfence_policy src/lib.rs", true);
        check("rustc --crate-name build_script_build build.rs", false);
        check("rustc -vV", false);
    }
}
