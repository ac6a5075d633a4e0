//! Settings that `ringfence gateway` passes to `ringfence-gateway`.

use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Name of the program, which lies beside `ringfence`.
pub const PROGRAM: &str = "ringfence-gateway";

/// Settings of a gateway of a chat service: one JSON object on standard input.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Version of the `ringfence` that wrote it. Both programs are of one version.
    pub version: String,
    /// Bot token.
    pub token: String,
    /// Socket of the server's gateway protocol.
    pub socket: PathBuf,
    pub service: ChatService,
}

/// A chat service, with the ids of the places to ask in and of the people who may answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ChatService {
    Telegram {
        base_url: String,
        chats: Vec<i64>,
        users: Vec<i64>,
    },
    /// Reports the ids of chats and people who write to the bot, and asks nothing.
    TelegramIds { base_url: String },
    Discord {
        base_url: String,
        gateway_url: String,
        channels: Vec<NonZeroU64>,
        users: Vec<NonZeroU64>,
    },
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start")
            .field("socket", &self.socket)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}
