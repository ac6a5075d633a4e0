//! Files of a sandbox: bytes in and out, lists, changes, archives, events.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use hyper::body::Bytes as Piece;
use ringfence_sandbox::files::{FileRange, FileReader, Operating, Operation, TreeReport, WatchDepth, parse};
use ringfence_sandbox::{Error, Sandbox};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::content::{BYTES, Content, MAX_BYTES, NOTHING, done};
use super::super::error::ApiError;
use super::super::extract::{InSandbox, Params};
use super::super::route::{Form, Parameter, Place, Route, route};
use super::super::stream::Part;
use super::super::{body, events, stream};
use super::entries::{CopiedTree, FileEntry, FileList, MadeDirectory, UnpackedTree};

/// Maximum size of a request that is no file, in bytes.
const MAX: usize = 1024 * 1024;
/// Trailer of an archive: what was left out.
const LEFT_OUT: &str = "ringfence-left-out";
/// Maximum length of its value, in bytes: clients bound their trailers.
const MAX_LEFT_OUT: usize = 8 * 1024;

const PATH: Parameter = Parameter {
    place: Place::Query,
    name: "path",
    required: true,
    form: Form::Path,
    description: "Absolute path in the sandbox.",
};

const OFFSET: Parameter = Parameter {
    place: Place::Query,
    name: "offset",
    required: false,
    form: Form::Number,
    description: "First byte.",
};

const LENGTH: Parameter = Parameter {
    place: Place::Query,
    name: "length",
    required: false,
    form: Form::Number,
    description: "Number of bytes at most.",
};

const SIZE: Parameter = Parameter {
    place: Place::Query,
    name: "size",
    required: false,
    form: Form::Number,
    description: "Length of the body: a body that breaks off leaves the file as it was.",
};

const MODE: Parameter = Parameter {
    place: Place::Query,
    name: "mode",
    required: false,
    form: Form::Octal,
    description: "Permission bits in octal digits; those of the replaced file, or 644.",
};

const DEPTH: Parameter = Parameter {
    place: Place::Query,
    name: "depth",
    required: false,
    form: Form::Number,
    description: "Levels of directories; 1 by default.",
};

const AFTER: Parameter = Parameter {
    place: Place::Query,
    name: "after",
    required: false,
    form: Form::Text,
    description: "`next` of the page before; without it the first entries.",
};

const RECURSIVE: Parameter = Parameter {
    place: Place::Query,
    name: "recursive",
    required: false,
    form: Form::Flag,
    description: "Watch all directories below it, too: true or false.",
};

const ENTRY: Content = Content::json::<FileEntry>();

const CHANGES: Content = Content::new(&[events::MEDIA], |_| {
    schemars::json_schema!({
        "type": "string",
        "description": "Events `change` with `{\"type\", \"path\"}`, the first of them of the type `ready`.",
    })
});

pub(super) fn routes() -> Vec<Route> {
    let groups = [contents(), trees(), streams()];
    groups.into_iter().flatten().collect()
}

fn contents() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/sandboxes/{id}/files",
            "Read a regular file.",
            vec![BYTES],
            |method| on(method, read),
        )
        .with_parameters(&[PATH, OFFSET, LENGTH])
        .recorded_as("sandbox.read"),
        route(
            Method::PUT,
            "/v1/sandboxes/{id}/files",
            "Store the body as a file, with the directories above it; readers see the old file or the new one.",
            vec![ENTRY],
            |method| on(method, write),
        )
        .with_parameters(&[PATH, SIZE, MODE])
        .with_body(BYTES.at_most(MAX_BYTES))
        .recorded_as("sandbox.write"),
        route(
            Method::DELETE,
            "/v1/sandboxes/{id}/files",
            "Remove a file, or a directory with everything in it.",
            vec![NOTHING],
            |method| on(method, remove),
        )
        .with_parameters(&[PATH])
        .recorded_as("sandbox.delete"),
    ]
}

fn trees() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/sandboxes/{id}/files/stat",
            "Describe a file; a link is not followed.",
            vec![ENTRY],
            |method| on(method, stat),
        )
        .with_parameters(&[PATH]),
        route(
            Method::GET,
            "/v1/sandboxes/{id}/files/list",
            "List a directory: a page of at most 10,000 entries.",
            vec![Content::json::<FileList>()],
            |method| on(method, list),
        )
        .with_parameters(&[PATH, DEPTH, AFTER]),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/files/mkdir",
            "Make a directory, with those above it.",
            vec![Content::json::<MadeDirectory>()],
            |method| on(method, mkdir),
        )
        .with_body(Content::json::<MakeDirectory>().at_most(MAX))
        .recorded_as("sandbox.mkdir"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/files/move",
            "Move a file or a directory.",
            vec![ENTRY],
            |method| on(method, rename),
        )
        .with_body(Content::json::<FromTo>().at_most(MAX))
        .recorded_as("sandbox.move"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/files/copy",
            "Copy a file or a directory.",
            vec![Content::json::<CopiedTree>()],
            |method| on(method, copy),
        )
        .with_body(Content::json::<FromTo>().at_most(MAX))
        .recorded_as("sandbox.copy"),
    ]
}

