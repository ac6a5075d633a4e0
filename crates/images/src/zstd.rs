//! Decompresses zstd (RFC 8878), frame by frame.

use std::io::{self, BufRead, Read};

use ringfence_policy::Bytes;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Maximum number of frames without content in a row. Each costs time, and none costs the bound on the content.
const MAX_EMPTY: usize = 4096;

/// The content of the frames of a source, one after another: some tools make one for each file of a layer, with
/// frames between them that are to be skipped.
pub(crate) struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    /// Number of frames since there was content.
    empty: usize,
}

impl<R: BufRead> Frames<R> {
    /// Decompresses frames whose window has at most so many bytes.
    pub(crate) fn new(source: R, window: u64) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(window);
        Self {
            source,
            decoder,
            empty: 0,
        }
    }

    /// Begins the next frame; `false` if there is none.
    fn begin(&mut self) -> io::Result<bool> {
        if self.source.fill_buf()?.is_empty() {
            return Ok(false);
        }
        self.empty += 1;
        if self.empty > MAX_EMPTY {
            return Err(io::Error::other("it has too many zstd frames without content"));
        }
        match self.decoder.reset(&mut self.source) {
            Ok(()) => Ok(true),
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => self.skip(length.into()).map(|()| true),
            Err(error) => Err(invalid(error)),
        }
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.source.by_ref().take(length), &mut io::sink())?;
        match skipped == length {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if self.decoder.can_collect() > 0 {
                self.empty = 0;
                return self.decoder.read(buffer);
            }
            if self.decoder.is_finished() {
                if !self.begin()? {
                    break;
                }
                continue;
            }
            let decoded = self
                .decoder
                .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
            decoded.map_err(invalid)?;
        }
        Ok(0)
    }
}

fn invalid(error: FrameDecoderError) -> io::Error {
    match error {
        FrameDecoderError::WindowSizeTooBig { requested, max } => io::Error::other(format!(
            "decompressing its zstd takes {} of memory, at most {} are allowed",
            Bytes(requested),
            Bytes(max)
        )),
        error => io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its zstd is damaged: {error}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `for n in 0..64 { "{n} {n % 7}\n" }`, compressed by zstd 1.5 in two frames, the second with a checksum.
    const COMPRESSED: &[u8] = &[
        0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68, 0x6d, 0x02, 0x00, 0x62, 0x49, 0x12, 0x09, 0xb0, 0x3b, 0x24, 0x49,
        0x14, 0x81, 0x18, 0xc0, 0x8d, 0x8c, 0x3a, 0xf8, 0x42, 0xd0, 0xbd, 0x13, 0x6a, 0x27, 0xb5, 0xce, 0x29,
        0x9d, 0xd2, 0x39, 0xa3, 0x72, 0xbe, 0x71, 0xba, 0x3f, 0xa1, 0x3e, 0xa9, 0x70, 0x4e, 0xcf, 0x94, 0x9a,
        0x19, 0x2d, 0xf3, 0x25, 0xd3, 0x1d, 0x13, 0x2a, 0x26, 0x35, 0xcc, 0xe9, 0x4d, 0xa9, 0xcd, 0x28, 0x98,
        0xef, 0xd1, 0x35, 0x42, 0x8b, 0x54, 0xe2, 0x74, 0x28, 0x15, 0x46, 0x83, 0xef, 0xe9, 0x9a, 0x50, 0x08,
        0x00, 0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x9d, 0x02, 0x00, 0x02, 0xca, 0x13, 0x0c, 0xa0, 0x35, 0x6d,
        0xbf, 0x49, 0x64, 0x2d, 0x85, 0x7d, 0xe3, 0x1b, 0x02, 0x8b, 0x36, 0x8f, 0xc4, 0x5c, 0x85, 0x99, 0x92,
        0x79, 0x0a, 0xba, 0x10, 0xd0, 0x83, 0x46, 0x17, 0x4d, 0x1f, 0xb5, 0x57, 0xec, 0xd4, 0xfa, 0x24, 0xba,
        0x50, 0xe8, 0x41, 0xd2, 0x45, 0x01, 0x1f, 0x01, 0xbc, 0x1a, 0x9c, 0x1a, 0x3e, 0x95, 0x0b, 0x91, 0x07,
        0x8d, 0x8b, 0x04, 0x1f, 0x05, 0x5e, 0x09, 0xa7, 0x82, 0x3d, 0x01, 0x5b, 0x68, 0xec, 0xa0, 0xd9, 0xa2,
        0xee, 0x11, 0x77, 0xb5, 0x4d, 0x89, 0x05, 0x00, 0x4a, 0x70, 0x27, 0xbb,
    ];

    fn read(bytes: &[u8], window: u64) -> io::Result<String> {
        let mut text = String::new();
        Frames::new(bytes, window).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn what_zstd_compressed_is_read_whole() {
        let expected: String = (0..64).map(|n| format!("{n} {}\n", n % 7)).collect();
        let skipped = b"\x5a\x2a\x4d\x18\x03\0\0\0abc";
        let empty = b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00";
        let all = [skipped, COMPRESSED, skipped, empty].concat();
        assert_eq!(read(&all, 8 << 20).unwrap(), expected);
    }

    #[test]
    fn what_is_damaged_or_takes_much_memory_is_refused() {
        let check = |bytes: &[u8], window: u64, words: &str| {
            let error = read(bytes, window).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        let cut = &COMPRESSED[..COMPRESSED.len() - 9];
        check(cut, 8 << 20, "is damaged");
        check(&[COMPRESSED, b"garbage"].concat(), 8 << 20, "is damaged");
        check(b"\x5a\x2a\x4d\x18\x03\0\0\0a", 1 << 20, "end of file");
        // A window of 1 GiB, then none that anybody has.
        check(
            b"\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00",
            128 << 20,
            "1GiB of memory",
        );
        let bomb = b"\x5a\x2a\x4d\x18\0\0\0\0".repeat(MAX_EMPTY + 1);
        check(&bomb, 1 << 20, "without content");
    }
}
