//! The keys of the section `packages`.

use ringfence_packages::{Keep, index};
use ringfence_policy::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values;

/// Python packages that are installed for runs (`run --with`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Packages {
    /// URL of the index, without credentials; `egress.inject` adds those.
    pub index: String,
    /// Further hosts that an installation may reach, because pages of the index link to them.
    pub hosts: Vec<String>,
    /// Packages for every Python program in the local fence, beside those of `--with`. Such programs start without a warm
    /// interpreter.
    pub default: Vec<String>,
    /// Maximum total size of kept packages. Those that were used longest ago are removed first.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub max_total: Bytes,
}

impl Default for Packages {
    fn default() -> Self {
        Self {
            index: index::PUBLIC.to_owned(),
            hosts: Vec::new(),
            default: Vec::new(),
            max_total: Keep::DEFAULT.bytes,
        }
    }
}
