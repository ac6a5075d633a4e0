//! Who uses a tool, and from where.

use ringfence_policy::{Scope, SessionId};

/// Who uses a tool.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose files and interpreters they are.
    pub scope: Scope,
    /// Which conversation it belongs to, where files are kept apart by session.
    pub session: Option<SessionId>,
    /// Where the invocation came in.
    pub surface: Surface,
    /// What the client says that it is; told in the audit log and believed nowhere.
    pub client: Option<String>,
}

/// Where an invocation comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// `ringfence tool`.
    CommandLine,
    /// An MCP client.
    Mcp,
    /// A program that embeds the library.
    Library,
}

impl Surface {
    /// The name in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CommandLine => "cli",
            Self::Mcp => "mcp",
            Self::Library => "library",
        }
    }
}
