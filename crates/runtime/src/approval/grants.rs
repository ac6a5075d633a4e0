//! Answers that hold for a session: for all that is the same, or for so many of it.

use std::time::Duration;

use rusqlite::{OptionalExtension, Transaction, params};

use super::store::{Store, now};
use super::{Error, Question, Remember, Request};
use crate::owner::owner_name;

/// How long a session's answer holds at most.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Answers that are kept at once.
const MAX_GRANTS: i64 = 10_000;

/// Keeps what a person allowed for the rest of a session.
pub(super) fn give(change: &Transaction<'_>, request: &Request, remember: Remember) -> Result<(), Error> {
    let remaining = match remember {
        Remember::Uses(uses) => Some(uses),
        Remember::Session => None,
        Remember::Once | Remember::Always => return Ok(()),
    };
    change.execute("DELETE FROM grants WHERE expires <= ?", [now()])?;
    change.execute(
        "DELETE FROM grants WHERE rowid NOT IN (SELECT rowid FROM grants ORDER BY rowid DESC LIMIT ?)",
        [MAX_GRANTS - 1],
    )?;
    change.execute(
        "INSERT INTO grants (scope, session, subject, remaining, expires) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET remaining = excluded.remaining, expires = excluded.expires",
        params![
            request.scope,
            request.session.as_deref().unwrap_or(&request.asker),
            request.kind.subject(&request.text),
            remaining,
            now().saturating_add(u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX)),
        ],
    )?;
    Ok(())
}

impl Store {
    /// Whether a person has allowed this before, for the session; one use of it is then spent.
    pub(super) fn spend(&mut self, question: &Question) -> Result<bool, Error> {
        // Without a conversation, a process is one: nothing else tells where it ends.
        let process = owner_name();
        let session = question
            .session
            .as_ref()
            .map_or(process.as_str(), |session| session.as_str());
        let key = (
            question.scope.as_str(),
            session,
            question.kind.subject(&question.text),
        );
        let change = self.change()?;
        let found: Option<Option<u32>> = change
            .query_row(
                "SELECT remaining FROM grants WHERE scope = ? AND session = ? AND subject = ? AND expires > ?",
                params![key.0, key.1, key.2, now()],
                |row| row.get(0),
            )
            .optional()?;
        let sql = match found {
            None => return Ok(false),
            Some(None) => return Ok(true),
            Some(Some(0 | 1)) => "DELETE FROM grants WHERE scope = ? AND session = ? AND subject = ?",
            Some(Some(_)) => {
                "UPDATE grants SET remaining = remaining - 1 WHERE scope = ? AND session = ? AND subject = ?"
            }
        };
        change.execute(sql, params![key.0, key.1, key.2])?;
        change.commit()?;
        Ok(found.flatten() != Some(0))
    }
}
