//! Problems of a configuration, with hints.

use std::fmt;

/// A mistake in the configuration: position, message and hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Position, key and expected value.
    pub message: String,
    pub hint: String,
}

impl Problem {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Returns the file and the line with which the message begins, if it does.
    fn position(&self) -> Option<(&str, usize)> {
        let (place, _) = self.message.split_once(": ")?;
        let (file, line) = place.rsplit_once(':')?;
        Some((file, line.parse().ok()?))
    }
}

/// All mistakes of a configuration, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Sorts mistakes by file and line. Those without a line come last.
    pub(crate) fn by_line(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| {
            let at = problem.position();
            let (file, line) = at.unwrap_or_default();
            (at.is_none(), file.to_owned(), line)
        });
        Self(problems)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<_> = self.0.iter().map(|problem| problem.message.as_str()).collect();
        f.write_str(&messages.join("\n"))
    }
}

impl std::error::Error for Problems {}
