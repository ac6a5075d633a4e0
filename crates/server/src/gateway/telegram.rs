//! Telegram gateway: approval requests as messages with buttons, limited to configured chats and users.
//!
//! Telegram is trusted to report which user pressed a button, and nothing more: not the text of a request,
//! not a button's data, and no update without a configured chat and user.

mod api;
mod attend;
mod contact;
mod page;

pub use api::Patience;
pub use contact::tell_ids;

use std::collections::BTreeSet;
use std::net::IpAddr;

use reqwest::Url;

use super::Secret;

/// Default URL of the Bot API.
pub const BASE_URL: &str = "https://api.telegram.org";

/// Validated settings: they name at least one user who may answer.
#[derive(Debug, Clone)]
pub struct Settings {
    base: Url,
    token: Secret,
    chats: BTreeSet<i64>,
    users: BTreeSet<i64>,
    patience: Patience,
}

/// The gateway cannot start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no chat is configured for telegram")]
    NoChats,
    #[error("no user is configured for telegram")]
    NoUsers,
    /// A token must not be sent to this URL.
    #[error("`gateway.telegram.base_url` is not an https address")]
    BaseUrl,
    /// The HTTP client cannot be created.
    #[error("cannot set up connections: {0}")]
    Setup(String),
    /// The bot token is invalid.
    #[error("telegram does not accept the bot's token")]
    Token,
    /// Another program receives this bot's updates.
    #[error("telegram sends this bot's presses to somebody else: {0}")]
    Conflict(String),
    /// A task panicked.
    #[error("the work on a message broke off")]
    Broken,
}

impl Error {
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoChats => "set `gateway.telegram.chats` to the ids of the chats that may be asked",
            Self::NoUsers => {
                "set `gateway.telegram.users` to the ids of the people who may answer: in a group, anybody could"
            }
            Self::BaseUrl => {
                "write `https://` and a host, without user, query or fragment; `http://` is for this machine alone"
            }
            Self::Setup(_) => "check that this machine has certificates of authorities to believe",
            Self::Token => {
                "check the token that @BotFather gave you, and `gateway.telegram.base_url` if it is set"
            }
            Self::Conflict(_) => {
                "stop the other program that uses this bot, remove its webhook, or give each a bot of its own"
            }
            Self::Broken => "report this as a defect",
        }
    }
}

/// Returns the chat name of a Telegram chat.
pub fn chat_name(id: i64) -> String {
    format!("telegram_{id}")
}

impl Settings {
    /// Validates the settings.
    ///
    /// # Errors
    /// If no chat or user is named, or the token must not be sent to the URL.
    pub fn new(
        base: &str,
        token: Secret,
        chats: impl IntoIterator<Item = i64>,
        users: impl IntoIterator<Item = i64>,
    ) -> Result<Self, Error> {
        let settings = Self {
            base: base_url(base).ok_or(Error::BaseUrl)?,
            token,
            chats: chats.into_iter().collect(),
            users: users.into_iter().collect(),
            patience: Patience::default(),
        };
        if settings.chats.is_empty() {
            return Err(Error::NoChats);
        }
        if settings.users.is_empty() {
            return Err(Error::NoUsers);
        }
        Ok(settings)
    }

    pub fn chat_names(&self) -> BTreeSet<String> {
        self.chats.iter().copied().map(chat_name).collect()
    }
}

/// Validates a base URL without a token.
///
/// # Errors
/// If a token must not be sent to it.
pub fn check_base_url(text: &str) -> Result<(), Error> {
    base_url(text).map(drop).ok_or(Error::BaseUrl)
}

/// Parses a URL that a token may be sent to: encrypted, or on loopback.
fn base_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.has_host();
    let fits = match url.scheme() {
        "https" => true,
        "http" => is_loopback(url.host_str()?),
        _ => false,
    };
    (plain && fits).then_some(url)
}

/// Returns `true` for a loopback address. A name could resolve to anything.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_over_a_secure_connection_or_stays_on_this_machine() {
        let check = |text: &str, allowed: bool| assert_eq!(base_url(text).is_some(), allowed, "{text}");
        for text in [
            BASE_URL,
            "https://bots.example/api/",
            "http://127.0.0.1:80",
            "http://[::1]:1",
        ] {
            check(text, true);
        }
        for text in [
            "",
            "api.telegram.org",
            "http://api.telegram.org",
            "http://localhost:1",
            "http://127.0.0.1.example",
            "https://user@bots.example",
            "https://bots.example/?x",
            "https://bots.example/#x",
            "file:///etc/passwd",
            "unix:/run/x",
        ] {
            check(text, false);
        }
    }

    #[test]
    fn without_somebody_who_may_answer_there_is_nothing() {
        let token = || Secret::new("1:x").unwrap();
        assert!(matches!(
            Settings::new(BASE_URL, token(), [], [1]),
            Err(Error::NoChats)
        ));
        assert!(matches!(
            Settings::new(BASE_URL, token(), [1], []),
            Err(Error::NoUsers)
        ));
        let settings = Settings::new(BASE_URL, token(), [-100_123], [1]).unwrap();
        assert_eq!(settings.chat_names(), ["telegram_-100123".to_owned()].into());
    }
}
