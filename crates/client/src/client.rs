//! Requests over a Unix socket, each on a connection of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use ringfence_trust::NamedPathError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::tree::TreeError;

/// Maximum length of an answer that is read whole, in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// A client of the server that listens at a Unix socket.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

/// An error of a request to the server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server listens there.
    #[error("no server listens at {}: {source}", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    /// The connection broke, or the answer makes no sense.
    #[error("the connection to the server broke: {0}")]
    Broken(String),
    /// The server ended before its answer was whole.
    #[error("the server has ended, and its sandboxes with it, before the answer was complete")]
    ServerEnded,
    /// A file or stream of the caller takes no more, or could not be opened.
    #[error("cannot write output: {0}")]
    Output(#[source] io::Error),
    /// A path of this machine, which is to be read, cannot be used.
    #[error("cannot read {}: {source}", path.display())]
    Source { path: PathBuf, source: NamedPathError },
    /// A path of this machine, which is to be written, cannot be used.
    #[error("cannot write {}: {source}", path.display())]
    Destination { path: PathBuf, source: NamedPathError },
    /// A copy of a directory failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A copy is of what cannot be copied there.
    #[error("{message}")]
    Copy { message: String, hint: &'static str },
    /// A path of this machine names what cannot be copied.
    #[error("{message}")]
    SpecialFile { message: String, hint: &'static str },
    /// The sandbox has ended while it was used.
    #[error("the sandbox has ended: {0}")]
    Ended(String),
    /// The server has refused it.
    #[error("{message}")]
    Refused {
        /// Type of the error, as the API documents it.
        kind: String,
        message: String,
        hint: String,
    },
}

impl Error {
    /// Returns a hint for the user. The caller has a better one for its own paths and the server that it named.
    pub fn hint(&self) -> &str {
        match self {
            Self::Connect { .. } => "start it with `ringfence serve`",
            Self::Broken(_) => {
                "the server may have ended; what you asked for may have been done all the same"
            }
            Self::ServerEnded => {
                "programs in its sandboxes were killed, so what you asked for may be done in part; start `ringfence serve`, \
                 and try again"
            }
            Self::Output(error) => output_hint(error.kind()),
            Self::Source { .. } | Self::Destination { .. } => "check the path",
            Self::Tree(error) => error.hint(),
            Self::Copy { hint, .. } | Self::SpecialFile { hint, .. } => hint,
            Self::Ended(_) => "`ringfence sandbox ls` shows which there are",
            // For programs that speak HTTP themselves.
            Self::Refused { hint, .. } if hint.starts_with("GET /") => {
                "`--help` describes the options and arguments"
            }
            Self::Refused { hint, .. } => hint,
        }
    }

    /// Returns `true` if what the path names is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { kind, .. } if kind == "not_found")
    }

    /// Returns `true` if the sandbox lacks the program of a process.
    pub fn is_no_program(&self) -> bool {
        // The type does not tell it from a sandbox that is not there.
        self.is_not_found() && self.to_string().starts_with("there is no program")
    }

    /// Returns the type, as the API documents it.
    pub fn kind(&self) -> &str {
        match self {
            Self::Refused { kind, .. } => kind,
            _ => "internal",
        }
    }
}

const fn output_hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "make room where the output goes, or send it elsewhere"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "name a file that you may write, in a directory where you may make one; `-` is standard output"
        }
        io::ErrorKind::IsADirectory => "name a file in it",
        io::ErrorKind::NotADirectory => "name a path whose parents are directories",
        _ => "send the output elsewhere",
    }
}

/// The body of a request.
#[derive(Debug, Default)]
pub enum Body {
    #[default]
    Empty,
    Json(Value),
    Bytes(Vec<u8>),
    /// A stream of chunks that ends when the sender is dropped. An error aborts the request.
    Stream(mpsc::Receiver<io::Result<Vec<u8>>>),
}

/// A response whose body has not been read.
#[derive(Debug)]
pub struct Response {
    body: Incoming,
    /// Headers after the body.
    trailers: HeaderMap,
    /// Socket of the server.
    socket: PathBuf,
    /// Drives the connection, which ends with the answer.
    _connection: JoinSet<()>,
}

