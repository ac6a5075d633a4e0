//! Parses commands, lists and control flow.

use super::cursor::{Cursor, in_name, is_boundary, starts_name};
use super::{
    Assignment, Compound, Node, Redirect, RedirectKind, Script, Simple, Unclear, Word, condition, here, word,
};

/// Parses a whole line.
pub(super) fn script(line: &str) -> Result<Script, Unclear> {
    let mut cursor = Cursor::new(line);
    let nodes = cursor.list(&[])?;
    if cursor.peek().is_some() {
        return Err(cursor.syntax("a bracket too many"));
    }
    if !cursor.pending.is_empty() {
        return Err(cursor.syntax("a here document does not end"));
    }
    Ok(Script {
        nodes,
        here: cursor.here,
    })
}

/// Words with another meaning where a command begins.
const RESERVED: &[&str] = &[
    "then", "elif", "else", "fi", "do", "done", "esac", "in", "!", "}", "]]", "select", "coproc",
];

/// Returns `true` if the word has another meaning where a command begins.
pub(super) fn is_reserved(word: &str) -> bool {
    let openers = [
        "if", "while", "until", "for", "case", "function", "time", "!", "{", "[[",
    ];
    RESERVED.contains(&word) || openers.contains(&word)
}

impl Cursor {
    /// Parses commands up to the end, a closing bracket, or one of the words.
    pub(super) fn list(&mut self, until: &[&str]) -> Result<Vec<Node>, Unclear> {
        let mut nodes = Vec::new();
        loop {
            skip_lines(self)?;
            if matches!(self.peek(), None | Some(')')) || until.contains(&self.run().as_str()) {
                return Ok(nodes);
            }
            // `;;` ends a branch of `case`, whose parser expects it.
            if self.starts_with(";;") || self.starts_with(";&") {
                return Ok(nodes);
            }
            let first = nodes.len();
            and_or(self, &mut nodes)?;
            if !separator(self, &mut nodes, first)? {
                return Ok(nodes);
            }
        }
    }
}

/// Parses the separator between two commands; `false` if the list ends here.
fn separator(cursor: &mut Cursor, nodes: &mut Vec<Node>, first: usize) -> Result<bool, Unclear> {
    cursor.skip_blanks();
    match cursor.peek() {
        Some(';') if matches!(cursor.look(1), Some(';' | '&')) => Ok(false),
        Some(';') => {
            cursor.at += 1;
            Ok(true)
        }
        Some('\n') => Ok(true),
        Some('&') => {
            cursor.at += 1;
            let body = nodes.split_off(first);
            nodes.push(compound(Compound::Background, Vec::new(), body));
            Ok(true)
        }
        None | Some(')') => Ok(false),
        Some(_) => Err(cursor.syntax("something that belongs to no command")),
    }
}

fn and_or(cursor: &mut Cursor, nodes: &mut Vec<Node>) -> Result<(), Unclear> {
    loop {
        nodes.push(pipeline(cursor)?);
        cursor.skip_blanks();
        if !cursor.take_text("&&") && !cursor.take_text("||") {
            return Ok(());
        }
        skip_lines(cursor)?;
    }
}

fn pipeline(cursor: &mut Cursor) -> Result<Node, Unclear> {
    loop {
        cursor.skip_blanks();
        match cursor.run().as_str() {
            "!" | "time" if cursor.look(cursor.run().len()) == Some('(') => {
                return Err(cursor.unsupported("a bracket here"));
            }
            "!" => cursor.at += 1,
            "time" => {
                cursor.at += 4;
                cursor.skip_blanks();
                if cursor.run() == "-p" {
                    cursor.at += 2;
                }
            }
            _ => break,
        }
    }
    let mut nodes = vec![command(cursor)?];
    loop {
        cursor.skip_blanks();
        if cursor.starts_with("||") || !cursor.take('|') {
            break;
        }
        cursor.take('&');
        skip_lines(cursor)?;
        nodes.push(command(cursor)?);
    }
    match nodes.pop() {
        Some(only) if nodes.is_empty() => Ok(only),
        Some(last) => {
            nodes.push(last);
            Ok(Node::Pipe(nodes))
        }
        None => Err(cursor.syntax("a command is missing")),
    }
}

