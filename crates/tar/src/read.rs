//! Reads tar archives.

use std::io::{self, Read};

use super::{BLOCK, Kind, Member};

/// Maximum length of an extended header: its names are far shorter, its foreign attributes may be long.
const MAX_EXTENDED: u64 = 1024 * 1024;
/// Maximum number of extended headers before a member.
const MAX_EXTENSIONS: usize = 8;

/// Keys of records with an extended attribute begin with one of these.
const ATTRIBUTES: &[&[u8]] = &[b"SCHILY.xattr.", b"LIBARCHIVE.xattr."];

/// An error of reading an archive.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    #[error("cannot read the archive")]
    Input(#[source] io::Error),
    /// The input ended before the archive.
    #[error("the archive is cut off")]
    Truncated,
    #[error("the input is not a tar archive: {0}")]
    Invalid(&'static str),
    /// Files with holes (GNU).
    #[error("the archive has sparse files, which are not supported")]
    Sparse,
}

/// A reader of tar archives.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// Remaining bytes of the member's content.
    content: u64,
    /// Bytes from its end to the next block.
    padding: u64,
    /// Extended attributes of all members so far.
    attributes: u64,
}

/// Values of extended headers, which replace those of the header.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    modified: Option<u64>,
    /// Number of extended attributes.
    attributes: u64,
}

impl<R: Read> Reader<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            content: 0,
            padding: 0,
            attributes: 0,
        }
    }

    /// Returns the next member, and `None` at the archive's end. What is left of a content is skipped.
    ///
    /// # Errors
    /// If the input cannot be read, or is not an archive.
    pub fn member(&mut self) -> Result<Option<Member>, TarError> {
        let mut extensions = Extensions::default();
        for _ in 0..=MAX_EXTENSIONS {
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let kind = header[156];
            let size = number(&header[124..136])?;
            match kind {
                b'x' => extensions.records(&self.extended(size)?)?,
                // Defaults for all members: comments, and numbers that we do not take from there.
                b'g' => drop(self.extended(size)?),
                b'L' => extensions.path = Some(text(&self.extended(size)?).to_vec()),
                b'K' => extensions.target = Some(text(&self.extended(size)?).to_vec()),
                b'S' => return Err(TarError::Sparse),
                _ => return self.finish(&header, extensions).map(Some),
            }
        }
        Err(TarError::Invalid("a member has too many extended headers"))
    }

    /// Returns the number of extended attributes that the members so far have, of which none is read.
    pub fn attributes(&self) -> u64 {
        self.attributes
    }

    /// Reads the rest of the member's content.
    pub fn content(&mut self) -> Content<'_, R> {
        Content(self)
    }

    /// Skips the padding after the archive, whose length depends on the writer.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn finish_input(mut self) -> Result<(), TarError> {
        io::copy(&mut self.input, &mut io::sink())
            .map(drop)
            .map_err(TarError::Input)
    }

    fn finish(&mut self, header: &[u8; BLOCK], extensions: Extensions) -> Result<Member, TarError> {
        let mut member = member(header)?;
        let Extensions {
            path,
            target,
            size,
            uid,
            gid,
            modified,
            attributes,
        } = extensions;
        self.attributes = self.attributes.saturating_add(attributes);
        member.path = path.unwrap_or(member.path);
        member.target = target.unwrap_or(member.target);
        member.size = size.unwrap_or(member.size);
        member.uid = uid.unwrap_or(member.uid);
        member.gid = gid.unwrap_or(member.gid);
        member.modified = modified.unwrap_or(member.modified);
        // No name of a file has one, and the end of a name would depend on its reader.
        if member.path.contains(&0) || member.target.contains(&0) {
            return Err(TarError::Invalid("a name has a NUL"));
        }
        // Archives before POSIX knew no other sign of a directory.
        if member.kind == Kind::File && member.path.ends_with(b"/") {
            member.kind = Kind::Directory;
        }
        // Links, directories and special files have none, whatever their header says (pax, "size").
        if !matches!(member.kind, Kind::File | Kind::Other(_)) {
            member.size = 0;
        }
        self.expect(member.size)?;
        Ok(member)
    }

    /// Returns the next header, `None` at the archive's end.
    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        let rest = self.content + self.padding;
        (self.content, self.padding) = (0, 0);
        let skipped =
            io::copy(&mut (&mut self.input).take(rest), &mut io::sink()).map_err(TarError::Input)?;
        if skipped < rest {
            return Err(TarError::Truncated);
        }
        let mut block = [0; BLOCK];
        self.exactly(&mut block)?;
        // A second empty block follows, or the input's end: not every writer keeps to two.
        if block == [0; BLOCK] {
            return Ok(None);
        }
        match is_summed(&block) {
            true => Ok(Some(block)),
            false => Err(TarError::Invalid("a header has another checksum")),
        }
    }

    /// Sets the length of the content that follows.
    fn expect(&mut self, size: u64) -> Result<(), TarError> {
        let whole = size.checked_next_multiple_of(BLOCK as u64);
        self.padding = whole.ok_or(TarError::Invalid("a member is too long"))? - size;
        self.content = size;
        Ok(())
    }

    /// Returns the content of an extended header.
    fn extended(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > MAX_EXTENDED {
            return Err(TarError::Invalid("an extended header is too long"));
        }
        self.expect(size)?;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
        self.exactly(&mut bytes)?;
        self.content = 0;
        Ok(bytes)
    }

    fn exactly(&mut self, bytes: &mut [u8]) -> Result<(), TarError> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => TarError::Truncated,
            _ => TarError::Input(error),
        })
    }
}

