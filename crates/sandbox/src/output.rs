//! A bounded buffer of a process's output, for any number of readers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ringfence_exec::output::{Captured, Captures};
pub use ringfence_exec::output::{Chunk, Stream};
use ringfence_policy::{Bytes, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use super::kept_output::KEPT;
use super::kept_output::{KeptOutput, OVERHEAD};
use super::lock::lock;

/// Largest chunk that output of the same stream is added to.
const MERGED: usize = 32 * 1024;

/// Mean size of chunks, in bytes, below which their number is the limit.
const SMALL: u64 = 64;

/// Time that a process waits for a reader that reads nothing, before that misses output.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessEnd {
    /// Exit status; the signal as a negative number where one killed it; -1 at a timeout.
    pub exit_code: i32,
    pub outcome: Outcome,
    /// Processor time of the process and the children that it waited for, in seconds; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Largest resident set among these, in bytes; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Reason of an unknown outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ProcessEnd {
    pub(crate) fn unknown(why: &str) -> Self {
        Self {
            exit_code: 125,
            outcome: Outcome::Unknown,
            cpu_seconds: None,
            peak_memory_bytes: None,
            error: Some(why.to_owned()),
        }
    }
}

/// The output of one process.
#[derive(Debug, Default)]
pub struct Output {
    state: Mutex<State>,
    /// Changes with the state.
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Chunks with their positions, without gaps.
    chunks: VecDeque<(u64, Chunk)>,
    /// Position behind the last chunk: number of all bytes so far.
    end: u64,
    exit: Option<ProcessEnd>,
    /// Set if readers are not waited for.
    released: bool,
    /// Positions of the readers.
    readers: BTreeMap<u64, u64>,
    next_reader: u64,
    /// Counters of what is kept.
    kept: KeptOutput,
}

/// An item that a reader gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Output that begins at this position.
    Chunk { position: u64, chunk: Chunk },
    /// This many bytes are no longer kept.
    Lost(u64),
    /// The process has ended; the last item.
    End(ProcessEnd),
}

/// A reader of a process's output. While it exists and does not read, the process has to wait.
#[derive(Debug)]
pub struct Reader {
    output: Arc<Output>,
    id: u64,
    done: bool,
}

impl Output {
    /// Creates an output whose bytes are counted.
    pub(crate) fn counted(kept: KeptOutput) -> Self {
        let output = Self::default();
        output.state().kept = kept;
        output
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let result = act(&mut self.state());
        self.version.send_modify(|version| *version += 1);
        result
    }

    /// Adds output. Waits while that would drop output which a reader has not read.
    pub(crate) async fn push(&self, chunk: Chunk) {
        let mut version = self.version.subscribe();
        while !self.state().has_room(chunk.bytes.len() as u64) {
            // The sender lives as long as `self`.
            if tokio::time::timeout(TIMEOUT, version.changed()).await.is_err() {
                break;
            }
        }
        self.change(|state| state.add(chunk));
    }

    /// Stops waiting for readers, which miss output that they do not read in time.
    pub(crate) fn release(&self) {
        self.change(|state| state.released = true);
    }

    /// Notes the end of the process.
    pub(crate) fn end(&self, end: ProcessEnd) {
        self.change(|state| {
            state.exit.get_or_insert(end);
        });
    }

    /// Returns the end of the process, once it has ended.
    pub fn ended(&self) -> Option<ProcessEnd> {
        self.state().exit.clone()
    }

    /// Waits for the end of the process.
    pub async fn wait(&self) -> ProcessEnd {
        let mut version = self.version.subscribe();
        loop {
            if let Some(end) = self.ended() {
                return end;
            }
            let _ = version.changed().await;
        }
    }

    /// Adds a reader from a position on; 0 is the beginning.
    pub fn read_from(self: &Arc<Self>, position: u64) -> Reader {
        let id = self.change(|state| {
            let id = state.next_reader;
            state.next_reader += 1;
            state.readers.insert(id, position.min(state.end));
            id
        });
        Reader {
            output: Arc::clone(self),
            id,
            done: false,
        }
    }
}

impl State {
    /// Returns the position of the first byte that is kept.
    fn start(&self) -> u64 {
        self.chunks.front().map_or(self.end, |(position, _)| *position)
    }

    fn has_room(&self, more: u64) -> bool {
        let slowest = self.readers.values().min().copied().unwrap_or(self.end);
        let unread = self.chunks.len() - at(&self.chunks, slowest);
        self.released || unread < chunks_of(KEPT) && self.end + more <= slowest.max(self.start()) + KEPT
    }

