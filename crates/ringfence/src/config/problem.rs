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
}

/// All mistakes of a configuration, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<_> = self.0.iter().map(|problem| problem.message.as_str()).collect();
        f.write_str(&messages.join("\n"))
    }
}

impl std::error::Error for Problems {}
