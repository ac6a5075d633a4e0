//! Connections to TCP ports of a sandbox.

use axum::extract::Request;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use hyper::body::Bytes as Piece;
use ringfence_sandbox::PortReader;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::content::{BYTES, MAX_BYTES};
use super::super::error::ApiError;
use super::super::extract::{InSandbox, Port};
use super::super::route::{Route, route};
use super::super::{body, stream};

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(
            Method::POST,
            "/v1/sandboxes/{id}/ports/{port}",
            "Connect to a TCP port of a sandbox that was created with `ports`: the body goes there as it comes, and the answer is \
             what comes from there. The answer begins once the connection is made; its end closes it.",
            vec![BYTES],
            |method| on(method, connect),
        )
        .with_body(BYTES.at_most(MAX_BYTES))
        .recorded_as("sandbox.connect"),
    ]
}

async fn connect(
    InSandbox(sandbox): InSandbox,
    Port(port): Port,
    request: Request,
) -> Result<Response, ApiError> {
    let (reader, sending) = sandbox.connect(port).await?;
    let mut pump = JoinSet::new();
    pump.spawn(pump_in(request.into_body(), sending));
    let body = stream::fallible((reader, pump), |(mut reader, pump): (PortReader, JoinSet<()>)| {
        Box::pin(async move {
            let piece = reader.next().await;
            piece.map(|piece| piece.map(|bytes| (Piece::from(bytes), (reader, pump))))
        })
    });
    Ok(([(header::CONTENT_TYPE, body::BYTES)], body).into_response())
}

/// Sends a body to the port. A body that breaks off ends that direction as one that ends does: TCP has no word for it.
async fn pump_in(mut body: axum::body::Body, sending: mpsc::Sender<Vec<u8>>) {
    while let Ok(Some(bytes)) = body::next(&mut body).await {
        if sending.send(bytes.into()).await.is_err() {
            return;
        }
    }
}
