//! Files for builds: archives that clients send, in files without a name on the server's disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use ringfence_sandbox::Sandboxes;

use crate::body::{self, BrokenOff};
use crate::error::Error;
use crate::gzip::Content;
use crate::token::Token;

/// Largest archive, and largest number for one template.
pub(super) const MAX_BYTES: u64 = 64 << 20;
pub(super) const MAX_FILES: usize = 32;
/// Bytes that are read at a time.
const PIECE: usize = 64 * 1024;

/// An archive of a template, which its client may send.
#[derive(Debug, Clone)]
pub(super) struct Upload {
    /// Opens the address that it is sent to.
    pub(super) token: Token,
    /// `None` until it is there.
    pub(super) archive: Option<Archive>,
}

impl Upload {
    /// Returns the bytes of its archive.
    pub(super) fn length(&self) -> u64 {
        self.archive.as_ref().map_or(0, |archive| archive.length)
    }
}

/// An archive that has arrived, with its length.
#[derive(Debug, Clone)]
pub(super) struct Archive {
    file: Arc<File>,
    length: u64,
}

impl Archive {
    /// Stores the body of a request.
    pub(super) async fn receive(sandboxes: &Sandboxes, request: Request) -> Result<Self, Error> {
        let file = Arc::new(sandboxes.scratch_file()?);
        let mut body = request.into_body();
        let mut length = 0;
        while let Some(piece) = body::next(&mut body).await? {
            let at = length;
            length += piece.len() as u64;
            if length > MAX_BYTES {
                return Err(Error::invalid(format!(
                    "the files of a step have at most {} MiB when they are packed",
                    MAX_BYTES >> 20
                )));
            }
            let target = Arc::clone(&file);
            let write = blocking(move || target.write_all_at(&piece, at));
            write
                .await
                .map_err(|_| Error::internal("the files could not be stored".to_owned()))?;
        }
        Ok(Self { file, length })
    }

    /// Returns its content, decompressed, of which there may be `limit` bytes.
    pub(super) async fn content(&self, limit: u64) -> Result<Content, Error> {
        let archive = self.clone();
        let begin = blocking(move || archive.read(0)).await.unwrap_or_default();
        let mut headers = HeaderMap::new();
        if begin.starts_with(&[0x1f, 0x8b]) {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let body: Body = body::streamed((self.clone(), 0), async |(archive, at): (Self, u64)| {
            let source = archive.clone();
            let read = blocking(move || source.read(at)).await.map_err(|_| BrokenOff)?;
            let next = at + read.len() as u64;
            Ok((!read.is_empty()).then(|| (Bytes::from(read), (archive, next))))
        });
        Content::new(&headers, body, limit)
    }

    fn read(&self, at: u64) -> io::Result<Vec<u8>> {
        let left = usize::try_from(self.length.saturating_sub(at)).unwrap_or(PIECE);
        let mut piece = vec![0; left.min(PIECE)];
        self.file.read_exact_at(&mut piece, at)?;
        Ok(piece)
    }
}

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(act).await.map_err(io::Error::other)?
}
