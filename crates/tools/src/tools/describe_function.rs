//! `describe_function`: describes a host function that code may call.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::toolbox::{Answer, Call, Effects, ErrorKind, Parts, Tool, ToolError};

pub(super) struct DescribeFunction;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Path of the function, such as `Notes.add`.
    path: String,
}

impl Tool for DescribeFunction {
    const NAME: &'static str = "describe_function";
    const TITLE: &'static str = "Describe a function";
    const DESCRIPTION: &'static str = "Describes a function of the host that Python code can call as `device.<path>(...)`: \
        its `def` line and its documentation. `search_skills` finds paths.";
    const EFFECTS: Effects = Effects::Reads;
    const ON_HOST: bool = false;
    type Arguments = Arguments;
    type Output = ();

    fn is_offered(parts: &Parts) -> bool {
        parts.skills.is_some()
    }

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let gatekeeper = call.gatekeeper()?;
        let table = gatekeeper.table().await;
        let function = table.function(&arguments.path).ok_or_else(|| {
            ToolError::new(
                ErrorKind::NotFound,
                table.not_found(&arguments.path),
                "find its path with `search_skills`",
            )
        })?;
        Ok(Answer::text(function.description()))
    }
}
