//! Writes tar archives.

use std::io::{self, Read, Write};

use super::{BLOCK, Kind, Member};

/// Room of the header's fields. A value that is longer goes into a pax header before it.
const NAME: usize = 100;
/// Largest number of an eight-byte field: seven octal digits.
const MAX_ID: u64 = 0o777_7777;
/// Largest number of a twelve-byte field.
const MAX_SIZE: u64 = 0o777_7777_7777;

/// A writer of tar archives.
#[derive(Debug)]
pub struct Writer<W: Write>(W);

impl<W: Write> Writer<W> {
    pub fn new(writer: W) -> Self {
        Self(writer)
    }

    /// Writes a member without its content, which must follow if its size is not zero.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub fn member(&mut self, member: &Member) -> io::Result<()> {
        let records = records(member);
        if !records.is_empty() {
            let extended = Member {
                path: b"extended".to_vec(),
                target: Vec::new(),
                kind: Kind::Other(b'x'),
                mode: 0o644,
                uid: 0,
                gid: 0,
                size: records.len() as u64,
                modified: 0,
            };
            self.0.write_all(&block(&extended))?;
            self.content(extended.size, &mut &records[..])?;
        }
        self.0.write_all(&block(member))
    }

    /// Writes a member's content of exactly this length. A shorter source is padded with zeros, a longer one
    /// truncated. Returns the number of bytes that the source had.
    ///
    /// # Errors
    /// If the archive cannot be written, or the source not read.
    pub fn content(&mut self, size: u64, source: &mut dyn Read) -> io::Result<u64> {
        let copied = io::copy(&mut source.take(size), &mut self.0)?;
        let rest = size.next_multiple_of(BLOCK as u64) - copied;
        io::copy(&mut io::repeat(0).take(rest), &mut self.0)?;
        Ok(copied)
    }

    /// Ends the archive with two empty blocks.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.0.write_all(&[0; 2 * BLOCK])?;
        self.0.flush()?;
        Ok(self.0)
    }
}

/// Returns the pax records for values that do not fit into the header.
fn records(member: &Member) -> Vec<u8> {
    let mut records = Vec::new();
    for (key, value) in [("path", &member.path), ("linkpath", &member.target)] {
        if value.len() > NAME {
            records.extend(record(key, value));
        }
    }
    for (key, value, most) in [
        ("size", member.size, MAX_SIZE),
        ("uid", member.uid, MAX_ID),
        ("gid", member.gid, MAX_ID),
    ] {
        if value > most {
            records.extend(record(key, value.to_string().as_bytes()));
        }
    }
    records
}

/// Formats `LENGTH KEY=VALUE\n`, where the length includes its own digits.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    // A blank, an equals sign and a line's end.
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

fn block(member: &Member) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, room: usize, text: &[u8]| {
        let text = &text[..text.len().min(room)];
        block[at..at + text.len()].copy_from_slice(text);
    };
    let octal = |value: u64, room: usize| format!("{value:0width$o}", width = room - 1).into_bytes();
    put(0, NAME, &member.path);
    put(100, 8, &octal(member.mode.into(), 8));
    put(108, 8, &octal(member.uid.min(MAX_ID), 8));
    put(116, 8, &octal(member.gid.min(MAX_ID), 8));
    put(124, 12, &octal(member.size.min(MAX_SIZE), 12));
    put(136, 12, &octal(member.modified.min(MAX_SIZE), 12));
    put(148, 8, b"        ");
    put(156, 1, &[letter(member.kind)]);
    put(157, NAME, &member.target);
    put(257, 8, b"ustar\x0000");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    block[148..156].copy_from_slice(sum.as_bytes());
    block
}

fn letter(kind: Kind) -> u8 {
    match kind {
        Kind::File => b'0',
        Kind::HardLink => b'1',
        Kind::Symlink => b'2',
        Kind::Device => b'3',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
        Kind::Other(letter) => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extended_record_counts_itself() {
        assert_eq!(record("path", b"x"), b"9 path=x\n");
        let long = String::from_utf8(record("path", &[b'y'; 95])).unwrap();
        assert_eq!(
            long.len(),
            long.split_once(' ').unwrap().0.parse::<usize>().unwrap()
        );
    }
}
