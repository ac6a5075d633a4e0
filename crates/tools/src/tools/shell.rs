//! `shell`: runs a program with arguments, without a shell.

use ringfence_policy::{AskedTimeout, Language};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::render::ModelOutput;
use crate::shell::{Program, ShellOutput};
use crate::toolbox::{Answer, Call, Clock, Effects, Tool, ToolError};

pub(super) struct Shell;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Name or path of the program. Not a shell command line: no pipes, globs or variables.
    #[schemars(length(min = 1))]
    command: String,
    /// Arguments of the program, one per item.
    #[serde(default)]
    args: Vec<String>,
    /// Working directory, below the workspace.
    working_dir: Option<String>,
    /// Timeout in seconds above 0, or with a unit such as "500ms". Can shorten the limit, not extend it.
    #[expect(dead_code, reason = "the toolbox reads it")]
    timeout: Option<AskedTimeout>,
}

impl Tool for Shell {
    const NAME: &'static str = "shell";
    const TITLE: &'static str = "Run a program";
    const DESCRIPTION: &'static str = "Runs one program with its arguments in the workspace, and returns stdout, stderr and the exit code. Use it for tools such \
        as git or make. No shell interprets the words; for pipes and loops use run_code with bash.";
    const EFFECTS: Effects = Effects::Destroys;
    const ON_HOST: bool = true;
    const CLOCK: Clock = Clock::Runner;
    type Arguments = Arguments;
    type Output = ShellOutput;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let Arguments {
            command,
            args,
            working_dir,
            ..
        } = arguments;
        let request = call.terms().request(Language::Command);
        let program = Program { name: command, args };
        let ran = call.command(call.runner(), request, program, working_dir.as_deref());
        let output = ran.await?;
        let text = ModelOutput::from(&output).text();
        Ok(Answer::value(&output)?.seen_as(text, Vec::new()))
    }
}
