//! Bounds the answers that wait for their clients to read them.
//!
//! A large answer takes of its client's part of the memory for answers until it is sent; its connection is closed if that
//! takes too long. Answers that are made as they are read hold little, and are not counted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Method;
use axum::response::Response;
use hyper::body::Bytes;
use ringfence_http::ConnectionSlot;
use tokio::task::JoinSet;

use super::budget::BodyShare;
use super::error::{ApiError, Reason};
use super::state::Api;
use super::tenant::Account;

/// Size up to which answers are not counted: a client has too few connections to fill the memory with them.
const SMALL: u64 = 64 * 1024;

/// Time for an answer to be sent, apart from its size.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Least rate at which a large answer must be read, in bytes per second.
const LEAST_RATE: u64 = 64 * 1024;

/// An answer, until it is sent or its client has gone.
struct Kept {
    bytes: Bytes,
    _share: BodyShare,
    /// Closes the connection of a client that does not read; aborted on drop.
    _timer: JoinSet<()>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Api {
    /// Returns an answer that counts as memory of its client until it is sent.
    ///
    /// # Errors
    /// If the client has no more of it. What was asked for has been carried out, which matters unless it only reads.
    pub(super) async fn kept(
        &self,
        response: Response,
        account: &Account,
        method: &Method,
        connection: Option<Arc<ConnectionSlot>>,
    ) -> Result<Response, ApiError> {
        let size = response.body().size_hint().exact().unwrap_or(0);
        if size <= SMALL {
            return Ok(response);
        }
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let share = self.answers.take_or_first(account, length);
        let share = share.map_err(|error| match method.is_safe() {
            true => error,
            false => ApiError::new(
                Reason::Internal,
                format!("it was carried out, but other answers that nobody has read leave no room for its {size} bytes"),
                "read answers at once; then ask for the result, or do it again if that does no harm",
            ),
        })?;
        let mut timer = JoinSet::new();
        if let Some(connection) = connection {
            let time = TIMEOUT + Duration::from_secs(size / LEAST_RATE);
            timer.spawn(async move {
                tokio::time::sleep(time).await;
                connection.evict();
            });
        }
        let (parts, body) = response.into_parts();
        // It is in memory already.
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        let kept = Kept {
            bytes,
            _share: share,
            _timer: timer,
        };
        // A connection holds the bytes until they are sent, and drops their body before.
        Ok(Response::from_parts(parts, Body::from(Bytes::from_owner(kept))))
    }
}
