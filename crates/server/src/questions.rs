//! Questions to people, as the console and the API show and answer them.

mod answer;
pub(crate) mod hub;
mod message;
mod reach;

use std::time::UNIX_EPOCH;

use ringfence_records::approval::{Error, Id, Request, Service, State};

pub(crate) use answer::{Accepted, AnswerBody, answer};
pub(crate) use message::{Question, shown_state};
pub(crate) use reach::Reach;

/// Returns the server's clock, in milliseconds since 1970, by which questions expire.
pub(crate) fn now() -> u64 {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Maximum number of past questions shown.
pub(crate) const MAX_PAST: usize = 100;

/// Returns the pending questions within reach, oldest first.
pub(crate) async fn waiting(service: &Service, reach: &Reach) -> Result<Vec<Request>, Error> {
    let mut waiting = service.waiting().await?;
    waiting.retain(|request| reach.has(request));
    Ok(waiting)
}

/// Returns past questions within reach, newest first.
pub(crate) async fn past(service: &Service, reach: &Reach) -> Result<Vec<Request>, Error> {
    let mut newest = match reach {
        Reach::All => service.newest(MAX_PAST).await?,
        Reach::Of(scope) => service.newest_of(scope, MAX_PAST).await?,
    };
    newest.retain(|request| request.state != State::Pending);
    newest.reverse();
    Ok(newest)
}

/// Returns the question of this id; `None` if there is none within reach.
pub(crate) async fn find(service: &Service, reach: &Reach, id: &Id) -> Result<Option<Request>, Error> {
    let found = service.request(id).await?;
    Ok(found.filter(|request| reach.has(request)))
}
