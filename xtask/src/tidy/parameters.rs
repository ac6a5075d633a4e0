//! Refuses parameters that are tuples: a lint counts parameters, and a tuple hides some from it.

use crate::source::{Source, line_of};

/// Reports each parameter of a function whose pattern or type is a tuple. Closures take the tuples of iterators.
pub(super) fn check(source: &Source) -> Vec<String> {
    let code = source.code.as_str();
    let mut breaches = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let Some(parameters) = parameters(&code[at + 3..]).filter(|_| !is_word) else {
            continue;
        };
        let tuples = parameters.into_iter().filter(|parameter| is_tuple(parameter));
        breaches.extend(tuples.map(|parameter| {
            let text = parameter.split_whitespace().collect::<Vec<_>>().join(" ");
            format!(
                "{}:{}: `{text}` is a tuple; take two parameters, or a struct with named fields",
                source.path,
                line_of(code, at) + 1
            )
        }));
    }
    breaches
}

/// Returns the parameters of a function whose name is at the start; `None` if none follow.
fn parameters(code: &str) -> Option<Vec<&str>> {
    let name = code.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    let after = &code[name..];
    let after = match after.starts_with('<') {
        true => &after[split(&after[1..], '>').1 + 2..],
        false => after,
    };
    Some(split(after.strip_prefix('(')?, ')').0)
}

/// Splits at the commas that are not in brackets, up to the bracket that closes; returns its position, too.
fn split(code: &str, close: char) -> (Vec<&str>, usize) {
    let (mut parts, mut start, mut depth, mut before) = (Vec::new(), 0, 0_usize, ' ');
    for (at, c) in code.char_indices() {
        let is_arrow = c == '>' && matches!(before, '-' | '=');
        match c {
            _ if c == close && depth == 0 && !is_arrow => {
                parts.push(&code[start..at]);
                return (parts, at);
            }
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '>' if !is_arrow => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&code[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    (parts, code.len())
}

fn is_tuple(parameter: &str) -> bool {
    let parameter = without_attributes(parameter);
    let (pattern, kind) = parameter.split_once(':').unwrap_or((parameter, ""));
    let mut kind = kind.trim_start();
    while let Some(rest) = kind.strip_prefix('&') {
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('\'') {
            Some(lifetime) => lifetime.split_once(' ').map_or("", |(_, rest)| rest),
            None => rest,
        };
        kind = rest.strip_prefix("mut ").unwrap_or(rest).trim_start();
    }
    let is_list = |text: &str| {
        text.strip_prefix('(')
            .is_some_and(|rest| split(rest, ')').0.len() > 1)
    };
    is_list(pattern.trim_start_matches(['&', ' ', '\n'])) || is_list(kind)
}

fn without_attributes(parameter: &str) -> &str {
    let parameter = parameter.trim_start();
    match parameter.strip_prefix("#[") {
        Some(rest) => without_attributes(rest.get(split(rest, ']').1 + 1..).unwrap_or_default()),
        None => parameter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn count(text: &str, expected: usize) {
        let found = check(&Source::new("crates/a/src/a.rs", text.to_owned()));
        assert_eq!(found.len(), expected, "{text}: {found:?}");
    }

    #[test]
    fn a_tuple_is_refused_wherever_it_stands() {
        count("fn a((b, c): (B, C)) {}", 1);
        count("fn a(&self, d: D, b: (B, C)) {}", 1);
        count("fn a(b: &mut (B, C)) {}", 1);
        count("fn a(b: &'a (B, C)) {}", 1);
        count("fn a((b, c): Both) {}", 1);
        count("fn a(&(b, c): &Both) {}", 1);
        count(
            "fn a<F: Fn(A) -> B, const N: usize>(\n    b: B,\n    (c, d): (C, D),\n) {}",
            1,
        );
        count("trait T {\n    fn a(b: (B, C));\n}", 1);
        count("fn a(#[expect(b)] (b, c): (B, C), (d, e): (D, E)) {}", 2);
    }

    #[test]
    fn other_parameters_are_allowed() {
        count("fn a(b: &mut (dyn FnMut(B, C) + Send)) {}", 0);
        count(
            "fn a(b: impl Fn((B, C)) -> D, c: [(B, C); 2]) -> (B, C) { (b, c) }",
            0,
        );
        count("fn a() { b.map(|(c, d)| c); let e: fn((C, D)); }", 0);
        count("fn a(b: &[(B, C)], Json(c): Json<(B, C)>, d: ()) {}", 0);
        count("// fn a((b, c): (B, C))\n", 0);
    }

    #[test]
    fn a_breach_has_its_line() {
        let found = check(&Source::new(
            "a.rs",
            "\nfn a(\n    (b, c): (B, C),\n) {}".to_owned(),
        ));
        assert!(found[0].starts_with("a.rs:2: `(b, c): (B, C)`"), "{found:?}");
    }
}
