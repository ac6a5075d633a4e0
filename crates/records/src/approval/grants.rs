//! Answers remembered for a session: without limit or for a number of uses.

use std::time::Duration;

use ringfence_exec::owner::owner_name;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::store::Store;
use super::{Error, Question, Remember, Request};

/// Maximum lifetime of a session's answer.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Maximum number of stored answers.
const MAX_GRANTS: i64 = 10_000;

/// Returns milliseconds since boot, suspended time included. Setting the clock back, by a person or a time
/// server, must not make an answer hold longer.
pub(super) fn uptime() -> u64 {
    let since = ringfence_exec::uptime().as_millis();
    // SQLite has no larger integer.
    u64::try_from(since)
        .unwrap_or(u64::MAX)
        .min(i64::MAX.cast_unsigned())
}

/// Stores an approval for the rest of a session.
pub(super) fn give(
    change: &Transaction<'_>,
    request: &Request,
    remember: Remember,
    uptime: u64,
) -> Result<(), Error> {
    let remaining = match remember {
        Remember::Uses(uses) => Some(uses),
        Remember::Session => None,
        Remember::Once | Remember::Always => return Ok(()),
    };
    keep(
        change,
        request,
        &request.kind.subject(remember, &request.text),
        remaining,
        uptime,
    )
}

/// Stores a denial for the rest of a session.
pub(super) fn deny(change: &Transaction<'_>, request: &Request, uptime: u64) -> Result<(), Error> {
    keep(
        change,
        request,
        &request.kind.refusal(&request.text),
        None,
        uptime,
    )
}

fn keep(
    change: &Transaction<'_>,
    request: &Request,
    subject: &str,
    remaining: Option<u32>,
    uptime: u64,
) -> Result<(), Error> {
    let latest = latest(uptime);
    change.execute(
        "DELETE FROM grants WHERE expires NOT BETWEEN ? + 1 AND ?",
        [uptime, latest],
    )?;
    change.execute(
        "DELETE FROM grants WHERE rowid NOT IN (SELECT rowid FROM grants ORDER BY rowid DESC LIMIT ?)",
        [MAX_GRANTS - 1],
    )?;
    change.execute(
        "INSERT INTO grants (scope, session, subject, remaining, expires) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET remaining = excluded.remaining, expires = excluded.expires",
        params![
            request.scope,
            conversation(request.session.as_deref(), &request.asker),
            subject,
            remaining,
            latest,
        ],
    )?;
    Ok(())
}

/// Returns the latest expiry that an answer given now can have. A stored expiry beyond it was written by an
/// older server that counted from 1970.
fn latest(uptime: u64) -> u64 {
    let lifetime = u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX);
    uptime.saturating_add(lifetime).min(i64::MAX.cast_unsigned())
}

/// Returns the key of a session's answers. Without a session, a process counts as one. The key contains the
/// boot id, so no answer survives a reboot: the last uses spent before it may not have reached the disk.
fn conversation(session: Option<&str>, process: &str) -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    match session {
        // The words `session` and `process` keep a session's name from colliding with a process's.
        Some(session) => format!("{boot} session {session}"),
        None => format!("{boot} process {process}"),
    }
}

/// The key of a session's answer.
struct Key<'a> {
    scope: &'a str,
    conversation: &'a str,
    subject: &'a str,
}

/// Returns the remaining uses of an unexpired answer (`Some(None)` if they are not counted), or `None`
/// without one.
fn left(connection: &Connection, key: &Key<'_>, uptime: u64) -> Result<Option<Option<u32>>, Error> {
    let sql = "SELECT remaining FROM grants WHERE scope = ? AND session = ? AND subject = ? AND expires > ? AND expires <= ?";
    let values = params![key.scope, key.conversation, key.subject, uptime, latest(uptime)];
    Ok(connection.query_row(sql, values, |row| row.get(0)).optional()?)
}

impl Store {
    /// Returns `true` if a person denied this for the session.
    pub(super) fn is_refused(&self, question: &Question, uptime: u64) -> Result<bool, Error> {
        let session = question.session.as_ref().map(|session| session.as_str());
        let conversation = conversation(session, &owner_name());
        let subject = question.kind.refusal(&question.text);
        let key = Key {
            scope: question.scope.as_str(),
            conversation: &conversation,
            subject: &subject,
        };
        Ok(left(&self.connection, &key, uptime)?.is_some())
    }

    /// Returns `true` if an unexpired approval for the session covers the question, and consumes one of its
    /// uses.
    pub(super) fn spend(&mut self, question: &Question, uptime: u64) -> Result<bool, Error> {
        let session = question.session.as_ref().map(|session| session.as_str());
        let conversation = conversation(session, &owner_name());
        for subject in question.kind.subjects(&question.text) {
            let key = Key {
                scope: question.scope.as_str(),
                conversation: &conversation,
                subject: &subject,
            };
            if self.spend_on(&key, uptime)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn spend_on(&mut self, key: &Key<'_>, uptime: u64) -> Result<bool, Error> {
        // Usually there is none; this read takes no write lock.
        if left(&self.connection, key, uptime)?.is_none() {
            return Ok(false);
        }
        let change = self.change()?;
        let found = left(&change, key, uptime)?;
        let sql = match found {
            None => return Ok(false),
            Some(None) => return Ok(true),
            Some(Some(0 | 1)) => "DELETE FROM grants WHERE scope = ? AND session = ? AND subject = ?",
            Some(Some(_)) => {
                "UPDATE grants SET remaining = remaining - 1 WHERE scope = ? AND session = ? AND subject = ?"
            }
        };
        change.execute(sql, params![key.scope, key.conversation, key.subject])?;
        change.commit()?;
        Ok(found.flatten() != Some(0))
    }
}