/// The content of a member.
#[derive(Debug)]
pub struct Content<'a, R>(&'a mut Reader<R>);

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.content == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let read = (&mut self.0.input).take(self.0.content).read(buffer)?;
        self.0.content -= read as u64;
        match read {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, TarError::Truncated)),
            read => Ok(read),
        }
    }
}

impl Extensions {
    /// Takes over records `LENGTH KEY=VALUE\n`.
    fn records(&mut self, mut bytes: &[u8]) -> Result<(), TarError> {
        const INVALID: TarError = TarError::Invalid("a record of an extended header has another length");
        while !bytes.is_empty() {
            let blank = bytes
                .iter()
                .take(20)
                .position(|byte| *byte == b' ')
                .ok_or(INVALID)?;
            let length = decimal(&bytes[..blank]).and_then(|length| usize::try_from(length).ok());
            let (record, rest) = length
                .and_then(|length| bytes.split_at_checked(length))
                .ok_or(INVALID)?;
            let record = record
                .get(blank + 1..)
                .and_then(|record| record.strip_suffix(b"\n"));
            let record = record.ok_or(INVALID)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(INVALID)?;
            self.record(&record[..equals], &record[equals + 1..])?;
            bytes = rest;
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarError> {
        const INVALID: TarError = TarError::Invalid("an extended header has an invalid number");
        let whole = value.split(|byte| *byte == b'.').next().unwrap_or_default();
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.target = Some(value.to_vec()),
            b"size" => self.size = Some(decimal(value).ok_or(INVALID)?),
            b"uid" => self.uid = Some(decimal(value).ok_or(INVALID)?),
            b"gid" => self.gid = Some(decimal(value).ok_or(INVALID)?),
            // Times before 1970 are negative, and become 1970.
            b"mtime" => self.modified = Some(decimal(whole).unwrap_or_default()),
            key if ATTRIBUTES.iter().any(|prefix| key.starts_with(prefix)) => self.attributes += 1,
            key if key.starts_with(b"GNU.sparse.") => return Err(TarError::Sparse),
            _ => {}
        }
        Ok(())
    }
}

fn member(header: &[u8; BLOCK]) -> Result<Member, TarError> {
    let name = text(&header[..100]);
    // GNU's own format says `ustar  ` and has other fields in the prefix's place.
    let prefix = match &header[257..263] == b"ustar\0" {
        true => text(&header[345..500]),
        false => b"",
    };
    let path = match prefix {
        b"" => name.to_vec(),
        prefix => [prefix, b"/", name].concat(),
    };
    Ok(Member {
        path,
        target: text(&header[157..257]).to_vec(),
        kind: match header[156] {
            b'0' | b'\0' | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' | b'4' => Kind::Device,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            letter => Kind::Other(letter),
        },
        mode: u32::try_from(number(&header[100..108])? & 0o7777).unwrap_or_default(),
        uid: number(&header[108..116])?,
        gid: number(&header[116..124])?,
        size: number(&header[124..136])?,
        modified: number(&header[136..148]).unwrap_or_default(),
    })
}

/// Returns `true` if the header's checksum is the sum of its bytes, with blanks in the checksum's place.
fn is_summed(header: &[u8; BLOCK]) -> bool {
    let sum = |blank: u64, byte: fn(u8) -> i64| -> i64 {
        let bytes = header.iter().enumerate();
        let counted = bytes.filter(|(at, _)| !(148..156).contains(at));
        counted.map(|(_, value)| byte(*value)).sum::<i64>() + 8 * blank.cast_signed()
    };
    let Ok(told) = number(&header[148..156]) else {
        return false;
    };
    let is = |sum: i64| u64::try_from(sum).is_ok_and(|sum| sum == told);
    // Some old writers summed signed bytes.
    is(sum(32, i64::from)) || is(sum(32, |byte| i64::from(byte.cast_signed())))
}

/// Returns a field up to its NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Reads octal digits between blanks and NULs, or GNU's binary numbers, whose first bit is set.
fn number(field: &[u8]) -> Result<u64, TarError> {
    const INVALID: TarError = TarError::Invalid("a header has an invalid number");
    match field {
        [0x80, rest @ ..] => rest.iter().try_fold(0_u64, |sum, byte| {
            sum.checked_mul(256)?.checked_add(u64::from(*byte))
        }),
        field => {
            let digits = text(field).trim_ascii();
            digits.iter().try_fold(0_u64, |sum, byte| match byte {
                b'0'..=b'7' => sum.checked_mul(8)?.checked_add(u64::from(byte - b'0')),
                _ => None,
            })
        }
    }
    .ok_or(INVALID)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let digits = (!text.is_empty()).then_some(text)?;
    digits.iter().try_fold(0_u64, |sum, byte| match byte {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}
