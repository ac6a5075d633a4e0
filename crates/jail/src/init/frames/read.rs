//! Parses frames from bytes. Buffers nothing beyond the limits.

use std::time::Duration;

use super::*;
use crate::mount_point::{FileIdentity, Mounted};

/// Reassembles frames from a byte stream.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    read: usize,
    secret: Secret,
}

impl FrameReader {
    /// Creates a reader for the frames of an init that was given this secret.
    pub fn of_init(secret: Secret) -> Self {
        Self {
            secret,
            ..Self::default()
        }
    }

    /// Appends bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.read == self.buffer.len() {
            self.buffer.clear();
            self.read = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Parses the server's next frame; `None` if it is incomplete.
    ///
    /// # Errors
    /// If the bytes are not a frame of the server. Nothing after them can be one.
    pub fn order(&mut self) -> Result<Option<InitRequest>, FrameError> {
        self.next(0, longest_order, read_order)
    }

    /// Parses the init's next frame; `None` if it is incomplete.
    ///
    /// # Errors
    /// If the bytes are not a frame of the init. Nothing after them can be one.
    pub fn report(&mut self) -> Result<Option<Report>, FrameError> {
        self.next(size_of::<Secret>(), longest_report, read_report)
    }

    fn next<T>(
        &mut self,
        secret: usize,
        longest: fn(u8) -> Result<usize, FrameError>,
        read: fn(u8, u32, Fields<'_>) -> Result<T, FrameError>,
    ) -> Result<Option<T>, FrameError> {
        let rest = &self.buffer[self.read..];
        // A wrong secret is an error at its first byte: no length to wait for.
        if rest.iter().zip(&self.secret[..secret]).any(|(a, b)| a != b) {
            return Err(FrameError::Foreign);
        }
        let Some((header, rest)) = rest.get(secret..).and_then(<[u8]>::split_first_chunk::<HEADER>) else {
            return Ok(None);
        };
        let [kind, a, b, c, d, length @ ..] = *header;
        let length = u32::from_le_bytes(length) as usize;
        let most = longest(kind)?;
        if length > most {
            return Err(FrameError::Long { length, most });
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = read(kind, u32::from_le_bytes([a, b, c, d]), Fields(payload))?;
        self.read += secret + HEADER + length;
        Ok(Some(frame))
    }
}

fn longest_order(kind: u8) -> Result<usize, FrameError> {
    match kind {
        HELLO | START => Ok(MAX_START),
        INPUT | DELIVER => Ok(MAX_PIECE),
        INPUT_END | KILL | CREDIT | SIGNAL | RESIZE | DRAIN | END_ALL | ALLOW | DROP => Ok(MAX_WORD),
        other => Err(FrameError::Type(other)),
    }
}

fn longest_report(kind: u8) -> Result<usize, FrameError> {
    match kind {
        STDOUT | STDERR | RECEIVED => Ok(MAX_PIECE),
        READY => Ok(MAX_READY),
        END | TAKEN | BROKEN | STARTED | DRAINED | ALL_ENDED | CONNECTED | DELIVERED | DROPPED | BRIDGED => {
            Ok(MAX_WORD)
        }
        other => Err(FrameError::Type(other)),
    }
}

fn read_order(kind: u8, number: u32, mut fields: Fields<'_>) -> Result<InitRequest, FrameError> {
    let (call, connection) = (number, number);
    let order = match kind {
        HELLO if call == 0 => InitRequest::Hello(Hello {
            version: fields.u32()?,
            secret: fields.array()?,
            python: fields.texts()?,
            output: fields.text()?,
            mount_points: fields.texts()?,
            leftovers: match fields.u8()? {
                0 => Leftovers::Kill,
                1 => Leftovers::Keep,
                _ => return Err(FrameError::Payload),
            },
        }),
        START => InitRequest::Start {
            call,
            start: Box::new(fields.start()?),
        },
        INPUT => InitRequest::Input {
            call,
            bytes: fields.rest().to_vec(),
        },
        INPUT_END => InitRequest::InputEnd { call },
        KILL => InitRequest::Kill { call },
        CREDIT => InitRequest::Credit {
            call,
            bytes: fields.u32()?,
        },
        SIGNAL => InitRequest::Signal {
            call,
            signal: fields.u32()?,
            to: match fields.u8()? {
                0 => Recipient::Process,
                1 => Recipient::Group,
                _ => return Err(FrameError::Payload),
            },
        },
        RESIZE => InitRequest::Resize {
            call,
            size: fields.size()?,
        },
        DRAIN => InitRequest::Drain { call },
        END_ALL if call == 0 => InitRequest::EndAll,
        DELIVER => InitRequest::Deliver {
            connection,
            bytes: fields.rest().to_vec(),
        },
        ALLOW => InitRequest::Allow {
            connection,
            bytes: fields.u32()?,
        },
        DROP => InitRequest::Drop { connection },
        HELLO | END_ALL => return Err(FrameError::Payload),
        other => return Err(FrameError::Type(other)),
    };
    fields.end(order)
}

fn read_report(kind: u8, number: u32, mut fields: Fields<'_>) -> Result<Report, FrameError> {
    let (call, connection) = (number, number);
    let mut output = |stream| Report::Output {
        call,
        stream,
        bytes: fields.rest().to_vec(),
    };
    let report = match kind {
        STDOUT => output(Stream::Stdout),
        STDERR => output(Stream::Stderr),
        READY if call == 0 => Report::Ready(Ready {
            version: fields.u32()?,
            python: fields.optional()?,
            bash: fields.optional()?,
            mount_points: fields.mount_points()?,
        }),
        END => Report::End {
            call,
            end: fields.call_end()?,
        },
        TAKEN => Report::Taken {
            call,
            bytes: fields.u32()?,
        },
        BROKEN if call == 0 => Report::Broken(fields.text()?),
        STARTED => Report::Started {
            call,
            pid: fields.u32()?,
        },
        DRAINED => Report::Drained { call },
        ALL_ENDED if call == 0 => Report::AllEnded,
        CONNECTED => Report::Connected {
            connection,
            call: fields.u32()?,
        },
        RECEIVED => Report::Received {
            connection,
            bytes: fields.rest().to_vec(),
        },
        DELIVERED => Report::Delivered {
            connection,
            bytes: fields.u32()?,
        },
        DROPPED => Report::Dropped { connection },
        BRIDGED => Report::Bridged {
            connection,
            call: fields.u32()?,
        },
        READY | BROKEN => return Err(FrameError::Payload),
        other => return Err(FrameError::Type(other)),
    };
    fields.end(report)
}

/// The unread part of a payload.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FrameError::Payload)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        self.take(N)?.try_into().map_err(|_| FrameError::Payload)
    }

