//! A minimal Rust scanner: strips comments and literals, and separates test code.

use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

use anyhow::{Context, Result};

/// A `.rs` file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path below the workspace root, with `/`.
    pub(crate) path: String,
    /// Source text.
    pub(crate) text: String,
    /// Source text, with comments and the insides of literals replaced by spaces.
    pub(crate) code: String,
    /// String literals, in order.
    pub(crate) literals: Vec<Literal>,
    /// Per line: set if it is test code.
    test_lines: Vec<bool>,
}

/// A string literal.
#[derive(Debug)]
pub(crate) struct Literal {
    /// Number of the line of the literal's opening quote.
    pub(crate) line: usize,
    /// Text as written, with its escapes.
    pub(crate) text: String,
}

/// Returns every `.rs` file of the project, sorted by path.
pub(crate) fn all(root: &Path) -> Result<Vec<Source>> {
    let mut paths = Vec::new();
    for folder in ["crates", "xtask", "fuzz"] {
        collect(&root.join(folder), &mut paths)?;
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let below = path.strip_prefix(root).unwrap_or(&path);
            Ok(Source::new(&below.to_string_lossy(), text))
        })
        .collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, into)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

impl Source {
    pub(crate) fn new(path: &str, text: String) -> Self {
        let (code, literals) = scan(&text);
        let test_lines = test_lines(path, &code);
        Self {
            path: path.to_owned(),
            text,
            code,
            literals,
            test_lines,
        }
    }

    /// Returns the lines of code, numbered from 1, with a flag for test code.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let tests = self.test_lines.iter().copied().chain(std::iter::repeat(false));
        self.code
            .lines()
            .zip(tests)
            .enumerate()
            .map(|(index, (line, test))| (index + 1, line, test))
    }

    /// Returns `true` if the line of this number is test code.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or_default()
    }

    /// Returns the number of lines that are neither blank, comment nor test.
    pub(crate) fn bare_lines(&self) -> usize {
        self.lines()
            .filter(|(_, line, test)| !test && !line.trim().is_empty())
            .count()
    }

    /// Returns name, first line and length in lines of every function with a body.
    pub(crate) fn functions(&self) -> Vec<(String, usize, usize)> {
        let mut found = Vec::new();
        for (at, _) in self.code.match_indices("fn ") {
            let starts_word = !self.code[..at].ends_with(is_word);
            let name: String = self.code[at + 3..].chars().take_while(|&c| is_word(c)).collect();
            if !starts_word || name.is_empty() {
                continue;
            }
            if let Some(end) = body_end(&self.code, at) {
                let first = line_of(&self.code, at);
                found.push((name, first + 1, line_of(&self.code, end) - first + 1));
            }
        }
        found
    }
}

/// Returns `true` if `word` occurs in `line` as a whole word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_word) && !line[at + word.len()..].starts_with(is_word))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count()
}

/// Returns the end of the item that starts at `from`: its closing brace, or `None` if a `;` comes first.
fn body_end(code: &str, from: usize) -> Option<usize> {
    let (mut depth, mut brackets) = (0_usize, 0_usize);
    for (at, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if depth == 0 && brackets == 0 => return None,
            '{' => depth += 1,
            '}' if depth == 1 => return Some(from + at),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn test_lines(path: &str, code: &str) -> Vec<bool> {
    let count = code.lines().count();
    if path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/benches/") {
        return vec![true; count];
    }
    let mut marked = vec![false; count];
    for (at, _) in code.match_indices("#[cfg(test)]") {
        // The attribute may precede a `use` or a `mod tests;`, which have no body.
        let end = body_end(code, at + "#[cfg(test)]".len()).unwrap_or(at);
        for line in marked
            .iter_mut()
            .take(line_of(code, end) + 1)
            .skip(line_of(code, at))
        {
            *line = true;
        }
    }
    marked
}

/// Replaces comments and the insides of literals by spaces, and collects the strings; line breaks stay.
fn scan(text: &str) -> (String, Vec<Literal>) {
    let mut out = String::with_capacity(text.len());
    let mut literals = Vec::new();
    let mut line = 1;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let start = out.len();
        let mut string = None;
        match c {
            '/' if rest.peek() == Some(&'/') => skip_line(&mut rest, &mut out),
            '/' if rest.peek() == Some(&'*') => skip_block(&mut rest, &mut out),
            '"' => string = Some(skip_string(&mut rest, &mut out)),
            '\'' => skip_char_or_lifetime(&mut rest, &mut out),
            'r' if !out.ends_with(is_word) || ends_with_prefix(&out) => {
                string = skip_raw(&mut rest, &mut out)
            }
            _ => out.push(c),
        }
        literals.extend(string.map(|text| Literal { line, text }));
        line += out[start..].matches('\n').count();
    }
    (out, literals)
}