impl Client {
    /// Creates a client. Connects with the first request.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_path_buf(),
        }
    }

    /// Sends a request. `path` includes the query; `accept` is a media type.
    ///
    /// # Errors
    /// If there is no server, or it refuses the request.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Body,
        accept: Option<&str>,
    ) -> Result<Response, Error> {
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|source| Error::Connect {
            socket: self.socket.clone(),
            source,
        })?;
        let broken = |error: hyper::Error| Error::Broken(error.to_string());
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let mut driving = JoinSet::new();
        driving.spawn(async move {
            // An error of the connection is one of its answer, too.
            let _ = connection.await;
        });
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::TE, "trailers");
        if let Some(accept) = accept {
            request = request.header(header::ACCEPT, accept);
        }
        let media = match &body {
            Body::Empty => None,
            Body::Json(_) => Some("application/json"),
            Body::Bytes(_) | Body::Stream(_) => Some("application/octet-stream"),
        };
        if let Some(media) = media {
            request = request.header(header::CONTENT_TYPE, media);
        }
        let request = request
            .body(body.boxed())
            .map_err(|error| Error::Broken(error.to_string()))?;
        let answer = match sender.send_request(request).await {
            Ok(answer) => answer,
            Err(error) => return Err(broke(&self.socket, &error).await),
        };
        let status = answer.status();
        let response = Response {
            body: answer.into_body(),
            trailers: HeaderMap::new(),
            socket: self.socket.clone(),
            _connection: driving,
        };
        match status.is_success() {
            true => Ok(response),
            false => Err(response.refusal(status).await),
        }
    }

    /// Sends a request, and parses the answer.
    ///
    /// # Errors
    /// If there is no server, it refuses the request, or the answer is of another shape.
    pub async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<T, Error> {
        let response = self.send(method, path, body, None).await?;
        let bytes = response.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Broken(error.to_string()))
    }

    /// Gets a value.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.json(Method::GET, path, Body::Empty).await
    }

    /// Sends a value with POST, and parses the answer.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub async fn post<T: DeserializeOwned>(&self, path: &str, value: &impl Serialize) -> Result<T, Error> {
        self.json(Method::POST, path, Body::of(value)?).await
    }

    /// Sends a request whose response has no content.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn order(&self, method: Method, path: &str, body: Body) -> Result<(), Error> {
        self.send(method, path, body, None).await?.bytes().await.map(drop)
    }
}

impl Body {
    /// Returns a value as JSON.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn of(value: &impl Serialize) -> Result<Self, Error> {
        serde_json::to_value(value)
            .map(Self::Json)
            .map_err(|error| Error::Broken(error.to_string()))
    }

    fn boxed(self) -> BoxBody<Bytes, io::Error> {
        let whole = |bytes: Vec<u8>| {
            http_body_util::Full::new(Bytes::from(bytes))
                .map_err(|never| match never {})
                .boxed()
        };
        match self {
            Self::Empty => http_body_util::Empty::new()
                .map_err(|never| match never {})
                .boxed(),
            Self::Json(value) => whole(value.to_string().into_bytes()),
            Self::Bytes(bytes) => whole(bytes),
            Self::Stream(pieces) => Pieces(pieces).boxed(),
        }
    }
}

/// A body of pieces.
struct Pieces(mpsc::Receiver<io::Result<Vec<u8>>>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = self.0.poll_recv(context);
        piece.map(|piece| piece.map(|read| read.map(|bytes| Frame::data(bytes.into()))))
    }
}

/// Returns the error of a connection that broke: mostly its server has ended. One that is killed closes its connections before its
/// socket.
async fn broke(socket: &Path, error: &hyper::Error) -> Error {
    const PAUSES: [u64; 3] = [0, 100, 400];
    for pause in PAUSES {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if UnixStream::connect(socket).await.is_err() {
            return Error::ServerEnded;
        }
    }
    Error::Broken(error.to_string())
}

impl Response {
    /// Returns the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(frame) => self.trailers = frame.into_trailers().unwrap_or_default(),
                },
                Some(Err(error)) => return Err(broke(&self.socket, &error).await),
            }
        }
    }

    /// Returns a header that came after the body, once that has been read.
    pub(crate) fn trailer(&self, name: &str) -> Option<&[u8]> {
        self.trailers.get(name).map(hyper::header::HeaderValue::as_bytes)
    }

    /// Returns the whole body.
    ///
    /// # Errors
    /// If the connection broke, or it is longer than 64 MiB.
    pub async fn bytes(mut self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece().await? {
            if bytes.len() + piece.len() > MAX_ANSWER {
                return Err(Error::Broken("the answer is longer than 64 MiB".to_owned()));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    async fn refusal(self, status: StatusCode) -> Error {
        let bytes = self.bytes().await.unwrap_or_default();
        let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match told["error"].is_object() {
            true => Error::refused(&told),
            false => Error::Broken(format!("it answered with the status {status}")),
        }
    }
}

impl Error {
    /// Returns the error that an answer of the API describes.
    pub(crate) fn refused(told: &Value) -> Self {
        let field = |name: &str| told["error"][name].as_str().unwrap_or_default().to_owned();
        Self::Refused {
            kind: field("type"),
            message: field("message"),
            hint: field("hint"),
        }
    }
}

/// Returns a path with a query of these parameters, percent-encoded (RFC 3986).
pub fn query(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut whole = path.to_owned();
    for (number, (name, value)) in parameters.iter().enumerate() {
        whole.push(if number == 0 { '?' } else { '&' });
        encode(name, &mut whole);
        whole.push('=');
        encode(value, &mut whole);
    }
    whole
}

pub(crate) fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_survives_every_character() {
        assert_eq!(query("/v1/x", &[]), "/v1/x");
        assert_eq!(
            query("/v1/x", &[("path", "/a b&c=ü/%"), ("depth", "1")]),
            "/v1/x?path=%2Fa%20b%26c%3D%C3%BC%2F%25&depth=1"
        );
    }
}
