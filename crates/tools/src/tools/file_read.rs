//! `file_read`: reads a file of the workspace as text.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::files::FileText;
use crate::toolbox::{Answer, Call, Effects, Tool, ToolError};

pub(super) struct FileRead;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Path of the file, relative to the workspace.
    path: String,
    /// First line to return, from 1.
    #[serde(default)]
    offset: u64,
    /// Maximum number of lines to return.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

impl Tool for FileRead {
    const NAME: &'static str = "file_read";
    const TITLE: &'static str = "Read a file";
    const DESCRIPTION: &'static str = "Returns the text of a file in the workspace, from line `offset` on, `limit` lines at most. A long file \
        is cut, and the line to go on with is told. Files that are not text are described, not shown.";
    const EFFECTS: Effects = Effects::Reads;
    const ON_HOST: bool = true;
    type Arguments = Arguments;
    type Output = FileText;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let Arguments { path, offset, limit } = arguments;
        let found = call
            .files(path, move |root, path| root.read(path, offset, limit))
            .await?;
        Answer::both(found.to_string(), &found)
    }
}
