//! Bodies compressed with gzip.

use std::io::Write;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};

use crate::body;
use crate::error::Error;
use crate::token;

/// The content of a request, decompressed as it arrives.
#[derive(Debug)]
pub(crate) enum Content {
    Plain(Body),
    Gzip(Box<Inflating>),
}

/// A compressed body. It is inflated in pieces of some 32 KiB, so that a small body never becomes a large one in memory.
#[derive(Debug)]
pub(crate) struct Inflating {
    body: Body,
    decoder: GzDecoder<Vec<u8>>,
    /// Compressed bytes that have arrived.
    piece: Bytes,
    /// Bytes that the content may still have.
    left: u64,
}

impl Content {
    /// Returns the content of a body with these headers. Compressed content has at most `limit` bytes.
    ///
    /// # Errors
    /// If the encoding is another one.
    pub(crate) fn new(headers: &HeaderMap, body: Body, limit: u64) -> Result<Self, Error> {
        match token::header(headers, header::CONTENT_ENCODING.as_str()).unwrap_or("identity") {
            "identity" => Ok(Self::Plain(body)),
            "gzip" => Ok(Self::Gzip(Box::new(Inflating {
                body,
                decoder: GzDecoder::new(Vec::new()),
                piece: Bytes::new(),
                left: limit,
            }))),
            other => {
                let other: String = other.chars().take(80).collect();
                let message = format!("not supported: Content-Encoding `{other}` (use gzip, or none)");
                Err(Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
            }
        }
    }

    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// If the body breaks off, is no gzip, or has more content than it may.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        match self {
            Self::Plain(body) => body::next(body).await,
            Self::Gzip(inflating) => inflating.next().await,
        }
    }
}

impl Inflating {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if self.piece.is_empty() {
                let Some(piece) = body::next(&mut self.body).await? else {
                    return self.last();
                };
                self.piece = piece;
            }
            let taken = self.decoder.write(&self.piece).map_err(|_| malformed())?;
            if taken == 0 && !self.piece.is_empty() {
                return Err(malformed());
            }
            self.piece = self.piece.slice(taken..);
            if let Some(bytes) = self.inflated()? {
                return Ok(Some(bytes));
            }
        }
    }

    /// Returns what is left at the end of the body, whose checksum must be right.
    fn last(&mut self) -> Result<Option<Bytes>, Error> {
        self.decoder.try_finish().map_err(|_| malformed())?;
        self.inflated()
    }

    fn inflated(&mut self) -> Result<Option<Bytes>, Error> {
        let bytes = std::mem::take(self.decoder.get_mut());
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| {
            let message = "the compressed body has more content than the sandbox holds";
            Error::new(StatusCode::INSUFFICIENT_STORAGE, message)
        })?;
        Ok((!bytes.is_empty()).then(|| bytes.into()))
    }
}

fn malformed() -> Error {
    Error::invalid("the body is not gzip, or incomplete")
}

/// Returns `true` if a client asks for gzip by name: one that merely knows it is nearby.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    token::header(headers, header::ACCEPT_ENCODING.as_str()).is_some_and(|accepted| accepted.trim() == "gzip")
}

/// Compresses content in pieces.
#[derive(Debug)]
pub(crate) struct Deflating(GzEncoder<Vec<u8>>);

impl Deflating {
    pub(crate) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Returns the bytes that this piece completes; perhaps none.
    pub(crate) fn push(&mut self, piece: &[u8]) -> std::io::Result<Vec<u8>> {
        self.0.write_all(piece)?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// Returns the last bytes.
    pub(crate) fn finish(self) -> std::io::Result<Vec<u8>> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut deflating = Deflating::new();
        let mut whole = deflating.push(content).unwrap();
        whole.extend(deflating.finish().unwrap());
        whole
    }

    /// Returns the length of the content and of its largest piece, or the status of the error.
    async fn inflate(body: Vec<u8>, limit: u64) -> Result<(usize, usize), StatusCode> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        let mut content = Content::new(&headers, Body::from(body), limit).unwrap();
        let (mut length, mut largest) = (0, 0);
        while let Some(piece) = content.next().await.map_err(|error| error.status())? {
            length += piece.len();
            largest = largest.max(piece.len());
        }
        Ok((length, largest))
    }

    #[tokio::test]
    async fn a_bomb_is_inflated_in_pieces_and_up_to_a_limit() {
        let content = vec![b'a'; 8 << 20];
        let bomb = gzip(&content);
        assert!(bomb.len() < content.len() / 100, "{}", bomb.len());
        let (length, largest) = inflate(bomb.clone(), content.len() as u64).await.unwrap();
        assert_eq!(length, content.len());
        assert!(largest <= 128 * 1024, "{largest}");
        let refused = inflate(bomb, content.len() as u64 - 1).await;
        assert_eq!(refused, Err(StatusCode::INSUFFICIENT_STORAGE));
    }

    #[tokio::test]
    async fn a_body_that_is_no_gzip_is_refused() {
        let right = gzip(b"content");
        assert_eq!(inflate(right.clone(), 100).await, Ok((7, 7)));
        let mut wrong_sum = right.clone();
        let at = wrong_sum.len() - 6;
        wrong_sum[at] ^= 1;
        let broken_off = right[..right.len() - 3].to_vec();
        let longer = [&right[..], b"more"].concat();
        for body in [b"content".to_vec(), wrong_sum, broken_off, longer, Vec::new()] {
            assert_eq!(inflate(body, 100).await, Err(StatusCode::BAD_REQUEST));
        }
    }
}
