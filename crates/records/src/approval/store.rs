//! The SQLite database of requests, shared by every process that asks or answers.

use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringfence_exec::owner::{owner_is_dead, owner_name};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::{
    Error, Event, Id, Kind, MAX_HISTORY, MAX_PENDING, MAX_PENDING_PER_SCOPE, MAX_PENDING_PER_SESSION,
    MAX_TEXT, Question, Request, State,
};
use crate::audit::Digest;

/// Serializes creating and opening databases in this process.
static OPENING: Mutex<()> = Mutex::new(());

/// Time limit for waiting on another connection's lock.
const BUSY: Duration = Duration::from_secs(5);

/// Polling interval while the database is locked. SQLite's own handler backs off, so that among many writers
/// the one that has waited longest has the least chance.
const PAUSE: Duration = Duration::from_millis(2);

/// Schema version that this version reads and writes.
const VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, text TEXT NOT NULL,
    scope TEXT NOT NULL, session TEXT, chat TEXT NOT NULL, asker TEXT NOT NULL, created INTEGER NOT NULL,
    expires INTEGER NOT NULL, state TEXT NOT NULL, by TEXT, ended INTEGER
) STRICT;
CREATE INDEX waiting ON requests (state);
CREATE TABLE grants (
    scope TEXT NOT NULL, session TEXT NOT NULL, subject TEXT NOT NULL, remaining INTEGER, expires INTEGER NOT NULL,
    PRIMARY KEY (scope, session, subject)
) STRICT;
CREATE TABLE listeners (name TEXT PRIMARY KEY, owner TEXT NOT NULL, chats TEXT) STRICT;
CREATE TABLE notices (
    number INTEGER PRIMARY KEY AUTOINCREMENT, chat TEXT NOT NULL, text TEXT NOT NULL, created INTEGER NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0
) STRICT;
";

/// Conditions for approved, rejected and undecided requests. Each outcome is pruned separately, so that none
/// can push out another: only undecided ones can be produced without a person.
const OUTCOMES: [&str; 3] = [
    "(state IN ('approved', 'consumed') OR (state = 'abandoned' AND by IS NOT NULL))",
    "state = 'rejected'",
    "(state = 'expired' OR (state = 'abandoned' AND by IS NULL))",
];

const COLUMNS: &str = "id, kind, text, scope, session, chat, asker, created, expires, state, by, ended";

/// A connection to the store.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) connection: Connection,
}

