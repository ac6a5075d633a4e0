//! Output of a guest: chunks of its two streams, and the head and the tail of each in bounded memory.

use std::ops::Range;

use ringfence_policy::Bytes;

/// An output stream of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A chunk of output, in arrival order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub stream: Stream,
    pub bytes: Vec<u8>,
}

/// Beginning of the notice at the point of truncation.
const NOTICE: &str = "... (output truncated)";

/// Returns the ranges of truncation notices in `text`, each with the line break that may have been inserted
/// before it.
///
/// A guest can print a line that looks like a notice, so this does not prove a truncation.
pub fn gaps(text: &str) -> Vec<Range<usize>> {
    let mut gaps: Vec<Range<usize>> = Vec::new();
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let start = end;
        end += line.len();
        if is_notice(line) {
            let earlier = gaps.last().map_or(0, |gap| gap.end);
            gaps.push(start.saturating_sub(1).max(earlier)..end);
        }
    }
    gaps
}

fn is_notice(line: &str) -> bool {
    let count = line
        .strip_prefix(NOTICE)
        .and_then(|rest| rest.strip_prefix(' '))
        .and_then(|rest| {
            rest.strip_suffix(" bytes left out\n")
                .or_else(|| rest.strip_suffix(" byte left out\n"))
        });
    count.is_some_and(|count| count.parse::<u64>().is_ok())
}

/// Appends `part` on a new line.
pub fn add(text: &mut String, part: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(part);
}

/// Captures a byte stream in bounded memory: the first and the last half of the limit.
///
/// Errors are at the end of an output, their causes at its beginning; the middle of a flood is the least
/// useful part.
#[derive(Debug)]
pub struct Capture {
    head: Vec<u8>,
    head_limit: usize,
    tail: Ring,
    total: u64,
}

/// A finished [`Capture`]; that of no output by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The whole output, or its head, a notice and its tail. Invalid UTF-8 becomes U+FFFD.
    pub text: String,
    /// Number of bytes written, captured or not.
    pub total_bytes: u64,
    /// Set if bytes were left out.
    pub truncated: bool,
}

impl Capture {
    /// Creates a capture of up to `limit` bytes.
    ///
    /// Memory grows with the output up to the limit and no further.
    pub fn new(limit: Bytes) -> Self {
        let limit = usize::try_from(limit.0).unwrap_or(usize::MAX);
        let tail_limit = limit / 2;
        Self {
            head: Vec::new(),
            head_limit: limit - tail_limit,
            tail: Ring::new(tail_limit),
            total: 0,
        }
    }

    /// Appends the next chunk of the stream.
    pub fn push(&mut self, chunk: &[u8]) {
        self.total = self.total.saturating_add(chunk.len() as u64);
        let (head, tail) = chunk.split_at(chunk.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.push(tail);
    }

    /// Renders the captured text, truncated at character boundaries.
    pub fn finish(self) -> Captured {
        let total_bytes = self.total;
        let mut kept = self.head;
        let tail = self.tail.into_vec();
        if total_bytes == (kept.len() + tail.len()) as u64 {
            kept.extend_from_slice(&tail);
            return Captured {
                text: into_text(kept),
                total_bytes,
                truncated: false,
            };
        }
        kept.truncate(complete_end(&kept));
        let tail = &tail[complete_start(&tail)..];
        let left_out = total_bytes - (kept.len() + tail.len()) as u64;
        let mut text = into_text(kept);
        let unit = if left_out == 1 { "byte" } else { "bytes" };
        add(&mut text, &format!("{NOTICE} {left_out} {unit} left out\n"));
        text.push_str(&String::from_utf8_lossy(tail));
        Captured {
            text,
            total_bytes,
            truncated: true,
        }
    }
}

/// Captures of both output streams of a guest.
#[derive(Debug)]
pub struct Captures {
    stdout: Capture,
    stderr: Capture,
}

impl Captures {
    /// Creates captures of up to `limit` bytes each.
    pub fn new(limit: Bytes) -> Self {
        Self {
            stdout: Capture::new(limit),
            stderr: Capture::new(limit),
        }
    }

