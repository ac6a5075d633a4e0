//! `[[ … ]]`: tests without side effects.
//!
//! Operators that evaluate arithmetic are not supported: `-eq` and the like evaluate their operands, and an
//! index in one (`a[$(id)]`) runs a command; so do `-v` and `-R`. The supported ones compare texts or query
//! files.

use super::cursor::{Cursor, is_boundary};
use super::{Piece, Unclear, Word, word};

const UNARY: &str = "abcdefghknprstuwxzGLNOS";
const BINARY: &[&str] = &["=", "==", "!=", "=~", "-nt", "-ot", "-ef"];
const COMPUTING: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

/// Parses the words of the test; the cursor stands at `[[`.
pub(super) fn condition(cursor: &mut Cursor) -> Result<Vec<Word>, Unclear> {
    cursor.at += 2;
    let mut words = Vec::new();
    loop {
        term(cursor, &mut words)?;
        cursor.skip_blanks();
        if cursor.take_text("&&") || cursor.take_text("||") {
            continue;
        }
        return match cursor.run() == "]]" && cursor.take_text("]]") {
            true => Ok(words),
            false => Err(cursor.unsupported("this test")),
        };
    }
}

/// Parses `word`, `-f word` or `word == word`, with optional `!` before it.
fn term(cursor: &mut Cursor, words: &mut Vec<Word>) -> Result<(), Unclear> {
    let mut first = next(cursor)?;
    while first.text == "!" {
        first = next(cursor)?;
    }
    if is_unary(&first.text) {
        words.push(next(cursor)?);
        return Ok(());
    }
    if first.text.starts_with('-') {
        return Err(cursor.unsupported("this test"));
    }
    cursor.skip_blanks();
    let operator = cursor.run();
    let computes = COMPUTING.contains(&operator.as_str());
    if !computes && !BINARY.contains(&operator.as_str()) {
        words.push(first);
        return Ok(());
    }
    cursor.at += operator.chars().count();
    let second = next(cursor)?;
    if computes && !(is_number(&first) && is_number(&second)) {
        return Err(cursor.unsupported("arithmetic with more than numbers"));
    }
    words.extend([first, second]);
    Ok(())
}

fn is_unary(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|letter| letter.len() == 1 && UNARY.contains(letter))
}

fn is_number(word: &Word) -> bool {
    let number =
        |text: &str| !text.is_empty() && text.len() < 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    match word.pieces.as_slice() {
        [Piece::Literal(text)] => number(text),
        [Piece::Variable(variable)] => variable.is_number(),
        _ => false,
    }
}

/// Parses a word that ends at a blank or at the end of the command: brackets and `<` have another meaning in
/// here.
fn next(cursor: &mut Cursor) -> Result<Word, Unclear> {
    cursor.skip_blanks();
    if cursor.run() == "]]" || cursor.peek().is_none_or(is_boundary) || cursor.peek() == Some('#') {
        return Err(cursor.unsupported("this test"));
    }
    let word = word::checked_word(cursor)?;
    match cursor.peek() {
        Some(' ' | '\t' | ';' | '\n' | '&' | '|') | None => Ok(word),
        Some(_) => Err(cursor.unsupported("this test")),
    }
}
