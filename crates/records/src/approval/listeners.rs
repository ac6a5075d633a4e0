//! Connected gateways, and notices for people that need no answer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_exec::owner::owner_name;
use ringfence_policy::Scope;
use rusqlite::params;

use super::store::{Store, foreign, is_dead, now, parsed};
use super::{Chat, Error};

/// Maximum number of undelivered notices per chat. The first ones are kept, so that a program cannot evict
/// the record of its first calls by further ones.
const MAX_WAITING: i64 = 100;
/// Number of delivered notices kept per chat.
const MAX_DELIVERED: i64 = 100;
/// Text of the last notice of a chat that reached [`MAX_WAITING`].
const OVERFLOW: &str = "more calls followed than notices can wait; `ringfence audit tail` shows them";
/// Maximum length of a notice, in bytes; the rest is truncated.
const MAX_NOTICE: usize = 4 * 1024;
/// Lifetime of a notice, in milliseconds.
const NOTICE_LIFETIME: u64 = 24 * 60 * 60 * 1000;

/// The registration of a connected gateway in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener(pub(super) String);

/// The questions that a connected gateway, or another listener, brings to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    All,
    /// Those that are asked in these chats.
    Chats(BTreeSet<Chat>),
    /// Those of one scope, in every chat.
    Of(Scope),
}

impl Audience {
    /// Returns the names in the store; `None` for all questions. That of a scope begins with a space, as no chat's does: a
    /// server of an earlier version finds no question heard by it.
    fn names(&self) -> Option<Vec<String>> {
        match self {
            Self::All => None,
            Self::Chats(chats) => Some(chats.iter().map(|chat| chat.as_str().to_owned()).collect()),
            Self::Of(scope) => Some(vec![name_of_scope(scope.as_str())]),
        }
    }
}

fn name_of_scope(scope: &str) -> String {
    format!(" {scope}")
}

/// A message to a person that needs no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Sequence number, ascending.
    pub number: u64,
    pub chat: Chat,
    pub text: String,
    /// Time of the event, in milliseconds since 1970.
    pub created: u64,
}

impl Listener {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}-{number}", owner_name()))
    }
}

impl Store {
    /// Registers a listener.
    pub(super) fn listen(&mut self, listener: &Listener, audience: &Audience) -> Result<(), Error> {
        let names = audience.names();
        let names = names.map(|names| serde_json::to_string(&names)).transpose();
        self.connection.execute(
            "INSERT OR REPLACE INTO listeners (name, owner, chats) VALUES (?, ?, ?)",
            params![listener.0, owner_name(), names.map_err(foreign)?],
        )?;
        Ok(())
    }

    /// Deregisters a gateway.
    pub(super) fn leave(&mut self, listener: &Listener) -> Result<(), Error> {
        self.connection
            .execute("DELETE FROM listeners WHERE name = ?", [&listener.0])?;
        Ok(())
    }

    /// Returns `true` if a listener brings questions of this chat and scope to people. Removes the registrations of dead processes.
    pub(super) fn is_heard(&mut self, chat: &Chat, scope: &str) -> Result<bool, Error> {
        let scope = name_of_scope(scope);
        let mut statement = self.connection.prepare("SELECT owner, chats FROM listeners")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows: Vec<(String, Option<String>)> = rows.collect::<Result<_, _>>()?;
        drop(statement);
        let mut heard = false;
        for (owner, names) in rows {
            if is_dead(&owner) {
                self.connection
                    .execute("DELETE FROM listeners WHERE owner = ?", [&owner])?;
                continue;
            }
            let names: Option<Vec<String>> = names
                .map(|names| serde_json::from_str(&names))
                .transpose()
                .map_err(foreign)?;
            let is_named = |name: &String| name == chat.as_str() || *name == scope;
            heard |= names.is_none_or(|names| names.iter().any(is_named));
        }
        Ok(heard)
    }

    /// Stores a notice.
    pub(super) fn notify(&mut self, chat: &Chat, text: &str) -> Result<(), Error> {
        let change = self.change()?;
        change.execute(
            "DELETE FROM notices WHERE created < ?1 OR (chat = ?2 AND delivered = 1 AND number NOT IN
             (SELECT number FROM notices WHERE chat = ?2 ORDER BY number DESC LIMIT ?3))",
            params![
                now().saturating_sub(NOTICE_LIFETIME),
                chat.as_str(),
                MAX_DELIVERED
            ],
        )?;
        let sql = "SELECT count(*) FROM notices WHERE chat = ? AND delivered = 0";
        let waiting: i64 = change.query_row(sql, [chat.as_str()], |row| row.get(0))?;
        let text = match MAX_WAITING - waiting {
            ..=0 => None,
            1 => Some(OVERFLOW),
            _ => Some(&text[..text.floor_char_boundary(MAX_NOTICE)]),
        };
        if let Some(text) = text {
            change.execute(
                "INSERT INTO notices (chat, text, created) VALUES (?, ?, ?)",
                params![chat.as_str(), text, now()],
            )?;
        }
        change.commit()?;
        Ok(())
    }

    /// Returns the notices after `after`; without it, the undelivered ones.
    pub(super) fn notices(&self, after: Option<u64>) -> Result<Vec<Notice>, Error> {
        let sql = match after {
            Some(_) => "SELECT number, chat, text, created FROM notices WHERE number > ? ORDER BY number",
            None => "SELECT number, chat, text, created FROM notices WHERE delivered = ? ORDER BY number",
        };
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map([after.unwrap_or(0)], |row| {
            Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?))
        })?;
        rows.map(|row| {
            let (number, chat, text, created) = row?;
            let chat = parsed(&chat)?;
            Ok(Notice {
                number,
                chat,
                text,
                created,
            })
        })
        .collect()
    }

    /// Marks notices as delivered.
    pub(super) fn delivered(&mut self, up_to: u64) -> Result<(), Error> {
        self.connection.execute(
            "UPDATE notices SET delivered = 1 WHERE number <= ? AND delivered = 0",
            [up_to],
        )?;
        Ok(())
    }
}
