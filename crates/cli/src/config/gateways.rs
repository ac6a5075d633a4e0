//! The keys of the section `gateway`.

use std::num::NonZeroU64;
use std::path::PathBuf;

use ringfence_server::gateway::{discord, telegram};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    /// The gateway of Discord.
    pub(crate) discord: Discord,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            chats: Vec::new(),
            mcp_elicitation: true,
            telegram: Telegram::default(),
            discord: Discord::default(),
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
            base_url: telegram::BASE_URL.to_owned(),
        }
    }
}

/// The gateway of Discord.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Discord {
    /// The environment variable that holds the bot's token, where `token_file` is not set.
    pub(crate) token_env: String,
    /// The file that holds the bot's token.
    pub(crate) token_file: Option<PathBuf>,
    /// The ids of the channels that it serves; the engine calls each `discord_ID`.
    pub(crate) channels: Vec<Snowflake>,
    /// The ids of the people whose answers count.
    pub(crate) users: Vec<Snowflake>,
    /// The address of the REST interface: https, or http to an address of this machine itself.
    pub(crate) base_url: String,
    /// The address of Discord's gateway: wss, or ws to an address of this machine itself.
    pub(crate) gateway_url: String,
}

impl Default for Discord {
    fn default() -> Self {
        Self {
            token_env: "DISCORD_BOT_TOKEN".to_owned(),
            token_file: None,
            channels: Vec::new(),
            users: Vec::new(),
            base_url: discord::REST.to_owned(),
            gateway_url: discord::GATEWAY.to_owned(),
        }
    }
}

/// An id of Discord's: a number, which may be written as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snowflake(pub(crate) NonZeroU64);

impl<'de> Deserialize<'de> for Snowflake {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        let number = match Form::deserialize(deserializer)? {
            Form::Number(number) => NonZeroU64::new(number),
            Form::Text(text) => text.parse().ok(),
        };
        number.map(Self).ok_or_else(|| {
            serde::de::Error::custom("an id of Discord's is a number, such as 81384788765712384")
        })
    }
}

impl Serialize for Snowflake {
    /// As a text: many programs read numbers as fractions, which are not exact.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl JsonSchema for Snowflake {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Snowflake".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "an id of Discord's", "type": ["integer", "string"]})
    }
}
