//! Lengths of files and functions, to see what to split next.

use std::path::Path;

use anyhow::Result;

use crate::{report, source};

/// Prints medians, 90th percentiles and maxima.
pub(crate) fn print(root: &Path) -> Result<()> {
    let sources = source::all(root)?;
    let mut files: Vec<(usize, String)> = Vec::new();
    let mut functions: Vec<(usize, String)> = Vec::new();
    for source in &sources {
        files.push((source.bare_lines(), source.path.clone()));
        for (name, line, length) in source.functions() {
            functions.push((length, format!("{}:{line} {name}", source.path)));
        }
    }
    table("bare lines of a file", &mut files);
    table("lines of a function", &mut functions);
    Ok(())
}

fn table(title: &str, rows: &mut [(usize, String)]) {
    rows.sort();
    let at = |percent: usize| rows.get(rows.len() * percent / 100).map_or(0, |row| row.0);
    let total: usize = rows.iter().map(|row| row.0).sum();
    report::line(&format!(
        "{title}: n {}, total {total}, median {}, p90 {}, p99 {}",
        rows.len(),
        at(50),
        at(90),
        at(99)
    ));
    for (length, name) in rows.iter().rev().take(8) {
        report::line(&format!("  {length:>5}  {name}"));
    }
}
