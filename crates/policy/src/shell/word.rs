//! Parses words: quoting and expansions.

use super::cursor::{Cursor, in_name, is_boundary, starts_name};
use super::{Form, Node, Piece, Unclear, Variable, Word};

/// Parses one non-empty word from its first character.
pub(super) fn word(cursor: &mut Cursor) -> Result<Word, Unclear> {
    let start = cursor.at;
    let mut pieces = Pieces::default();
    while let Some(character) = cursor.peek() {
        if pieces.0.is_empty() && cursor.at == start && process(cursor, &mut pieces)? {
            continue;
        }
        if matches!(character, '<' | '>') && cursor.look(1) == Some('(') {
            return Err(cursor.unsupported("a process inside a word"));
        }
        if is_boundary(character) {
            break;
        }
        piece(cursor, &mut pieces, start)?;
    }
    let (text, end) = (cursor.since(start), cursor.place());
    if text == "[" {
        // The test command.
        return Ok(Word {
            pieces: vec![Piece::Literal(text.clone())],
            text,
            end,
        });
    }
    Ok(Word {
        pieces: pieces.0,
        text,
        end,
    })
}

/// Parses a word and rejects `{name}>file`, which opens a file descriptor.
pub(super) fn checked_word(cursor: &mut Cursor) -> Result<Word, Unclear> {
    let word = word(cursor)?;
    if word.text.is_empty() {
        return Err(cursor.syntax("a word is missing"));
    }
    if word.text.ends_with('}') && matches!(cursor.peek(), Some('<' | '>')) {
        return Err(cursor.unsupported("a descriptor with a name"));
    }
    Ok(word)
}

/// Parses a text in which quotes are literal: the body of a here document.
pub(super) fn body(cursor: &mut Cursor) -> Result<Word, Unclear> {
    let start = cursor.at;
    let mut pieces = Pieces::default();
    while let Some(character) = cursor.peek() {
        match character {
            '\\' => return Err(cursor.unsupported("a backslash in a here document")),
            '$' => dollar(cursor, &mut pieces, true)?,
            '`' => backquotes(cursor, &mut pieces)?,
            _ => pieces.push(cursor.next()),
        }
    }
    Ok(Word {
        pieces: pieces.0,
        text: cursor.since(start),
        end: None,
    })
}

#[derive(Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn push(&mut self, character: Option<char>) {
        let Some(character) = character else { return };
        match self.0.last_mut() {
            Some(Piece::Literal(text)) => text.push(character),
            _ => self.0.push(Piece::Literal(character.into())),
        }
    }

    fn variable(&mut self, name: String, form: Form) {
        self.0.push(Piece::Variable(Variable { name, form }));
    }

    fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(Piece::Literal(before)) => before.push_str(text),
            _ => self.0.push(Piece::Literal(text.to_owned())),
        }
    }
}

fn piece(cursor: &mut Cursor, pieces: &mut Pieces, start: usize) -> Result<(), Unclear> {
    match cursor.peek() {
        Some('\\') => escaped(cursor, pieces)?,
        Some('\'') => single(cursor, pieces)?,
        Some('"') => double(cursor, pieces)?,
        Some('$') => dollar(cursor, pieces, false)?,
        Some('`') => backquotes(cursor, pieces)?,
        Some('~') if cursor.at == start || matches!(cursor.before(), Some('=' | ':')) => {
            home(cursor, pieces)?
        }
        Some('{') if expands(cursor) => {
            let words = alternatives(cursor).unwrap_or_default();
            if words.is_empty() {
                cursor.at += 1;
            }
            pieces.0.push(Piece::Braces(words));
        }
        Some(sign @ ('*' | '?' | '[')) => {
            cursor.at += 1;
            pieces.0.push(Piece::Glob(sign));
        }
        _ => pieces.push(cursor.next()),
    }
    Ok(())
}

