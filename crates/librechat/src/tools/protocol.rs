//! The messages of programs with tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::session::{FileRef, InputFile};

/// A program with tools to run, or results for one that waits.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "LibreChatProgrammatic")]
pub struct Programmatic {
    #[serde(default)]
    pub code: Option<String>,
    /// `python`, the default, or `bash`.
    #[serde(default)]
    pub lang: Option<String>,
    /// The same, and before it.
    #[serde(default)]
    pub language: Option<String>,
    /// Functions of the program.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
    #[serde(default)]
    pub files: Option<Vec<InputFile>>,
    /// Time limit of the program between two rounds, in milliseconds: 60,000 by default, at most 300,000.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// Token of a program that waits, in the place of code.
    #[serde(default)]
    pub continuation_token: Option<String>,
    #[serde(default)]
    pub tool_results: Option<Vec<ToolResult>>,
}

/// A tool of the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "LibreChatTool")]
pub struct Tool {
    pub name: String,
    #[serde(default)]
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    #[serde(default)]
    pub parameters: Value,
}

/// A call of a tool, for the client to carry out.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "LibreChatToolCall")]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// Text of the arguments, an object: parsed, it may take a hundred times its bytes while the program waits.
    #[schemars(with = "Map<String, Value>")]
    pub input: Box<RawValue>,
}

/// The result of a call.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "LibreChatToolResult")]
pub struct ToolResult {
    pub call_id: String,
    #[serde(default)]
    pub result: Value,
    #[serde(default)]
    pub is_error: Option<bool>,
    #[serde(default)]
    pub error_message: Option<String>,
}

/// The state of a program after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LibreChatStatus")]
pub enum Status {
    ToolCallRequired,
    Completed,
    /// The program failed, or a limit ended it.
    Error,
}

/// The answer to a round.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LibreChatRound")]
pub struct ProgrammaticAnswer {
    pub status: Status,
    /// Session of the files that it made.
    pub session_id: String,
    /// Token for the results of the calls, which wait for ten minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continuation_token: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileRef>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deleted_files: Vec<String>,
    /// Reason of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ProgrammaticAnswer {
    pub(crate) const fn new(status: Status, session_id: String) -> Self {
        Self {
            status,
            session_id,
            continuation_token: None,
            tool_calls: Vec::new(),
            stdout: None,
            stderr: None,
            files: None,
            deleted_files: Vec::new(),
            error: None,
        }
    }
}
