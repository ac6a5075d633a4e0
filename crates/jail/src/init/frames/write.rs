//! Serializes frames.

use super::*;
use crate::mount_point::Mounted;

/// Appends a frame: its header is completed once the payload is there.
fn frame(kind: u8, call: u32, out: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.push(kind);
    out.extend(call.to_le_bytes());
    out.extend([0; 4]);
    payload(out);
    let length = length(out.len() - start - HEADER);
    out[start + HEADER - 4..start + HEADER].copy_from_slice(&length);
}

/// Encodes a length. An excessive one saturates, and the reader rejects it.
fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend(length(text.len()));
    out.extend(text.as_bytes());
}

fn put_texts(out: &mut Vec<u8>, texts: &[String]) {
    out.extend(length(texts.len()));
    for text in texts {
        put_text(out, text);
    }
}

fn put_optional(out: &mut Vec<u8>, text: Option<&str>) {
    out.push(text.is_some().into());
    if let Some(text) = text {
        put_text(out, text);
    }
}

fn put_size(out: &mut Vec<u8>, size: TerminalSize) {
    out.extend(size.columns.to_le_bytes());
    out.extend(size.rows.to_le_bytes());
}

fn put_mount_points(out: &mut Vec<u8>, points: &[MountPoint]) {
    out.extend(length(points.len()));
    for point in points {
        out.push(point.file.is_some().into());
        if let Some(file) = point.file {
            out.extend(
                [file.device, file.inode, file.born]
                    .map(u64::to_le_bytes)
                    .as_flattened(),
            );
        }
        out.push(match point.mounted {
            Mounted::Nothing => 0,
            Mounted::ReadOnly => 1,
            Mounted::Writable => 2,
        });
    }
}

impl InitRequest {
    /// Appends the frame to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => frame(HELLO, 0, out, |out| {
                out.extend(hello.version.to_le_bytes());
                out.extend(hello.secret);
                put_texts(out, &hello.python);
                put_text(out, &hello.output);
                put_texts(out, &hello.mount_points);
                out.push(match hello.leftovers {
                    Leftovers::Kill => 0,
                    Leftovers::Keep => 1,
                });
            }),
            Self::Start { call, start } => frame(START, *call, out, |out| start.write(out)),
            Self::Input { call, bytes } => frame(INPUT, *call, out, |out| out.extend(bytes)),
            Self::InputEnd { call } => frame(INPUT_END, *call, out, |_| {}),
            Self::Kill { call } => frame(KILL, *call, out, |_| {}),
            Self::Credit { call, bytes } => frame(CREDIT, *call, out, |out| out.extend(bytes.to_le_bytes())),
            Self::Signal { call, signal, to } => frame(SIGNAL, *call, out, |out| {
                out.extend(signal.to_le_bytes());
                out.push(match to {
                    Recipient::Process => 0,
                    Recipient::Group => 1,
                });
            }),
            Self::Resize { call, size } => frame(RESIZE, *call, out, |out| put_size(out, *size)),
            Self::Drain { call } => frame(DRAIN, *call, out, |_| {}),
            Self::EndAll => frame(END_ALL, 0, out, |_| {}),
            Self::Deliver { connection, bytes } => frame(DELIVER, *connection, out, |out| out.extend(bytes)),
            Self::Allow { connection, bytes } => {
                frame(ALLOW, *connection, out, |out| out.extend(bytes.to_le_bytes()));
            }
            Self::Drop { connection } => frame(DROP, *connection, out, |_| {}),
        }
    }
}

impl Start {
    fn write(&self, out: &mut Vec<u8>) {
        let (kind, name, code) = match &self.program {
            Program::Python { name, code } => (0, name.as_str(), code.as_str()),
            Program::Bash { name, code } => (1, name.as_str(), code.as_str()),
            Program::Command(name) => (2, name.as_str(), ""),
            Program::Files => (3, "", ""),
        };
        out.push(kind);
        put_text(out, name);
        put_text(out, code);
        put_texts(out, &self.arguments);
        out.extend(length(self.environment.len()));
        for (name, value) in &self.environment {
            put_text(out, name);
            put_text(out, value);
        }
        put_text(out, &self.directory);
        out.push(self.input.into());
        let timeout = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        out.extend(timeout.to_le_bytes());
        put_texts(out, &self.proxy);
        out.push(self.bridge.into());
        out.push(self.terminal.is_some().into());
        if let Some(size) = self.terminal {
            put_size(out, size);
        }
        put_optional(out, self.user.as_deref());
    }
}

impl Report {
    /// Appends the frame to `out`.
    pub fn write(&self, secret: &Secret, out: &mut Vec<u8>) {
        if let Self::Output { call, stream, bytes } = self {
            return write_output(secret, *call, *stream, bytes, out);
        }
        out.extend(secret);
        match self {
            Self::Ready(ready) => frame(READY, 0, out, |out| {
                out.extend(ready.version.to_le_bytes());
                put_optional(out, ready.python.as_deref());
                put_optional(out, ready.bash.as_deref());
                put_mount_points(out, &ready.mount_points);
            }),
            Self::Output { .. } => {}
            Self::End { call, end } => frame(END, *call, out, |out| end.write(out)),
            Self::Taken { call, bytes } => frame(TAKEN, *call, out, |out| out.extend(bytes.to_le_bytes())),
            Self::Broken(why) => frame(BROKEN, 0, out, |out| put_text(out, why)),
            Self::Started { call, pid } => frame(STARTED, *call, out, |out| out.extend(pid.to_le_bytes())),
            Self::Drained { call } => frame(DRAINED, *call, out, |_| {}),
            Self::AllEnded => frame(ALL_ENDED, 0, out, |_| {}),
            Self::Connected { connection, call } => {
                frame(CONNECTED, *connection, out, |out| out.extend(call.to_le_bytes()));
            }
            Self::Bridged { connection, call } => {
                frame(BRIDGED, *connection, out, |out| out.extend(call.to_le_bytes()));
            }
            Self::Received { connection, bytes } => {
                frame(RECEIVED, *connection, out, |out| out.extend(bytes))
            }
            Self::Delivered { connection, bytes } => {
                frame(DELIVERED, *connection, out, |out| out.extend(bytes.to_le_bytes()));
            }
            Self::Dropped { connection } => frame(DROPPED, *connection, out, |_| {}),
        }
    }
}

/// Appends a chunk of output to `out` without copying it twice.
pub(crate) fn write_output(secret: &Secret, call: u32, stream: Stream, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(secret);
    let kind = match stream {
        Stream::Stdout => STDOUT,
        Stream::Stderr => STDERR,
    };
    frame(kind, call, out, |out| out.extend(bytes));
}

impl End {
    fn write(&self, out: &mut Vec<u8>) {
        let (kind, number, step) = match &self.fate {
            Fate::Ended(status) => (0, *status, ""),
            Fate::NotStarted { step, errno } => (1, *errno, step.as_str()),
            Fate::Lost => (2, 0, ""),
        };
        out.push(kind);
        out.extend(number.to_le_bytes());
        put_text(out, step);
        out.push(match self.cut {
            Cut::No => 0,
            Cut::Deadline => 1,
            Cut::Ordered => 2,
        });
        out.extend([self.left, self.warm, self.out_of_memory].map(u8::from));
        out.extend(self.cpu_micros.to_le_bytes());
        out.extend(self.max_rss.to_le_bytes());
        out.extend(self.output.to_le_bytes());
    }
}