fn escaped(cursor: &mut Cursor, pieces: &mut Pieces) -> Result<(), Unclear> {
    match cursor.look(1) {
        None => Err(cursor.syntax("a backslash at the end")),
        Some('\n') => Err(cursor.unsupported("a line that goes on inside a word")),
        Some(character) => {
            cursor.at += 2;
            pieces.push(Some(character));
            Ok(())
        }
    }
}

fn single(cursor: &mut Cursor, pieces: &mut Pieces) -> Result<(), Unclear> {
    cursor.at += 1;
    pieces.text("");
    loop {
        match cursor.next() {
            None => return Err(cursor.syntax("a quote is not closed")),
            Some('\'') => return Ok(()),
            character => pieces.push(character),
        }
    }
}

fn double(cursor: &mut Cursor, pieces: &mut Pieces) -> Result<(), Unclear> {
    cursor.at += 1;
    pieces.text("");
    loop {
        match cursor.peek() {
            None => return Err(cursor.syntax("a quote is not closed")),
            Some('"') => {
                cursor.at += 1;
                return Ok(());
            }
            Some('$') => dollar(cursor, pieces, true)?,
            Some('`') => backquotes(cursor, pieces)?,
            Some('\\') => match cursor.look(1) {
                Some('\n') => return Err(cursor.unsupported("a line that goes on inside a word")),
                Some(character @ ('$' | '`' | '"' | '\\')) => {
                    cursor.at += 2;
                    pieces.push(Some(character));
                }
                _ => pieces.push(cursor.next()),
            },
            _ => pieces.push(cursor.next()),
        }
    }
}

/// Parses `~`. `~name` is another user's home, `~+`, `~-` and `~1` are directories that the shell remembers.
fn home(cursor: &mut Cursor, pieces: &mut Pieces) -> Result<(), Unclear> {
    let next = cursor.look(1);
    if next.is_some_and(|character| in_name(character) || matches!(character, '.' | '+' | '-')) {
        return Err(cursor.unsupported("a tilde that is not the home directory"));
    }
    cursor.at += 1;
    pieces.0.push(Piece::Home("~".to_owned()));
    Ok(())
}

/// Parses `{a,b}` of plain characters, to its end. Quotes and nested braces are not supported.
fn alternatives(cursor: &mut Cursor) -> Option<Vec<String>> {
    let (start, mut ahead) = (cursor.at, 1);
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "_-./,@%+".contains(sign);
    while cursor.look(ahead).is_some_and(plain) {
        ahead += 1;
    }
    if cursor.look(ahead) != Some('}') || ahead > FAR {
        return None;
    }
    cursor.at += ahead + 1;
    let text = cursor.since(start);
    let inner = text.trim_matches(['{', '}']);
    let words = range(inner).or_else(|| {
        let listed = inner.contains(',') && !inner.contains("..");
        listed.then(|| inner.split(',').map(str::to_owned).collect())
    });
    if words.is_none() {
        cursor.at = start;
    }
    words
}

/// Parses `1..5`: ascending and short.
fn range(text: &str) -> Option<Vec<String>> {
    let (first, last) = text.split_once("..")?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if !digits(first) || !digits(last) {
        return None;
    }
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    let numbers = first..=last.min(first.saturating_add(32));
    (first <= last && numbers.contains(&last)).then(|| numbers.map(|number| number.to_string()).collect())
}

/// Furthest distance of a closing brace.
const FAR: usize = 200;

/// Returns `true` if the brace here may begin a list or a range. Quotes are ignored: a false positive does no
/// harm.
fn expands(cursor: &Cursor) -> bool {
    let (mut separated, mut ahead) = (false, 1);
    while let Some(character) = cursor.look(ahead) {
        match character {
            ' ' | '\t' | '\n' => return false,
            ',' => separated = true,
            '.' if cursor.look(ahead + 1) == Some('.') => separated = true,
            '}' if separated => return true,
            _ if ahead > FAR => return true,
            _ => {}
        }
        ahead += 1;
    }
    false
}

