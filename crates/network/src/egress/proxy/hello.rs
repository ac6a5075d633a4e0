//! Parses the TLS ClientHello, as far as its server name (SNI).

/// Limit of bytes before the message must be complete. Post-quantum keys make it about two thousand bytes
/// long.
pub(super) const MAX_HELLO: usize = 16 * 1024;

/// Length of a record header: type, two bytes of version, two bytes of length.
const RECORD_HEADER: usize = 5;
/// Maximum length of a plaintext record (RFC 8446, section 5.1).
const MAX_RECORD: usize = 1 << 14;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// Extensions of encrypted hellos (ECH), current and draft: the visible name would not be the one that
/// counts.
const ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];

/// The state of the parser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hello {
    /// A valid prefix of a message.
    Unfinished,
    /// A complete message, with its server name.
    Whole(Option<String>),
}

/// An error for a rejected ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HelloFault {
    #[error("the client does not speak TLS")]
    NotTls,
    #[error("the first message of TLS is malformed")]
    Malformed,
    #[error("the first message of TLS is too long")]
    TooLong,
    #[error("the name of the server is encrypted (ECH)")]
    Encrypted,
}

/// Parses a ClientHello from the bytes received so far.
pub(super) fn read(bytes: &[u8]) -> Result<Hello, HelloFault> {
    let message = match message(bytes)? {
        Some(message) => message,
        None if bytes.len() >= MAX_HELLO => return Err(HelloFault::TooLong),
        None => return Ok(Hello::Unfinished),
    };
    let mut body = Reader(&message);
    server_name(&mut body).map(Hello::Whole)
}

/// Reassembles the message from its records; `None` while some are missing.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, HelloFault> {
    let mut message = Vec::new();
    loop {
        match bytes {
            [kind, ..] if *kind != HANDSHAKE => return Err(HelloFault::NotTls),
            [_, major, ..] if *major != 3 => return Err(HelloFault::NotTls),
            _ => {}
        }
        let Some((header, rest)) = bytes.split_first_chunk::<RECORD_HEADER>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > MAX_RECORD {
            return Err(HelloFault::Malformed);
        }
        message.extend_from_slice(rest.get(..length).unwrap_or(rest));
        if let Some([kind, high, middle, low]) = message.first_chunk() {
            if *kind != CLIENT_HELLO {
                return Err(HelloFault::NotTls);
            }
            let whole = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if whole > MAX_HELLO {
                return Err(HelloFault::TooLong);
            }
            if let Some(body) = message.get(4..4 + whole) {
                return Ok(Some(body.to_vec()));
            }
        }
        let Some(next) = rest.get(length..) else {
            return Ok(None);
        };
        bytes = next;
    }
}

/// Returns the server name in a message body (RFC 8446, section 4.1.2; RFC 6066, section 3).
fn server_name(body: &mut Reader<'_>) -> Result<Option<String>, HelloFault> {
    body.take(2 + 32)?;
    body.short_vector()?;
    body.vector()?;
    body.short_vector()?;
    if body.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = Reader(body.vector()?);
    body.end()?;
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.vector()?;
        if ENCRYPTED.contains(&kind) {
            return Err(HelloFault::Encrypted);
        }
        if kind == SERVER_NAME && name.replace(only_name(content)?).is_some() {
            return Err(HelloFault::Malformed);
        }
    }
    Ok(name)
}

/// Returns the name of a list. It may hold one name of each type, and only one type exists.
fn only_name(content: &[u8]) -> Result<String, HelloFault> {
    let mut content = Reader(content);
    let mut list = Reader(content.vector()?);
    content.end()?;
    if list.take(1)? != [0] {
        return Err(HelloFault::Malformed);
    }
    let name = list.vector()?;
    list.end()?;
    String::from_utf8(name.to_vec()).map_err(|_| HelloFault::Malformed)
}

