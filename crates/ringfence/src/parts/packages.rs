//! The indexes of packages, and the amount that is kept.

use ringfence_packages::{Ecosystem, Index, Indexes, Keep, Requirement, parse_list};

use super::checks::{CORRECT, Checks, Wrong};

/// Settings of packages.
#[derive(Debug, Clone)]
pub struct Packages {
    pub indexes: Indexes,
    pub keep: Keep,
    /// Packages of every Python program in the local fence.
    pub default: Vec<Requirement>,
}

pub(super) fn packages(checks: &mut Checks<'_>) -> Option<Packages> {
    let packages = &checks.config().packages;
    let python = index(checks, Ecosystem::Python, &packages.index, &packages.hosts);
    let npm = index(
        checks,
        Ecosystem::Npm,
        &packages.npm_registry,
        &packages.npm_hosts,
    );
    let default = match packages.default.as_slice() {
        [] => Some(Vec::new()),
        names => {
            let names = parse_list(Ecosystem::Python, &names.join(","));
            checks.keep(names.map_err(|error| Wrong::new("packages.default", error, CORRECT)))
        }
    };
    Some(Packages {
        indexes: Indexes {
            python: python?,
            npm: npm?,
        },
        default: default?,
        keep: Keep {
            bytes: packages.max_total,
            ..Keep::DEFAULT
        },
    })
}

fn index(checks: &mut Checks<'_>, ecosystem: Ecosystem, url: &str, hosts: &[String]) -> Option<Index> {
    let (url_key, hosts_key) = ecosystem.keys();
    let hosts = checks.parse_all(hosts_key, hosts)?;
    let index = Index::new(ecosystem, url, hosts).map_err(|error| {
        let public = ecosystem.public_url();
        Wrong::new(
            url_key,
            error,
            format!("write it like `{public}`; `egress.inject` adds credentials"),
        )
    });
    checks.keep(index)
}