fn command(cursor: &mut Cursor) -> Result<Node, Unclear> {
    cursor.skip_blanks();
    cursor.count()?;
    cursor.enter()?;
    let run = cursor.run();
    let node = match run.as_str() {
        "" if cursor.starts_with("((") => return Err(cursor.unsupported("arithmetic")),
        "" if cursor.take('(') => {
            let body = cursor.list(&[])?;
            match cursor.take(')') {
                true => compound(Compound::Subshell, Vec::new(), body),
                false => return Err(cursor.syntax("a bracket is not closed")),
            }
        }
        "{" => group(cursor)?,
        "if" => conditional(cursor)?,
        "while" | "until" => {
            cursor.at += 5;
            let mut body = cursor.list(&["do"])?;
            body.extend(block(cursor, "do", "done")?);
            compound(Compound::While, Vec::new(), body)
        }
        "for" => each(cursor)?,
        "case" => case(cursor)?,
        "[[" => compound(Compound::Test, condition::condition(cursor)?, Vec::new()),
        "function" => {
            cursor.at += 8;
            cursor.skip_blanks();
            word::word(cursor)?;
            function(cursor)?
        }
        reserved if RESERVED.contains(&reserved) => return Err(cursor.unsupported("this reserved word")),
        _ => simple(cursor)?,
    };
    let node = match node {
        Node::Compound {
            kind,
            variable,
            words,
            body,
            ..
        } => Node::Compound {
            kind,
            variable,
            words,
            body,
            redirects: redirects(cursor)?,
        },
        node @ (Node::Simple(_) | Node::Pipe(_)) => node,
    };
    cursor.depth -= 1;
    Ok(node)
}

fn compound(kind: Compound, words: Vec<Word>, body: Vec<Node>) -> Node {
    Node::Compound {
        kind,
        variable: None,
        words,
        body,
        redirects: Vec::new(),
    }
}

fn group(cursor: &mut Cursor) -> Result<Node, Unclear> {
    let body = block(cursor, "{", "}")?;
    Ok(compound(Compound::Group, Vec::new(), body))
}

/// Parses the commands between two reserved words.
fn block(cursor: &mut Cursor, open: &'static str, close: &'static str) -> Result<Vec<Node>, Unclear> {
    reserved(cursor, open)?;
    let body = cursor.list(&[close])?;
    reserved(cursor, close)?;
    match body.is_empty() {
        true => Err(cursor.syntax("a command is missing")),
        false => Ok(body),
    }
}

fn reserved(cursor: &mut Cursor, word: &'static str) -> Result<(), Unclear> {
    skip_lines(cursor)?;
    match cursor.run() == word && cursor.take_text(word) {
        true => Ok(()),
        false => Err(cursor.syntax("a reserved word is missing")),
    }
}

fn conditional(cursor: &mut Cursor) -> Result<Node, Unclear> {
    reserved(cursor, "if")?;
    let mut body = cursor.list(&["then"])?;
    reserved(cursor, "then")?;
    loop {
        body.extend(cursor.list(&["elif", "else", "fi"])?);
        match cursor.run().as_str() {
            "elif" => {
                cursor.at += 4;
                body.extend(cursor.list(&["then"])?);
                reserved(cursor, "then")?;
            }
            "else" => cursor.at += 4,
            _ => break,
        }
    }
    reserved(cursor, "fi")?;
    Ok(compound(Compound::If, Vec::new(), body))
}

