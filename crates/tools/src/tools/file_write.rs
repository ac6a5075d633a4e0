//! `file_write`: writes a file of the workspace, or appends to it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::WriteMode;
use crate::toolbox::{Answer, Call, Effects, Tool, ToolError};

pub(super) struct FileWrite;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Path of the file, relative to the workspace. Missing directories are created.
    path: String,
    /// Content to write.
    content: String,
    /// Append the content instead of replacing the file.
    #[serde(default)]
    append: bool,
}

/// Result of a write.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Written {
    /// Path of the file.
    path: String,
    /// Size of the written content in bytes.
    bytes_written: u64,
}

impl Tool for FileWrite {
    const NAME: &'static str = "file_write";
    const TITLE: &'static str = "Write a file";
    const DESCRIPTION: &'static str = "Writes text to a file in the workspace: the whole file at once, or with `append` at its end. Returns how \
        many bytes were written. What programs of the host take for configuration, such as `.git`, cannot be written.";
    const EFFECTS: Effects = Effects::Destroys;
    const ON_HOST: bool = true;
    type Arguments = Arguments;
    type Output = Written;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let Arguments {
            path,
            content,
            append,
        } = arguments;
        let mode = if append {
            WriteMode::Append
        } else {
            WriteMode::Replace
        };
        let name = path.clone();
        let bytes_written = call
            .files(name, move |root, name| root.write(name, content.as_bytes(), mode))
            .await?;
        Answer::both(
            format!("{bytes_written} bytes written to {path}"),
            &Written { path, bytes_written },
        )
    }
}