    fn add(&mut self, chunk: Chunk) {
        let length = chunk.bytes.len() as u64;
        match self.chunks.back_mut() {
            Some((_, last))
                if last.stream == chunk.stream && last.bytes.len() + chunk.bytes.len() <= MERGED =>
            {
                last.bytes.extend_from_slice(&chunk.bytes);
                self.kept.add(length);
            }
            _ => {
                self.chunks.push_back((self.end, chunk));
                self.kept.add(length + OVERHEAD);
            }
        }
        self.end += length;
        self.drop_oldest();
    }

    /// Drops what is not kept for a late reader.
    fn drop_oldest(&mut self) {
        // Whoever reads misses nothing.
        let most = match self.readers.is_empty() {
            true => self.kept.most(),
            false => KEPT,
        };
        while self.chunks.len() > 1
            && let Some((position, first)) = self.chunks.front()
            && (self.end - (position + first.bytes.len() as u64) >= most
                || self.chunks.len() > chunks_of(most))
        {
            self.kept.take_back(first.bytes.len() as u64 + OVERHEAD);
            self.chunks.pop_front();
        }
        if most < KEPT
            && let Some((position, first)) = self.chunks.front_mut()
            && let Some(more) = (self.end - *position).checked_sub(most)
        {
            let more = more.min(first.bytes.len() as u64);
            first.bytes = first.bytes[more as usize..].to_vec();
            *position += more;
            self.kept.take_back(more);
        }
    }

    fn next(&mut self, reader: u64) -> Option<Item> {
        let start = self.start();
        let cursor = self.readers.get_mut(&reader)?;
        if *cursor < start {
            let lost = start - *cursor;
            *cursor = start;
            return Some(Item::Lost(lost));
        }
        let at = at(&self.chunks, *cursor);
        if let Some((position, chunk)) = self.chunks.get(at) {
            let skipped = (*cursor - position) as usize;
            let chunk = Chunk {
                stream: chunk.stream,
                bytes: chunk.bytes[skipped..].to_vec(),
            };
            let position = *cursor;
            *cursor += chunk.bytes.len() as u64;
            return Some(Item::Chunk { position, chunk });
        }
        self.exit.clone().map(Item::End)
    }
}

/// Returns the index of the chunk at a position, or the number of chunks behind the last.
fn at(chunks: &VecDeque<(u64, Chunk)>, cursor: u64) -> usize {
    chunks.partition_point(|(position, chunk)| position + chunk.bytes.len() as u64 <= cursor)
}

/// Returns the number of chunks that may be kept of so many bytes: small ones take more memory than their bytes.
const fn chunks_of(bytes: u64) -> usize {
    (bytes / SMALL) as usize
}

impl Drop for State {
    fn drop(&mut self) {
        let kept = self.end - self.start();
        self.kept.take_back(kept + self.chunks.len() as u64 * OVERHEAD);
    }
}

impl Reader {
    /// Returns the next item, once there is one; `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Item> {
        if self.done {
            return None;
        }
        let mut version = self.output.version.subscribe();
        loop {
            version.mark_unchanged();
            let item = self.output.state().next(self.id);
            if let Some(item) = item {
                // The process may be waiting for this reader.
                self.output.change(|_| ());
                self.done = matches!(item, Item::End(_));
                return Some(item);
            }
            // The sender lives as long as the output.
            let _ = version.changed().await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.output.change(|state| {
            state.readers.remove(&self.id);
            state.drop_oldest();
        });
    }
}

/// Collects both streams of a reader to the end, at most `most` bytes of each; returns them with the end.
pub async fn collect(mut reader: Reader, most: Bytes) -> Collected {
    let mut captures = Captures::new(most);
    let mut end = ProcessEnd::unknown("its output ended before it");
    while let Some(item) = reader.next().await {
        match item {
            Item::Chunk { chunk, .. } => captures.push(chunk.stream, &chunk.bytes),
            Item::Lost(_) => {}
            Item::End(told) => end = told,
        }
    }
    let (stdout, stderr) = captures.finish();
    Collected { stdout, stderr, end }
}

/// The complete output of a process.
#[derive(Debug)]
pub struct Collected {
    pub stdout: Captured,
    pub stderr: Captured,
    pub end: ProcessEnd,
}

#[cfg(test)]
mod tests {
    use super::super::kept_output::KeptCounters;
    use super::*;
    use ringfence_policy::Scope;