fn each(cursor: &mut Cursor) -> Result<Node, Unclear> {
    reserved(cursor, "for")?;
    cursor.skip_blanks();
    if cursor.peek() == Some('(') {
        return Err(cursor.unsupported("a loop over numbers"));
    }
    let name = word::word(cursor)?.text;
    if name.is_empty() || !name.chars().all(in_name) {
        return Err(cursor.syntax("the name of a variable"));
    }
    skip_lines(cursor)?;
    let mut words = Vec::new();
    if cursor.run() == "in" {
        cursor.at += 2;
        words = plain_words(cursor)?;
        skip_lines(cursor)?;
    }
    if cursor.take(';') {
        skip_lines(cursor)?;
    }
    let body = block(cursor, "do", "done")?;
    Ok(Node::Compound {
        kind: Compound::For,
        variable: Some(name),
        words,
        body,
        redirects: Vec::new(),
    })
}

fn plain_words(cursor: &mut Cursor) -> Result<Vec<Word>, Unclear> {
    let mut words = Vec::new();
    loop {
        cursor.skip_blanks();
        match cursor.peek() {
            None | Some('\n' | ';') => return Ok(words),
            Some(_) => words.push(word::checked_word(cursor)?),
        }
    }
}

fn case(cursor: &mut Cursor) -> Result<Node, Unclear> {
    reserved(cursor, "case")?;
    cursor.skip_blanks();
    let mut words = vec![word::checked_word(cursor)?];
    skip_lines(cursor)?;
    reserved(cursor, "in")?;
    let mut body = Vec::new();
    loop {
        skip_lines(cursor)?;
        if cursor.run() == "esac" {
            break;
        }
        cursor.take('(');
        loop {
            cursor.skip_blanks();
            words.push(word::checked_word(cursor)?);
            cursor.skip_blanks();
            if !cursor.take('|') {
                break;
            }
        }
        if !cursor.take(')') {
            return Err(cursor.syntax("a pattern is not closed"));
        }
        body.extend(cursor.list(&["esac"])?);
        let _ = cursor.take_text(";;&") || cursor.take_text(";;") || cursor.take_text(";&");
    }
    reserved(cursor, "esac")?;
    Ok(compound(Compound::Case, words, body))
}

/// Parses a function definition, after the name.
fn function(cursor: &mut Cursor) -> Result<Node, Unclear> {
    cursor.skip_blanks();
    if cursor.take('(') {
        cursor.skip_blanks();
        if !cursor.take(')') {
            return Err(cursor.unsupported("a bracket here"));
        }
    }
    skip_lines(cursor)?;
    match command(cursor)? {
        node @ Node::Compound { .. } => Ok(compound(Compound::Function, Vec::new(), vec![node])),
        Node::Simple(_) | Node::Pipe(_) => Err(cursor.syntax("the body of a function")),
    }
}

fn simple(cursor: &mut Cursor) -> Result<Node, Unclear> {
    let start = cursor.at;
    let mut simple = Simple::default();
    loop {
        cursor.skip_blanks();
        if let Some(redirect) = redirect(cursor)? {
            simple.redirects.push(redirect);
            continue;
        }
        let Some(character) = cursor.peek() else { break };
        if character == '(' {
            return match simple.words.len() == 1 && simple.words[0].text.chars().all(in_name) {
                true => function(cursor),
                false => Err(cursor.unsupported("a bracket here")),
            };
        }
        if is_boundary(character) && !is_process(cursor) {
            break;
        }
        if simple.words.is_empty()
            && let Some(assignment) = assignment(cursor)?
        {
            simple.assignments.push(assignment);
            continue;
        }
        if character == '#' {
            cursor.rest_of_line();
            break;
        }
        simple.words.push(word::checked_word(cursor)?);
    }
    if simple.words.is_empty() && simple.assignments.is_empty() && simple.redirects.is_empty() {
        return Err(cursor.syntax("a command is missing"));
    }
    simple.text = cursor.since(start).trim_end().to_owned();
    Ok(Node::Simple(simple))
}

fn is_process(cursor: &Cursor) -> bool {
    cursor.starts_with("<(") || cursor.starts_with(">(")
}

