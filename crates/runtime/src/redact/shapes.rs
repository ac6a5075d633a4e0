//! Credentials that are known by their shape.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::Span;

/// One kind of credential. Where the expression has a group, the group alone is the secret.
struct Shape {
    label: &'static str,
    expression: &'static str,
    /// Words have the same letters; only what also holds a digit is taken for a key.
    needs_digit: bool,
}

const fn shape(label: &'static str, expression: &'static str) -> Shape {
    Shape {
        label,
        expression,
        needs_digit: false,
    }
}

const fn key(label: &'static str, expression: &'static str) -> Shape {
    Shape {
        label,
        expression,
        needs_digit: true,
    }
}

const SHAPES: &[Shape] = &[
    shape("aws-access-key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    shape("github-token", r"\bgh[pousr]_[A-Za-z0-9]{36,}"),
    shape("github-token", r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    key("gitlab-token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    key("anthropic-key", r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    key("openai-key", r"\bsk-[A-Za-z0-9_-]{20,}"),
    key("slack-token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    key("slack-token", r"\bxapp-[A-Za-z0-9-]{10,}"),
    shape("google-api-key", r"\bAIza[A-Za-z0-9_-]{35}"),
    shape(
        "jwt",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    ),
    shape("telegram-token", r"\b[0-9]{8,10}:[A-Za-z0-9_-]{35}"),
    shape("npm-token", r"\bnpm_[A-Za-z0-9]{36}"),
    key("huggingface-token", r"\bhf_[A-Za-z0-9]{30,}"),
    shape("pypi-token", r"\bpypi-AgEI[A-Za-z0-9_-]{40,}"),
    shape("stripe-key", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    shape(
        "authorization",
        r#"(?i)\bauthorization["']?\s{0,4}[:=]\s{0,4}["']?(?:bearer|basic|token)\s{1,4}([^\s"',]{8,})"#,
    ),
    key("bearer-token", r"(?i)\bbearer\s{1,4}([A-Za-z0-9._~+/=-]{20,})"),
    shape("url-password", URL_PASSWORD),
];

const URL_PASSWORD: &str = r#"://[^\s/@:"']*:([^\s/@"']+)@"#;

/// How the shapes begin. A stream that ends within one of these, or in the word behind one, waits.
pub(super) const OPENINGS: &[&str] = &[
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "xox",
    "xapp-",
    "AIza",
    "eyJ",
    "npm_",
    "hf_",
    "pypi-",
    "://",
    "authorization",
    "Authorization",
    "AUTHORIZATION",
    "bearer",
    "Bearer",
    "BEARER",
    BEGIN,
];

/// What the end of a stream may be the first part of, other than a plain word: a header whose value is still to
/// come, digits that may be a bot's number, or the first line of a private key.
const UNFINISHED: &str = concat!(
    r#"(?i)\bauthorization["']?\s{0,4}(?:[:=]\s{0,4}["']?(?:[a-z]{1,12}\s{0,4}[^\s"',]*)?)?$"#,
    r"|\bbearer\s{1,4}[^\s]*$",
    r"|\b[0-9]{1,10}(?::[A-Za-z0-9_-]*)?$",
);

const BEGIN: &str = "-----BEGIN ";

/// The longest private key that is taken as one, its armour included.
const MAX_PRIVATE_KEY: usize = 14 * 1024;

static COMPILED: LazyLock<Vec<Regex>> =
    LazyLock::new(|| SHAPES.iter().map(|s| compile(s.expression)).collect());
static STREAM_END: LazyLock<Regex> = LazyLock::new(|| compile(UNFINISHED));
static KEY_BEGIN: LazyLock<Regex> =
    LazyLock::new(|| compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"));
static KEY_END: LazyLock<Regex> =
    LazyLock::new(|| compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"));
/// A key whose end is missing, such as one in a truncated output: its lines of base64 alone.
static KEY_LINES: LazyLock<Regex> = LazyLock::new(|| compile(r"^(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})+"));
static PASSWORD: LazyLock<Regex> = LazyLock::new(|| compile(URL_PASSWORD));

#[expect(
    clippy::expect_used,
    reason = "the expressions are constants of this file, and a test compiles each"
)]
fn compile(expression: &str) -> Regex {
    Regex::new(&format!("(?-u){expression}")).expect("the expression is valid")
}

/// Everything in `text` that has the shape of a credential.
pub(super) fn scan(text: &[u8]) -> Vec<Span<'static>> {
    let mut spans = private_keys(text);
    for (shape, regex) in SHAPES.iter().zip(COMPILED.iter()) {
        for found in regex.captures_iter(text) {
            let Some(secret) = found.get(found.len() - 1) else {
                continue;
            };
            if !shape.needs_digit || secret.as_bytes().iter().any(u8::is_ascii_digit) {
                spans.push(Span {
                    start: secret.start(),
                    end: secret.end(),
                    label: Some(shape.label),
                });
            }
        }
    }
    spans
}

/// The password of the first address in `text` that carries one.
pub(super) fn url_password(text: &str) -> Option<&str> {
    let found = PASSWORD.captures(text.as_bytes())?.get(1)?;
    text.get(found.range())
}

/// Where the end of `text` begins that more text may turn into a credential; its length if nothing may.
pub(super) fn unfinished(text: &[u8]) -> usize {
    let mut from = STREAM_END.find(text).map_or(text.len(), |found| found.start());
    let word = text
        .iter()
        .rposition(u8::is_ascii_whitespace)
        .map_or(0, |at| at + 1);
    let word = word.max(text.len().saturating_sub(MAX_PRIVATE_KEY));
    let opening = OPENINGS
        .iter()
        .filter_map(|opening| find(&text[word..], opening.as_bytes()))
        .min();
    if let Some(at) = opening {
        from = from.min(word + at);
    }
    from.min(open_private_key(text))
}

fn private_keys(text: &[u8]) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    for begin in KEY_BEGIN.find_iter(text) {
        let rest = &text[begin.end()..];
        let within = &rest[..rest.len().min(MAX_PRIVATE_KEY)];
        let length = match KEY_END.find(within) {
            Some(end) => end.end(),
            None => KEY_LINES.find(rest).map_or(0, |lines| lines.end()),
        };
        spans.push(Span {
            start: begin.start(),
            end: begin.end() + length,
            label: Some("private-key"),
        });
    }
    spans
}

/// Where a private key starts that has not ended; the length of `text` if there is none.
fn open_private_key(text: &[u8]) -> usize {
    let Some(start) = rfind(text, BEGIN.as_bytes()) else {
        return text.len();
    };
    let rest = &text[start..];
    let may_be_key = KEY_BEGIN.is_match(rest) || rest.len() < 64;
    if may_be_key && !KEY_END.is_match(rest) {
        start
    } else {
        text.len()
    }
}

fn find(text: &[u8], literal: &[u8]) -> Option<usize> {
    text.windows(literal.len()).position(|window| window == literal)
}

fn rfind(text: &[u8], literal: &[u8]) -> Option<usize> {
    text.windows(literal.len()).rposition(|window| window == literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expression_compiles() {
        assert_eq!(COMPILED.len(), SHAPES.len());
        assert!(STREAM_END.is_match(b"Authorization: "));
        assert!(PASSWORD.is_match(b"://a:b@"));
        assert!(
            KEY_BEGIN.is_match(b"-----BEGIN PRIVATE KEY-----")
                && KEY_END.is_match(b"-----END PRIVATE KEY-----")
        );
        assert!(KEY_LINES.is_match(b"\nMIIEvQIBADANBgkqhkiG"));
    }

    #[test]
    fn ordinary_ends_do_not_wait() {
        for text in ["hello\n", "hello", "...", "50%|#####", "ask", "done. "] {
            assert_eq!(unfinished(text.as_bytes()), text.len(), "{text}");
        }
    }

    #[test]
    fn ends_that_may_become_a_credential_wait() {
        for (text, from) in [
            ("a sk-", 2),
            ("a sk-abc", 2),
            ("Authorization: Bearer ", 0),
            ("x 12345", 2),
        ] {
            assert_eq!(unfinished(text.as_bytes()), from, "{text}");
        }
        assert_eq!(unfinished(b"a -----BEGIN RSA PRIVATE KEY-----\nabc\n"), 2);
    }
}
