//! Command lines of bash, read into values that can be judged.
//!
//! The grammar is a list of what is allowed: lists, pipelines, plain control flow, words whose meaning can be told. All else
//! is [`Unclear`], also where bash would take it. A reader that accepts more than it understands is how policies were got round.

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

/// The longest line that is read; a longer one is for a person.
pub const MAX_CHARACTERS: usize = 10_000;

/// How deep substitutions and control flow may be nested.
const MAX_DEPTH: usize = 20;

/// How many commands a line may hold.
const MAX_COMMANDS: usize = 200;

/// Why a line cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// It is longer than anybody would check.
    #[error("the line is longer than {MAX_CHARACTERS} characters")]
    TooLong,
    /// What a person sees would not be what runs.
    #[error("it holds {what} (U+{code:04X}), so that what is seen is not what runs")]
    Character {
        /// The kind of character.
        what: &'static str,
        /// Its code point.
        code: u32,
    },
    /// Nested beyond the limit.
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More commands than the limit.
    #[error("it holds more than {MAX_COMMANDS} commands")]
    TooMany,
    /// Bash may understand it; we do not claim to.
    #[error("{what} is not judged (character {at})")]
    Unsupported {
        /// The construct.
        what: &'static str,
        /// Where, counted from 1.
        at: usize,
    },
    /// It is no command line.
    #[error("it cannot be read as a command line: {what} (character {at})")]
    Syntax {
        /// What is wrong.
        what: &'static str,
        /// Where, counted from 1.
        at: usize,
    },
}

impl Unclear {
    /// What the reader can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooLong | Self::TooMany => "put it into a script and ask for the script",
            Self::Character { .. } => "type the line anew, with plain characters",
            Self::TooDeep | Self::Unsupported { .. } => "write it as plain commands, one after the other",
            Self::Syntax { .. } => "check quotes and brackets; `bash -n` tells what it thinks of the line",
        }
    }
}

/// Reads a command line as bash would, or says why not.
///
/// # Errors
/// Whatever is not certain to mean the same to bash.
pub fn parse(line: &str) -> Result<Script, Unclear> {
    // Bytes first: counting the characters of something huge takes long.
    if line.len() > 4 * MAX_CHARACTERS || line.chars().count() > MAX_CHARACTERS {
        return Err(Unclear::TooLong);
    }
    characters::check(line)?;
    grammar::script(line)
}

/// The line by which a shell runs a program with exactly these arguments.
pub fn quote(words: &[String]) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_./,:@%+".contains(sign);
    let quoted: Vec<String> = words
        .iter()
        .enumerate()
        .map(|(index, word)| {
            // The first one could be a reserved word, or an assignment, if nothing marked it as text.
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
