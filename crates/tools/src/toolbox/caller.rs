//! The caller of a tool.

use ringfence_policy::{Scope, SessionId};

#[derive(Debug, Clone)]
pub struct Caller {
    /// Owner of files and interpreters.
    pub scope: Scope,
    /// Session, where files are separated by session.
    pub session: Option<SessionId>,
    /// Origin of the invocation.
    pub surface: Surface,
    /// Self-reported name of the client, for the audit log only: it is not trusted.
    pub client: Option<String>,
}

/// Origin of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// `ringfence tool` and `ringfence run`.
    CommandLine,
    Mcp,
    /// The server's HTTP API.
    Http,
    /// MCP on the listeners of the HTTP API.
    McpOverHttp,
    /// A program that embeds the library.
    Library,
}

impl Surface {
    /// Returns the name used in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CommandLine => "cli",
            Self::Mcp => "mcp",
            Self::Http => "http",
            Self::McpOverHttp => "mcp_http",
            Self::Library => "library",
        }
    }

    /// Returns `true` for clients of the server's HTTP listeners, who have no directory on this machine.
    pub const fn is_remote(self) -> bool {
        match self {
            Self::Http | Self::McpOverHttp => true,
            Self::CommandLine | Self::Mcp | Self::Library => false,
        }
    }

    /// Returns `true` if a model reads the answers.
    pub const fn is_read_by_model(self) -> bool {
        match self {
            Self::Mcp | Self::McpOverHttp => true,
            Self::CommandLine | Self::Http | Self::Library => false,
        }
    }
}
