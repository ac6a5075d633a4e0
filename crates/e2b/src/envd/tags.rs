//! Tags of processes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ringfence_sandbox::Sandbox;
use ringfence_sandbox::process::{SHOWN, shortened};
use serde::{Deserialize, Serialize};

/// Processes with what their clients said of them, by process id.
#[derive(Debug, Default)]
pub(crate) struct Tags(Mutex<BTreeMap<u32, Tagged>>);

#[derive(Debug, Clone)]
pub(super) struct Tagged {
    pub(super) tag: Option<String>,
    pub(super) config: Config,
}

/// A program to start.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub(super) struct Config {
    #[serde(default)]
    pub(super) cmd: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) envs: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cwd: Option<String>,
}

impl Config {
    /// Returns what is shown of it: without the variables if they are large, and the last words if they are many.
    pub(super) fn shown(self) -> Self {
        let length = |(name, value): (&String, &String)| name.len() + value.len();
        let is_large = self.envs.iter().map(length).sum::<usize>() > SHOWN;
        Self {
            cmd: shortened(&[self.cmd], SHOWN).pop().unwrap_or_default(),
            args: shortened(&self.args, SHOWN),
            envs: if is_large { BTreeMap::new() } else { self.envs },
            cwd: self.cwd,
        }
    }
}

impl Tags {
    pub(super) fn add(&self, sandbox: &Sandbox, pid: u32, tagged: Tagged) {
        let known: Vec<u32> = sandbox.processes().iter().map(|info| info.pid).collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|pid, _| known.contains(pid));
        all.insert(pid, tagged);
    }

    pub(super) fn all(&self) -> BTreeMap<u32, Tagged> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
