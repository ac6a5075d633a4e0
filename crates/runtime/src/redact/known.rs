//! The values that are known to be secret, and where a text shows them.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, Match};

use super::{Span, forms};

/// Shorter values would be found in ordinary text.
const MIN_LENGTH: usize = 6;

/// Longer values are looked for in pieces of this length, so that a part of one is found, too.
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

/// What is looked for.
#[derive(Clone)]
pub(super) struct Known {
    /// Every form of every value, with the value's name.
    pub(super) forms: BTreeMap<Vec<u8>, String>,
    /// The same, each form from its end to its beginning.
    pub(super) backwards: BTreeMap<Vec<u8>, String>,
    /// Finds the forms, numbered in their order.
    finder: Result<AhoCorasick, BuildError>,
}

impl Known {
    pub(super) fn new(secrets: &[(String, String)]) -> Self {
        let mut forms = BTreeMap::new();
        for (name, value) in secrets {
            for piece in pieces(value.trim()).filter(|piece| is_telling(piece)) {
                for form in forms::of(piece) {
                    forms.entry(form).or_insert_with(|| name.clone());
                }
            }
        }
        let backward =
            |(form, name): (&Vec<u8>, &String)| (form.iter().rev().copied().collect(), name.clone());
        Self {
            backwards: forms.iter().map(backward).collect(),
            // The texts are short, so what counts is how fast and small it is made.
            finder: AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::NoncontiguousNFA))
                .build(forms.keys()),
            forms,
        }
    }

    /// Every known value in `text`.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Span<'_>> {
        let Ok(finder) = &self.finder else {
            // More secrets than can be looked for: nothing may be shown.
            return vec![Span {
                start: 0,
                end: text.len(),
                label: "everything",
            }];
        };
        let names: Vec<&str> = self.forms.values().map(String::as_str).collect();
        let span = |found: Match| Span {
            start: found.start(),
            end: found.end(),
            label: names[found.pattern().as_usize()],
        };
        let mut spans: Vec<Span<'_>> = finder.find_overlapping_iter(text).map(span).collect();
        // `base64` and `xxd -p` break their lines.
        let (joined, breaks) = join_lines(text);
        let place = |at: usize| at + breaks.partition_point(|before| *before <= at);
        let broken = finder.find_overlapping_iter(&joined).map(span);
        spans.extend(broken.map(|span| Span {
            start: place(span.start),
            end: place(span.end - 1) + 1,
            ..span
        }));
        spans
    }
}

/// `text` without its line breaks, and for each of them how many other bytes stand before it.
fn join_lines(text: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut joined = Vec::with_capacity(text.len());
    let mut breaks = Vec::new();
    for &byte in text {
        if matches!(byte, b'\r' | b'\n') {
            breaks.push(joined.len());
        } else {
            joined.push(byte);
        }
    }
    (joined, breaks)
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