/// Parses `<( … )` and `>( … )`, at the beginning of a word.
fn process(cursor: &mut Cursor, pieces: &mut Pieces) -> Result<bool, Unclear> {
    let output = cursor.starts_with(">(");
    if !output && !cursor.starts_with("<(") {
        return Ok(false);
    }
    cursor.at += 2;
    let body = substitution(cursor)?;
    pieces.0.push(Piece::Process { output, body });
    Ok(true)
}

/// Parses a substitution, from after the opening bracket to the closing one.
fn substitution(cursor: &mut Cursor) -> Result<Vec<Node>, Unclear> {
    cursor.enter()?;
    cursor.substitutions += 1;
    let pending = cursor.pending.len();
    let nodes = cursor.list(&[])?;
    if cursor.pending.len() != pending {
        return Err(cursor.unsupported("a here document inside a substitution"));
    }
    if !cursor.take(')') {
        return Err(cursor.syntax("a substitution is not closed"));
    }
    cursor.substitutions -= 1;
    cursor.depth -= 1;
    Ok(nodes)
}

fn backquotes(cursor: &mut Cursor, pieces: &mut Pieces) -> Result<(), Unclear> {
    cursor.at += 1;
    let start = cursor.at;
    loop {
        match cursor.peek() {
            None => return Err(cursor.syntax("a backquote is not closed")),
            Some('\\') => return Err(cursor.unsupported("a backslash between backquotes")),
            Some('`') => break,
            Some(_) => cursor.at += 1,
        }
    }
    let text = cursor.since(start);
    cursor.at += 1;
    let mut inner = cursor.within(&text);
    inner.enter()?;
    let nodes = inner.list(&[])?;
    if inner.peek().is_some() || !inner.pending.is_empty() {
        return Err(cursor.syntax("what stands between backquotes"));
    }
    cursor.account(&inner);
    pieces.0.push(Piece::Commands(nodes));
    Ok(())
}

fn as_is(quoted: bool) -> Form {
    match quoted {
        true => Form::Quoted,
        false => Form::Split,
    }
}

fn dollar(cursor: &mut Cursor, pieces: &mut Pieces, quoted: bool) -> Result<(), Unclear> {
    match cursor.look(1) {
        Some('(') if cursor.look(2) == Some('(') => arithmetic(cursor, pieces),
        Some('(') => {
            cursor.at += 2;
            let nodes = substitution(cursor)?;
            pieces.0.push(Piece::Commands(nodes));
            Ok(())
        }
        Some('{') => parameter(cursor, pieces, quoted),
        Some('[') => Err(cursor.unsupported("arithmetic in square brackets")),
        Some('\'') if !quoted => ansi(cursor, pieces),
        Some('"') if !quoted => Err(cursor.unsupported("a translated text")),
        Some(character) if starts_name(character) => {
            cursor.at += 1;
            let name = name(cursor);
            pieces.variable(name, as_is(quoted));
            Ok(())
        }
        Some(sign) if sign.is_ascii_digit() || "?#$!@*-".contains(sign) => {
            cursor.at += 2;
            pieces.variable(sign.into(), as_is(quoted));
            Ok(())
        }
        _ => {
            pieces.push(cursor.next());
            Ok(())
        }
    }
}

pub(super) fn name(cursor: &mut Cursor) -> String {
    let start = cursor.at;
    while cursor.peek().is_some_and(in_name) {
        cursor.at += 1;
    }
    cursor.since(start)
}

