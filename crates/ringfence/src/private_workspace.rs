//! A private workspace, for a conversation without a named one.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ringfence_exec::local::{PrivateDirectory, owner_for_guests};
use ringfence_tools::files::{Owner, Root, Rules};
use ringfence_tools::toolbox::ToolError;

use crate::context::Context;
use crate::failure::{Error, Failure};

/// The fate of a private workspace at the end of its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Never,
    Always,
}

/// A private workspace.
#[derive(Debug)]
pub enum PrivateWorkspace {
    /// Removed at the end, or by the next start if we are killed.
    Passing(PrivateDirectory),
    /// Not removed.
    Kept(PathBuf),
}

impl PrivateWorkspace {
    /// Creates a private workspace, and removes those of killed processes.
    ///
    /// # Errors
    /// If the state directory cannot be used, or the workspace cannot be created.
    pub fn make(keep: Keep, context: &Context) -> Result<Self, Error> {
        context.paths.make_state()?;
        let parent = context.paths.workspaces();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&parent)
            .map_err(|error| failed(&parent, &error))?;
        PrivateDirectory::sweep(&parent);
        let owner = owner_for_guests();
        if keep == Keep::Always {
            let path = parent.join(format!("kept-{}", unique()));
            let given = owner.map(|user| Owner {
                user,
                comes_by_path: true,
            });
            Root::create(&path, Rules::standard(), given).map_err(ToolError::from)?;
            open_to_containers(&path, owner)?;
            return Ok(Self::Kept(path));
        }
        // A guest that runs as another user cannot traverse our state directory.
        let parent = if owner.is_some() {
            std::env::temp_dir()
        } else {
            parent
        };
        PrivateDirectory::sweep(&parent);
        let directory = PrivateDirectory::create(&parent).map_err(|error| failed(&parent, &error))?;
        open_to_containers(directory.path(), owner)?;
        Ok(Self::Passing(directory))
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Passing(directory) => directory.path(),
            Self::Kept(path) => path,
        }
    }
}

/// Makes the directory writable for programs in containers, which are not root. The directories above it
/// exclude other users.
fn open_to_containers(path: &Path, owner: Option<u32>) -> Result<(), Failure> {
    if owner.is_some() {
        return Ok(());
    }
    let opened = fs::metadata("/proc/self").and_then(|own| match own.uid() {
        0 => fs::set_permissions(path, fs::Permissions::from_mode(0o777)),
        _ => Ok(()),
    });
    opened.map_err(|error| failed(path, &error))
}

fn failed(parent: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(
        format!("cannot create a workspace in {}: {error}", parent.display()),
        "name a directory to work in with `--workspace`, or let Ringfence write there",
    )
}

/// Returns a name unique to this connection.
fn unique() -> String {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    format!("{since}-{}", std::process::id())
}
