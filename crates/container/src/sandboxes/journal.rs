//! Keeps the last output of a sandbox's commands for later readers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Size limit in bytes.
const MOST: usize = 256 * 1024;

/// A chunk of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunk {
    /// Set for standard error.
    pub is_error: bool,
    pub text: String,
}

/// A part of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLog {
    /// The chunks, in order.
    pub printed: Vec<LogChunk>,
    /// Number of the chunk after these.
    pub next: u64,
    /// Set if no more will follow.
    pub ended: bool,
}

/// The log of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pages: Mutex<Pages>,
    /// Number of the next chunk.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Pages {
    pieces: VecDeque<LogChunk>,
    bytes: usize,
    next: u64,
}

impl Journal {
    /// Appends the output of a command.
    pub(super) fn add(&self, stdout: &str, stderr: &str) {
        let mut pages = self.pages();
        pages.add(false, stdout);
        pages.add(true, stderr);
        let next = pages.next;
        drop(pages);
        self.next.send_replace(next);
    }

    /// Returns the retained chunks from this number on, and the number of the next chunk.
    pub(super) fn after(&self, number: u64) -> (Vec<LogChunk>, u64) {
        let pages = self.pages();
        let first = pages.next - pages.pieces.len() as u64;
        let known = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX);
        (pages.pieces.iter().skip(known).cloned().collect(), pages.next)
    }

    /// Waits until the chunk of this number exists.
    pub(super) async fn longer_than(&self, number: u64) {
        // We own the sender, so it cannot be closed.
        let _ = self.next.subscribe().wait_for(|next| *next > number).await;
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn add(&mut self, is_error: bool, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = &text[text.ceil_char_boundary(text.len().saturating_sub(MOST))..];
        self.bytes += text.len();
        self.next += 1;
        self.pieces.push_back(LogChunk {
            is_error,
            text: text.to_owned(),
        });
        while self.bytes > MOST
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.bytes -= oldest.text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(journal: &Journal, after: u64) -> (Vec<String>, u64) {
        let (printed, next) = journal.after(after);
        (printed.into_iter().map(|piece| piece.text).collect(), next)
    }

    #[test]
    fn each_piece_is_told_once_to_who_goes_on_from_the_last() {
        let journal = Journal::default();
        assert_eq!(texts(&journal, 0), (Vec::new(), 0));
        journal.add("one\n", "err\n");
        let (printed, next) = journal.after(0);
        assert_eq!(
            printed.iter().map(|piece| piece.is_error).collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!(next, 2);
        journal.add("", "");
        journal.add("two\n", "");
        assert_eq!(texts(&journal, next), (vec!["two\n".to_owned()], 3));
        assert_eq!(texts(&journal, u64::MAX), (Vec::new(), 3));
    }

    #[test]
    fn the_last_of_much_is_kept() {
        let journal = Journal::default();
        for number in 0..10 {
            journal.add(&number.to_string().repeat(MOST / 4), "");
        }
        let (kept, next) = texts(&journal, 0);
        assert_eq!((kept.len(), next), (4, 10));
        assert!(kept[0].starts_with('6') && kept[3].starts_with('9'));
        journal.add(&"\u{e9}".repeat(MOST), "");
        let (kept, next) = texts(&journal, 0);
        assert_eq!((kept.len(), kept[0].len(), next), (1, MOST, 11));
    }

    #[tokio::test]
    async fn who_waits_is_told_of_the_next_piece() {
        let journal = Journal::default();
        let ((), ()) = tokio::join!(journal.longer_than(0), async { journal.add("one", "") });
        journal.longer_than(0).await;
    }
}