/// Returns milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Store {
    /// Opens the store, creating it if necessary. `path` must lie in a private directory.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let deadline = Instant::now() + BUSY;
        loop {
            match Self::try_open(path) {
                // While another process creates the database, SQLite returns `BUSY` at once, without calling
                // the busy handler.
                Err(error) if error.is_busy() && Instant::now() < deadline => std::thread::sleep(PAUSE),
                result => return result,
            }
        }
    }

    fn try_open(path: &Path) -> Result<Self, Error> {
        // No connection of this process may hold a lock on a file that is being created (see
        // [`make_private`]).
        let opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        make_private(path)?;
        let mut connection = Connection::open(path)?;
        drop(opening);
        connection.busy_handler(Some(wait))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // Writes survive the death of every process, not a power failure: no asker survives that either.
        // Syncing would block all others, for seconds on a busy disk.
        connection.pragma_update(None, "synchronous", "normal")?;
        // Usually the schema exists: this read takes no write lock.
        if version(&connection)? == 0 {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if version(&change)? == 0 {
                change.execute_batch(SCHEMA)?;
                change.pragma_update(None, "user_version", VERSION)?;
            }
            change.commit()?;
        }
        match version(&connection)? {
            VERSION => Ok(Self { connection }),
            other => Err(Error::Foreign(format!("version {other}"))),
        }
    }

    pub(super) fn change(&mut self) -> Result<Transaction<'_>, Error> {
        // Immediate: values read in the transaction cannot change before it writes.
        Ok(self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?)
    }

    /// Returns a number that changes when another connection has written.
    pub(super) fn data_version(&self) -> Result<i64, Error> {
        Ok(self
            .connection
            .query_row("PRAGMA data_version", [], |row| row.get(0))?)
    }

    /// Inserts a question, within the quotas.
    pub(super) fn insert(&mut self, id: &Id, question: &Question) -> Result<(), Error> {
        let reasons: &[String] = match &question.kind {
            Kind::Command { reasons, .. } => reasons,
            Kind::SoftTimeout { .. } | Kind::Skill { .. } => &[],
        };
        let reasons: usize = reasons.iter().map(|reason| reason.chars().count()).sum();
        let length = question.text.chars().count();
        if length == 0 || length.max(reasons) > MAX_TEXT {
            return Err(Error::Text(length));
        }
        self.sweep()?;
        let change = self.change()?;
        let count = |sql: &str, values: &[&dyn rusqlite::ToSql]| -> Result<usize, Error> {
            Ok(change
                .query_row(sql, values, |row| row.get::<_, i64>(0))?
                .unsigned_abs() as usize)
        };
        let all = count("SELECT count(*) FROM requests WHERE state = 'pending'", &[])?;
        let own = count(
            "SELECT count(*) FROM requests WHERE state = 'pending' AND scope = ?",
            &[&question.scope.as_str()],
        )?;
        // Without a session, a process counts as one.
        let session = question.session.as_ref().map(|session| session.as_str());
        let same = count(
            "SELECT count(*) FROM requests WHERE state = 'pending' AND scope = ?1
             AND (session = ?2 OR ?2 IS NULL AND session IS NULL AND asker = ?3)",
            &[&question.scope.as_str(), &session, &owner_name()],
        )?;
        let full = [
            (all, MAX_PENDING),
            (own, MAX_PENDING_PER_SCOPE),
            (same, MAX_PENDING_PER_SESSION),
        ];
        if let Some((waiting, _)) = full.into_iter().find(|(waiting, most)| waiting >= most) {
            return Err(Error::TooMany(waiting));
        }
        let mut kind = question.kind.clone();
        if let Kind::Skill {
            path,
            definition,
            changed,
        } = &mut kind
        {
            *changed = is_redefined(&change, question.scope.as_str(), path, *definition)?;
        }
        write(&change, id, question, &kind)?;
        prune(&change)?;
        change.commit()?;
        Ok(())
    }

    pub(super) fn get(&self, id: &Id) -> Result<Option<Request>, Error> {
        find(&self.connection, id)
    }

    /// Returns the pending requests, oldest first.
    pub(super) fn waiting(&mut self) -> Result<Vec<Request>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM requests WHERE state = 'pending' ORDER BY number LIMIT ?");
        self.list(&sql, params![MAX_PENDING as i64])
    }

    /// Returns the newest requests, of one scope if it is named, and of each outcome a quarter as many even if they are older;
    /// oldest first.
    pub(super) fn newest(&mut self, count: usize, scope: Option<&str>) -> Result<Vec<Request>, Error> {
        let newest = |of: &str, share: &str| {
            format!(
                "number IN (SELECT number FROM requests WHERE {of} AND (?2 IS NULL OR scope = ?2)
                 ORDER BY number DESC LIMIT {share})"
            )
        };
        let outcomes = OUTCOMES.map(|outcome| newest(outcome, "?1 / 4")).join(" OR ");
        let all = newest("TRUE", "?1");
        let sql = format!("SELECT {COLUMNS} FROM requests WHERE {all} OR {outcomes} ORDER BY number");
        self.list(&sql, params![count as i64, scope])
    }

    /// Returns all stored requests, oldest first.
    pub(super) fn history(&mut self) -> Result<Vec<Request>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM requests ORDER BY number LIMIT ?");
        self.list(&sql, params![(MAX_PENDING + OUTCOMES.len() * MAX_HISTORY) as i64])
    }

    fn list(&mut self, sql: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<Request>, Error> {
        self.sweep()?;
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map(values, columns)?;
        rows.map(|row| request(row?)).collect()
    }

    /// Applies an event to a request; returns `true` if it changed the state.
    pub(super) fn happen(&mut self, id: &Id, event: Event) -> Result<bool, Error> {
        let change = self.change()?;
        let changed = advance(&change, id, event, None)?;
        change.commit()?;
        Ok(changed)
    }

    /// Expires a request that is still pending, on behalf of a person who declined to answer.
    pub(super) fn dismiss(&mut self, id: &Id, by: &str) -> Result<(), Error> {
        let change = self.change()?;
        advance(&change, id, Event::Expire, Some(by))?;
        change.commit()?;
        Ok(())
    }

    /// Removes the ended requests of a scope, and the answers that are remembered for it.
    pub(super) fn forget(&mut self, scope: &str) -> Result<(), Error> {
        self.sweep()?;
        let change = self.change()?;
        change.execute(
            "DELETE FROM requests WHERE scope = ? AND state NOT IN ('pending', 'approved')",
            [scope],
        )?;
        change.execute("DELETE FROM grants WHERE scope = ?", [scope])?;
        change.commit()?;
        Ok(())
    }

    /// Ends requests whose deadline has passed or whose asker has died.
    pub(super) fn sweep(&mut self) -> Result<(), Error> {
        let mut statement = self.connection.prepare(
            "SELECT id, asker, expires, state FROM requests WHERE state IN ('pending', 'approved')",
        )?;
        let rows = statement.query_map([], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, u64>(2)?,
                row.get::<_, String>(3)?,
            ))
        })?;
        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
        drop(statement);
        for (id, asker, expires, state) in rows {
            let event = if is_dead(&asker) {
                Event::Abandon
            } else if state == State::Pending.as_str() && expires <= now() {
                Event::Expire
            } else {
                continue;
            };
            self.happen(&parsed(&id)?, event)?;
        }
        Ok(())
    }
}

