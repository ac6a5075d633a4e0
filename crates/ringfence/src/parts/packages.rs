//! The index of packages, and the amount that is kept.

use ringfence_packages::{Index, Keep, Requirement, parse_list};

use super::checks::{CORRECT, Checks, Wrong};

/// Settings of packages.
#[derive(Debug, Clone)]
pub struct Packages {
    pub index: Index,
    pub keep: Keep,
    /// Packages of every Python program in the local fence.
    pub default: Vec<Requirement>,
}

pub(super) fn packages(checks: &mut Checks<'_>) -> Option<Packages> {
    let packages = &checks.config().packages;
    let hosts = checks.parse_all("packages.hosts", &packages.hosts)?;
    let index = Index::new(&packages.index, hosts).map_err(|error| {
        Wrong::new(
            "packages.index",
            error,
            "write it like `https://packages.example.com/simple`; `egress.inject` adds credentials",
        )
    });
    let default = match packages.default.as_slice() {
        [] => Some(Vec::new()),
        names => {
            let names = parse_list(&names.join(","));
            checks.keep(names.map_err(|error| Wrong::new("packages.default", error, CORRECT)))
        }
    };
    Some(Packages {
        index: checks.keep(index)?,
        default: default?,
        keep: Keep {
            bytes: packages.max_total,
            ..Keep::DEFAULT
        },
    })
}
