//! Remedies for tools and skills.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Remedy;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    RaiseTimeout {
        tool: String,
    },
    Allow,
    /// For a tool of the host that no client of the HTTP API has.
    RunInFence,
    AllowHostCommands,
    NameWorkspace,
    /// The owner of the root directory.
    CorrectOwner,
    NameSkills,
    AcceptSkills {
        /// Command line for a person who may see its paths; else the one without any.
        command: Option<String>,
    },
    /// For more functions than there may be.
    ChooseSkills,
    /// For a skill that takes long to start.
    AllowStart,
}

impl Tool {
    pub(super) fn person(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::RaiseTimeout { tool } => {
                return format!(
                    "ask for less at once, or raise `permissions.tool_limits.{tool}_timeout_secs`"
                )
                .into();
            }
            Self::Allow => "use another tool, or have it removed from `permissions.denied_tools`",
            Self::RunInFence => {
                "use `run_code`; tools that act on the server's machine are closed to keys, and `ringfence mcp` there has them"
            }
            Self::AllowHostCommands => "use the sandboxed tools, or have `hostExecution.enabled` set",
            Self::NameWorkspace => {
                "have one named: `--workspace DIR`, `permissions.filesystem.user_scope`, or a root of the MCP client"
            }
            Self::CorrectOwner => "correct `permissions.filesystem`, or pass a session id",
            Self::NameSkills => "have `skills.path` set to a directory of them",
            Self::AcceptSkills { command } => {
                let command = command.as_deref().unwrap_or("ringfence skills accept");
                return format!("look at it, and run `{command}`").into();
            }
            Self::ChooseSkills => "`skills.allow` can name those that are needed",
            Self::AllowStart => "`skills.start_timeout` allows more",
        })
    }
}

impl From<Tool> for Remedy {
    fn from(remedy: Tool) -> Self {
        Self::Tool(remedy)
    }
}
