//! Connects to the engine's API: one connection per request, each checked before it is sent.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bollard::BollardRequest;
use bollard::errors::Error;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

use super::check;
use super::endpoint::{API_VERSION, Address, ApiVersion};

/// A client with tasks that drive its open connections and end with it.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    address: Address,
    version: ApiVersion,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Wire {
    pub(super) fn new(address: Address) -> Self {
        Self {
            address,
            version: API_VERSION,
            tasks: Arc::default(),
        }
    }

    /// Sets the API version.
    pub(super) fn speaking(mut self, version: ApiVersion) -> Self {
        self.version = version;
        self
    }

    /// Sends a request without an API version: an engine would reject one that it does not speak.
    pub(super) async fn ask(&self, path: &'static str) -> Result<Response<Incoming>, Error> {
        let request = Request::get(path).header(HOST, HeaderValue::from_static("engine"));
        self.send(request.body(Either::Left(Full::default()))?).await
    }

    /// Checks that the engine's socket accepts connections.
    pub(super) async fn probe(&self) -> io::Result<()> {
        match &self.address {
            Address::Unix(path) => UnixStream::connect(path).await.map(drop),
            Address::Loopback(address) => TcpStream::connect(address).await.map(drop),
        }
    }

    /// Checks a request, and sends it on a connection of its own.
    pub(super) async fn request(self, request: BollardRequest) -> Result<Response<Incoming>, Error> {
        let request = looked_at(request, self.version).await?;
        self.send(request).await
    }

    async fn send(&self, request: BollardRequest) -> Result<Response<Incoming>, Error> {
        match &self.address {
            Address::Unix(path) => self.speak(UnixStream::connect(path).await?, request).await,
            Address::Loopback(address) => self.speak(TcpStream::connect(address).await?, request).await,
        }
    }

    async fn speak<S>(&self, stream: S, request: BollardRequest) -> Result<Response<Incoming>, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        self.drive(async {
            // The reader of the response sees the error, too.
            let _ = connection.with_upgrades().await;
        });
        Ok(sender.send_request(request).await?)
    }

    fn drive(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(connection);
    }
}

/// Returns the request to send, if it is permitted.
async fn looked_at(request: BollardRequest, version: ApiVersion) -> Result<BollardRequest, Error> {
    let (mut parts, body) = request.into_parts();
    parts.uri =
        versioned(&parts.uri, version).ok_or_else(|| refused("the address of a request is malformed"))?;
    parts.headers.insert(HOST, HeaderValue::from_static("engine"));
    let whole = match body {
        Either::Left(whole) => match whole.collect().await {
            Ok(whole) => whole.to_bytes(),
        },
        // Streams are archives of images, which cannot specify a container.
        stream @ Either::Right(_) => {
            check::streamed(&parts.method, parts.uri.path()).map_err(refused)?;
            return Ok(Request::from_parts(parts, stream));
        }
    };
    check::request(&parts.method, parts.uri.path(), &whole).map_err(refused)?;
    Ok(Request::from_parts(
        parts,
        Either::Left(Full::<Bytes>::new(whole)),
    ))
}

/// Adds the version to path and query: the meaning of a path without one depends on the engine.
fn versioned(uri: &Uri, version: ApiVersion) -> Option<Uri> {
    format!("/v{version}{}", uri.path_and_query()?).parse().ok()
}

fn refused(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::IOError {
        err: io::Error::new(io::ErrorKind::InvalidInput, why),
    }
}
