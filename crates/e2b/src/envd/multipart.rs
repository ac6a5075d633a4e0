//! Parses bodies of `multipart/form-data` as they arrive.

use ringfence_multipart::{MAX_HEAD, PartHead, boundary};

use crate::error::Error;
use crate::gzip::Content;

/// A body of several files.
#[derive(Debug)]
pub(super) struct Multipart {
    body: Content,
    /// `\r\n--BOUNDARY`, which begins each part and ends the one before.
    delimiter: Vec<u8>,
    buffer: Vec<u8>,
    /// Set inside of a part's content.
    is_inside: bool,
}

impl Multipart {
    /// Begins to parse a body of this media type. `None` if it names no boundary.
    pub(super) fn new(media_type: &str, body: Content) -> Option<Self> {
        let boundary = boundary(media_type)?;
        Some(Self {
            body,
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            // The first delimiter has no line before it.
            buffer: b"\r\n".to_vec(),
            // What comes before that is to be ignored, like a part.
            is_inside: true,
        })
    }

    /// Returns the head of the next part; `None` at the end. What was left of the part before is skipped.
    pub(super) async fn next_part(&mut self) -> Result<Option<PartHead>, Error> {
        while self.content().await?.is_some() {}
        self.fill(2).await?;
        if self.buffer.starts_with(b"--") {
            return Ok(None);
        }
        let head = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                break head;
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(Error::invalid("the head of a part is too long"));
            }
            self.more().await?;
        };
        self.is_inside = true;
        Ok(Some(PartHead::parse(&String::from_utf8_lossy(&head))))
    }

    /// Returns the next bytes of the part's content; `None` at its end.
    pub(super) async fn content(&mut self) -> Result<Option<Vec<u8>>, Error> {
        while self.is_inside {
            if let Some(end) = find(&self.buffer, &self.delimiter) {
                let content: Vec<u8> = self.buffer.drain(..end).collect();
                self.buffer.drain(..self.delimiter.len());
                self.is_inside = false;
                return Ok((!content.is_empty()).then_some(content));
            }
            // A delimiter may have begun in the last bytes.
            let safe = self.buffer.len().saturating_sub(self.delimiter.len());
            if safe > 0 {
                return Ok(Some(self.buffer.drain(..safe).collect()));
            }
            self.more().await?;
        }
        Ok(None)
    }

    async fn fill(&mut self, length: usize) -> Result<(), Error> {
        while self.buffer.len() < length {
            self.more().await?;
        }
        Ok(())
    }

    async fn more(&mut self) -> Result<(), Error> {
        match self.body.next().await? {
            Some(bytes) => self.buffer.extend_from_slice(&bytes),
            None => return Err(Error::invalid("the body ended inside of a part")),
        }
        Ok(())
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, Bytes};
    use futures_util::stream;

    const BODY: &str = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a/b\"\r\n\r\none\r\n-\r\n--x\r\n\
        content-disposition: form-data; filename=\"q\\\"\"; name=file\r\nContent-Type: text/plain\r\n\r\n\r\n--x--\r\n";

    /// Parses a body that arrives in pieces of this size.
    async fn parsed(text: &str, size: usize) -> Result<Vec<(Option<String>, String)>, Error> {
        let pieces: Vec<Result<Bytes, std::convert::Infallible>> = text
            .as_bytes()
            .chunks(size)
            .map(|piece| Ok(Bytes::copy_from_slice(piece)))
            .collect();
        let body = Content::Plain(Body::from_stream(stream::iter(pieces)));
        let mut multipart = Multipart::new("multipart/form-data; boundary=x", body).unwrap();
        let mut parts = Vec::new();
        while let Some(part) = multipart.next_part().await? {
            let mut content = Vec::new();
            while let Some(bytes) = multipart.content().await? {
                content.extend(bytes);
            }
            parts.push((part.filename, String::from_utf8(content).unwrap()));
        }
        Ok(parts)
    }

    #[tokio::test]
    async fn parts_are_found_however_they_arrive() {
        for size in [1, 2, 3, 7, 1000] {
            let parts = parsed(BODY, size).await.unwrap();
            let expected = [("/a/b", "one\r\n-"), ("q\"", "")];
            let expected = expected.map(|(name, text)| (Some(name.to_owned()), text.to_owned()));
            assert_eq!(parts, expected, "{size}");
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error() {
        for length in [0, 3, 10, 60, 80, BODY.len() - 5] {
            assert!(parsed(&BODY[..length], 5).await.is_err(), "{length}");
        }
        assert!(Multipart::new("multipart/form-data", Content::Plain(Body::empty())).is_none());
    }
}
