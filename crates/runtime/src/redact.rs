//! Takes credentials out of text: values that we know, and shapes that give themselves away.

mod forms;
mod shapes;
mod stream;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use aho_corasick::AhoCorasick;

pub use stream::Stream;

/// Shorter values would be found in ordinary text.
const MIN_LENGTH: usize = 6;

/// Longer values are looked for in pieces of this length, so that a stream need not hold back more.
const MAX_PIECE: usize = 2_048;

/// Values that stand for a choice, not for a secret.
const TRIVIAL: &[&str] = &[
    "default",
    "disabled",
    "enabled",
    "required",
    "optional",
    "localhost",
    "password",
    "secret",
];

/// Words whose presence in a variable's name makes its value a secret.
const SECRET_WORDS: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
];

/// Parts of a variable's name, between underscores, that make its value a secret.
const SECRET_PARTS: &[&str] = &[
    "KEY",
    "KEYS",
    "AUTH",
    "DSN",
    "PASS",
    "PW",
    "PAT",
    "COOKIE",
    "SIGNATURE",
];

/// Names whose value is an address that usually carries a password.
const SECRET_NAMES: &[&str] = &[
    "DATABASE_URL",
    "REDIS_URL",
    "MONGODB_URI",
    "MONGO_URL",
    "AMQP_URL",
    "BROKER_URL",
];

/// Endings of names whose value only says where a secret lies.
const PLACE_ENDINGS: &[&str] = &["_SOCK", "_FILE", "_PATH", "_DIR", "_APPLICATION_CREDENTIALS"];

/// Replaces credentials by `[redacted:NAME]`.
///
/// Known values are found as they are and in base64 (also within a longer text), URL, hexadecimal and JSON
/// form. Tokens of well-known services are found by their shape. This keeps accidents out of logs and
/// artifacts; a program that wants to smuggle a secret past it can, so secrets that a program must not
/// have stay outside the fence.
#[derive(Clone)]
pub struct Redactor {
    known: Option<AhoCorasick>,
    /// The name of each pattern of `known`.
    names: Vec<String>,
    /// The patterns and the openings of the shapes, sorted, to tell what the end of a chunk may begin.
    beginnings: Vec<Vec<u8>>,
    /// The length of the longest of them.
    longest: usize,
}

/// A part of a text that must not be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span<'a> {
    start: usize,
    end: usize,
    /// What is put in its place; `None` where it was put there already.
    label: Option<&'a str>,
}

impl Redactor {
    /// A redactor that knows these secrets, given as name and value.
    ///
    /// Values of fewer than six bytes, of one repeated character, or that name a common setting are left
    /// out: they would be found everywhere.
    pub fn new<N: Into<String>, V: AsRef<str>>(secrets: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut patterns = BTreeMap::new();
        for (name, value) in secrets {
            let name = name.into();
            let value = value.as_ref().trim();
            for piece in pieces(value).filter(|piece| is_telling(piece)) {
                for form in forms::of(piece) {
                    patterns.entry(form).or_insert_with(|| name.clone());
                }
            }
        }
        let known = if patterns.is_empty() {
            None
        } else {
            AhoCorasick::new(patterns.keys()).ok()
        };
        let names = patterns.values().cloned().collect();
        let mut beginnings: Vec<Vec<u8>> = patterns.into_keys().collect();
        beginnings.extend(shapes::OPENINGS.iter().map(|opening| opening.as_bytes().to_vec()));
        beginnings.sort();
        let longest = beginnings.iter().map(Vec::len).max().unwrap_or(0);
        Self {
            known,
            names,
            beginnings,
            longest,
        }
    }

    /// A redactor for the secrets among these environment variables.
    ///
    /// The caller hands the environment over; nothing is read here.
    pub fn from_environment(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut secrets = Vec::new();
        for (name, value) in vars {
            if let Some(password) = shapes::url_password(&value) {
                secrets.push((name.clone(), password.to_owned()));
            }
            if is_secret_name(&name) && !is_place(&name, &value) {
                secrets.push((name, value));
            }
        }
        Self::new(secrets)
    }

    /// `text` without its credentials.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let spans = merge(self.scan(text.as_bytes()));
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut clean = Vec::with_capacity(text.len());
        replace(text.as_bytes(), &spans, &mut clean);
        Cow::Owned(
            String::from_utf8(clean).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
        )
    }

    /// A filter for a text that comes in chunks.
    pub fn stream(self: &Arc<Self>) -> Stream {
        Stream::new(Arc::clone(self))
    }

    /// Every credential in `text`, unsorted; they may overlap.
    fn scan(&self, text: &[u8]) -> Vec<Span<'_>> {
        let mut spans = Vec::new();
        if let Some(known) = &self.known {
            spans.extend(known.find_overlapping_iter(text).map(|found| Span {
                start: found.start(),
                end: found.end(),
                label: Some(self.names[found.pattern().as_usize()].as_str()),
            }));
        }
        // Behind the known values, so that their names win where both are found.
        spans.extend(shapes::scan(text));
        spans
    }
}

impl fmt::Debug for Redactor {
    /// Names only: a log must not show what this is there to hide.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: BTreeSet<&String> = self.names.iter().collect();
        f.debug_struct("Redactor")
            .field("names", &names)
            .finish_non_exhaustive()
    }
}

/// Whether a variable of this name usually holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
        || name.split('_').any(|part| SECRET_PARTS.contains(&part))
        || SECRET_NAMES.contains(&name.as_str())
}

/// Whether the variable names a file or socket, whose path is no secret.
fn is_place(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    value.starts_with(['/', '~', '.']) && PLACE_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether finding `value` in a text means anything.
fn is_telling(value: &str) -> bool {
    let repeated = value.bytes().all(|byte| Some(&byte) == value.as_bytes().first());
    value.len() >= MIN_LENGTH && !repeated && !TRIVIAL.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// `value` in pieces of at most [`MAX_PIECE`] bytes.
fn pieces(mut value: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = value.split_at(value.floor_char_boundary(MAX_PIECE));
        value = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Joins spans that overlap, so that no end of one secret shows behind another; sorted by place.
fn merge(mut spans: Vec<Span<'_>>) -> Vec<Span<'_>> {
    // Of two that start together the longer one gives its name.
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let mut merged: Vec<Span<'_>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start < last.end => {
                last.end = last.end.max(span.end);
                last.label = span.label.and(last.label);
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// Appends `text` to `clean`, with a label in the place of each span.
fn replace(text: &[u8], spans: &[Span<'_>], clean: &mut Vec<u8>) {
    let mut shown = 0;
    for span in spans {
        clean.extend_from_slice(&text[shown..span.start]);
        if let Some(label) = span.label {
            clean.extend_from_slice(b"[redacted:");
            clean.extend_from_slice(label.as_bytes());
            clean.push(b']');
        }
        shown = span.end;
    }
    clean.extend_from_slice(&text[shown..]);
}

#[cfg(test)]
mod tests;
