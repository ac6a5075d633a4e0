//! The keys of the section `gateway`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where people are asked for approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Gateway {
    /// The only chats that may be asked, such as `telegram_123456`; the first one is. Without any, the person at this
    /// machine is asked, in the chat `local`.
    pub(crate) chats: Vec<String>,
    /// Whether `ringfence mcp` asks the client for approval, too, if that can show its user a form. Such a client answers
    /// for its user.
    pub(crate) mcp_elicitation: bool,
    /// The gateway of Telegram.
    pub(crate) telegram: Telegram,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            chats: Vec::new(),
            mcp_elicitation: true,
            telegram: Telegram::default(),
        }
    }
}

/// The gateway of Telegram.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Telegram {
    /// The environment variable that holds the bot's token, where `token_file` is not set.
    pub(crate) token_env: String,
    /// The file that holds the bot's token.
    pub(crate) token_file: Option<PathBuf>,
    /// The ids of the chats that it serves; the engine calls each `telegram_ID`.
    pub(crate) chats: Vec<i64>,
    /// The ids of the people whose answers count.
    pub(crate) users: Vec<i64>,
    /// The Bot API's address: https, or http to an address of this machine itself.
    pub(crate) base_url: String,
}

impl Default for Telegram {
    fn default() -> Self {
        Self {
            token_env: "TELEGRAM_BOT_TOKEN".to_owned(),
            token_file: None,
            chats: Vec::new(),
            users: Vec::new(),
            base_url: ringfence_server::gateway::telegram::BASE_URL.to_owned(),
        }
    }
}
