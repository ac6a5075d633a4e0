//! The parser's position in a line.

use super::{MAX_COMMANDS, MAX_DEPTH, Unclear, Word};

/// A line, a position in it, and counters for the limits.
pub(super) struct Cursor {
    characters: Vec<char>,
    /// Set if the characters are the line's own, rather than a text extracted from it.
    is_line: bool,
    pub(super) at: usize,
    pub(super) depth: usize,
    commands: usize,
    /// Number of open substitutions.
    pub(super) substitutions: usize,
    /// Here documents whose bodies follow the next newline.
    pub(super) pending: Vec<Pending>,
    pub(super) here: Vec<Word>,
}

/// A here document whose body has not been reached.
pub(super) struct Pending {
    pub(super) end: String,
    pub(super) expands: bool,
    pub(super) strip_tabs: bool,
}

impl Cursor {
    pub(super) fn new(line: &str) -> Self {
        Self {
            characters: line.chars().collect(),
            is_line: true,
            at: 0,
            depth: 0,
            commands: 0,
            substitutions: 0,
            pending: Vec::new(),
            here: Vec::new(),
        }
    }

    /// Returns a cursor for the text between backquotes, within the same limits.
    pub(super) fn within(&self, text: &str) -> Self {
        Self {
            is_line: false,
            depth: self.depth,
            commands: self.commands,
            substitutions: 1,
            ..Self::new(text)
        }
    }

    /// Returns the position in the line; `None` in an extracted text.
    pub(super) fn place(&self) -> Option<usize> {
        self.is_line.then_some(self.at)
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.look(0)
    }

    pub(super) fn look(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    /// Returns the previous character.
    pub(super) fn before(&self) -> Option<char> {
        self.at
            .checked_sub(1)
            .and_then(|index| self.characters.get(index))
            .copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += 1;
        Some(character)
    }

    pub(super) fn take(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    pub(super) fn starts_with(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(ahead, character)| self.look(ahead) == Some(character))
    }

    pub(super) fn take_text(&mut self, text: &str) -> bool {
        let there = self.starts_with(text);
        if there {
            self.at += text.chars().count();
        }
        there
    }

    pub(super) fn since(&self, start: usize) -> String {
        self.characters[start..self.at].iter().collect()
    }

    pub(super) fn rest_of_line(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(|character| character != '\n') {
            self.at += 1;
        }
        self.since(start)
    }

    /// Skips blanks, and line continuations between words.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\\') if self.look(1) == Some('\n') && self.is_between_words() => self.at += 2,
                _ => return,
            }
        }
    }

    /// Returns `true` after a blank: only there is the meaning of a line continuation beyond doubt.
    fn is_between_words(&self) -> bool {
        let before = self
            .at
            .checked_sub(1)
            .and_then(|index| self.characters.get(index));
        matches!(before, None | Some(' ' | '\t' | '\n'))
    }

    /// Returns the characters up to the next blank or operator, to detect a reserved word.
    pub(super) fn run(&self) -> String {
        let rest = &self.characters[self.at..];
        let word = rest
            .iter()
            .take(10)
            .take_while(|character| !is_boundary(**character));
        word.collect()
    }

    pub(super) fn unsupported(&self, what: &'static str) -> Unclear {
        Unclear::Unsupported {
            what,
            at: self.at + 1,
        }
    }

    pub(super) fn syntax(&self, what: &'static str) -> Unclear {
        Unclear::Syntax {
            what,
            at: self.at + 1,
        }
    }

    pub(super) fn enter(&mut self) -> Result<(), Unclear> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unclear::TooDeep);
        }
        Ok(())
    }

    pub(super) fn count(&mut self) -> Result<(), Unclear> {
        self.commands += 1;
        if self.commands > MAX_COMMANDS {
            return Err(Unclear::TooMany);
        }
        Ok(())
    }

    /// Adopts the command count of a backquote parser.
    pub(super) fn account(&mut self, inner: &Self) {
        self.commands = inner.commands;
    }
}

/// Returns `true` if a word ends before this unquoted character.
pub(super) fn is_boundary(character: char) -> bool {
    matches!(
        character,
        ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')'
    )
}

pub(super) fn starts_name(character: char) -> bool {
    character.is_ascii_alphabetic() || character == '_'
}

pub(super) fn in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}
