//! The specification of a run.

use std::path::PathBuf;

use ringfence_policy::{Feature, Language, Request, Target};

use crate::local::Fence;

/// A request with everything that decides how it runs.
#[derive(Debug, Clone)]
pub struct RunSpec {
    pub request: Request,
    pub target: Target,
    /// Minimum strength of the fence.
    pub fence: Fence,
    /// Host directory that receives the program's output files.
    pub output_directory: Option<PathBuf>,
    /// Specification to run instead if the target is unavailable, with a warning in the result. `None`: the run fails
    /// then.
    pub fallback: Option<Box<Self>>,
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
