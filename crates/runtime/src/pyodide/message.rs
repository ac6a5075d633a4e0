//! The lines between a worker and us. What a worker says is the word of a guest: nothing of it is believed beyond its shape.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The longest line that a worker may send. Files that a program leaves come in one.
pub(super) const MAX_LINE: usize = 64 * 1024 * 1024;

/// What a worker is told.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Order<'a> {
    /// Run this program.
    Execute {
        /// Comes back with everything that is said of it.
        id: &'a str,
        /// The program.
        data: Program<'a>,
    },
    /// What the host says on the program's bridge; nothing at its end.
    Bridge { id: &'a str, data: Piece },
    /// So much of what the program said on its bridge has been taken in.
    Taken { id: &'a str, data: Amount },
}

/// Some bytes of a bridge, in base64.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) base64: String,
}

/// A number of bytes.
#[derive(Debug, Serialize)]
pub(super) struct Amount {
    pub(super) bytes: usize,
}

/// An order as a line. It is of texts and numbers, which always are JSON.
pub(super) fn line(order: &Order<'_>) -> Vec<u8> {
    let mut line = serde_json::to_vec(order).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A program with what it finds.
#[derive(Debug, Serialize)]
pub(super) struct Program<'a> {
    pub(super) code: &'a str,
    pub(super) args: &'a [String],
    pub(super) env: BTreeMap<&'a str, &'a str>,
    /// In base64.
    pub(super) stdin: String,
    /// How many bytes may be under way on its bridge, if it has one.
    pub(super) window: Option<usize>,
    /// Contents in base64, by absolute path.
    pub(super) files: BTreeMap<String, String>,
}

/// What a worker says.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Word {
    /// It can take a program.
    Ready {},
    /// The program printed this.
    Output { data: Printed },
    /// The program said this on its bridge.
    Bridge { data: Piece },
    /// The program has ended.
    Complete { data: Completed },
}

/// Something printed.
#[derive(Debug, Deserialize)]
pub(super) struct Printed {
    pub(super) stream: Which,
    pub(super) base64: String,
}

/// One of the two streams.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Which {
    Stdout,
    Stderr,
}

/// How a program ended.
#[derive(Debug, Deserialize)]
pub(super) struct Completed {
    pub(super) exit_code: u8,
    /// What lies below `/output`: contents in base64, by relative path.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
}

/// Cuts what comes in pieces into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// From there up to here it has no end.
    looked: usize,
}

/// A line longer than [`MAX_LINE`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Lines {
    /// Takes a piece in, once there is no complete line left.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        self.bytes.drain(..self.start);
        self.looked -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(piece);
        match self.bytes.len() <= MAX_LINE {
            true => Ok(()),
            false => Err(TooLong),
        }
    }

    /// The next complete line.
    pub(super) fn next(&mut self) -> Option<&[u8]> {
        let Some(at) = self.bytes[self.looked..].iter().position(|byte| *byte == b'\n') else {
            self.looked = self.bytes.len();
            return None;
        };
        let (start, end) = (self.start, self.looked + at);
        self.start = end + 1;
        self.looked = self.start;
        Some(&self.bytes[start..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        let mut lines = Lines::default();
        lines.push(b"ab").unwrap();
        assert_eq!(lines.next(), None);
        lines.push(b"c\n\nde\nf").unwrap();
        assert_eq!(lines.next().unwrap(), b"abc");
        assert_eq!(lines.next().unwrap(), b"");
        assert_eq!(lines.next().unwrap(), b"de");
        assert_eq!(lines.next(), None);
        assert_eq!(lines.push(&vec![b'x'; MAX_LINE]), Err(TooLong));
    }

    #[test]
    fn only_what_has_the_shape_is_a_word() {
        let read = |text: &str| serde_json::from_str::<Word>(text).is_ok();
        assert!(read(r#"{"type":"ready","id":"","data":{}}"#));
        assert!(read(r#"{"type":"complete","id":"1","data":{"exit_code":255}}"#));
        for wrong in [
            "",
            "null",
            "[]",
            r#"{"type":"execute","id":"1","data":{}}"#,
            r#"{"type":"complete","id":"1","data":{"exit_code":256}}"#,
            r#"{"type":"complete","id":"1","data":{"exit_code":-1}}"#,
            r#"{"type":"output","id":"1","data":{"stream":"3","base64":""}}"#,
        ] {
            assert!(!read(wrong), "{wrong}");
        }
    }
}
