//! Finds what is left of a credential where a part of the text is missing.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use super::known::Known;
use super::{Span, shapes};

/// The shortest part of a known value that is taken for one.
const MIN_PART: usize = 4;

impl Known {
    /// The parts of credentials that touch a gap or the end of `text`.
    pub(super) fn parts(&self, text: &[u8], gaps: &[Range<usize>]) -> Vec<Span<'_>> {
        let longest = self.forms.keys().map(Vec::len).max().unwrap_or(0);
        let end = text.len()..text.len();
        let mut spans = Vec::new();
        let mut start = 0;
        let mut open = None;
        for gap in gaps.iter().chain([&end]) {
            let section = &text[start..gap.start];
            let mut found = Vec::new();
            if start > 0 {
                found.extend(self.ending_at_start(section, longest));
                found.extend(shapes::rest(section, open));
            }
            found.extend(beginning_at_end(&self.forms, section, longest));
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

    /// The end of a known value that `section` begins with.
    fn ending_at_start(&self, section: &[u8], longest: usize) -> Option<Span<'_>> {
        let near = &section[..section.len().min(longest)];
        let backwards: Vec<u8> = near.iter().rev().copied().collect();
        let found = beginning_at_end(&self.backwards, &backwards, longest)?;
        Some(Span {
            start: 0,
            end: found.end - found.start,
            ..found
        })
    }
}

/// The beginning of one of `forms` that `section` ends with, the longest there is.
fn beginning_at_end<'f>(
    forms: &'f BTreeMap<Vec<u8>, String>,
    section: &[u8],
    longest: usize,
) -> Option<Span<'f>> {
    let last = section.len().checked_sub(MIN_PART)?;
    // In the order of bytes, what begins with a part follows it at once: each place costs one look-up, however
    // many gaps a guest invents.
    (section.len().saturating_sub(longest)..=last).find_map(|at| {
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
