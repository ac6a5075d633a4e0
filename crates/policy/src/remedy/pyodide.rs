//! Remedies for Pyodide.

use serde::{Deserialize, Serialize};

use super::Remedy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pyodide {
    Install,
    Reinstall,
    InstallDeno,
    /// From a directory, without npm.
    FetchElsewhere,
    ReplaceWheels,
    GiveMemory,
    FreeDirectory,
}

impl Pyodide {
    pub(super) fn person(self) -> &'static str {
        match self {
            Self::Install => "run `ringfence setup deno`",
            Self::Reinstall => {
                "run `ringfence setup deno` again; a Deno of another version is chosen by `skills.sandbox.deno_path`"
            }
            Self::InstallDeno => "install Deno and set `skills.sandbox.deno_path`",
            Self::FetchElsewhere => {
                "install npm, or fetch the packages elsewhere with `npm pack` and name their directory with `--from`"
            }
            Self::ReplaceWheels => {
                "keep wheels there that are for this Pyodide, or pure Python (`skills.sandbox.packages`)"
            }
            Self::GiveMemory => {
                "give more (`--memory`, `skills.sandbox.memory_limit_mb`), or keep fewer wheels (`skills.sandbox.packages`)"
            }
            Self::FreeDirectory => {
                "check that the directory can be written (`skills.sandbox.directory`) and its disk is not full"
            }
        }
    }
}

impl From<Pyodide> for Remedy {
    fn from(remedy: Pyodide) -> Self {
        Self::Pyodide(remedy)
    }
}
