//! `/files`: bytes of files in and out.

use std::collections::BTreeSet;

use axum::Extension;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringfence_sandbox::Error as SandboxError;
use ringfence_sandbox::files::{FileErrorKind, FileRange, FileReader, Operating, Operation, Written, parse};
use serde::Deserialize;
use serde_json::{Value, json};

use super::metadata::{self, Metadata};
use super::multipart::Multipart;
use super::paths::User;
use crate::body::{self, BrokenOff, Described};
use crate::error::Error;
use crate::gzip::{self, Content, Deflating};
use crate::known::Opened;
use crate::token;

/// Parts of a form: files that are stored by one request.
const MAX_PARTS: usize = 1000;

#[derive(Debug, Deserialize)]
struct FileQuery {
    path: Option<String>,
    #[serde(default)]
    username: String,
}

impl FileQuery {
    /// Returns the path of a request, and its user.
    fn of(request: &Request, opened: &Opened) -> Result<(Option<String>, User), Error> {
        let query: Query<Self> =
            Query::try_from_uri(request.uri()).map_err(|rejection| Error::invalid(rejection.body_text()))?;
        let Query(Self { path, username }) = query;
        Ok((path, User::of_file(&username, &opened.sandbox)?))
    }
}

/// Converts the error of an operation on a file.
fn failed(error: SandboxError) -> Error {
    match &error {
        SandboxError::File(file) if matches!(file.kind, FileErrorKind::Denied | FileErrorKind::ReadOnly) => {
            Error::forbidden(&crate::error::advised(&error))
        }
        _ => error.into(),
    }
}

/// Sends a file, to its end: the size that the kernel tells is not trusted.
pub(super) async fn download(opened: &Opened, request: Request) -> Result<Response, Error> {
    let (path, user) = FileQuery::of(&request, opened)?;
    let path = user.absolute(&opened.sandbox, &path.unwrap_or_default()).await?;
    let described = Extension(Described(json!({ "path": path })));
    let range = FileRange {
        offset: 0,
        length: None,
    };
    let reader = user
        .files(&opened.sandbox)
        .read(path, range)
        .await
        .map_err(failed)?;
    let (body, encoding) = match gzip::is_wanted(request.headers()) {
        true => (compressed(reader), Some([(header::CONTENT_ENCODING, "gzip")])),
        false => (plain(reader), None),
    };
    // A guest wrote it: a browser saves it and renders nothing.
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::VARY, "Accept-Encoding"),
    ];
    Ok((described, headers, encoding, body).into_response())
}

fn plain(reader: FileReader) -> Body {
    body::streamed(reader, |mut reader| async move {
        let piece = reader.next().await.map_err(|_| BrokenOff)?;
        Ok(piece.map(|bytes| (Bytes::from(bytes), reader)))
    })
}

fn compressed(reader: FileReader) -> Body {
    body::streamed(Some((reader, Deflating::new())), |state| async move {
        let Some((mut reader, mut deflating)) = state else {
            return Ok(None);
        };
        while let Some(piece) = reader.next().await.map_err(|_| BrokenOff)? {
            let bytes = deflating.push(&piece).map_err(|_| BrokenOff)?;
            if !bytes.is_empty() {
                return Ok(Some((Bytes::from(bytes), Some((reader, deflating)))));
            }
        }
        let last = deflating.finish().map_err(|_| BrokenOff)?;
        Ok(Some((Bytes::from(last), None)))
    })
}

