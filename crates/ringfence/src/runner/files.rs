//! Files that a request brings with it.

use std::collections::BTreeMap;

use ringfence_exec::local::PrivateDirectory;
use ringfence_policy::{Access, Mount, Request};
use ringfence_tools::files::{Root, WriteMode};
use ringfence_tools::toolbox::ToolError;

use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::{mount_guard, toolbox};

/// Writes files to the workspace of a request or, if it has none, to a temporary directory, which is removed with
/// the returned guard.
pub(super) fn supply(
    request: &mut Request,
    files: &BTreeMap<String, Vec<u8>>,
    context: &Context,
) -> Result<Option<PrivateDirectory>, Error> {
    if files.is_empty() {
        return Ok(None);
    }
    let write = |root: &Root| {
        let mut files = files.iter();
        let written =
            files.try_for_each(|(path, content)| root.write(path, content, WriteMode::Replace).map(drop));
        written.map_err(ToolError::from)
    };
    let rules = toolbox::rules(context)?;
    if let Some(workspace) = &request.workspace {
        let root = Root::open(workspace, rules).map_err(ToolError::from)?;
        write(&root)?;
        return Ok(None);
    }
    let directory = PrivateDirectory::create(&std::env::temp_dir()).map_err(|error| {
        Failure::refused(
            format!("cannot make a directory for the files: {error}"),
            "let this program write to the directory for temporary files, and make room there",
        )
    })?;
    let root = Root::open(directory.path(), rules).map_err(ToolError::from)?;
    write(&root)?;
    // Links are not mounted.
    let host = mount_guard::resolve(directory.path())?.path;
    let mount = Mount::new(host, "/workspace", Access::Copy);
    request.mounts.extend(mount);
    Ok(Some(directory))
}
