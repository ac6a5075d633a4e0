//! Bounds the answers that wait for their clients to read them.
//!
//! A large answer is charged to its client's account until it is sent; its connection is closed if that takes too long. Answers that are made as they are read hold little, and are not counted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Method;
use axum::response::Response;
use hyper::body::Bytes;
use ringfence_http::ConnectionSlot;
use tokio::task::JoinSet;

use super::body;
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

/// The bytes of an answer that is charged to its client, until they are sent or the client has gone.
struct ChargedAnswer {
    bytes: Bytes,
    /// The body that they were taken from, with what it holds until it is sent.
    _body: Body,
    _share: BodyShare,
    /// Closes the connection of a client that does not read; aborted on drop.
    _timer: JoinSet<()>,
}

impl AsRef<[u8]> for ChargedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Api {
    /// Charges a large answer to the client's account until it is sent.
    ///
    /// # Errors
    /// If the account has no room for it. What was asked for has been carried out, which matters unless it only reads.
    pub(super) async fn charge_answer(
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
        charged(response, share, timer).await
    }
}

/// Ties what an answer costs to its bytes: a connection holds these until they are sent, and drops their body before.
async fn charged(response: Response, share: BodyShare, timer: JoinSet<()>) -> Result<Response, ApiError> {
    let (parts, mut body) = response.into_parts();
    let mut pieces = Vec::new();
    // They are in memory already: one, as a rule.
    while let Some(piece) = body::next(&mut body).await? {
        pieces.push(piece);
    }
    let bytes = match &pieces[..] {
        [whole] => whole.clone(),
        several => several.concat().into(),
    };
    let charged = ChargedAnswer {
        bytes,
        _body: body,
        _share: share,
        _timer: timer,
    };
    Ok(Response::from_parts(
        parts,
        Body::from(Bytes::from_owner(charged)),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::budget::{BodyBudget, MAX_OF_CLIENT};
    use super::super::stream;
    use super::*;

    #[tokio::test]
    async fn an_answer_is_charged_until_its_bytes_are_gone() {
        let budget = Arc::new(BodyBudget::default());
        let account = Account::of_client("one");
        let share = budget.take_for(&account, MAX_OF_CLIENT).unwrap();
        let guard = Arc::new(());
        let answer = stream::holding(Response::new(Body::from("answer")), Arc::clone(&guard));
        let answer = charged(answer, share, JoinSet::new()).await.unwrap();
        assert_eq!(answer.body().size_hint().exact(), Some(6));
        let mut body = answer.into_body();
        let bytes = body::next(&mut body).await.unwrap().unwrap();
        drop(body);
        assert_eq!(bytes, "answer");
        assert_eq!(Arc::strong_count(&guard), 2);
        assert!(budget.take_for(&account, 1).is_err());
        drop(bytes);
        assert_eq!(Arc::strong_count(&guard), 1);
        assert!(budget.take_for(&account, 1).is_ok());
    }
}