/// Stores files.
pub(super) async fn upload(opened: &Opened, request: Request) -> Result<Response, Error> {
    let (path, user) = FileQuery::of(&request, opened)?;
    let path = path.filter(|path| !path.is_empty());
    let media = token::header(request.headers(), header::CONTENT_TYPE.as_str())
        .unwrap_or_default()
        .to_owned();
    let (parts, body) = request.into_parts();
    let upload = Upload {
        opened,
        user,
        metadata: metadata::of_request(&parts.headers)?,
    };
    let content = Content::new(&parts.headers, body, opened.sandbox.disk().0)?;
    let stored = match media.split(';').next().unwrap_or_default().trim() {
        "application/octet-stream" => {
            let path = path.ok_or_else(|| Error::invalid("`path` is missing"))?;
            vec![upload.store(&path, content).await?]
        }
        "multipart/form-data" => {
            let multipart = Multipart::new(&media, content);
            let multipart = multipart.ok_or_else(|| Error::invalid("the media type has no boundary"))?;
            upload.store_parts(path, multipart).await?
        }
        _ => {
            let message = "send files as `multipart/form-data` or `application/octet-stream`";
            return Err(Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
    };
    let stored: Vec<_> = stored.into_iter().map(|written| written.entry).collect();
    let paths: Vec<&str> = stored.iter().map(|entry| entry.path.as_str()).collect();
    let described = Extension(Described(json!({ "paths": paths })));
    let answer: Vec<Value> = stored
        .iter()
        .map(|entry| {
            let mut info = json!({"name": entry.name, "path": entry.path, "type": "file"});
            if !upload.metadata.is_empty() {
                info["metadata"] = json!(upload.metadata);
            }
            info
        })
        .collect();
    Ok((described, Json(answer)).into_response())
}

/// Files that a request sends.
struct Upload<'a> {
    opened: &'a Opened,
    /// Owner of new ones.
    user: User,
    /// Of each of them.
    metadata: Metadata,
}

impl Upload<'_> {
    /// Begins to store a file. Dropped before its end, the file is left as it was.
    async fn begin(&self, path: String) -> Result<Operating, Error> {
        self.opened
            .known
            .shared
            .file_metadata
            .check_room(&self.metadata)?;
        let operation = Operation::Write {
            path,
            mode: None,
            size: None,
        };
        let files = self.user.files(&self.opened.sandbox);
        files.operate(&operation).await.map_err(failed)
    }

    async fn absolute(&self, path: &str) -> Result<String, Error> {
        Ok(self.user.absolute(&self.opened.sandbox, path).await?)
    }

    async fn finish(&self, operating: Operating) -> Result<Written, Error> {
        let answer = operating.whole().await.map_err(failed)?;
        let written: Written = parse(&answer).map_err(failed)?;
        let kept = &self.opened.known.shared.file_metadata;
        kept.store(&written, &self.metadata)?;
        Ok(written)
    }

    async fn store(&self, path: &str, mut content: Content) -> Result<Written, Error> {
        let operating = self.begin(self.absolute(path).await?).await?;
        while let Some(bytes) = content.next().await? {
            if !operating.write(bytes.into()).await {
                break;
            }
        }
        self.finish(operating).await
    }

    async fn store_parts(
        &self,
        path: Option<String>,
        mut multipart: Multipart,
    ) -> Result<Vec<Written>, Error> {
        let (mut stored, mut targets, mut parts) = (Vec::new(), BTreeSet::new(), 0);
        while let Some(part) = multipart.next_part().await? {
            parts += 1;
            if parts > MAX_PARTS {
                return Err(Error::invalid(format!("a form has at most {MAX_PARTS} parts")));
            }
            if part.name != "file" {
                continue;
            }
            let target = path.clone().or(part.filename);
            let target = target.ok_or_else(|| Error::invalid("a part has no file name"))?;
            let target = self.absolute(&target).await?;
            if !targets.insert(target.clone()) {
                return Err(Error::invalid(format!("two parts are for `{target}`")));
            }
            let operating = self.begin(target).await?;
            while let Some(bytes) = multipart.content().await? {
                if !operating.write(bytes).await {
                    break;
                }
            }
            stored.push(self.finish(operating).await?);
        }
        match stored.is_empty() {
            true => Err(Error::invalid("there is no part named `file`")),
            false => Ok(stored),
        }
    }
}