fn version(connection: &Connection) -> Result<i64, Error> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Returns `true` to retry a statement that found the database locked (SQLite's busy handler).
fn wait(tries: i32) -> bool {
    std::thread::sleep(PAUSE);
    PAUSE * u32::try_from(tries).unwrap_or(u32::MAX) < BUSY
}

/// Creates the file with mode 0600, before it has content. An existing file is not opened: closing a
/// descriptor of it would drop the POSIX locks (fcntl(2)) that other connections of this process hold.
fn make_private(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(Error::File {
            path: path.to_path_buf(),
            source: error,
        }),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns `true` if the process of this name has died.
pub(super) fn is_dead(owner: &str) -> bool {
    owner.strip_prefix("ringfence-").is_some_and(owner_is_dead)
}

/// Returns `true` if this scope's last approval of the function was for another definition.
fn is_redefined(
    change: &Transaction<'_>,
    scope: &str,
    path: &str,
    definition: Option<Digest>,
) -> Result<bool, Error> {
    let sql = format!(
        "SELECT kind FROM requests WHERE {} AND scope = ? AND json_extract(kind, '$.path') = ? ORDER BY number DESC LIMIT 1",
        OUTCOMES[0]
    );
    let last: Option<String> = change
        .query_row(&sql, [scope, path], |row| row.get(0))
        .optional()?;
    let last = last
        .map(|kind| serde_json::from_str(&kind).map_err(foreign))
        .transpose()?;
    Ok(matches!(last, Some(Kind::Skill { definition: last, .. }) if last != definition))
}

fn write(change: &Transaction<'_>, id: &Id, question: &Question, kind: &Kind) -> Result<(), Error> {
    let kind = serde_json::to_string(kind).map_err(foreign)?;
    let created = now();
    let patience = u64::try_from(question.patience.as_duration().as_millis()).unwrap_or(u64::MAX);
    change.execute(
        "INSERT INTO requests (id, kind, text, scope, session, chat, asker, created, expires, state)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending')",
        params![
            id.as_str(),
            kind,
            question.text,
            question.scope.as_str(),
            question.session.as_ref().map(|session| session.as_str()),
            question.chat.as_str(),
            owner_name(),
            created,
            created.saturating_add(patience),
        ],
    )?;
    Ok(())
}

/// Deletes the oldest requests of each outcome beyond [`MAX_HISTORY`], except unconsumed approvals.
fn prune(change: &Transaction<'_>) -> Result<(), Error> {
    for outcome in OUTCOMES {
        let oldest = format!(
            "SELECT number FROM requests WHERE {outcome} ORDER BY number DESC LIMIT 1 OFFSET {MAX_HISTORY}"
        );
        let sql =
            format!("DELETE FROM requests WHERE {outcome} AND state != 'approved' AND number <= ({oldest})");
        change.execute(&sql, [])?;
    }
    Ok(())
}

/// Changes a request's state along `State::next`, and only if the state is still the one read. No other code
/// changes states.
pub(super) fn advance(
    change: &Transaction<'_>,
    id: &Id,
    event: Event,
    by: Option<&str>,
) -> Result<bool, Error> {
    let Some(found) = find(change, id)? else {
        return Ok(false);
    };
    let Some(next) = found.state.next(event) else {
        return Ok(false);
    };
    let ended = found.ended.unwrap_or_else(now);
    let changed = change.execute(
        "UPDATE requests SET state = ?, by = coalesce(?, by), ended = ? WHERE id = ? AND state = ?",
        params![next.as_str(), by, ended, id.as_str(), found.state.as_str()],
    )?;
    Ok(changed == 1)
}

pub(super) fn find(connection: &Connection, id: &Id) -> Result<Option<Request>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM requests WHERE id = ?");
    let row = connection.query_row(&sql, [id.as_str()], columns).optional()?;
    row.map(request).transpose()
}

/// Reads a row, with id, kind, chat and state still as text.
fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        id: row.get(0)?,
        kind: row.get(1)?,
        text: row.get(2)?,
        scope: row.get(3)?,
        session: row.get(4)?,
        chat: row.get(5)?,
        asker: row.get(6)?,
        created: row.get(7)?,
        expires: row.get(8)?,
        state: row.get(9)?,
        by: row.get(10)?,
        ended: row.get(11)?,
    })
}

struct Columns {
    id: String,
    kind: String,
    text: String,
    scope: String,
    session: Option<String>,
    chat: String,
    asker: String,
    created: u64,
    expires: u64,
    state: String,
    by: Option<String>,
    ended: Option<u64>,
}

fn request(columns: Columns) -> Result<Request, Error> {
    Ok(Request {
        id: parsed(&columns.id)?,
        kind: serde_json::from_str(&columns.kind).map_err(foreign)?,
        text: columns.text,
        scope: columns.scope,
        session: columns.session,
        chat: parsed(&columns.chat)?,
        asker: columns.asker,
        created: columns.created,
        expires: columns.expires,
        state: State::named(&columns.state).ok_or_else(|| Error::Foreign(columns.state.clone()))?,
        by: columns.by,
        ended: columns.ended,
    })
}

pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Error> {
    text.parse().map_err(foreign)
}

pub(super) fn foreign(error: impl std::fmt::Display) -> Error {
    Error::Foreign(error.to_string())
}
