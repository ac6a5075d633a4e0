//! `file_delete`: deletes one file, link or empty directory of the workspace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::EntryKind;
use crate::toolbox::{Answer, Call, Effects, Tool, ToolError};

pub(super) struct FileDelete;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Path of the file, link or empty directory, relative to the workspace.
    path: String,
}

/// Result of a deletion.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Gone {
    /// Path of the deleted entry.
    deleted: String,
    /// Kind of the deleted entry.
    kind: EntryKind,
}

impl Tool for FileDelete {
    const NAME: &'static str = "file_delete";
    const TITLE: &'static str = "Delete a file";
    const DESCRIPTION: &'static str = "Deletes one file, symbolic link or empty directory of the workspace, for good. A directory that holds \
        something is left alone.";
    const EFFECTS: Effects = Effects::Destroys;
    const ON_HOST: bool = true;
    type Arguments = Arguments;
    type Output = Gone;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let path = arguments.path.clone();
        let found = call.files(path, |root, path| root.delete(path)).await?;
        let deleted = arguments.path;
        let text = format!("deleted {deleted}");
        Answer::both(
            text,
            &Gone {
                deleted,
                kind: found.kind,
            },
        )
    }
}
