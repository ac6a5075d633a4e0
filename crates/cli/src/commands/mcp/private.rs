//! The directory of one connection, for tools that nobody has given another.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ringfence_runtime::files::{Root, Rules};
use ringfence_runtime::local::{PrivateDirectory, owner_for_guests};

use crate::context::Context;
use crate::exit::Failure;
use crate::ui::Ui;

/// The directory of one connection.
#[derive(Debug)]
pub(super) enum Private {
    /// Removed at the end; by the next start if we are killed.
    Passing(PrivateDirectory),
    /// Left where it is.
    Kept(PathBuf),
}

impl Private {
    /// Makes one, and removes what servers left that were killed.
    pub(super) fn make(keep: bool, context: &Context) -> anyhow::Result<Self> {
        let parent = context.paths.make_state()?.join("workspaces");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&parent)
            .map_err(|error| failed(&parent, &error))?;
        PrivateDirectory::sweep(&parent);
        let owner = owner_for_guests();
        if keep {
            let path = parent.join(format!("kept-{}", unique()));
            Root::create(&path, Rules::standard(), owner)?;
            return Ok(Self::Kept(path));
        }
        // A guest that is another user than ours does not reach into our state.
        let parent = if owner.is_some() {
            std::env::temp_dir()
        } else {
            parent
        };
        PrivateDirectory::sweep(&parent);
        PrivateDirectory::create(&parent)
            .map(Self::Passing)
            .map_err(|error| failed(&parent, &error).into())
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Passing(directory) => directory.path(),
            Self::Kept(path) => path,
        }
    }

    /// Removes it, or says where it is.
    pub(super) fn leave(self, ui: Ui) {
        if let Self::Kept(path) = &self {
            // Nobody may be left to read it.
            let _ = ui.err(format!("the workspace is kept in {}\n", path.display()));
        }
    }
}

fn failed(parent: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(
        format!("cannot make a workspace in {}: {error}", parent.display()),
        "name a directory to work in with `--workspace`, or let Ringfence write there",
    )
}

/// A name that no other connection has.
fn unique() -> String {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    format!("{since}-{}", std::process::id())
}