fn assignment(cursor: &mut Cursor) -> Result<Option<Assignment>, Unclear> {
    if !cursor.peek().is_some_and(starts_name) {
        return Ok(None);
    }
    let start = cursor.at;
    let name = word::name(cursor);
    if cursor.peek() == Some('[') {
        return Err(cursor.unsupported("an element of an array"));
    }
    if !cursor.take('=') && !cursor.take_text("+=") {
        cursor.at = start;
        return Ok(None);
    }
    if cursor.peek() == Some('(') {
        return Err(cursor.unsupported("an array"));
    }
    let value = word::word(cursor)?;
    Ok(Some(Assignment { name, value }))
}

fn redirects(cursor: &mut Cursor) -> Result<Vec<Redirect>, Unclear> {
    let mut redirects = Vec::new();
    loop {
        cursor.skip_blanks();
        match redirect(cursor)? {
            Some(redirect) => redirects.push(redirect),
            None => return Ok(redirects),
        }
    }
}

/// Parses a redirection, if one begins here.
fn redirect(cursor: &mut Cursor) -> Result<Option<Redirect>, Unclear> {
    let start = cursor.at;
    while cursor.peek().is_some_and(|character| character.is_ascii_digit()) {
        cursor.at += 1;
    }
    let digits = cursor.since(start);
    let is_operator = matches!(cursor.peek(), Some('<' | '>'));
    if digits.is_empty() && cursor.take_text("&>") {
        cursor.take('>');
        return file(cursor, None, RedirectKind::Write).map(Some);
    }
    if !is_operator || is_process(cursor) {
        if is_operator && !digits.is_empty() {
            return Err(cursor.unsupported("a process behind a number"));
        }
        cursor.at = start;
        return Ok(None);
    }
    let descriptor = match digits.as_str() {
        "" => None,
        digits => match digits.parse() {
            Ok(number) => Some(number),
            Err(_) => return Err(cursor.unsupported("this descriptor")),
        },
    };
    if cursor.take_text("<<<") {
        return file(cursor, descriptor, RedirectKind::Text).map(Some);
    }
    if cursor.take_text("<<") {
        let strip = cursor.take('-');
        let target = here::announce(cursor, strip)?;
        let kind = RedirectKind::Text;
        return Ok(Some(Redirect {
            descriptor,
            kind,
            target,
        }));
    }
    if cursor.take_text("<&") || cursor.take_text(">&") {
        return file(cursor, descriptor, RedirectKind::Duplicate).map(Some);
    }
    let writes = [">>", ">|", "<>", ">"].iter().any(|sign| cursor.take_text(sign));
    match writes || cursor.take('<') {
        true => {
            let kind = match writes {
                true => RedirectKind::Write,
                false => RedirectKind::Read,
            };
            file(cursor, descriptor, kind).map(Some)
        }
        false => Err(cursor.syntax("a redirection")),
    }
}

fn file(cursor: &mut Cursor, descriptor: Option<u32>, kind: RedirectKind) -> Result<Redirect, Unclear> {
    cursor.skip_blanks();
    if cursor.peek() == Some('#') {
        return Err(cursor.syntax("a comment in place of a file"));
    }
    let target = word::checked_word(cursor)?;
    let digits = target.text.bytes().all(|byte| byte.is_ascii_digit());
    if digits && matches!(cursor.peek(), Some('<' | '>')) {
        return Err(cursor.syntax("a redirection in place of a file"));
    }
    // `>&file` writes a file; only a number or a minus is a file descriptor.
    let number = target
        .literal()
        .is_some_and(|text| text.chars().all(|sign| sign.is_ascii_digit()) || text == "-");
    let kind = match kind {
        RedirectKind::Duplicate if !number => RedirectKind::Write,
        kind => kind,
    };
    Ok(Redirect {
        descriptor,
        kind,
        target,
    })
}

/// Skips blanks, comments, newlines, and the here documents after them.
fn skip_lines(cursor: &mut Cursor) -> Result<(), Unclear> {
    loop {
        cursor.skip_blanks();
        match cursor.peek() {
            Some('#') => {
                cursor.rest_of_line();
            }
            Some('\n') => {
                cursor.at += 1;
                here::bodies(cursor)?;
            }
            _ => return Ok(()),
        }
    }
}