/// Matches the prefix of `br"…"` and `cr"…"`: a single letter that is not part of a longer name.
fn ends_with_prefix(out: &str) -> bool {
    let mut back = out.chars().rev();
    matches!(back.next(), Some('b' | 'c')) && !back.next().is_some_and(is_word)
}

fn keep_break(c: char, out: &mut String) {
    out.push(if c == '\n' { '\n' } else { ' ' });
}

fn skip_line(rest: &mut Peekable<Chars<'_>>, out: &mut String) {
    while let Some(c) = rest.next_if(|&c| c != '\n') {
        keep_break(c, out);
    }
}

fn skip_block(rest: &mut Peekable<Chars<'_>>, out: &mut String) {
    let mut depth = 0_usize;
    let mut last = '/';
    for c in rest.by_ref() {
        keep_break(c, out);
        match (last, c) {
            ('/', '*') => (depth, last) = (depth + 1, ' '),
            ('*', '/') if depth == 1 => return,
            ('*', '/') => (depth, last) = (depth - 1, ' '),
            _ => last = c,
        }
    }
}

/// Returns the text of the string.
fn skip_string(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> String {
    out.push('"');
    let mut text = String::new();
    while let Some(c) = rest.next_if(|&c| c != '"') {
        text.push(c);
        keep_break(c, out);
        if c == '\\'
            && let Some(escaped) = rest.next()
        {
            text.push(escaped);
            keep_break(escaped, out);
        }
    }
    out.extend(rest.next());
    text
}

fn skip_char_or_lifetime(rest: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('\'');
    let mut ahead = rest.clone();
    let first = ahead.next();
    let is_char = first == Some('\\') || ahead.next() == Some('\'');
    if !is_char {
        return;
    }
    rest.next();
    out.push(' ');
    if first == Some('\\') {
        rest.next();
        out.push(' ');
    }
    while let Some(c) = rest.next_if(|&c| c != '\'') {
        keep_break(c, out);
    }
}

/// Returns the text of the string; `None` if it is none, but a name or a lifetime.
fn skip_raw(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Option<String> {
    out.push('r');
    let hashes = rest.clone().take_while(|&c| c == '#').count();
    if rest.clone().nth(hashes) != Some('"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let mut body = String::new();
    for c in rest.by_ref().skip(hashes + 1) {
        body.push(c);
        keep_break(c, out);
        if let Some(text) = body.strip_suffix(&close) {
            return Some(text.to_owned());
        }
    }
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_blank(text: &str, expected: &str) {
        let collapsed = scan(text).0.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(collapsed, expected);
    }

    #[test]
    fn comments_and_literals_vanish() {
        check_blank("a // unsafe\nb", "a b");
        check_blank("a /* x /* unsafe */ y */ b", "a b");
        check_blank(r#"f("unsafe \" unsafe") g"#, r#"f(" ") g"#);
        check_blank("r#\"unsafe \" unsafe\"# g", "r g");
        check_blank("br\"unsafe\" g", "br g");
        check_blank("'\"' g '\\'' h", "' ' g ' ' h");
        check_blank("&'a str \"unsafe\"", "&'a str \" \"");
        check_blank("for x in y", "for x in y");
    }

    #[test]
    fn line_breaks_stay() {
        let text = "/* a\n b */ \"c\n d\"\nr\"e\nf\" // g\nh";
        assert_eq!(scan(text).0.lines().count(), text.lines().count());
    }

    #[test]
    fn bare_lines_leave_out_tests_comments_and_blanks() {
        let text = "//! Head.\n\nfn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(Source::new("src/a.rs", text.to_owned()).bare_lines(), 2);
    }

    #[test]
    fn functions_have_names_and_lengths() {
        let text = "fn a(x: [u8; 2]) {\n    b();\n}\ntrait T {\n    fn c();\n}\n";
        let functions = Source::new("src/a.rs", text.to_owned()).functions();
        assert_eq!(functions, [("a".to_owned(), 1, 3)]);
    }

    #[test]
    fn literals_have_their_lines() {
        let text = "f(\"a \\\" b\");\n// \"c\"\nr#\"d\n\"e\"#; '\"';\n\"f\"";
        let found = scan(text)
            .1
            .into_iter()
            .map(|literal| (literal.line, literal.text));
        let expected = [(1, "a \\\" b"), (3, "d\n\"e"), (5, "f")];
        assert_eq!(
            found.collect::<Vec<_>>(),
            expected.map(|(line, text)| (line, text.to_owned()))
        );
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe {", "unsafe"));
        assert!(!has_word("forbid(unsafe_code)", "unsafe"));
    }
}