    fn u8(&mut self) -> Result<u8, FrameError> {
        self.array().map(|[byte]| byte)
    }

    fn bool(&mut self) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::Payload),
        }
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_le_bytes)
    }

    fn size(&mut self) -> Result<TerminalSize, FrameError> {
        Ok(TerminalSize {
            columns: self.u16()?,
            rows: self.u16()?,
        })
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, FrameError> {
        let length = self.u32()? as usize;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| FrameError::Payload)
    }

    fn optional(&mut self) -> Result<Option<String>, FrameError> {
        if self.bool()? {
            self.text().map(Some)
        } else {
            Ok(None)
        }
    }

    /// Allocates nothing for a claimed number of strings.
    fn texts(&mut self) -> Result<Vec<String>, FrameError> {
        (0..self.u32()?).map(|_| self.text()).collect()
    }

    fn mount_points(&mut self) -> Result<Vec<MountPoint>, FrameError> {
        (0..self.u32()?).map(|_| self.mount_point()).collect()
    }

    fn mount_point(&mut self) -> Result<MountPoint, FrameError> {
        let file = match self.bool()? {
            true => Some(FileIdentity {
                device: self.u64()?,
                inode: self.u64()?,
                born: self.u64()?,
            }),
            false => None,
        };
        let mounted = match self.u8()? {
            0 => Mounted::Nothing,
            1 => Mounted::ReadOnly,
            2 => Mounted::Writable,
            _ => return Err(FrameError::Payload),
        };
        Ok(MountPoint { file, mounted })
    }

    fn pairs(&mut self) -> Result<Vec<(String, String)>, FrameError> {
        (0..self.u32()?)
            .map(|_| Ok((self.text()?, self.text()?)))
            .collect()
    }

    fn start(&mut self) -> Result<Start, FrameError> {
        let kind = self.u8()?;
        let (name, code) = (self.text()?, self.text()?);
        Ok(Start {
            program: match kind {
                0 => Program::Python { name, code },
                1 => Program::Bash { name, code },
                2 if code.is_empty() => Program::Command(name),
                3 if name.is_empty() && code.is_empty() => Program::Files,
                _ => return Err(FrameError::Payload),
            },
            arguments: self.texts()?,
            environment: self.pairs()?,
            directory: self.text()?,
            input: self.bool()?,
            timeout: Duration::from_millis(self.u64()?),
            proxy: self.texts()?,
            bridge: self.bool()?,
            terminal: self.bool()?.then(|| self.size()).transpose()?,
            user: self.optional()?,
        })
    }

    fn call_end(&mut self) -> Result<End, FrameError> {
        let kind = self.u8()?;
        let number = self.u32()?.cast_signed();
        let step = self.text()?;
        Ok(End {
            fate: match (kind, number) {
                (0, status) if step.is_empty() => Fate::Ended(status),
                (1, errno) => Fate::NotStarted { step, errno },
                (2, 0) if step.is_empty() => Fate::Lost,
                _ => return Err(FrameError::Payload),
            },
            cut: match self.u8()? {
                0 => Cut::No,
                1 => Cut::Deadline,
                2 => Cut::Ordered,
                _ => return Err(FrameError::Payload),
            },
            left: self.bool()?,
            warm: self.bool()?,
            out_of_memory: self.bool()?,
            cpu_micros: self.u64()?,
            max_rss: self.u64()?,
            output: self.u64()?,
        })
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn end<T>(self, value: T) -> Result<T, FrameError> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(FrameError::Payload)
        }
    }
}
