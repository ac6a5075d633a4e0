//! Finds out which layers of the fence this machine has, by trying them, and what would supply the others.

mod engines;
mod fixes;
mod groups;
mod kernel;
mod machine;
mod programs;
mod runs;

use serde::Serialize;

use crate::container::Surroundings;
use crate::container::pins::Pins;
use crate::container::spec::Image;
use crate::local::Settings;
use machine::Machine;

/// What a machine offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How strong a default run is fenced here.
    pub situation: Situation,
    /// What a default run gets, in one sentence.
    pub verdict: String,
    /// Layer by layer.
    pub layers: Vec<Layer>,
}

/// How strong a default run is fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Situation {
    /// By namespaces made as root of the host, with a range of user ids of their own.
    Root,
    /// By namespaces made as an ordinary user.
    UserNamespace,
    /// By Landlock, the system-call filter and resource limits: namespaces are forbidden.
    Flat,
    /// Not at all: it is refused.
    None,
}

/// One thing that runs need, or may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// What it is called.
    pub name: &'static str,
    /// Whether it works.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What would make it work.
    pub fix: Option<String>,
}

/// Whether a layer works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It was tried, and works.
    Ok,
    /// It was tried, and does not work.
    Missing,
    /// Runs do not depend on it.
    Info,
}

impl Layer {
    /// A layer that works.
    pub fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, detail)
    }

    /// A layer that does not, and what would help.
    pub fn missing(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..Self::new(name, Status::Missing, detail)
        }
    }

    /// Something worth knowing.
    pub fn info(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Info, detail)
    }

    fn new(name: &'static str, status: Status, detail: impl Into<String>) -> Self {
        Self {
            name,
            status,
            detail: detail.into(),
            fix: None,
        }
    }
}

/// Tries everything that runs with these settings would use, and asks the container engines, which have such an image or not.
///
/// Nothing is confined but children, and nothing is left behind.
pub async fn examine(settings: &Settings, surroundings: &Surroundings, image: (&Image, &Pins)) -> Report {
    let machine = Machine::read();
    // First: where version 2 lets a process delegate only while it is alone in its group, children would spoil it.
    let groups = groups::layer(&machine);
    let runs = runs::try_all(settings).await;
    let mut layers = kernel::layers(&machine);
    layers.push(groups);
    layers.push(runs.fence(&machine));
    layers.extend(programs::languages(settings, &runs));
    layers.extend(engines::layers(surroundings, image).await);
    Report {
        situation: runs.situation(&machine),
        verdict: runs.verdict(&machine),
        layers,
    }
}