    /// Appends the next chunk of a stream.
    pub fn push(&mut self, stream: Stream, chunk: &[u8]) {
        match stream {
            Stream::Stdout => self.stdout.push(chunk),
            Stream::Stderr => self.stderr.push(chunk),
        }
    }

    /// Renders standard output and standard error.
    pub fn finish(self) -> (Captured, Captured) {
        (self.stdout.finish(), self.stderr.finish())
    }
}

/// A ring buffer of the last bytes of a stream.
#[derive(Debug)]
struct Ring {
    bytes: Vec<u8>,
    limit: usize,
    /// Index of the oldest byte once the buffer is full.
    start: usize,
}

impl Ring {
    fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            start: 0,
        }
    }

    fn push(&mut self, chunk: &[u8]) {
        // Only the end of a chunk longer than the buffer can remain.
        let chunk = &chunk[chunk.len().saturating_sub(self.limit)..];
        let (fill, over) = chunk.split_at(chunk.len().min(self.limit - self.bytes.len()));
        self.bytes.extend_from_slice(fill);
        let (right, left) = over.split_at(over.len().min(self.limit - self.start));
        self.bytes[self.start..self.start + right.len()].copy_from_slice(right);
        self.bytes[..left.len()].copy_from_slice(left);
        if !over.is_empty() {
            self.start = (self.start + over.len()) % self.limit;
        }
    }

    fn into_vec(mut self) -> Vec<u8> {
        self.bytes.rotate_left(self.start);
        self.bytes
    }
}

/// Converts without a copy if `bytes` is valid UTF-8.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns the end of `bytes` without an incomplete character at its end.
fn complete_end(bytes: &[u8]) -> usize {
    let window = bytes.len().saturating_sub(3);
    let lead = bytes[window..].iter().rposition(|byte| !is_continuation(*byte));
    let Some(lead) = lead.map(|at| window + at) else {
        return bytes.len();
    };
    let length = match bytes[lead] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if lead + length > bytes.len() {
        lead
    } else {
        bytes.len()
    }
}

