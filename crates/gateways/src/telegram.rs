//! Telegram gateway: approval requests as messages with buttons, limited to configured chats and users.
//!
//! Telegram is trusted to report which user pressed a button, and nothing more: not the text of a request,
//! not a button's data, and no update without a configured chat and user.

mod api;
mod contact;
mod methods;
mod page;
mod supervise;

pub(crate) use api::Timeouts;
pub(crate) use contact::tell_ids;

use std::collections::BTreeSet;

use ringfence_gateway_protocol::Secret;
use ringfence_network::address::Address;
use ringfence_network::fetch::Url;

use crate::proxy::BadProxy;

/// Validated settings: they name at least one user who may answer.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    base: Address,
    token: Secret,
    chats: BTreeSet<i64>,
    users: BTreeSet<i64>,
    patience: Timeouts,
}

/// The gateway cannot start, or has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no chat is configured for Telegram")]
    NoChats,
    #[error("no user is configured for Telegram")]
    NoUsers,
    /// The address is not a URL.
    #[error("`gateway.telegram.base_url` cannot be used: {0}")]
    BaseUrl(String),
    /// There are no certificate authorities, or no random bytes.
    #[error("cannot set up connections: {0}")]
    Setup(String),
    #[error(transparent)]
    Proxy(#[from] BadProxy),
    /// The bot token is invalid.
    #[error("telegram does not accept the bot's token")]
    Token,
    /// Another program receives this bot's updates.
    #[error("another program receives this bot's button presses: {0}")]
    Conflict(String),
    /// A task panicked.
    #[error("the task of a message panicked")]
    Broken,
}

impl Error {
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::NoChats => "set `gateway.telegram.chats` to the ids of the chats that may be asked",
            Self::NoUsers => {
                "set `gateway.telegram.users` to the ids of the people who may answer: in a group, anybody could"
            }
            Self::BaseUrl(_) => "correct it, or leave it out for Telegram's own",
            Self::Proxy(_) => "correct it, or unset it",
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
pub(crate) fn chat_name(id: i64) -> String {
    format!("telegram_{id}")
}

impl Settings {
    /// Validates the settings.
    ///
    /// # Errors
    /// If no chat or user is named.
    pub(crate) fn new(
        base: &Address,
        token: Secret,
        chats: impl IntoIterator<Item = i64>,
        users: impl IntoIterator<Item = i64>,
    ) -> Result<Self, Error> {
        let settings = Self {
            base: usable(base)?,
            token,
            chats: chats.into_iter().collect(),
            users: users.into_iter().collect(),
            patience: Timeouts::default(),
        };
        if settings.chats.is_empty() {
            return Err(Error::NoChats);
        }
        if settings.users.is_empty() {
            return Err(Error::NoUsers);
        }
        Ok(settings)
    }

    pub(crate) fn chat_names(&self) -> BTreeSet<String> {
        self.chats.iter().copied().map(chat_name).collect()
    }
}

/// Returns the address if requests can be sent to it.
fn usable(address: &Address) -> Result<Address, Error> {
    let parsed: Result<Url, _> = address.as_str().parse();
    parsed.map_err(|error| Error::BaseUrl(error.to_string()))?;
    Ok(address.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_somebody_who_may_answer_there_is_nothing() {
        let token = || Secret::new("1:x").unwrap();
        let base = Address::http("https://bots.example/api/").unwrap();
        assert!(matches!(
            Settings::new(&base, token(), [], [1]),
            Err(Error::NoChats)
        ));
        assert!(matches!(
            Settings::new(&base, token(), [1], []),
            Err(Error::NoUsers)
        ));
        let settings = Settings::new(&base, token(), [-100_123], [1]).unwrap();
        assert_eq!(settings.chat_names(), ["telegram_-100123".to_owned()].into());
    }
}