    fn chunk(bytes: usize) -> Chunk {
        Chunk {
            stream: Stream::Stdout,
            bytes: vec![b'x'; bytes],
        }
    }

    fn end() -> ProcessEnd {
        ProcessEnd::unknown("it is a test")
    }

    fn length(item: Option<Item>) -> (u64, usize) {
        match item {
            Some(Item::Chunk { position, chunk }) => (position, chunk.bytes.len()),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn whoever_comes_late_gets_what_is_kept_and_is_told_what_is_not() {
        let output = Arc::new(Output::default());
        output.push(chunk(1000)).await;
        output.push(chunk(KEPT as usize)).await;
        output.end(end());
        let mut reader = output.read_from(0);
        assert_eq!(reader.next().await, Some(Item::Lost(1000)));
        assert_eq!(length(reader.next().await), (1000, KEPT as usize));
        assert_eq!(reader.next().await, Some(Item::End(end())));
        assert_eq!(reader.next().await, None);
        let mut reader = output.read_from(1500);
        assert_eq!(length(reader.next().await), (1500, KEPT as usize - 500));
        let mut reader = output.read_from(u64::MAX);
        assert_eq!(reader.next().await, Some(Item::End(end())));
    }

    #[tokio::test]
    async fn an_owner_that_keeps_much_keeps_the_newest_of_each() {
        let kept = KeptCounters::default().of(&Scope::local());
        let output = Arc::new(Output::counted(kept.clone()));
        let mut reader = output.read_from(0);
        output.push(chunk(KEPT as usize)).await;
        kept.add(100 << 20);
        // Whoever reads misses nothing.
        assert_eq!(length(reader.next().await), (0, KEPT as usize));
        drop(reader);
        let most = 16 << 10;
        for pushed in [0, 10] {
            output.push(chunk(pushed)).await;
            let mut late = output.read_from(0);
            let lost = KEPT + pushed as u64 - most;
            assert_eq!(late.next().await, Some(Item::Lost(lost)));
            assert_eq!(length(late.next().await), (lost, most as usize));
        }
        kept.take_back(99 << 20);
        assert_eq!(kept.most(), KEPT);
        drop(output);
        kept.take_back(1 << 20);
        kept.add((64 << 20) - 1);
        assert_eq!(kept.most(), KEPT, "what is gone is not counted");
    }

    #[tokio::test]
    async fn small_pieces_take_no_more_memory_than_large_ones() {
        let kept = KeptCounters::default().of(&Scope::local());
        let output = Arc::new(Output::counted(kept.clone()));
        for _ in 0..10_000 {
            output.push(chunk(1)).await;
        }
        assert_eq!(output.state().chunks.len(), 1);
        for index in 0..50_000 {
            let stream = [Stream::Stdout, Stream::Stderr][index % 2];
            output
                .push(Chunk {
                    stream,
                    bytes: vec![b'x'],
                })
                .await;
        }
        let most = chunks_of(KEPT);
        assert_eq!(output.state().chunks.len(), most);
        let mut late = output.read_from(0);
        assert!(matches!(late.next().await, Some(Item::Lost(lost)) if lost == 60_000 - most as u64));
        // A reader that does not read holds up whoever prints small pieces, too.
        for index in 0..most {
            let stream = [Stream::Stdout, Stream::Stderr][index % 2];
            let pushing = output.push(Chunk {
                stream,
                bytes: vec![b'x'],
            });
            let soon = Duration::from_millis(20);
            if tokio::time::timeout(soon, pushing).await.is_err() {
                drop((late, output));
                kept.add((64 << 20) - 1);
                assert_eq!(kept.most(), KEPT, "nothing is counted that is gone");
                return;
            }
        }
        panic!("it was not held up");
    }

    #[tokio::test]
    async fn a_reader_holds_the_process_up_until_it_has_read_or_gone() {
        let output = Arc::new(Output::default());
        let mut reader = output.read_from(0);
        let piece = KEPT as usize / 4;
        for _ in 0..4 {
            output.push(chunk(piece)).await;
        }
        let pushing = output.push(chunk(piece));
        tokio::pin!(pushing);
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, &mut pushing).await.is_err());
        assert_eq!(length(reader.next().await), (0, piece));
        pushing.await;
        let pushing = output.push(chunk(piece));
        tokio::pin!(pushing);
        assert!(tokio::time::timeout(soon, &mut pushing).await.is_err());
        drop(reader);
        pushing.await;
    }
}
