//! Finds the remains of credentials that a gap in the text cuts.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use super::fold::Folded;
use super::known::{Forms, Known};
use super::{Span, shapes};

/// Minimum length of a part of a known value.
const MIN_PART: usize = 4;

impl Known {
    /// Finds the parts of credentials that touch a gap or the end of `text`.
    pub(super) fn parts(&self, text: &[u8], gaps: &[Range<usize>]) -> Vec<Span<'_>> {
        let end = text.len()..text.len();
        let mut spans = Vec::new();
        let mut start = 0;
        let mut open = None;
        for gap in gaps.iter().chain([&end]) {
            let section = &text[start..gap.start];
            let mut found = Vec::new();
            if start > 0 {
                found.extend(self.ends_at_start(section));
                found.extend(shapes::rest(section, open));
            }
            found.extend(self.beginnings_at_end(section));
            open = shapes::open(section);
            found.extend(open.filter(|span| span.start < span.end));
            spans.extend(found.into_iter().map(|span| Span {
                start: start + span.start,
                end: start + span.end,
                ..span
            }));
            start = gap.end;
        }
        spans
    }

    /// Finds suffixes of known values at the start of `section`.
    fn ends_at_start(&self, section: &[u8]) -> Vec<Span<'_>> {
        let folded = Folded::new(section);
        let encoded = self.folded.ending_at_start(&folded.bytes).map(|span| Span {
            end: folded.place(span.end - 1) + 1,
            ..span
        });
        self.plain
            .ending_at_start(section)
            .into_iter()
            .chain(encoded)
            .collect()
    }

    /// Finds prefixes of known values at the end of `section`.
    fn beginnings_at_end(&self, section: &[u8]) -> Vec<Span<'_>> {
        let folded = Folded::new(section);
        let encoded = beginning_at_end(&self.folded.forwards, &folded.bytes).map(|span| Span {
            start: folded.place(span.start),
            end: section.len(),
            ..span
        });
        beginning_at_end(&self.plain.forwards, section)
            .into_iter()
            .chain(encoded)
            .collect()
    }
}

impl Forms {
    /// Finds the longest suffix of a known value at the start of `section`.
    fn ending_at_start(&self, section: &[u8]) -> Option<Span<'_>> {
        let near = &section[..section.len().min(longest(&self.backwards))];
        let backwards: Vec<u8> = near.iter().rev().copied().collect();
        let found = beginning_at_end(&self.backwards, &backwards)?;
        Some(Span {
            start: 0,
            end: found.end - found.start,
            ..found
        })
    }
}

fn longest(forms: &BTreeMap<Vec<u8>, String>) -> usize {
    forms.keys().map(Vec::len).max().unwrap_or(0)
}

/// Finds the longest prefix of one of `forms` at the end of `section`.
fn beginning_at_end<'f>(forms: &'f BTreeMap<Vec<u8>, String>, section: &[u8]) -> Option<Span<'f>> {
    let last = section.len().checked_sub(MIN_PART)?;
    // In byte order, the strings with a given prefix directly follow it: each position costs one look-up,
    // however many gaps a guest invents.
    (section.len().saturating_sub(longest(forms))..=last).find_map(|at| {
        let part = &section[at..];
        let behind = (Bound::Included(part), Bound::Unbounded);
        let (form, name) = forms.range::<[u8], _>(behind).next()?;
        form.starts_with(part).then_some(Span {
            start: at,
            end: section.len(),
            label: name.as_str(),
        })
    })
}
