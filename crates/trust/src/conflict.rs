//! Errors that deny a guest write access to a tree.

use std::path::{Path, PathBuf};

use ringfence_policy::{Remedy, remedy};

/// An error that denies a guest write access to a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The tree is trusted itself, or lies within a trusted path.
    #[error(
        "refusing to let the program write in {}: Ringfence itself relies on files in {}",
        tree.display(), trusted.display()
    )]
    Around {
        /// Requested tree.
        tree: PathBuf,
        trusted: PathBuf,
    },
    /// A trusted file has another hard link, perhaps one that the guest may write to.
    #[error(
        "refusing to let the program write in {}: {} is protected, and has several hard links",
        tree.display(), trusted.display()
    )]
    Linked {
        /// Requested tree.
        tree: PathBuf,
        trusted: PathBuf,
    },
    /// A protected entry leads to the tree itself, or to a directory around it.
    #[error(
        "refusing to let the program write in {}: {} leads to {}, and programs of the host execute or obey files there",
        tree.display(), entry.display(), target.display()
    )]
    Leads {
        /// Requested tree.
        tree: PathBuf,
        /// Protected link, or settings of git.
        entry: PathBuf,
        /// Path that the entry leads to.
        target: PathBuf,
    },
    /// Protected entries lead to more paths than can be kept.
    #[error(
        "refusing to let the program write in {}: {} leads to more paths than can be protected",
        tree.display(), entry.display()
    )]
    Many {
        /// Requested tree.
        tree: PathBuf,
        /// Protected link, or settings of git.
        entry: PathBuf,
    },
    /// The tree is, or lies in, a directory that a server in a fence imports code from.
    #[error(
        "refusing to let the program write in {}: the MCP server `{server}` imports code from {}",
        tree.display(), directory.display()
    )]
    Imported {
        /// Requested tree.
        tree: PathBuf,
        /// Name of the server.
        server: String,
        /// Directory with code of the server.
        directory: PathBuf,
    },
    /// The tree lies in the code of a server that runs on the host, or around it.
    #[error(
        "refusing to let the program write in {}: the MCP server `{server}` runs on the host, and its command or environment leads to {}",
        tree.display(), path.display()
    )]
    Server {
        /// Requested tree.
        tree: PathBuf,
        /// Name of the server.
        server: String,
        /// File or directory of the server.
        path: PathBuf,
    },
    /// Code of a server that runs on the host may lead to the tree.
    #[error(
        "refusing to let the program write in {}: the MCP server `{server}` runs on the host, and {} has unreadable entries, or too many to search for the code that it loads",
        tree.display(), path.display()
    )]
    ServerUnsearched {
        /// Requested tree.
        tree: PathBuf,
        /// Name of the server.
        server: String,
        /// Directory or file of the server.
        path: PathBuf,
    },
    /// The tree holds, or may hold, a hard link of a server's file.
    #[error(
        "refusing to let the program write in {}: the MCP server `{server}` runs {} on the host, {}",
        tree.display(), path.display(), also(other.as_deref())
    )]
    ServerLinked {
        /// Requested tree.
        tree: PathBuf,
        /// Name of the server.
        server: String,
        /// File of the server.
        path: PathBuf,
        /// Other name of the file in the tree, if it was found.
        other: Option<PathBuf>,
    },
    /// Without namespaces there are no mounts to protect it.
    #[error(
        "refusing to let the program write in {}: Ringfence or programs of the host execute or obey {}, which cannot be protected without namespaces",
        tree.display(), trusted.display()
    )]
    Unkept {
        /// Requested tree.
        tree: PathBuf,
        trusted: PathBuf,
    },
    /// The PATH leads to an interpreter that a guest may have put there.
    #[error(
        "refusing to use {}: only the PATH leads to it, and it lies in {}, where programs may write",
        program.display(), tree.display()
    )]
    Found {
        /// Interpreter.
        program: PathBuf,
        /// Directory that programs may write.
        tree: PathBuf,
    },
}

impl Conflict {
    /// Returns advice for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::Around { .. } => {
                "name a directory that holds the program's own files alone, or move what Ringfence relies on out of it".into()
            }
            Self::Server { .. } => {
                "move the server out of that directory, run it in a fence (`fence = \"fenced\"`) or, if the path is data alone, list it in the server's `data`".into()
            }
            Self::Imported { .. } => {
                "move the server's code to a directory of its own, or name a directory for the program that holds none".into()
            }
            Self::ServerUnsearched { .. } => {
                "run the server in a fence (`fence = \"fenced\"`) or, if no code of it lies there, list that path in the server's `data`".into()
            }
            Self::Linked { .. } | Self::ServerLinked { .. } => {
                "replace it by a copy (`cp FILE FILE.new && mv FILE.new FILE`)".into()
            }
            Self::Leads { .. } | Self::Many { .. } => {
                "remove that entry if a program made it; else let it lead to a directory or file of its own".into()
            }
            Self::Unkept { .. } => remedy::Run::ProtectByNamespaces.into(),
            Self::Found { .. } => remedy::Run::TrustPython.into(),
        }
    }
}

/// Describes the other hard link of a server's file.
fn also(other: Option<&Path>) -> String {
    match other {
        Some(other) => format!("and {} is a hard link to it", other.display()),
        None => "and that directory cannot be searched for hard links to it: it has too many entries, or hides some".to_owned(),
    }
}
