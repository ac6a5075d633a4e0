//! Recognizes credentials by their format.

use std::sync::{LazyLock, OnceLock};

use regex::bytes::Regex;

use super::Span;

/// A credential format. If the expression has a group, the group alone is the secret.
struct Shape {
    label: &'static str,
    /// Lower-case literals of which every match contains at least one, in any case.
    hints: &'static [&'static str],
    expression: &'static str,
    /// Words consist of the same letters, so only a match that contains a digit counts as a key.
    needs_digit: bool,
}

const fn shape(label: &'static str, hints: &'static [&'static str], expression: &'static str) -> Shape {
    Shape {
        label,
        hints,
        expression,
        needs_digit: false,
    }
}

const fn key(label: &'static str, hints: &'static [&'static str], expression: &'static str) -> Shape {
    Shape {
        label,
        hints,
        expression,
        needs_digit: true,
    }
}

/// Literals of which the name of a secret contains at least one.
const NAMES: &[&str] = &["key", "token", "secret", "pass"];

const DIGIT_AND_COLON: &[&str] = &["0:", "1:", "2:", "3:", "4:", "5:", "6:", "7:", "8:", "9:"];

const SHAPES: &[Shape] = &[
    shape(
        "aws-access-key",
        &["akia", "asia"],
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    ),
    shape(
        "github-token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
        r"\bgh[pousr]_[A-Za-z0-9]{36,}",
    ),
    shape(
        "github-token",
        &["github_pat_"],
        r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    ),
    key("gitlab-token", &["glpat-"], r"\bglpat-[A-Za-z0-9_-]{20,}"),
    key("ringfence-key", &["rf_"], r"\brf_[0-9a-f]{8}_[0-9a-f]{48}"),
    key("e2b-key", &["e2b_"], r"\be2b_[0-9a-f]{40,}"),
    key("anthropic-key", &["sk-ant-"], r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    key("openai-key", &["sk-"], r"\bsk-[A-Za-z0-9_-]{20,}"),
    key("slack-token", &["xox"], r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    key("slack-token", &["xapp-"], r"\bxapp-[A-Za-z0-9-]{10,}"),
    shape("google-api-key", &["aiza"], r"\bAIza[A-Za-z0-9_-]{35}"),
    shape(
        "jwt",
        &["eyj"],
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    ),
    shape(
        "telegram-token",
        DIGIT_AND_COLON,
        r"\b[0-9]{8,10}:[A-Za-z0-9_-]{35}",
    ),
    shape("npm-token", &["npm_"], r"\bnpm_[A-Za-z0-9]{36}"),
    key("huggingface-token", &["hf_"], r"\bhf_[A-Za-z0-9]{30,}"),
    shape("pypi-token", &["pypi-"], r"\bpypi-AgEI[A-Za-z0-9_-]{40,}"),
    shape(
        "stripe-key",
        &["k_live_", "k_test_"],
        r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    ),
    shape(
        "authorization",
        &["authorization"],
        r#"(?i)\bauthorization["']?\s{0,4}[:=]\s{0,4}["']?(?:bearer|basic|token)\s{1,4}([^\s"',]{8,})"#,
    ),
    key(
        "bearer-token",
        &["bearer"],
        r"(?i)\bbearer\s{1,4}([A-Za-z0-9._~+/=-]{20,})",
    ),
    shape("url-password", &["://"], URL_PASSWORD),
    shape(
        "url-parameter",
        &["?", "&"],
        r#"(?i)[?&](?:[a-z0-9_.-]{0,32}(?:api_?key|token|secret|passw(?:or)?d|signature)|key|sig|auth)=([^\s&#"'<>\\]{4,})"#,
    ),
    shape(
        "json-member",
        NAMES,
        r#"(?i)"[a-z0-9_.-]{0,32}(?:api_?key|token|secret|passw(?:or)?d)"\s{0,4}:\s{0,4}"([^"\\\s]{4,})""#,
    ),
    // Also with a type in between, as a comparison, or after a name in brackets.
    shape(
        "literal",
        NAMES,
        r#"(?i)\b[a-z0-9_.-]{0,32}(?:api_?key|token|secret|passw(?:or)?d|passphrase)[a-z0-9_]{0,16}["']?\]?\s{0,4}(?::\s{0,4}[a-z_][a-z0-9_.\[\]]{0,32}\s{0,4})?(?:={1,3}|:=?|=>)\s{0,4}[a-z]{0,2}(?:"([^"\n]{4,})"|'([^'\n]{4,})')"#,
    ),
    shape(
        "variable",
        NAMES,
        r#"\b[A-Z0-9_]{0,32}(?:API_?KEY|TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE)[A-Z0-9_]{0,16}=([^\s"'`$;&|]{4,})"#,
    ),
];

const URL_PASSWORD: &str = r#"://[^\s/@:"']*:([^\s/@"']+)@"#;

/// A credential whose end is missing. If a group takes part in the match, the group alone is the secret.
const OPEN: &str = concat!(
    r"\b(?:AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|sk-|xox[abeoprs]-|xapp-|AIza|eyJ|npm_|hf_|pypi-|",
    r"[rs]k_(?:live|test)_)[A-Za-z0-9._-]*$",
    r"|\b[0-9]{8,10}:[A-Za-z0-9_-]*$",
    r#"|(?i:\bauthorization["']?\s{0,4}[:=]\s{0,4}["']?[a-z]{1,12}\s{0,4})([^\s"',]*)$"#,
    r"|(?i:\bbearer\s{1,4})([A-Za-z0-9._~+/=-]*)$",
    r#"|://[^\s/@:"']*:([^\s/@"']*)$"#,
    r#"|(?i:[?&](?:[a-z0-9_.-]{0,32}(?:api_?key|token|secret|passw(?:or)?d|signature)|key|sig|auth)=)([^\s&#"'<>\\]*)$"#,
    r#"|(?i:"[a-z0-9_.-]{0,32}(?:api_?key|token|secret|passw(?:or)?d)"\s{0,4}:\s{0,4}")([^"\\\s]*)$"#,
    r#"|(?i:\b[a-z0-9_.-]{0,32}(?:api_?key|token|secret|passw(?:or)?d|passphrase)[a-z0-9_]{0,16}["']?\]?\s{0,4}(?:={1,3}|:=?|=>)\s{0,4}[a-z]{0,2}["'])([^"'\n]*)$"#,
    r"|\b[A-Z0-9_]{0,32}(?:API_?KEY|TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE)[A-Z0-9_]{0,16}=([^\s]*)$",
);

/// The rest of a credential that begins before the gap.
const REST: &str = r#"^[^\s"',]*"#;

/// The rest if only the header precedes the gap, which may have cut the word `Bearer`.
const REST_OF_HEADING: &str = r#"^[ \t]{0,4}(?:[A-Za-z]{0,12}[ \t]{1,4})?[^\s"',]*"#;

/// The rest of a credential whose beginning the gap removed: a long word, or the end of a password in a URL.
const REMNANT: &str = r#"^(?:[^\s/@"']+@|[A-Za-z0-9_-]{16,512})"#;

/// Maximum length of a private key, including its armor.
const MAX_PRIVATE_KEY: usize = 14 * 1024;

/// Label of an incomplete credential.
const CUT: &str = "cut-credential";

/// The compiled expressions of [`SHAPES`], each compiled when a text first contains one of its hints: compiling all
/// takes longer than a whole run.
static COMPILED: [OnceLock<Regex>; SHAPES.len()] = [const { OnceLock::new() }; SHAPES.len()];
static CUT_OPEN: LazyLock<Regex> = LazyLock::new(|| compile(OPEN));
static CUT_REST: LazyLock<Regex> = LazyLock::new(|| compile(REST));
static CUT_REST_OF_HEADING: LazyLock<Regex> = LazyLock::new(|| compile(REST_OF_HEADING));
static CUT_REMNANT: LazyLock<Regex> = LazyLock::new(|| compile(REMNANT));
static KEY_BEGIN: LazyLock<Regex> =
    LazyLock::new(|| compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"));
static KEY_END: LazyLock<Regex> =
    LazyLock::new(|| compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"));
/// A key whose end marker is missing, as in a truncated output: its base64 lines.
static KEY_LINES: LazyLock<Regex> = LazyLock::new(|| compile(r"^(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})+"));
/// The same up to a gap, where the last line may be short; after a gap, the first one may.
static KEY_OPEN: LazyLock<Regex> =
    LazyLock::new(|| compile(r"^(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})*(?:\s|\\[nr])*[A-Za-z0-9+/=]*$"));
static KEY_REST: LazyLock<Regex> =
    LazyLock::new(|| compile(r"^[A-Za-z0-9+/=]*(?:(?:\s|\\[nr])+[A-Za-z0-9+/=]{16,})*"));
static PASSWORD: LazyLock<Regex> = LazyLock::new(|| compile(URL_PASSWORD));

#[expect(
    clippy::expect_used,
    reason = "the expressions are constants of this file, and a test compiles each"
)]
fn compile(expression: &str) -> Regex {
    Regex::new(&format!("(?-u){expression}")).expect("the expression is valid")
}

/// Finds everything in `text` that has the format of a credential.
pub(super) fn scan(text: &[u8]) -> Vec<Span<'static>> {
    let lower = text.to_ascii_lowercase();
    let mut spans = match contains(&lower, "-----begin ") {
        true => private_keys(text),
        false => Vec::new(),
    };
    for (shape, compiled) in SHAPES.iter().zip(&COMPILED) {
        let may_match = || shape.hints.iter().any(|hint| contains(&lower, hint));
        if compiled.get().is_none() && !may_match() {
            continue;
        }
        let regex = compiled.get_or_init(|| compile(shape.expression));
        for found in regex.captures_iter(text) {
            let Some(secret) = found.iter().flatten().last() else {
                continue;
            };
            if !shape.needs_digit || secret.as_bytes().iter().any(u8::is_ascii_digit) {
                spans.push(Span {
                    start: secret.start(),
                    end: secret.end(),
                    label: shape.label,
                });
            }
        }
    }
    spans
}

fn contains(text: &[u8], literal: &str) -> bool {
    memchr::memmem::find(text, literal.as_bytes()).is_some()
}

/// Returns the password of the first URL in `text` that has one.
pub(super) fn url_password(text: &str) -> Option<&str> {
    // Most variables hold no URL, and compiling the expression costs more than this search.
    if !text.contains("://") {
        return None;
    }
    let found = PASSWORD.captures(text.as_bytes())?.get(1)?;
    text.get(found.range())
}

/// Returns the credential at the end of `text` that may continue beyond it. The span is empty if only its
/// header is there.
pub(super) fn open(text: &[u8]) -> Option<Span<'static>> {
    let key = KEY_BEGIN
        .find_iter(text)
        .last()
        .filter(|begin| KEY_OPEN.is_match(&text[begin.end()..]));
    let word = || {
        let found = CUT_OPEN.captures(text)?;
        found.iter().flatten().last()
    };
    let (start, label) = match key {
        Some(begin) => (begin.start(), "private-key"),
        None => (word()?.start(), CUT),
    };
    Some(Span {
        start,
        end: text.len(),
        label,
    })
}

/// Returns the rest of a credential at the start of `text`; `before` is the one that is open before the gap.
pub(super) fn rest(text: &[u8], before: Option<Span<'_>>) -> Option<Span<'static>> {
    let mut ends = Vec::new();
    if let Some(before) = before {
        let word = if before.start == before.end {
            &CUT_REST_OF_HEADING
        } else {
            &CUT_REST
        };
        ends.extend([word, &KEY_REST].map(|rest| rest.find(text).map_or(0, |found| found.end())));
    } else if let Some(found) = CUT_REMNANT.find(text) {
        let word = found.as_bytes();
        let is_key = word.iter().any(u8::is_ascii_digit) && word.iter().any(u8::is_ascii_alphabetic);
        if is_key || word.ends_with(b"@") {
            ends.push(found.end());
        }
    }
    if let Some(end) = KEY_END.find(text)
        && end.end() <= MAX_PRIVATE_KEY
        && !KEY_BEGIN.is_match(&text[..end.start()])
    {
        ends.push(end.end());
    }
    let end = ends.into_iter().max().filter(|end| *end > 0)?;
    Some(Span {
        start: 0,
        end,
        label: CUT,
    })
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
            label: "private-key",
        });
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expression_compiles() {
        for shape in SHAPES {
            assert!(!compile(shape.expression).is_match(b""));
        }
        assert!(CUT_OPEN.is_match(b"Authorization: Bearer "));
        assert!(CUT_REST.is_match(b"x") && CUT_REST_OF_HEADING.is_match(b"er x"));
        assert!(CUT_REMNANT.is_match(b"x@"));
        assert!(PASSWORD.is_match(b"://a:b@"));
        assert!(
            KEY_BEGIN.is_match(b"-----BEGIN PRIVATE KEY-----")
                && KEY_END.is_match(b"-----END PRIVATE KEY-----")
        );
        assert!(KEY_LINES.is_match(b"\nMIIEvQIBADANBgkqhkiG"));
        assert!(KEY_OPEN.is_match(b"\nMII") && KEY_REST.is_match(b"MII\n"));
    }

    /// An example of each shape, in their order.
    const EXAMPLES: [&str; SHAPES.len()] = [
        "AKIAIOSFODNN7EXAMPLE",
        "ghs_0123456789abcdefghijklmnopqrstuvwxyzAB",
        "github_pat_0123456789abcdefghijklmnop",
        "glpat-0123456789abcdefghijkl",
        "rf_01234567_0123456789abcdef0123456789abcdef0123456789abcdef",
        "e2b_0123456789abcdef0123456789abcdef01234567",
        "sk-ant-0123456789abcdefghijkl",
        "sk-0123456789abcdefghijkl",
        "xoxb-0123456789abc",
        "xapp-0123456789abc",
        "AIza0123456789abcdefghijklmnopqrstuvwxyz",
        "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK",
        "123456789:AAabcdefghijklmnopqrstuvwxyz0123456",
        "npm_0123456789abcdefghijklmnopqrstuvwxyzAB",
        "hf_0123456789abcdefghijklmnopqrstuv",
        "pypi-AgEIcHlwaS5vcmc0123456789abcdefghijklmnopqrstuvwxyz",
        "rk_live_0123456789abcdefgh",
        "AUTHORIZATION: Basic dXNlcjpwYXNz",
        "BEARER 0123456789abcdefghijkl",
        "postgres://ann:pa55@host/",
        "/?Api_Key=pa55word",
        "\"PassWord\": \"pa55word\"",
        "Client_Secret = 'pa55 word'",
        "DB_PASSWD=pa55word",
    ];

    #[test]
    fn every_match_contains_a_hint() {
        for (shape, example) in SHAPES.iter().zip(EXAMPLES) {
            assert!(
                compile(shape.expression).is_match(example.as_bytes()),
                "{example}"
            );
            let lower = example.to_ascii_lowercase();
            assert!(shape.hints.iter().any(|hint| lower.contains(hint)), "{example}");
            assert!(
                scan(example.as_bytes())
                    .iter()
                    .any(|span| span.label == shape.label),
                "{example}"
            );
        }
    }

    #[test]
    fn hints_are_lower_case() {
        for hint in SHAPES.iter().flat_map(|shape| shape.hints) {
            assert_eq!(*hint, hint.to_ascii_lowercase());
        }
    }

    #[track_caller]
    fn check_open(text: &str, from: Option<usize>) {
        assert_eq!(open(text.as_bytes()).map(|span| span.start), from, "{text}");
    }

    #[test]
    fn an_open_credential_is_known_by_its_beginning() {
        check_open("a sk-", Some(2));
        check_open("a ghp_abc", Some(2));
        check_open("a AKIA", Some(2));
        check_open("Authorization: Bear", Some(19));
        check_open("Authorization: Basic dXNl", Some(21));
        check_open("bearer abc", Some(7));
        check_open("postgres://ann:pa55", Some(15));
        check_open("bot 12345678:AA", Some(4));
        check_open("a -----BEGIN RSA PRIVATE KEY-----\nMIIE", Some(2));
    }

    #[test]
    fn ordinary_ends_are_not_open() {
        for text in [
            "hello\n",
            "hello",
            "50%|#####",
            "task-",
            "done. ",
            "ghp_abc d",
            "https://example.com/a",
            "-----BEGIN PRIVATE KEY----- is missing here",
        ] {
            check_open(text, None);
        }
    }

    /// `before|text`: checks how many bytes of the text after the gap are redacted.
    #[track_caller]
    fn check_rest(cut: &str, end: usize) {
        let (before, text) = cut.split_once('|').unwrap();
        let rest = rest(text.as_bytes(), open(before.as_bytes()));
        assert_eq!(rest.map_or(0, |span| span.end), end, "{cut}");
    }

    #[test]
    fn the_rest_of_a_credential_goes_with_it() {
        check_rest("ghp_a|bc def", 2);
        check_rest("Authorization: Bear|er dXNlcjpwYXNz, x", 15);
        check_rest("Authorization: Basic |dXNlcjpw\nYXNz", 8);
        check_rest(
            "-----BEGIN PRIVATE KEY-----\nMII|MIIE\nMIIEvQIBADANBgkqhkiG\nrest",
            25,
        );
    }

    #[test]
    fn what_lost_its_beginning_is_known_by_its_end() {
        check_rest("g|hp_a1B2c3D4e5F6g7H8 x", 19);
        check_rest("postgres|://ann:pa55@host/", 0);
        check_rest("postgres://a|nn:pa55@host/", 8);
        check_rest("-----BEG|ab==\n-----END PRIVATE KEY----- x", 30);
        for text in ["|plain words 1", "|internationalisation ", "|", "| a@b"] {
            check_rest(text, 0);
        }
    }
}
