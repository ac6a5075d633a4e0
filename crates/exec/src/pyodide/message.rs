//! The protocol with a worker. A worker's messages come from a guest: nothing in them is trusted beyond their
//! shape.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum length of a line from a worker, newline included. All output files of a program come in one.
pub(super) const MAX_LINE: usize = 64 * 1024 * 1024;

/// A message to a worker.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum WorkerRequest<'a> {
    /// Runs a program.
    Execute {
        /// Id that the worker repeats in every message about the program.
        id: &'a str,
        data: Program<'a>,
    },
    /// Bytes from the host on the program's bridge; empty at its end.
    Bridge { id: &'a str, data: Piece },
    /// Number of bytes from the program's bridge that were consumed.
    Taken { id: &'a str, data: Amount },
}

/// Bytes of a bridge, in base64.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) base64: String,
}

/// A number of bytes.
#[derive(Debug, Serialize)]
pub(super) struct Amount {
    pub(super) bytes: usize,
}

/// Encodes a message as a line. Strings and numbers can always be serialized.
pub(super) fn line(request: &WorkerRequest<'_>) -> Vec<u8> {
    let mut line = serde_json::to_vec(request).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A program with its environment, input and files.
#[derive(Debug, Serialize)]
pub(super) struct Program<'a> {
    pub(super) code: &'a str,
    pub(super) args: &'a [String],
    pub(super) env: BTreeMap<&'a str, &'a str>,
    /// Base64.
    pub(super) stdin: String,
    /// Flow control window of its bridge in bytes, if it has one.
    pub(super) window: Option<usize>,
    /// Contents in base64, by absolute path.
    pub(super) files: BTreeMap<String, String>,
}

/// A message from a worker.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum WorkerMessage {
    /// The worker is ready for a program.
    Ready {},
    /// Output of the program.
    Output { data: OutputChunk },
    /// Bytes from the program on its bridge.
    Bridge { data: Piece },
    /// The program has exited.
    Complete { data: Completed },
}

/// A chunk of output.
#[derive(Debug, Deserialize)]
pub(super) struct OutputChunk {
    pub(super) stream: StreamName,
    pub(super) base64: String,
}

/// An output stream.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StreamName {
    Stdout,
    Stderr,
}

/// The end of a program.
#[derive(Debug, Deserialize)]
pub(super) struct Completed {
    pub(super) exit_code: u8,
    /// Files below `/output`: contents in base64, by relative path.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_the_shape_is_a_word() {
        let read = |text: &str| serde_json::from_str::<WorkerMessage>(text).is_ok();
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
