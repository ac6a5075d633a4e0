//! Redacts a text that comes in chunks, also where a secret lies across them.

use std::fmt;
use std::sync::Arc;

use super::{Redactor, Span, merge, replace, shapes};

/// The most that is held back; what is longer is decided as far as it has come.
const MAX_HELD: usize = 16 * 1024;

/// A filter between a guest's output and whoever reads it.
///
/// It passes on at once whatever cannot be the beginning of a secret, so that output stays live.
pub struct Stream {
    redactor: Arc<Redactor>,
    /// The text that is not decided, behind `context` bytes that were passed on.
    held: Vec<u8>,
    /// Bytes at the front that only tell a word's beginning from its middle: none or one.
    context: usize,
    /// Bytes behind the context whose label was passed on already.
    covered: usize,
    /// The word that is being read belongs to a secret whose label was passed on.
    inside: bool,
}

impl Stream {
    pub(super) fn new(redactor: Arc<Redactor>) -> Self {
        Self {
            redactor,
            held: Vec::new(),
            context: 0,
            covered: 0,
            inside: false,
        }
    }

    /// Takes the next chunk and returns what can be shown now.
    #[must_use]
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        let chunk = self.skip_inside(chunk);
        self.held.extend_from_slice(chunk);
        let held_from = self.undecided();
        self.release(held_from)
    }

    /// The rest, once no more comes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.release(self.held.len())
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Where the part begins that more text may turn into a secret.
    fn undecided(&self) -> usize {
        let held = &self.held;
        let window = held.len().saturating_sub(MAX_HELD).max(self.context);
        let begins = |from: &usize| self.redactor.may_begin(&held[*from..]);
        let near = held.len().saturating_sub(self.redactor.longest).max(window);
        let known = (near..held.len()).find(begins).unwrap_or(held.len());
        known.min(shapes::unfinished(held)).max(window)
    }

    /// Passes on everything before `until`, a secret that ends behind it included.
    fn release(&mut self, mut until: usize) -> Vec<u8> {
        let redactor = Arc::clone(&self.redactor);
        let mut spans = redactor.scan(&self.held);
        if self.covered > 0 {
            let end = self.context + self.covered;
            spans.push(Span {
                start: self.context,
                end,
                label: None,
            });
        }
        // What is in the context was shown; it cannot be taken back.
        spans.retain(|span| span.end > self.context);
        spans
            .iter_mut()
            .for_each(|span| span.start = span.start.max(self.context));
        let mut spans = merge(spans);
        let open = |span: &&Span<'_>| until < span.end && (span.start < until || span.label.is_none());
        let crossing = spans.iter().find(open).copied();
        self.covered = 0;
        if let Some(span) = crossing {
            if span.label.is_none() {
                self.covered = span.end - until;
            } else if self.held.len() - span.start <= MAX_HELD {
                until = span.start;
            } else {
                self.covered = span.end - until;
                // It fills all that may be held: what follows it without a gap belongs to it.
                self.inside = span.end == self.held.len();
            }
        }
        spans.retain(|span| span.start < until);
        for span in &mut spans {
            span.end = span.end.min(until);
        }
        let mut shown = Vec::with_capacity(until);
        replace(&self.held[..until], &spans, &mut shown);
        self.drop_front(until, shown)
    }

    /// Forgets what was passed on, but for one byte of context.
    fn drop_front(&mut self, until: usize, mut shown: Vec<u8>) -> Vec<u8> {
        shown.drain(..self.context);
        self.context = until.min(1);
        self.held.drain(..until - self.context);
        shown
    }

    /// `chunk` without the rest of a secret that was too long to be held.
    fn skip_inside<'c>(&mut self, chunk: &'c [u8]) -> &'c [u8] {
        if !self.inside {
            return chunk;
        }
        let end = chunk.iter().position(|byte| !is_token_byte(*byte));
        self.inside = end.is_none();
        &chunk[end.unwrap_or(chunk.len())..]
    }
}

impl fmt::Debug for Stream {
    /// What is held may be half of a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

impl Redactor {
    /// Whether more text after `end` could make it a known value or the opening of a shape.
    fn may_begin(&self, end: &[u8]) -> bool {
        let at = self
            .beginnings
            .partition_point(|pattern| pattern.as_slice() <= end);
        self.beginnings
            .get(at)
            .is_some_and(|pattern| pattern.starts_with(end))
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./+=%~".contains(&byte)
}
