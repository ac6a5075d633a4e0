//! The references that the binary writes about itself.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::cargo;
use crate::report;

struct Reference {
    path: &'static str,
    arguments: &'static [&'static str],
}

const REFERENCES: &[Reference] = &[
    Reference {
        path: "docs/reference/cli.md",
        arguments: &["help-markdown"],
    },
    Reference {
        path: "docs/reference/config.md",
        arguments: &["config", "schema", "--markdown"],
    },
];

/// Writes every reference.
pub(crate) fn write(root: &Path) -> Result<()> {
    for reference in REFERENCES {
        let path = root.join(reference.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, generate(root, reference)?)?;
        report::line(&format!("wrote {}", reference.path));
    }
    Ok(())
}

/// Refuses a reference that is missing or differs from what the binary says today.
pub(crate) fn check(root: &Path) -> Result<()> {
    for reference in REFERENCES {
        let current = generate(root, reference)?;
        let written = fs::read_to_string(root.join(reference.path)).unwrap_or_default();
        if current != written {
            bail!(
                "{} is out of date; run `cargo xtask docs` and commit it",
                reference.path
            );
        }
        report::line(&format!("{} is up to date", reference.path));
    }
    Ok(())
}

fn generate(root: &Path, reference: &Reference) -> Result<String> {
    let mut arguments = vec!["run", "--quiet", "--package", "ringfence", "--"];
    arguments.extend(reference.arguments);
    cargo(root, &arguments)
        .stdout()
        .with_context(|| format!("the binary cannot write {}", reference.path))
}
