//! The official MCP clients that drive `ringfence mcp` in the tests, and the official servers that serve as
//! skills there, at exact versions.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{is_there, stamp};
use crate::process::program;
use crate::report;

const LISTS: &str = "xtask/mcp-client";
const VENV: &str = "target/mcp-venv";
const NODE: &str = "target/mcp-node";
const EXAMPLES: &str = "target/mcp-examples";

/// Installs both clients, and the example servers.
pub(super) fn setup(root: &Path) -> Result<()> {
    python(root).context("install the Python client")?;
    node(root).context("install the TypeScript client")?;
    examples(root).context("unpack the example servers")
}

/// Unpacks the examples from the Python client's source archive; no installed package has them.
fn examples(root: &Path) -> Result<()> {
    let wanted = list(root, "examples.txt")?;
    if is_there(root, EXAMPLES, &wanted) {
        report::line("MCP example servers: there");
        return Ok(());
    }
    report::line("MCP example servers: unpacking");
    let place = root.join(EXAMPLES);
    fs::create_dir_all(&place)?;
    let python = root.join(VENV).join("bin/python");
    let named = root.join(LISTS).join("examples.txt");
    let arguments = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-binary=mcp",
        "--require-hashes",
        "--requirement",
        &named.to_string_lossy(),
    ];
    program(&place, &python.to_string_lossy(), &arguments).run()?;
    for entry in fs::read_dir(&place)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if let Some(inner) = name.strip_suffix(".tar.gz") {
            let examples = format!("{inner}/examples");
            let unpack = ["-xzf", &name, "--strip-components=2", &examples];
            program(&place, "tar", &unpack).run()?;
        }
    }
    stamp(root, EXAMPLES, &wanted)
}

fn python(root: &Path) -> Result<()> {
    let list = format!("{LISTS}/requirements.txt");
    super::environment(root, "MCP client for Python", VENV, &list)
}

fn node(root: &Path) -> Result<()> {
    super::node_packages(root, "MCP client for TypeScript", NODE, LISTS)
}

fn list(root: &Path, name: &str) -> Result<String> {
    fs::read_to_string(root.join(LISTS).join(name)).with_context(|| format!("read {LISTS}/{name}"))
}
