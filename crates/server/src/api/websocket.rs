//! WebSockets (RFC 6455) of routes.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http;
use axum::response::{IntoResponse, Response};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ringfence_e2b::Tunnel;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::content::Content;
use super::error::{ApiError, Reason};
use super::key_uses::KeyUse;

/// Maximum size of messages that wait to be sent: one piece of output, and what the protocol adds.
const MAX_UNSENT: usize = 1024 * 1024;

/// The answer that switches the protocol.
pub(super) const SWITCHED: Content = Content::new(&[], |_| schemars::json_schema!(true)).with_status(101);

/// A WebSocket of a client.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Returns the answer that begins a WebSocket, whose client sends messages of `max` bytes at most. It is served behind the answer, until
/// the client's key ends.
pub(super) fn begin<F: Future<Output = ()> + Send>(
    mut request: Request,
    max: usize,
    serve: impl FnOnce(Socket) -> F + Send + 'static,
) -> Result<Response, ApiError> {
    if request.body().size_hint().exact() != Some(0) {
        return Err(ApiError::new(
            Reason::InvalidArguments,
            "a request that begins a WebSocket has no body",
            "leave the body out",
        ));
    }
    let upgraded = hyper::upgrade::on(&mut request);
    let answer = accepted(&request)?;
    let extensions = request.extensions();
    let (Some(tunnel), Some(using)) = (extensions.get::<Tunnel>(), extensions.get::<Arc<KeyUse>>()) else {
        return Err(ApiError::panicked());
    };
    let using = Arc::clone(using);
    tunnel.set(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let config = WebSocketConfig::default()
            .max_message_size(Some(max))
            .max_frame_size(Some(max))
            .max_write_buffer_size(MAX_UNSENT);
        let socket = Socket::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        tokio::select! {
            () = serve(socket) => {}
            () = using.ended() => {}
        }
    });
    Ok(answer)
}

/// Returns the answer to a request that begins a WebSocket (RFC 6455, section 4.2).
fn accepted(request: &Request) -> Result<Response, ApiError> {
    let mut asked = http::Request::new(());
    *asked.method_mut() = request.method().clone();
    *asked.version_mut() = request.version();
    *asked.headers_mut() = request.headers().clone();
    let answer = create_response(&asked).map_err(|error| {
        ApiError::new(
            Reason::InvalidArguments,
            format!("the request begins no WebSocket: {error}"),
            "connect with a WebSocket client (RFC 6455)",
        )
    })?;
    Ok(answer.map(|()| Body::empty()).into_response())
}