/// A cursor over the unread bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], HelloFault> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(HelloFault::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, HelloFault> {
        let bytes = self.take(2)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u16::from(*byte)))
    }

    /// Reads a vector with a two-byte length.
    fn vector(&mut self) -> Result<&'a [u8], HelloFault> {
        let length = self.number()?;
        self.take(length.into())
    }

    /// Reads a vector with a one-byte length.
    fn short_vector(&mut self) -> Result<&'a [u8], HelloFault> {
        let length = self.take(1)?.first().copied().unwrap_or(0);
        self.take(length.into())
    }

    fn end(&self) -> Result<(), HelloFault> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(HelloFault::Malformed)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vector(bytes: &[u8]) -> Vec<u8> {
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length, bytes].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [kind.to_be_bytes().to_vec(), vector(content)].concat()
    }

    fn name(text: &str) -> Vec<u8> {
        extension(0, &vector(&[vec![0], vector(text.as_bytes())].concat()))
    }

    fn with(extensions: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend(vector(&[0x13, 1]));
        body.extend([1, 0]);
        body.extend(vector(&extensions.concat()));
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [vec![1], length[1..].to_vec(), body].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| [vec![22, 3, 1], vector(part)].concat();
        message.chunks(size).flat_map(record).collect()
    }

    /// Builds a ClientHello with this server name.
    pub(in super::super) fn hello(text: &str) -> Vec<u8> {
        records(&with(&[extension(10, &[0, 0]), name(text)]), 1000)
    }

    /// Builds a ClientHello with an encrypted server name.
    pub(in super::super) fn encrypted(text: &str) -> Vec<u8> {
        records(&with(&[name(text), extension(0xfe0d, &[0])]), 1000)
    }

    /// Builds a ClientHello without a server name.
    pub(in super::super) fn nameless() -> Vec<u8> {
        records(&with(&[extension(10, &[0, 0])]), 1000)
    }

    #[test]
    fn finds_the_name_in_whatever_pieces_it_comes() {
        let message = with(&[extension(10, &[0, 0]), name("a.test")]);
        let whole = Ok(Hello::Whole(Some("a.test".to_owned())));
        for size in [1, 3, 7, 1000] {
            let bytes = records(&message, size);
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), Ok(Hello::Unfinished), "{size} {cut}");
            }
            assert_eq!(read(&bytes), whole);
            assert_eq!(read(&[&bytes, b"more".as_slice()].concat()), whole);
        }
        assert_eq!(read(&nameless()), Ok(Hello::Whole(None)));
    }

    #[test]
    fn refuses_what_is_none() {
        let check = |bytes: &[u8], expected| assert_eq!(read(bytes), Err(expected), "{:?}", bytes.get(..40));
        check(b"GET / HTTP/1.1\r\n", HelloFault::NotTls);
        check(b"SSH-2.0-x\r\n", HelloFault::NotTls);
        check(&[0x80, 0x2e, 1], HelloFault::NotTls);
        check(&[22, 2, 0], HelloFault::NotTls);
        check(&[22, 3, 1, 0, 0], HelloFault::Malformed);
        check(&[22, 3, 1, 0xff, 0xff], HelloFault::Malformed);
        check(&records(&[2, 0, 0, 0], 9), HelloFault::NotTls);
        check(&records(&[1, 1, 0, 0], 9), HelloFault::TooLong);
        check(&records(&[1, 0, 0, 2, 3, 3], 9), HelloFault::Malformed);
        check(&encrypted("a.test"), HelloFault::Encrypted);
        check(
            &records(&with(&[extension(0xffce, &[])]), 900),
            HelloFault::Encrypted,
        );
        let twice = [name("a.test"), name("b.test")];
        check(&records(&with(&twice), 900), HelloFault::Malformed);
        let two_names = [[0].as_slice(), &vector(b"a.test"), &[0], &vector(b"b.test")].concat();
        check(
            &records(&with(&[extension(0, &vector(&two_names))]), 900),
            HelloFault::Malformed,
        );
        check(
            &records(&with(&[extension(0, &[0, 9, 0])]), 900),
            HelloFault::Malformed,
        );
        let endless = records(&[[1, 0, 0x3f, 0xff].as_slice(), &[0; MAX_HELLO]].concat(), 1);
        check(&endless[..MAX_HELLO], HelloFault::TooLong);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&bytes);
            let _ = read(&records(&[vec![1, 0, 0, 200], bytes].concat(), 50));
        }
    }
}
