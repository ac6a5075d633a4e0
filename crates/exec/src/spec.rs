//! The specification of a run.

use std::path::PathBuf;

use ringfence_policy::{Feature, Language, Request, Target};
use serde::{Deserialize, Serialize};

use crate::local::Fence;

/// A request with everything that decides how it runs.
#[derive(Debug, Clone)]
pub struct RunSpec {
    pub request: Request,
    pub target: Target,
    /// Minimum strength of the fence.
    pub fence: Fence,
    pub output_directory: Option<OutputDirectory>,
    /// Specification to run instead if the target is unavailable, with a warning in the result. `None`: the run fails
    /// then.
    pub fallback: Option<Box<Self>>,
}

/// A host directory that receives a program's output files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputDirectory {
    pub path: PathBuf,
    /// Set if the program finds in `/output` what earlier programs left in the directory, and what it changes or removes
    /// there is changed and removed in the directory. Otherwise its `/output` begins empty. Holds for local programs and
    /// Pyodide; containers know the directories of conversations by their places.
    pub shows_earlier: bool,
}

impl OutputDirectory {
    /// Takes what a program writes to `/output`, which begins empty.
    pub const fn new(path: PathBuf) -> Self {
        Self {
            path,
            shows_earlier: false,
        }
    }

    /// Shows what earlier programs left.
    #[must_use]
    pub fn showing_earlier(self) -> Self {
        Self {
            shows_earlier: true,
            ..self
        }
    }
}

impl RunSpec {
    /// Creates the specification of a request without output directory and fallback.
    pub const fn new(request: Request, target: Target, fence: Fence) -> Self {
        Self {
            request,
            target,
            fence,
            output_directory: None,
            fallback: None,
        }
    }

    /// Returns `true` if the program can call functions of the host.
    pub(crate) fn has_bridge(&self) -> bool {
        // The Python of an image is started by us, but not with our worker.
        self.request.language == Language::Python
            && self.request.image.is_none()
            && !self.target.runtime().lacks(Feature::Skills)
    }
}