/// Accepts numbers only: a variable's value would be evaluated in turn, and an index in it may run a command.
fn arithmetic(cursor: &mut Cursor, pieces: &mut Pieces) -> Result<(), Unclear> {
    let start = cursor.at;
    cursor.at += 3;
    while let Some(character) = cursor.peek() {
        if character == ')' && cursor.look(1) == Some(')') {
            cursor.at += 2;
            pieces.variable(cursor.since(start), Form::Changed);
            return Ok(());
        }
        if !character.is_ascii_digit() && !" +-*/%<>=!&|^~".contains(character) {
            break;
        }
        cursor.at += 1;
    }
    Err(cursor.unsupported("arithmetic with more than numbers"))
}

/// Parses `${name}`, `${#name}`, and the operators that neither assign nor evaluate.
fn parameter(cursor: &mut Cursor, pieces: &mut Pieces, quoted: bool) -> Result<(), Unclear> {
    cursor.at += 2;
    let counts = cursor.peek() == Some('#') && cursor.look(1).is_some_and(starts_name);
    if counts {
        cursor.at += 1;
    }
    let name = match cursor.peek() {
        Some(character) if starts_name(character) => name(cursor),
        Some(sign) if sign.is_ascii_digit() || "?#@*".contains(sign) => {
            cursor.at += 1;
            sign.into()
        }
        _ => return Err(cursor.unsupported("this expansion of a variable")),
    };
    if cursor.take('}') {
        let form = if counts { Form::Changed } else { as_is(quoted) };
        pieces.variable(name, form);
        return Ok(());
    }
    pieces.variable(name, Form::Changed);
    let harmless = [":-", ":+", ":?", "-", "+", "?", "##", "#", "%%", "%", "/"];
    if !harmless.iter().any(|operator| cursor.take_text(operator)) {
        return Err(cursor.unsupported("this expansion of a variable"));
    }
    cursor.enter()?;
    while let Some(character) = cursor.peek() {
        match character {
            '}' => {
                cursor.at += 1;
                cursor.depth -= 1;
                return Ok(());
            }
            '$' => dollar(cursor, pieces, true)?,
            '`' => backquotes(cursor, pieces)?,
            '\'' | '"' | '\\' | '{' | '\n' | '<' | '>' => {
                return Err(cursor.unsupported("this expansion of a variable"));
            }
            _ => cursor.at += 1,
        }
    }
    Err(cursor.syntax("a brace is not closed"))
}

/// Parses `$'…'`.
fn ansi(cursor: &mut Cursor, pieces: &mut Pieces) -> Result<(), Unclear> {
    cursor.at += 2;
    pieces.text("");
    loop {
        match cursor.next() {
            None => return Err(cursor.syntax("a quote is not closed")),
            Some('\'') => return Ok(()),
            Some('\\') => {
                let character = ansi_escape(cursor)?;
                pieces.push(Some(character));
            }
            character => pieces.push(character),
        }
    }
}

fn ansi_escape(cursor: &mut Cursor) -> Result<char, Unclear> {
    let code = match cursor.next() {
        Some('n') => return Ok('\n'),
        Some('t') => return Ok('\t'),
        Some(character @ ('\\' | '\'' | '"' | '?')) => return Ok(character),
        Some('x') => digits(cursor, 16, 2),
        Some('u') => digits(cursor, 16, 4),
        Some('U') => digits(cursor, 16, 8),
        Some('0'..='7') => {
            cursor.at -= 1;
            digits(cursor, 8, 3)
        }
        _ => None,
    };
    // Bytes beyond ASCII may combine with others into a character, and NUL ends the word.
    match code.and_then(char::from_u32) {
        Some(character @ (' '..='~' | '\n' | '\t')) => Ok(character),
        _ => Err(cursor.unsupported("this escape")),
    }
}

fn digits(cursor: &mut Cursor, radix: u32, most: usize) -> Option<u32> {
    let mut value: Option<u32> = None;
    for _ in 0..most {
        let Some(digit) = cursor.peek().and_then(|character| character.to_digit(radix)) else {
            break;
        };
        value = Some(value.unwrap_or(0).checked_mul(radix)?.checked_add(digit)?);
        cursor.at += 1;
    }
    value
}
