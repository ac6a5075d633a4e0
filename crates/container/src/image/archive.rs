//! Writes tar archives (POSIX.1-2001, pax), all members owned by root.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

const BLOCK: usize = 512;

/// The type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Link,
    Directory,
    /// A pax header with names too long for the header of the next member.
    Extended,
}

/// A writer of tar archives.
#[derive(Debug)]
pub(super) struct Writer<W: Write>(W);

struct Header<'a> {
    path: &'a str,
    target: &'a str,
    kind: Kind,
    mode: u32,
    size: u64,
    modified: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(writer: W) -> Self {
        Self(writer)
    }

    pub(super) fn directory(&mut self, path: &str, mode: u32) -> io::Result<()> {
        self.header(&Header {
            path,
            target: "",
            kind: Kind::Directory,
            mode,
            size: 0,
            modified: 0,
        })
    }

    pub(super) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.header(&Header {
            path,
            target,
            kind: Kind::Link,
            mode: 0o777,
            size: 0,
            modified: 0,
        })
    }

    /// Adds a world-readable file of these bytes.
    pub(super) fn bytes(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.header(&Header {
            path,
            target: "",
            kind: Kind::File,
            mode: 0o644,
            size: bytes.len() as u64,
            modified: 0,
        })?;
        self.0.write_all(bytes)?;
        self.pad(bytes.len() as u64)
    }

    /// Adds a copy of a file under another path. Keeps its modification time, which Python compares.
    pub(super) fn file(&mut self, path: &str, source: &Path, mode: u32) -> io::Result<()> {
        let file = File::open(source)?;
        let meta = file.metadata()?;
        let modified = meta.modified()?.duration_since(std::time::UNIX_EPOCH);
        self.header(&Header {
            path,
            target: "",
            kind: Kind::File,
            mode,
            size: meta.len(),
            modified: modified.unwrap_or_default().as_secs(),
        })?;
        // Exactly as many bytes as the header says, even if the file changes meanwhile.
        let copied = io::copy(&mut Read::take(&file, meta.len()), &mut self.0)?;
        io::copy(&mut io::repeat(0).take(meta.len() - copied), &mut self.0)?;
        self.pad(meta.len())
    }

    /// Ends the archive with two empty blocks.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.0.write_all(&[0; 2 * BLOCK])?;
        self.0.flush()?;
        Ok(self.0)
    }

    fn header(&mut self, header: &Header<'_>) -> io::Result<()> {
        let mut records = String::new();
        for (key, value, room) in [("path", header.path, 100), ("linkpath", header.target, 100)] {
            if value.len() > room {
                records.push_str(&record(key, value));
            }
        }
        if !records.is_empty() {
            let extended = Header {
                path: "extended",
                target: "",
                kind: Kind::Extended,
                mode: 0o644,
                size: records.len() as u64,
                modified: 0,
            };
            self.0.write_all(&block(&extended))?;
            self.0.write_all(records.as_bytes())?;
            self.pad(records.len() as u64)?;
        }
        self.0.write_all(&block(header))
    }

    fn pad(&mut self, length: u64) -> io::Result<()> {
        let over = length % BLOCK as u64;
        match over {
            0 => Ok(()),
            over => io::copy(&mut io::repeat(0).take(BLOCK as u64 - over), &mut self.0).map(drop),
        }
    }
}

/// Formats `LENGTH KEY=VALUE\n`, where the length includes its own digits.
fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}")
}

fn block(header: &Header<'_>) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, room: usize, text: &[u8]| {
        let text = &text[..text.len().min(room)];
        block[at..at + text.len()].copy_from_slice(text);
    };
    let figures = |value: u64, room: usize| format!("{value:0width$o}", width = room - 1).into_bytes();
    put(0, 100, header.path.as_bytes());
    put(100, 8, &figures(header.mode.into(), 8));
    put(108, 8, &figures(0, 8));
    put(116, 8, &figures(0, 8));
    put(124, 12, &figures(header.size, 12));
    put(136, 12, &figures(header.modified, 12));
    put(148, 8, b"        ");
    put(
        156,
        1,
        match header.kind {
            Kind::File => b"0",
            Kind::Link => b"2",
            Kind::Directory => b"5",
            Kind::Extended => b"x",
        },
    );
    put(157, 100, header.target.as_bytes());
    put(257, 8, b"ustar\x0000");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    block[148..156].copy_from_slice(sum.as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extended_record_counts_itself() {
        assert_eq!(record("path", "x"), "9 path=x\n");
        let long = record("path", &"y".repeat(95));
        assert_eq!(
            long.len(),
            long.split_once(' ').unwrap().0.parse::<usize>().unwrap()
        );
    }

    #[test]
    fn members_fill_whole_blocks_and_their_headers_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        std::fs::write(&source, "hello").unwrap();
        let mut writer = Writer::new(Vec::new());
        writer.directory("d", 0o1777).unwrap();
        writer.link("l", &"t".repeat(150)).unwrap();
        writer.bytes("empty", b"").unwrap();
        writer.file(&"p/".repeat(80), &source, 0o755).unwrap();
        let archive = writer.finish().unwrap();
        assert_eq!(archive.len() % BLOCK, 0);
        let whole = String::from_utf8_lossy(&archive);
        assert!(whole.contains(&format!("linkpath={}\n", "t".repeat(150))));
        assert!(whole.contains(&format!("path={}\n", "p/".repeat(80))));
        assert!(whole.contains("hello"));
        // The checksum is over the header with blanks in the checksum field (POSIX, pax, ustar).
        let mut header = archive[..BLOCK].to_vec();
        let told = std::str::from_utf8(&header[148..154]).unwrap().to_owned();
        header[148..156].fill(b' ');
        let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(u64::from_str_radix(&told, 8).unwrap(), sum);
    }
}