fn streams() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/sandboxes/{id}/files/archive",
            "Read a tree as a tar archive. The trailer `ringfence-left-out` names what it lacks.",
            vec![BYTES],
            |method| on(method, archive),
        )
        .with_parameters(&[PATH])
        .recorded_as("sandbox.archive"),
        route(
            Method::PUT,
            "/v1/sandboxes/{id}/files/archive",
            "Unpack the body, a tar archive, into a directory.",
            vec![Content::json::<UnpackedTree>()],
            |method| on(method, extract),
        )
        .with_parameters(&[PATH])
        .with_body(BYTES.at_most(MAX_BYTES))
        .recorded_as("sandbox.extract"),
        route(
            Method::GET,
            "/v1/sandboxes/{id}/files/watch",
            "Follow the changes of a directory as events.",
            vec![CHANGES],
            |method| on(method, watch),
        )
        .with_parameters(&[PATH, RECURSIVE]),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MakeDirectory {
    /// Absolute path in the sandbox.
    #[schemars(regex(pattern = "^/"), length(max = 4095))]
    path: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FromTo {
    /// Absolute path in the sandbox.
    #[schemars(regex(pattern = "^/"), length(max = 4095))]
    from: String,
    /// Absolute path in the sandbox.
    #[schemars(regex(pattern = "^/"), length(max = 4095))]
    to: String,
}

#[derive(Debug, Deserialize)]
struct At {
    path: String,
}

#[derive(Debug, Deserialize)]
struct Range {
    path: String,
    #[serde(default)]
    offset: u64,
    length: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Target {
    path: String,
    size: Option<u64>,
    mode: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Tree {
    path: String,
    depth: Option<usize>,
    after: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Watched {
    path: String,
    #[serde(default)]
    recursive: bool,
}

async fn read(
    Params(Range { path, offset, length }): Params<Range>,
    InSandbox(sandbox): InSandbox,
) -> Result<Response, ApiError> {
    let reader = sandbox.read_file(path, FileRange { offset, length }).await?;
    let body = stream::fallible(reader, |mut reader: FileReader| {
        Box::pin(async move {
            let piece = reader.next().await;
            piece.map(|piece| piece.map(|bytes| (Piece::from(bytes), reader)))
        })
    });
    Ok(([(header::CONTENT_TYPE, body::BYTES)], body).into_response())
}

async fn write(
    Params(Target { path, size, mode }): Params<Target>,
    InSandbox(sandbox): InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let mode = mode.map(|digits| {
        u32::from_str_radix(&digits, 8)
            .map_err(|_| Error::Invalid("`mode` must be octal digits, such as 644".to_owned()))
    });
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let operation = Operation::Write {
        path,
        mode: mode.transpose()?,
        size: size.or(length),
    };
    let entry: FileEntry = receive(&sandbox, &operation, request).await?;
    Ok(Json(entry).into_response())
}

/// Performs an operation on the body of a request.
async fn receive<T: DeserializeOwned>(
    sandbox: &Sandbox,
    operation: &Operation,
    request: Request,
) -> Result<T, ApiError> {
    let operating = sandbox.operate(operation).await?;
    let mut body = request.into_body();
    // An error drops the operation, which cancels it: what has arrived is not taken for the whole.
    while let Some(bytes) = body::next(&mut body).await? {
        if !operating.write(bytes.into()).await {
            break;
        }
    }
    Ok(parse(&operating.whole().await?)?)
}

async fn remove(
    Params(At { path }): Params<At>,
    InSandbox(sandbox): InSandbox,
) -> Result<Response, ApiError> {
    sandbox.remove_file(path).await?;
    Ok(done())
}

async fn stat(Params(At { path }): Params<At>, InSandbox(sandbox): InSandbox) -> Result<Response, ApiError> {
    changed::<FileEntry>(&sandbox, Operation::Stat { path }).await
}

/// Performs an operation, and answers with its answer of type `T`.
async fn changed<T: DeserializeOwned + Serialize>(
    sandbox: &Sandbox,
    operation: Operation,
) -> Result<Response, ApiError> {
    let value: T = sandbox.change(&operation).await?;
    Ok(Json(value).into_response())
}

async fn list(
    Params(Tree { path, depth, after }): Params<Tree>,
    InSandbox(sandbox): InSandbox,
) -> Result<Response, ApiError> {
    let depth = depth.unwrap_or(1);
    if depth == 0 {
        return Err(Error::Invalid("`depth` must be at least 1, got 0".to_owned()).into());
    }
    let listing = sandbox.files_of(None).list(path, depth, after).await?;
    Ok(Json(json!(listing)).into_response())
}

async fn mkdir(InSandbox(sandbox): InSandbox, request: Request) -> Result<Response, ApiError> {
    let MakeDirectory { path } = body::json(request).await?;
    changed::<MadeDirectory>(&sandbox, Operation::MakeDirectory { path }).await
}

async fn rename(InSandbox(sandbox): InSandbox, request: Request) -> Result<Response, ApiError> {
    let FromTo { from, to } = body::json(request).await?;
    changed::<FileEntry>(&sandbox, Operation::Move { from, to }).await
}

async fn copy(InSandbox(sandbox): InSandbox, request: Request) -> Result<Response, ApiError> {
    let FromTo { from, to } = body::json(request).await?;
    changed::<CopiedTree>(&sandbox, Operation::Copy { from, to }).await
}

async fn archive(
    Params(At { path }): Params<At>,
    InSandbox(sandbox): InSandbox,
) -> Result<Response, ApiError> {
    let mut operating = sandbox.operate(&Operation::Archive { path }).await?;
    operating.end_input();
    // A tree that cannot be read at all is an error and no empty archive.
    let first = operating.next().await?;
    let body = stream::fallible(Archive::Read { first, operating }, |archive| {
        Box::pin(archive.next())
    });
    let headers = [(header::CONTENT_TYPE, body::BYTES), (header::TRAILER, LEFT_OUT)];
    Ok((headers, body).into_response())
}

/// An archive that is being sent.
enum Archive {
    Read {
        first: Option<Vec<u8>>,
        operating: Operating,
    },
    /// The trailers have been sent.
    Sent,
}

impl Archive {
    /// Returns the next part; after the last one what was left out, for clients that accept trailers.
    async fn next(self) -> Result<Option<(Part, Self)>, Error> {
        let Self::Read { first, mut operating } = self else {
            return Ok(None);
        };
        let piece = match first {
            Some(first) => Some(first),
            None => operating.next().await?,
        };
        match piece {
            Some(bytes) => {
                let rest = Self::Read {
                    first: None,
                    operating,
                };
                Ok(Some((Part::Data(bytes.into()), rest)))
            }
            None => {
                let mut headers = HeaderMap::new();
                headers.insert(LEFT_OUT, left_out(operating.report()?));
                Ok(Some((Part::Trailers(headers), Self::Sent)))
            }
        }
    }
}

/// Returns what an archive lacks as JSON, with as many names as a header has room for.
fn left_out(report: TreeReport) -> HeaderValue {
    let mut named = report.named;
    loop {
        let value = json!({"skipped": report.skipped, "named": named}).to_string();
        match HeaderValue::from_bytes(value.as_bytes()) {
            Ok(header) if value.len() <= MAX_LEFT_OUT => return header,
            _ if named.pop().is_none() => return HeaderValue::from(report.skipped),
            _ => {}
        }
    }
}

async fn extract(
    Params(At { path }): Params<At>,
    InSandbox(sandbox): InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let unpacked: UnpackedTree = receive(&sandbox, &Operation::Extract { path }, request).await?;
    Ok(Json(unpacked).into_response())
}

async fn watch(
    Params(Watched { path, recursive }): Params<Watched>,
    InSandbox(sandbox): InSandbox,
) -> Result<Response, ApiError> {
    let depth = match recursive {
        true => WatchDepth::Recursive,
        false => WatchDepth::Flat,
    };
    let mut operating = sandbox.operate(&Operation::Watch { path, depth }).await?;
    // The first line says that it watches; without it, this is the error.
    let first = operating.next().await?.unwrap_or_default();
    let state = (first, operating);
    let body = stream::body(state, |(lines, mut operating): (Vec<u8>, Operating)| {
        Box::pin(async move {
            let end = lines.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1);
            if let Some(end) = end {
                let told = lines[..end]
                    .split(|byte| *byte == b'\n')
                    .filter_map(|line| parse::<Value>(line).ok());
                let text: String = told.map(|change| events::event("change", &change)).collect();
                return Some((Piece::from(text), (lines[end..].to_vec(), operating)));
            }
            match tokio::time::timeout(events::HEARTBEAT, operating.next()).await {
                Ok(Ok(Some(more))) => Some((Piece::new(), ([lines, more].concat(), operating))),
                Ok(Ok(None) | Err(_)) => None,
                Err(_) => Some((":\n\n".into(), (lines, operating))),
            }
        })
    });
    Ok(([(header::CONTENT_TYPE, events::MEDIA)], body).into_response())
}
