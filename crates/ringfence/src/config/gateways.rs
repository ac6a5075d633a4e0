//! The keys of the section `gateway`.

use std::num::NonZeroU64;
use std::path::PathBuf;

use ringfence_network::address::{DISCORD_EVENTS, DISCORD_REST, TELEGRAM};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Gateways that ask people for approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Gateway {
    /// Chats that may be asked, such as `telegram_123456`; requests go to the first one. Empty: the person at
    /// this machine is asked, in the chat `local`.
    pub chats: Vec<String>,
    /// Let `ringfence mcp` also ask its client for approval, if the client can show a form to its user. Such
    /// a client answers on behalf of its user.
    pub mcp_elicitation: bool,
    /// The Telegram gateway.
    pub telegram: Telegram,
    /// The Discord gateway.
    pub discord: Discord,
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

/// The Telegram gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telegram {
    /// Environment variable that holds the bot's token, unless `token_file` is set.
    pub token_env: String,
    /// File that holds the bot's token.
    pub token_file: Option<PathBuf>,
    /// Ids of the chats to ask in; each is named `telegram_ID` elsewhere.
    pub chats: Vec<i64>,
    /// Ids of the people whose answers are accepted.
    pub users: Vec<i64>,
    /// Address of the Bot API: https, or http to a loopback address.
    pub base_url: String,
}

impl Default for Telegram {
    fn default() -> Self {
        Self {
            token_env: "TELEGRAM_BOT_TOKEN".to_owned(),
            token_file: None,
            chats: Vec::new(),
            users: Vec::new(),
            base_url: TELEGRAM.to_owned(),
        }
    }
}

/// The Discord gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Discord {
    /// Environment variable that holds the bot's token, unless `token_file` is set.
    pub token_env: String,
    /// File that holds the bot's token.
    pub token_file: Option<PathBuf>,
    /// Ids of the channels to ask in; each is named `discord_ID` elsewhere.
    pub channels: Vec<Snowflake>,
    /// Ids of the people whose answers are accepted.
    pub users: Vec<Snowflake>,
    /// Address of the REST API: https, or http to a loopback address.
    pub base_url: String,
    /// Address of Discord's gateway: wss, or ws to a loopback address.
    pub gateway_url: String,
}

impl Default for Discord {
    fn default() -> Self {
        Self {
            token_env: "DISCORD_BOT_TOKEN".to_owned(),
            token_file: None,
            channels: Vec::new(),
            users: Vec::new(),
            base_url: DISCORD_REST.to_owned(),
            gateway_url: DISCORD_EVENTS.to_owned(),
        }
    }
}

/// A Discord id: a number, which may be written as a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snowflake(pub NonZeroU64);

impl<'de> Deserialize<'de> for Snowflake {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a Discord id, as a number or a text")]
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
    /// Serialises as a string: many programs read numbers as floats, which are not exact.
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
