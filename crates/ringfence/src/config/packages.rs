//! The keys of the section `packages`.

use ringfence_packages::{Ecosystem, Keep};
use ringfence_policy::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values;

/// Packages that are installed for runs (`run --with`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Packages {
    /// URL of the Python index, without credentials; `egress.inject` adds those.
    pub index: String,
    /// Further hosts that an installation of Python packages may reach, because pages of the index link to them.
    pub hosts: Vec<String>,
    /// URL of the npm registry, without credentials; `egress.inject` adds those.
    pub npm_registry: String,
    /// Further hosts that an installation of JavaScript packages may reach, because the registry links to them.
    pub npm_hosts: Vec<String>,
    /// Python packages for every Python program, session and sandbox in the local fence, beside those of `--with`.
    pub default: Vec<String>,
    /// Maximum total size of kept packages. Those that were used longest ago are removed first.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub max_total: Bytes,
}

impl Default for Packages {
    fn default() -> Self {
        Self {
            index: Ecosystem::Python.public_url().to_owned(),
            hosts: Vec::new(),
            npm_registry: Ecosystem::Npm.public_url().to_owned(),
            npm_hosts: Vec::new(),
            default: Vec::new(),
            max_total: Keep::DEFAULT.bytes,
        }
    }
}
