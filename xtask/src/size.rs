//! The budget of the product's binary.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::report;

/// Kilobytes that the binary may have, by reason. Later additions get lines of their own.
const BUDGET: &[(&str, u64)] = &[
    (
        "what there was in November 2026, built with `release`, functions of the same code once, calls direct, without the \
         tables for unwinding",
        18_200,
    ),
    (
        "the HTTP API: its routes with their schemas, and the sandboxes behind them",
        3_000,
    ),
    ("E2B's protocol; pauses, forks and snapshots of sandboxes", 1_400),
    ("images: registries, layers with gzip, their store", 450),
    ("packages of runs, ports of sandboxes, the runtime `e2b`", 1_400),
    ("MCP over HTTP, figures for monitoring and a page of the API", 300),
    (
        "sandboxes in containers and on images, answers that are kept",
        1_200,
    ),
    ("TLS at a listener, calls of keys in turns", 350),
    (
        "usage and quotas of keys, SandboxFusion's protocol, names below a domain, sandboxes with root",
        500,
    ),
    (
        "visits of programs in sandboxes, templates of E2B's clients, tenants, terminals over WebSocket",
        1_500,
    ),
    (
        "metadata of files of E2B's clients, removal of what keys leave, guesses by peer, kept figures",
        300,
    ),
    (
        "tags of templates, command lines and TypeScript in contexts, users of processes, packages of sessions",
        200,
    ),
    (
        "Jupyter's kernels, users and wake-ups of E2B's clients, imported packages, bytes of egress, second starts",
        1_400,
    ),
    (
        "LibreChat's Code API, answers at the end of the server, mounts and certificates that are looked at",
        800,
    ),
    (
        "approvals, stored runs, the audit log and images over HTTP; directories and events of sandboxes",
        250,
    ),
    (
        "credentials of registries, layers with zstd, destinations of host commands",
        200,
    ),
    (
        "hosts of sandboxes that change, packages of npm there, the drain, answers that wait to be read",
        250,
    ),
    (
        "one `/output` of a conversation, ends and quotas of sandboxes, pauses of files alone, counters of containers",
        250,
    ),
];

/// Compares the release binary with the budget.
pub(crate) fn check(root: &Path) -> Result<()> {
    let path = root.join("target/release/ringfence");
    let size = fs::metadata(&path).with_context(|| format!("look at {}", path.display()))?;
    let line = judge(size.len())?;
    report::line(&line);
    Ok(())
}

fn judge(bytes: u64) -> Result<String> {
    let budget: u64 = BUDGET.iter().map(|(_, kilobytes)| kilobytes).sum();
    let size = bytes.div_ceil(1000);
    if size > budget {
        bail!(
            "expected a binary of at most {budget} kB, got {size} kB; make it smaller, or add a line to xtask/src/size.rs"
        );
    }
    Ok(format!("the binary has {size} kB of {budget} kB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_above_the_budget_is_refused() {
        let budget: u64 = BUDGET.iter().map(|(_, kilobytes)| kilobytes * 1000).sum();
        assert!(judge(budget).is_ok());
        assert!(judge(budget + 1).is_err());
    }
}
