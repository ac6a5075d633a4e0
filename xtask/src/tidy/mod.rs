//! Project rules that no lint covers.

mod arrows;
mod opens;
mod parameters;
mod paths;
mod rules;
mod sizes;
mod starts;
mod surface;
mod threats;

use std::path::Path;

use anyhow::{Result, bail};

use crate::{new_runtime, report, source};

/// Checks every rule and reports all breaches at once.
pub(crate) fn tidy(root: &Path) -> Result<()> {
    let sources = source::all(root)?;
    let mut breaches = arrows::check(root)?;
    breaches.extend(paths::check(root)?);
    breaches.extend(threats::check(root)?);
    breaches.extend(starts::check(root, &sources)?);
    breaches.extend(opens::check(root, &sources)?);
    breaches.extend(new_runtime::check(root)?);
    breaches.extend(surface::check(root, &sources)?);
    breaches.extend(sizes::check(&sources));
    breaches.extend(sources.iter().flat_map(parameters::check));
    breaches.extend(sources.iter().flat_map(rules::check));
    for breach in &breaches {
        report::problem(breach);
    }
    if !breaches.is_empty() {
        bail!("{} breaches of the rules of the house", breaches.len());
    }
    report::line(&format!("{} files are tidy", sources.len()));
    Ok(())
}
