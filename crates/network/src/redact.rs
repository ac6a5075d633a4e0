//! Redacts credentials from text: known values, and values with a telling format.

mod cut;
mod fold;
mod forms;
mod known;
mod shapes;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use known::Known;

/// Substrings of a variable's name that mark its value as a secret.
const SECRET_WORDS: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
];

/// Parts of a variable's name, between underscores, that mark its value as a secret.
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

/// Names of variables whose value is a URL that usually contains a password.
const SECRET_NAMES: &[&str] = &[
    "DATABASE_URL",
    "REDIS_URL",
    "MONGODB_URI",
    "MONGO_URL",
    "AMQP_URL",
    "BROKER_URL",
];

/// Suffixes of names whose value is the path of a secret.
const PLACE_ENDINGS: &[&str] = &["_SOCK", "_FILE", "_PATH", "_DIR", "_APPLICATION_CREDENTIALS"];

/// Replaces credentials by `[redacted:NAME]`.
///
/// Known values are found in plain, base64, base32 (both also within a longer text), URL, hexadecimal and
/// JSON form, also across line breaks; hexadecimal ones with any usual separators (`\x5a`, `%5A`, `5a:71`).
/// Tokens of well-known services, and values assigned to a name such as `password`, are found by their
/// format. This prevents accidental leaks into logs and artifacts. A program can smuggle a secret past it, so
/// secrets that a program must not have stay outside the fence.
#[derive(Clone)]
pub struct Redactor {
    /// Names and values.
    secrets: Vec<(String, String)>,
    /// Built on first use: most runs store no artifact.
    known: OnceLock<Known>,
}

/// A range of text to redact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span<'a> {
    start: usize,
    end: usize,
    /// Label that replaces the text.
    label: &'a str,
}

impl Redactor {
    /// Creates a redactor of these secrets, given as name and value.
    ///
    /// Values of fewer than six bytes, of one repeated character, or that equal a common setting are ignored:
    /// they would match everywhere.
    pub fn new<N: Into<String>, V: Into<String>>(secrets: impl IntoIterator<Item = (N, V)>) -> Self {
        let secrets = secrets.into_iter();
        Self {
            secrets: secrets.map(|(name, value)| (name.into(), value.into())).collect(),
            known: OnceLock::new(),
        }
    }

    /// Creates a redactor of the secrets among these environment variables.
    ///
    /// Does not read the environment itself.
    pub fn from_environment(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::new(secrets_among(vars))
    }

    /// Returns this redactor extended by the secrets among further variables.
    #[must_use]
    pub fn with_environment(&self, vars: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::new(self.secrets.iter().cloned().chain(secrets_among(vars)))
    }

    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        clean(text, self.scan(text.as_bytes()))
    }

    /// Redacts the credentials in `text`, and the remains of those that a gap cuts.
    ///
    /// A gap is a range where text was left out, such as a truncation notice; gaps are sorted and disjoint.
    /// The end of the text counts as one: a program may be killed while it prints.
    pub fn redact_cut<'t>(&self, text: &'t str, gaps: &[Range<usize>]) -> Cow<'t, str> {
        let mut spans = self.scan(text.as_bytes());
        spans.extend(self.known().parts(text.as_bytes(), gaps));
        clean(text, spans)
    }

    fn known(&self) -> &Known {
        self.known.get_or_init(|| Known::new(&self.secrets))
    }

    /// Finds the credentials in `text`, unsorted; they may overlap.
    fn scan(&self, text: &[u8]) -> Vec<Span<'_>> {
        let mut spans = self.known().find(text);
        // After the known values, so that their labels win where both match.
        spans.extend(shapes::scan(text));
        spans
    }
}

impl fmt::Debug for Redactor {
    /// Shows names only: a log must not show the values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: BTreeSet<&String> = self.secrets.iter().map(|(name, _)| name).collect();
        f.debug_struct("Redactor")
            .field("names", &names)
            .finish_non_exhaustive()
    }
}

/// Returns the secrets among these variables.
fn secrets_among(vars: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut secrets = Vec::new();
    for (name, value) in vars {
        if let Some(password) = shapes::url_password(&value) {
            secrets.push((name.clone(), password.to_owned()));
        }
        if is_secret_name(&name) && !is_place(&name, &value) {
            secrets.push((name, value));
        }
    }
    secrets
}

/// Returns a value in plain and encoded form, as [`Redactor`] searches for it in text without line breaks.
pub fn encoded(value: &str) -> BTreeSet<Vec<u8>> {
    let upper = forms::folded(value)
        .iter()
        .map(|form| form.to_ascii_uppercase())
        .collect();
    [forms::of(value), forms::folded(value), upper]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns `true` if a variable of this name usually holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
        || name.split('_').any(|part| SECRET_PARTS.contains(&part))
        || SECRET_NAMES.contains(&name.as_str())
}

/// Returns `true` if the variable names a file or socket, whose path is not a secret.
fn is_place(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    value.starts_with(['/', '~', '.']) && PLACE_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Sorts spans and merges overlapping ones, so that the end of one secret never shows after another.
fn merge(mut spans: Vec<Span<'_>>) -> Vec<Span<'_>> {
    // Of two that start together, the longer one's label wins.
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let mut merged: Vec<Span<'_>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

/// Replaces each span by its label.
fn clean<'t>(text: &'t str, spans: Vec<Span<'_>>) -> Cow<'t, str> {
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut clean = Vec::with_capacity(text.len());
    let mut shown = 0;
    for span in merge(spans) {
        clean.extend_from_slice(&text.as_bytes()[shown..span.start]);
        clean.extend_from_slice(b"[redacted:");
        clean.extend_from_slice(span.label.as_bytes());
        clean.push(b']');
        shown = span.end;
    }
    clean.extend_from_slice(&text.as_bytes()[shown..]);
    Cow::Owned(
        String::from_utf8(clean).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
    )
}

#[cfg(test)]
mod tests;
