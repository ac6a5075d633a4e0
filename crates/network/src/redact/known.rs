//! Finds known secret values in text.

use std::collections::{BTreeMap, BTreeSet};

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, Match};

use super::fold::Folded;
use super::{Span, forms};

/// Minimum length of a value: shorter ones occur in ordinary text.
const MIN_LENGTH: usize = 6;

/// Longer values are searched for in pieces of this length, so that a part of one is found, too.
const MAX_PIECE: usize = 2_048;

/// Values of common settings that are not secrets.
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

/// An index of the known values.
#[derive(Clone)]
pub(super) struct Known {
    /// Forms to search for in the text.
    pub(super) plain: Forms,
    /// Forms to search for in the normalized text.
    pub(super) folded: Forms,
}

impl Known {
    pub(super) fn new(secrets: &[(String, String)]) -> Self {
        Self {
            plain: Forms::new(secrets, forms::of),
            folded: Forms::new(secrets, forms::folded),
        }
    }

    /// Finds every known value in `text`.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Span<'_>> {
        let mut spans = self.plain.find(text);
        // `base64` wraps its lines.
        let (joined, breaks) = join_lines(text);
        let place = |at: usize| at + breaks.partition_point(|before| *before <= at);
        spans.extend(self.plain.find(&joined).into_iter().map(|span| Span {
            start: place(span.start),
            end: place(span.end.saturating_sub(1)) + 1,
            ..span
        }));
        let folded = Folded::new(text);
        spans.extend(self.folded.find(&folded.bytes).into_iter().map(|span| Span {
            start: folded.place(span.start),
            end: folded.place(span.end - 1) + 1,
            ..span
        }));
        spans
    }
}

/// Encoded forms of the known values.
#[derive(Clone)]
pub(super) struct Forms {
    /// Forms with the name of their value.
    pub(super) forwards: BTreeMap<Vec<u8>, String>,
    /// The same with each form reversed.
    pub(super) backwards: BTreeMap<Vec<u8>, String>,
    /// Automaton over `forwards`, with pattern numbers in its order.
    finder: Result<AhoCorasick, BuildError>,
}

impl Forms {
    fn new(secrets: &[(String, String)], of: impl Fn(&str) -> BTreeSet<Vec<u8>>) -> Self {
        let mut forwards = BTreeMap::new();
        for (name, value) in secrets {
            for piece in pieces(value.trim()).filter(|piece| is_telling(piece)) {
                for form in of(piece) {
                    forwards.entry(form).or_insert_with(|| name.clone());
                }
            }
        }
        let backward =
            |(form, name): (&Vec<u8>, &String)| (form.iter().rev().copied().collect(), name.clone());
        Self {
            backwards: forwards.iter().map(backward).collect(),
            // The texts are short, so build time and size of the automaton matter most.
            finder: AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::NoncontiguousNFA))
                .build(forwards.keys()),
            forwards,
        }
    }

    fn find(&self, text: &[u8]) -> Vec<Span<'_>> {
        let Ok(finder) = &self.finder else {
            // More secrets than the automaton can hold: redact everything.
            let everything = Span {
                start: 0,
                end: text.len(),
                label: "everything",
            };
            return Vec::from_iter((!text.is_empty()).then_some(everything));
        };
        let names: Vec<&str> = self.forwards.values().map(String::as_str).collect();
        let span = |found: Match| Span {
            start: found.start(),
            end: found.end(),
            label: names[found.pattern().as_usize()],
        };
        finder.find_overlapping_iter(text).map(span).collect()
    }
}

/// Removes line breaks from `text`; returns for each break the number of other bytes before it.
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

/// Returns `true` if a match of `value` is significant.
fn is_telling(value: &str) -> bool {
    let repeated = value.bytes().all(|byte| Some(&byte) == value.as_bytes().first());
    value.len() >= MIN_LENGTH && !repeated && !TRIVIAL.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Splits `value` into pieces of at most [`MAX_PIECE`] bytes.
fn pieces(mut value: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = value.split_at(value.floor_char_boundary(MAX_PIECE));
        value = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
