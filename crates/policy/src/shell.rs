//! Parses bash command lines into values that can be judged.
//!
//! The grammar is an allowlist: lists, pipelines, plain control flow, words with a determinable meaning. All
//! else is [`Unclear`], even if bash would accept it. Parsers that accept more than they understand are how
//! policies have been bypassed.

mod ast;
mod characters;
mod condition;
mod cursor;
mod grammar;
mod here;
mod word;

pub use ast::{
    Assignment, Compound, Form, Node, Piece, Redirect, RedirectKind, Script, Simple, Variable, Word,
};
pub use characters::visible;

/// Longest line that is parsed; a longer one goes to a person.
pub const MAX_CHARACTERS: usize = 10_000;

/// Maximum nesting of substitutions and control flow.
const MAX_DEPTH: usize = 20;

/// Most commands in a line.
const MAX_COMMANDS: usize = 200;

/// An error for a command line that the policy cannot judge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// Longer than a person would check.
    #[error("the line is longer than {MAX_CHARACTERS} characters")]
    TooLong,
    /// A character that makes the displayed text differ from the executed one.
    #[error("it contains {what} (U+{code:04X}), which makes the line look different from what runs")]
    Character {
        /// The kind of character.
        what: &'static str,
        /// Code point of the character.
        code: u32,
    },
    /// Nested beyond the limit.
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More commands than the limit.
    #[error("it holds more than {MAX_COMMANDS} commands")]
    TooMany,
    /// A construct that bash may accept and this parser does not.
    #[error("the command policy does not support {what} (character {at})")]
    Unsupported {
        /// The construct.
        what: &'static str,
        /// Position, counted from 1.
        at: usize,
    },
    /// Not a command line.
    #[error("it cannot be read as a command line: {what} (character {at})")]
    Syntax {
        /// The problem.
        what: &'static str,
        /// Position, counted from 1.
        at: usize,
    },
}

impl Unclear {
    /// Returns a suggestion for fixing it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooLong | Self::TooMany => "put it into a script and ask for the script",
            Self::Character { .. } => "type the line anew, with plain characters",
            Self::TooDeep | Self::Unsupported { .. } => "write it as plain commands, one after the other",
            Self::Syntax { .. } => "check quotes and brackets; `bash -n` tells what it thinks of the line",
        }
    }
}

/// Parses a command line as bash would.
///
/// # Errors
/// If the line is not certain to mean the same to bash.
pub fn parse(line: &str) -> Result<Script, Unclear> {
    // Bytes first: counting the characters of a huge text takes long.
    if line.len() > 4 * MAX_CHARACTERS || line.chars().count() > MAX_CHARACTERS {
        return Err(Unclear::TooLong);
    }
    characters::check(line)?;
    grammar::script(line)
}

/// Returns a shell command line that runs a program with exactly these arguments.
pub fn quote(words: &[String]) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_./,:@%+".contains(sign);
    let quoted: Vec<String> = words
        .iter()
        .enumerate()
        .map(|(index, word)| {
            // Unquoted, the first word could be a reserved word or an assignment.
            let bare =
                !word.is_empty() && word.chars().all(plain) && !(index == 0 && grammar::is_reserved(word));
            match bare {
                true => word.clone(),
                false => format!("'{}'", word.replace('\'', r"'\''")),
            }
        })
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests;
