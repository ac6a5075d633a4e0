//! Decompresses layers and archives, with a bound on the ratio of compression.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use crate::bounds::Bounds;
use crate::zstd::Frames;

const BUFFER: usize = 256 * 1024;

/// Compressions that are known by their first bytes.
const FOREIGN: &[(&[u8], &str)] = &[(b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"), (b"PK\x03\x04", "zip")];
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// A compression that this version cannot undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the compression {0} is not supported, only gzip, zstd and none")]
pub(crate) struct ForeignCompression(&'static str);

/// Content after decompression.
pub(crate) struct Decoded {
    source: Source,
    /// Number of bytes that may still be decompressed.
    rest: u64,
}

enum Source {
    Plain(BufReader<File>),
    Gzip(Box<MultiGzDecoder<BufReader<File>>>),
    Zstd(Box<Frames<BufReader<File>>>),
}

impl Decoded {
    /// Opens a file. Detects the compression by its first bytes, since media types are unverified.
    pub(crate) fn of(file: File, bounds: &Bounds) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(BUFFER, file);
        let start = reader.fill_buf()?;
        if let Some((_, name)) = FOREIGN.iter().find(|(magic, _)| start.starts_with(magic)) {
            return Err(io::Error::other(ForeignCompression(name)));
        }
        let (is_gzip, is_zstd) = (start.starts_with(GZIP), start.starts_with(ZSTD));
        let source = match (is_gzip, is_zstd) {
            (true, _) => Source::Gzip(Box::new(MultiGzDecoder::new(reader))),
            (_, true) => Source::Zstd(Box::new(Frames::new(reader, bounds.window))),
            (false, false) => Source::Plain(reader),
        };
        let rest = match source {
            Source::Gzip(_) | Source::Zstd(_) => bounds.decompressed(length),
            Source::Plain(_) => length,
        };
        Ok(Self { source, rest })
    }
}

impl Read for Decoded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.source {
            Source::Plain(reader) => reader.read(buffer),
            Source::Gzip(decoder) => decoder.read(buffer),
            Source::Zstd(frames) => frames.read(buffer),
        }?;
        self.rest = self.rest.checked_sub(read as u64).ok_or_else(|| {
            io::Error::other("it expands to far more than its length, as a decompression bomb does")
        })?;
        Ok(read)
    }
}
