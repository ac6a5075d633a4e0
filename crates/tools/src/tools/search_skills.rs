//! `search_skills`: finds host functions that code may call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::skills::FunctionMatch;
use crate::toolbox::{Answer, Call, Effects, Parts, Tool, ToolError};

pub(super) struct SearchSkills;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Words to search for in names and descriptions. Empty: all functions.
    #[serde(default)]
    query: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// Matching functions, best match first.
    functions: Vec<FunctionMatch>,
}

impl Tool for SearchSkills {
    const NAME: &'static str = "search_skills";
    const TITLE: &'static str = "Search skills";
    const DESCRIPTION: &'static str = "Finds functions of the host that Python code can call: a function with the path \
        `Notes.add` is called as `device.Notes.add(...)` in code that run_code or run_python_code runs. Returns path, \
        signature and summary of each.";
    const EFFECTS: Effects = Effects::Reads;
    const ON_HOST: bool = false;
    type Arguments = Arguments;
    type Output = Output;

    fn is_offered(parts: &Parts) -> bool {
        parts.skills.is_some()
    }

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let gatekeeper = call.gatekeeper()?;
        let table = gatekeeper.table().await;
        let functions = table.search(&arguments.query);
        let more = table.ranked(&arguments.query).len() - functions.len();
        let mut lines: Vec<String> = functions
            .iter()
            .map(|found| {
                let skill = found.path.split('.').next().unwrap_or_default();
                format!("device.{skill}.{}: {}", found.signature, found.summary)
            })
            .collect();
        if more > 0 {
            lines.push(format!("and {more} more: search for words of what you need"));
        }
        let text = match lines.is_empty() {
            true => "no function fits".to_owned(),
            false => lines.join("\n"),
        };
        Answer::both(text, &Output { functions })
    }
}
