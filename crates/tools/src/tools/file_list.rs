//! `file_list`: lists a directory of the workspace.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::files::Listing;
use crate::toolbox::{Answer, Call, Effects, Tool, ToolError};

pub(super) struct FileList;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Path of the directory, relative to the workspace; `.` is the workspace itself.
    #[serde(default = "workspace")]
    path: String,
}

fn workspace() -> String {
    ".".to_owned()
}

impl Tool for FileList {
    const NAME: &'static str = "file_list";
    const TITLE: &'static str = "List a directory";
    const DESCRIPTION: &'static str = "Lists one directory of the workspace: each entry's name, kind and size, sorted by name. Says how many \
        more there are if there are too many to show.";
    const EFFECTS: Effects = Effects::Reads;
    const ON_HOST: bool = true;
    type Arguments = Arguments;
    type Output = Listing;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let listing = call.files(arguments.path, |root, path| root.list(path)).await?;
        Ok(Answer::value(&listing)?.seen_as(listing.to_string(), Vec::new()))
    }
}
