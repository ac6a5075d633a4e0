//! Masks injected credentials that a host sends back.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::redact;

/// Minimum length of a masked value: shorter ones would match by chance.
const MIN_ECHO: usize = 8;

/// Replacement for a header value that contains a credential.
const REDACTED: HeaderValue = HeaderValue::from_static("[REDACTED]");

/// Replacement for each byte of a credential in a body, which keeps its announced length.
const MASK: u8 = b'*';

/// The filter of one response.
#[derive(Debug)]
pub(super) struct Echoes {
    /// Encodings of the credentials.
    forms: Vec<Vec<u8>>,
    finder: AhoCorasick,
    /// The end of the body so far, if an encoding may begin with it.
    held: Vec<u8>,
}

impl Echoes {
    /// Creates a filter for these header values; `None` if there is nothing to mask.
    pub(super) fn new<'a>(values: impl Iterator<Item = &'a HeaderValue>) -> Option<Self> {
        let credentials = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(credentials);
        let telling = credentials.filter(|credential| credential.len() >= MIN_ECHO);
        let forms: BTreeSet<Vec<u8>> = telling
            .flat_map(|credential| redact::encoded(&credential))
            .filter(|form| form.len() >= MIN_ECHO)
            .collect();
        if forms.is_empty() {
            return None;
        }
        let forms: Vec<Vec<u8>> = forms.into_iter().collect();
        Some(Self {
            finder: AhoCorasick::new(&forms).ok()?,
            forms,
            held: Vec::new(),
        })
    }

    pub(super) fn mask_headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if self.finder.is_match(value.as_bytes()) {
                *value = REDACTED;
            }
        }
        // The parser converts names to lower case.
        let lower: Vec<Vec<u8>> = self.forms.iter().map(|form| form.to_ascii_lowercase()).collect();
        let tells = |name: &&HeaderName| {
            let name = name.as_str().as_bytes();
            lower
                .iter()
                .any(|form| name.windows(form.len()).any(|part| part == form))
        };
        let telling: Vec<HeaderName> = headers.keys().filter(tells).cloned().collect();
        for name in telling {
            headers.remove(name);
        }
    }

    /// Masks a chunk of a body. Holds back bytes that a credential may begin with, until the next chunk.
    pub(super) fn mask(&mut self, piece: &[u8]) -> Bytes {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        let found: Vec<_> = self.finder.find_overlapping_iter(&bytes).collect();
        for found in found {
            bytes[found.range()].fill(MASK);
        }
        self.held = bytes.split_off(bytes.len() - self.begun(&bytes));
        bytes.into()
    }

    /// Returns the bytes held back at the end of a body.
    pub(super) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }

    /// Returns the number of bytes held back.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the length of the longest suffix of `bytes` that an encoding begins with.
    fn begun(&self, bytes: &[u8]) -> usize {
        let begins = |form: &Vec<u8>| {
            let most = bytes.len().min(form.len() - 1);
            (1..=most)
                .rev()
                .find(|length| bytes.ends_with(&form[..*length]))
                .unwrap_or(0)
        };
        self.forms.iter().map(begins).max().unwrap_or(0)
    }
}

/// Returns the credentials in a header value: the whole value, its last word (`Bearer x` may be echoed as
/// `x`), and for Basic authentication the decoded pair and the password.
fn credentials(value: &str) -> Vec<String> {
    let bare = value.rsplit(' ').next().unwrap_or(value);
    let mut found = vec![value.to_owned(), bare.to_owned()];
    let is_basic = value
        .split_once(' ')
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
    let pair = is_basic.then(|| STANDARD.decode(bare).ok()).flatten();
    if let Some(pair) = pair.and_then(|pair| String::from_utf8(pair).ok()) {
        found.extend(pair.split_once(':').map(|(_, password)| password.to_owned()));
        found.push(pair);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echoes(value: &'static str) -> Echoes {
        Echoes::new([&HeaderValue::from_static(value)].into_iter()).unwrap()
    }

    fn masked(echoes: &mut Echoes, pieces: &[&str]) -> String {
        let mut bytes = Vec::new();
        for piece in pieces {
            bytes.extend(echoes.mask(piece.as_bytes()));
        }
        bytes.extend(echoes.rest());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn masks_what_comes_in_any_pieces() {
        let text = "you sent Bearer s3cr3t-value, s3cr3t, s3cr3t-valu and s3cr3t-value";
        let expected = "you sent *******************, s3cr3t, s3cr3t-valu and ************";
        for size in 1..=text.len() {
            let pieces: Vec<&str> = (0..text.len())
                .step_by(size)
                .map(|at| &text[at..text.len().min(at + size)])
                .collect();
            assert_eq!(masked(&mut echoes("Bearer s3cr3t-value"), &pieces), expected);
        }
    }

    #[test]
    fn masks_encoded_forms() {
        let check = |value, text: &str| {
            let shown = masked(&mut echoes(value), &[text]);
            assert!(shown.contains("****") && shown.len() == text.len(), "{shown}");
            assert!(!shown.contains("t0p"), "{shown}");
        };
        check("s3cr3t/t0p value", "s3cr3t%2Ft0p%20value");
        check("Bearer s3cr3t-t0p", "czNjcjN0LXQwcA==");
        check("Bearer s3cr3t-t0p", "7333637233742d743070");
        // ann:hunter2-t0p
        check("Basic YW5uOmh1bnRlcjItdDBw", "the password is hunter2-t0p");
    }

    #[test]
    fn masks_headers_and_removes_names() {
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", HeaderValue::from_static("got S3cr3t-value!"));
        headers.insert("x-other", HeaderValue::from_static("S3cr3t"));
        headers.insert("x-s3cr3t-value-y", HeaderValue::from_static("1"));
        echoes("Bearer S3cr3t-value").mask_headers(&mut headers);
        let shown: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        let expected = [
            ("x-echo", REDACTED),
            ("x-other", HeaderValue::from_static("S3cr3t")),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn short_values_are_not_looked_for() {
        assert!(Echoes::new([&HeaderValue::from_static("Bearer")].into_iter()).is_none());
    }
}
