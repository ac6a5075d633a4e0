//! `cargo xtask dist`: packages in `dist/`, each with its digest.

use std::path::Path;

use anyhow::{Result, bail};

use crate::process::{cargo, program};

/// Packs the program of the profile `dist`, or the one that `--binary PATH` names.
pub(crate) fn pack(root: &Path, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let built = root.join("target/dist/ringfence");
    let binary = match arguments.as_slice() {
        [] => {
            let programs = ["--bin", "ringfence", "--bin", "ringfence-gateway"];
            let build = ["build", "--locked", "--workspace", "--profile", "dist"];
            cargo(root, &[&build[..], &programs].concat()).run()?;
            built.to_string_lossy().into_owned()
        }
        ["--binary", path] => (*path).to_owned(),
        _ => bail!("usage: cargo xtask dist [--binary PATH]"),
    };
    let script = root.join("xtask/dist/pack.py").to_string_lossy().into_owned();
    let out = root.join("dist").to_string_lossy().into_owned();
    let pack = program(root, "python3", &[&script, "--binary", &binary, "--out", &out]);
    pack.env("SOURCE_DATE_EPOCH", &epoch(root)?).run()
}

/// Returns the time of all files: that of the environment, else of the last commit.
fn epoch(root: &Path) -> Result<String> {
    if let Some(epoch) = std::env::var_os("SOURCE_DATE_EPOCH") {
        return Ok(epoch.to_string_lossy().into_owned());
    }
    let committed = program(root, "git", &["log", "-1", "--format=%ct"]).stdout()?;
    Ok(committed.trim().to_owned())
}
