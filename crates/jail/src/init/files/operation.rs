//! Operations as arguments of the init's program.

use std::ffi::OsString;

use super::error::FileError;
use super::read::FileRange;
use super::{MAX_PATH, WatchDepth};

/// An operation inside a sandbox, on its files or with its network. Its paths are absolute paths in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Prints an [`Entry`](super::Entry); a final link is not followed.
    Stat {
        path: String,
    },
    /// Prints [`ListLine`](super::ListLine)s. `depth` 1 lists the directory's own entries. `after` is the path of an entry below the
    /// directory: those before it, and itself, are left out.
    List {
        path: String,
        depth: usize,
        after: Option<String>,
    },
    /// Prints an [`Entry`](super::Entry), then bytes.
    Read {
        path: String,
        range: FileRange,
    },
    /// Stores standard input, prints [`Written`](super::Written).
    Write {
        path: String,
        /// Permission bits, at most `0o777`; those of the replaced file, or `0o644`, if `None`.
        mode: Option<u32>,
        /// Length of the input. `None`: the content ends with the input, so a caller that loses the source
        /// must kill the program instead of ending its input.
        size: Option<u64>,
    },
    /// Prints a [`MadeDirectory`](super::MadeDirectory).
    MakeDirectory {
        path: String,
    },
    /// Prints an [`Entry`](super::Entry).
    Move {
        from: String,
        to: String,
    },
    /// Prints a [`Copied`](super::Copied).
    Copy {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    /// Prints [`Event`](super::Event)s until standard input ends or the directory is gone.
    Watch {
        path: String,
        depth: WatchDepth,
    },
    /// Prints a tar archive, then a [`TreeReport`](super::TreeReport) on standard error.
    Archive {
        path: String,
    },
    /// Like `Archive`, of several directories and with paths relative to `/`, where extracting the archive
    /// restores them. A directory that does not exist is left out.
    Pack {
        paths: Vec<String>,
    },
    /// Like `Pack`, for a sandbox with a writable root: first the changes of the root, with members that
    /// represent removals.
    PackRoot {
        paths: Vec<String>,
    },
    /// Unpacks a tar archive from standard input, prints a [`TreeReport`](super::TreeReport).
    Extract {
        path: String,
    },
    /// Unpacks an archive of `PackRoot` at `/`, with owners and all permission bits, and performs its
    /// removals.
    ExtractRoot,
    /// Connects to this TCP port at 127.0.0.1, and prints a line feed. Then relays standard input to the
    /// port, and prints the port's data.
    Connect {
        port: u16,
    },
}

/// First argument of [`Operation::PackRoot`].
const PACK_ROOT: &str = "pack-root";

/// First arguments of the operations that stage an entry. The others have nothing to remove, and are killed at once.
const STAGING: &[&str] = &["write", "copy", "move", "extract", "extract-root"];

impl Operation {
    /// Returns the arguments that [`Self::parse`] reads.
    pub fn arguments(&self) -> Vec<String> {
        let path = |path: &String| path.clone();
        let optional = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
        let (verb, rest) = match self {
            Self::Stat { path: at } => ("stat", vec![path(at)]),
            Self::List {
                path: at,
                depth,
                after,
            } => {
                let words = [path(at), depth.to_string()].into_iter();
                ("list", words.chain(after.clone()).collect())
            }
            Self::Read { path: at, range } => (
                "read",
                vec![path(at), range.offset.to_string(), optional(range.length)],
            ),
            Self::Write { path: at, mode, size } => {
                let mode = mode.map_or("-".into(), |mode| format!("{mode:o}"));
                ("write", vec![path(at), mode, optional(*size)])
            }
            Self::MakeDirectory { path: at } => ("mkdir", vec![path(at)]),
            Self::Move { from, to } => ("move", vec![path(from), path(to)]),
            Self::Copy { from, to } => ("copy", vec![path(from), path(to)]),
            Self::Remove { path: at } => ("remove", vec![path(at)]),
            Self::Watch { path: at, depth } => ("watch", vec![path(at), depth.word().into()]),
            Self::Archive { path: at } => ("archive", vec![path(at)]),
            Self::Pack { paths } => ("pack", paths.clone()),
            Self::PackRoot { paths } => (PACK_ROOT, paths.clone()),
            Self::Extract { path: at } => ("extract", vec![path(at)]),
            Self::ExtractRoot => ("extract-root", Vec::new()),
            Self::Connect { port } => ("connect", vec![port.to_string()]),
        };
        std::iter::once(verb.to_owned()).chain(rest).collect()
    }

