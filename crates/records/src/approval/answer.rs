//! The acceptance of a person's answer: the first one in time, which may hold for the session.

use rusqlite::Connection;

use super::store::{Store, advance, find, now};
use super::{Answer, Error, Event, Remember, Request, State, Unanswerable, Verdict, grants};

impl Store {
    /// Accepts a person's answer, if it is the first and in time, and if `record` succeeds.
    pub(super) fn answer(
        &mut self,
        answer: &Answer,
        record: impl FnOnce(&Request) -> Result<(), Error>,
    ) -> Result<Request, Error> {
        // An approval of a dead asker's request must be reported as late.
        self.sweep()?;
        // A late answer takes no write lock.
        answerable(&self.connection, answer)?;
        let change = self.change()?;
        let found = answerable(&change, answer)?;
        let event = match answer.verdict {
            Verdict::Approve => Event::Approve,
            Verdict::Reject => Event::Reject,
        };
        if !advance(&change, &found.id, event, Some(&answer.by))? {
            return Err(Unanswerable::Late(found.state).into());
        }
        match (answer.verdict, answer.remember) {
            (Verdict::Approve, Remember::Session | Remember::Uses(_)) => {
                grants::give(&change, &found, answer.remember, grants::uptime())?;
            }
            (Verdict::Reject, Remember::Session) => grants::deny(&change, &found, grants::uptime())?,
            (Verdict::Approve, Remember::Once | Remember::Always)
            | (Verdict::Reject, Remember::Once | Remember::Uses(_) | Remember::Always) => {}
        }
        record(&found)?;
        change.commit()?;
        Ok(found)
    }
}

/// Returns the request that an answer refers to, if the answer is acceptable.
fn answerable(connection: &Connection, answer: &Answer) -> Result<Request, Error> {
    let found = find(connection, &answer.id)?.ok_or(Unanswerable::Unknown)?;
    // A chat that was not asked does not learn that the request exists.
    if found.chat != answer.chat {
        return Err(Unanswerable::Unknown.into());
    }
    let late = |state| Err(Unanswerable::Late(state).into());
    if found.state != State::Pending {
        return late(found.state);
    }
    if found.expires <= now() {
        return late(State::Expired);
    }
    if answer.digest != found.digest() {
        return Err(Unanswerable::OtherText.into());
    }
    if answer.verdict == Verdict::Approve && !found.kind.allows(answer.remember) {
        return Err(Unanswerable::NotRemembered.into());
    }
    Ok(found)
}