/// Returns the start of `bytes` without the continuation bytes of a lost character.
fn complete_start(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take(3)
        .take_while(|byte| is_continuation(**byte))
        .count()
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capture(limit: u64, chunks: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(Bytes(limit));
        for chunk in chunks {
            capture.push(chunk);
        }
        capture.finish()
    }

    /// Splits into head, number in the notice, and tail.
    fn parts(text: &str) -> (&str, u64, &str) {
        let (head, rest) = text.split_once(NOTICE).unwrap();
        let (notice, tail) = rest.split_once('\n').unwrap();
        let number = notice.split_whitespace().next().unwrap().parse().unwrap();
        (head, number, tail)
    }

    #[test]
    fn output_up_to_the_limit_is_whole() {
        let whole = capture(6, &[b"ab", b"cd", b"ef"]);
        assert_eq!(
            whole,
            Captured {
                text: "abcdef".to_owned(),
                total_bytes: 6,
                truncated: false
            }
        );
    }

    #[test]
    fn a_byte_more_is_cut_in_the_middle() {
        let cut = capture(6, &[b"abcd", b"efg"]);
        assert_eq!(cut.text, "abc\n... (output truncated) 1 byte left out\nefg");
        assert!(cut.truncated);
    }

    #[test]
    fn a_head_that_ends_its_line_gets_no_empty_line() {
        assert_eq!(
            capture(4, &[b"a\nxxxyz"]).text,
            "a\n... (output truncated) 3 bytes left out\nyz"
        );
    }

    #[test]
    fn neither_seam_cuts_a_character() {
        // A limit of 8 cuts both the second € (3 bytes) of the head and the second last of the tail.
        let cut = capture(8, &["€€€€€€€€".as_bytes()]);
        assert_eq!(cut.text, "€\n... (output truncated) 18 bytes left out\n€");
        assert_eq!(cut.total_bytes, 24);
    }

    #[test]
    fn invalid_bytes_are_replaced_and_counted() {
        let captured = capture(100, &[b"a\xffb\xe2\x82"]);
        assert_eq!(captured.text, "a\u{fffd}b\u{fffd}");
        assert_eq!((captured.total_bytes, captured.truncated), (5, false));
    }

    #[test]
    fn a_character_split_over_chunks_survives() {
        assert_eq!(capture(10, &[b"\xe2", b"\x82", b"\xac"]).text, "€");
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing() {
        assert_eq!(
            capture(0, &[b"abc"]).text,
            "... (output truncated) 3 bytes left out\n"
        );
        assert!(!capture(0, &[]).truncated);
    }

    #[test]
    fn a_flood_holds_the_limit_in_memory() {
        let mut capture = Capture::new(Bytes::kib(10));
        let chunk = vec![b'x'; 64 * 1024];
        for _ in 0..1024 {
            capture.push(&chunk);
        }
        assert!(capture.head.capacity() + capture.tail.bytes.capacity() <= 4 * 10 * 1024);
        assert_eq!(capture.finish().total_bytes, 64 * 1024 * 1024);
    }

    #[track_caller]
    fn check_gaps(text: &str, parts: &[&str]) {
        let gaps = gaps(text);
        let starts = std::iter::once(0).chain(gaps.iter().map(|gap| gap.end));
        let ends = gaps.iter().map(|gap| gap.start).chain([text.len()]);
        let found: Vec<&str> = starts.zip(ends).map(|(start, end)| &text[start..end]).collect();
        assert_eq!(found, parts);
    }

    #[test]
    fn a_cut_text_is_split_at_its_notice() {
        check_gaps(&capture(6, &[b"abcdefgh"]).text, &["abc", "fgh"]);
        check_gaps(&capture(6, &[b"abcdefg"]).text, &["abc", "efg"]);
        check_gaps(&capture(1, &[b"abc"]).text, &["a", ""]);
        check_gaps(&capture(0, &[b"abc"]).text, &["", ""]);
        check_gaps("whole\n", &["whole\n"]);
    }

    #[test]
    fn an_invented_notice_does_not_hide_the_real_one() {
        let forged = "a\n... (output truncated) 5 bytes left out";
        let text = format!("{forged}\n... (output truncated) 3 bytes left out\nyz");
        check_gaps(&text, &["a", "", "yz"]);
        check_gaps(
            "x ... (output truncated) 5 bytes left out\n",
            &["x ... (output truncated) 5 bytes left out\n"],
        );
        check_gaps(
            "... (output truncated) no bytes left out\n",
            &["... (output truncated) no bytes left out\n"],
        );
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_chunks(limit in 0u64..64, chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let all = chunks.concat();
            let captured = capture(limit, &chunks.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert_eq!(captured.total_bytes, all.len() as u64);
            prop_assert_eq!(captured.truncated, all.len() as u64 > limit);
            if !captured.truncated {
                prop_assert_eq!(captured.text, String::from_utf8_lossy(&all));
            }
        }

        #[test]
        fn valid_text_keeps_only_its_own_characters(limit in 0u64..64, text in "[a-zä€𝄞]{0,60}", size in 1usize..9) {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let captured = capture(limit, &chunks);
            if captured.truncated {
                let (head, left_out, tail) = parts(&captured.text);
                let head = head.strip_suffix('\n').unwrap_or(head);
                prop_assert!(text.starts_with(head), "{head:?}");
                prop_assert!(text.ends_with(tail), "{tail:?}");
                prop_assert!((head.len() + tail.len()) as u64 <= limit);
                prop_assert_eq!((head.len() + tail.len()) as u64 + left_out, text.len() as u64);
                // At most one character is lost on each side of the cut.
                prop_assert!((head.len() + tail.len()) as u64 + 6 >= limit);
            } else {
                prop_assert_eq!(captured.text, text);
            }
        }
    }
}