    /// Reads arguments.
    ///
    /// # Errors
    /// If they are not an operation, or a path is not absolute or longer than [`MAX_PATH`].
    pub fn parse(arguments: &[OsString]) -> Result<Self, FileError> {
        let texts: Option<Vec<&str>> = arguments.iter().map(|argument| argument.to_str()).collect();
        let texts = texts.ok_or_else(|| FileError::invalid("an argument is not UTF-8"))?;
        Ok(match texts[..] {
            ["stat", at] => Self::Stat { path: path(at)? },
            ["list", at, depth, ref after @ ..] if after.len() <= 1 => Self::List {
                path: path(at)?,
                depth: number(depth)?,
                after: after.first().map(|after| path(after)).transpose()?,
            },
            ["read", at, offset, length] => Self::Read {
                path: path(at)?,
                range: FileRange {
                    offset: number(offset)?,
                    length: optional(length)?,
                },
            },
            ["write", at, mode, size] => Self::Write {
                path: path(at)?,
                mode: permissions(mode)?,
                size: optional(size)?,
            },
            ["mkdir", at] => Self::MakeDirectory { path: path(at)? },
            ["move", from, to] => Self::Move {
                from: path(from)?,
                to: path(to)?,
            },
            ["copy", from, to] => Self::Copy {
                from: path(from)?,
                to: path(to)?,
            },
            ["remove", at] => Self::Remove { path: path(at)? },
            ["watch", at, depth] => Self::Watch {
                path: path(at)?,
                depth: WatchDepth::of_word(depth).ok_or_else(|| not("flat or recursive", depth))?,
            },
            ["archive", at] => Self::Archive { path: path(at)? },
            ["pack", ref all @ ..] if !all.is_empty() => Self::Pack { paths: paths(all)? },
            [PACK_ROOT, ref all @ ..] if !all.is_empty() => Self::PackRoot { paths: paths(all)? },
            ["extract", at] => Self::Extract { path: path(at)? },
            ["extract-root"] => Self::ExtractRoot,
            ["connect", port] => Self::Connect { port: number(port)? },
            _ => return Err(FileError::invalid("expected an operation with its arguments")),
        })
    }
}

/// Returns `true` for the arguments of [`Operation::PackRoot`].
pub(crate) fn packs_root(arguments: &[String]) -> bool {
    arguments.first().is_some_and(|verb| verb == PACK_ROOT)
}

/// Returns `true` for the arguments of an operation that makes an entry under a temporary name, which it removes if it is
/// cancelled.
pub(crate) fn stages(arguments: &[String]) -> bool {
    arguments
        .first()
        .is_some_and(|verb| STAGING.contains(&verb.as_str()))
}

fn paths(texts: &[&str]) -> Result<Vec<String>, FileError> {
    texts.iter().map(|text| path(text)).collect()
}

fn path(text: &str) -> Result<String, FileError> {
    match text.starts_with('/') && text.len() <= MAX_PATH && !text.contains('\0') {
        true => Ok(text.into()),
        false => Err(not(
            "an absolute path, such as /workspace/data, of at most 4095 bytes",
            text,
        )),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, FileError> {
    text.parse().map_err(|_| not("a number", text))
}

fn optional(text: &str) -> Result<Option<u64>, FileError> {
    match text {
        "-" => Ok(None),
        text => number(text).map(Some),
    }
}

fn permissions(text: &str) -> Result<Option<u32>, FileError> {
    if text == "-" {
        return Ok(None);
    }
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.map(Some)
        .ok_or_else(|| not("an octal mode from 0 to 777", text))
}

fn not(expected: &str, found: &str) -> FileError {
    let found: String = found.chars().take(100).collect();
    FileError::invalid(format!("expected {expected}, found {found:?}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::super::FileErrorKind;
    use super::*;

    #[test]
    fn arguments_are_read_as_they_are_written() {
        let at = || String::from("/a b/ü\n-");
        let range = |offset, length| FileRange { offset, length };
        let all = [
            Operation::Stat { path: at() },
            Operation::List {
                path: at(),
                depth: 3,
                after: None,
            },
            Operation::List {
                path: at(),
                depth: 3,
                after: Some(at()),
            },
            Operation::Read {
                path: at(),
                range: range(0, None),
            },
            Operation::Read {
                path: at(),
                range: range(7, Some(u64::MAX)),
            },
            Operation::Write {
                path: at(),
                mode: None,
                size: None,
            },
            Operation::Write {
                path: at(),
                mode: Some(0o640),
                size: Some(5),
            },
            Operation::MakeDirectory { path: at() },
            Operation::Move {
                from: at(),
                to: "/".into(),
            },
            Operation::Copy {
                from: "/".into(),
                to: at(),
            },
            Operation::Remove { path: at() },
            Operation::Watch {
                path: at(),
                depth: WatchDepth::Flat,
            },
            Operation::Watch {
                path: at(),
                depth: WatchDepth::Recursive,
            },
            Operation::Archive { path: at() },
            Operation::Pack {
                paths: vec![at(), "/tmp".into()],
            },
            Operation::PackRoot { paths: vec![at()] },
            Operation::Extract { path: at() },
            Operation::ExtractRoot,
            Operation::Connect { port: 8080 },
        ];
        for operation in all {
            let arguments: Vec<OsString> = operation.arguments().into_iter().map(OsString::from).collect();
            assert_eq!(Operation::parse(&arguments), Ok(operation));
        }
    }

    #[test]
    fn everything_else_is_invalid() {
        let long = format!("/{}", "n".repeat(MAX_PATH));
        let bad: &[&[&str]] = &[
            &[],
            &["stat"],
            &["stat", ""],
            &["stat", "relative"],
            &["stat", &long],
            &["stat", "/a", "/b"],
            &["list", "/a", "-1"],
            &["read", "/a", "0", "x"],
            &["read", "/a", "-", "-"],
            &["write", "/a", "1777", "-"],
            &["write", "/a", "8", "-"],
            &["watch", "/a", "deep"],
            &["pack"],
            &["pack", "/a", "b"],
            &["chmod", "/a"],
        ];
        for arguments in bad {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let error = Operation::parse(&arguments).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::Invalid, "{arguments:?}");
        }
        let no_text = [OsString::from("stat"), OsString::from_vec(b"/\xff".to_vec())];
        assert_eq!(
            Operation::parse(&no_text).unwrap_err().kind,
            FileErrorKind::Invalid
        );
    }
}
