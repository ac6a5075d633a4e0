//! Discord as a gateway: the engine's questions as messages with buttons in channels.

mod address;
mod bot;
mod page;
mod press;
mod rest;
mod socket;

use std::collections::BTreeSet;

use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, UserMarker};

pub use address::{Address, BadAddress};
pub use bot::Bot;

use super::Secret;

/// Where Discord's REST interface is.
pub const REST: &str = "https://discord.com/api";
/// Where Discord's gateway is.
pub const GATEWAY: &str = "wss://gateway.discord.gg";

/// What a bot needs to know.
#[derive(Debug)]
pub struct Setup {
    /// What it proves with that it is the bot.
    pub token: Secret,
    /// The channels that it asks in; it listens to no others.
    pub channels: BTreeSet<Id<ChannelMarker>>,
    /// The users whose presses count.
    pub users: BTreeSet<Id<UserMarker>>,
    /// Where the REST interface is.
    pub rest: Address,
    /// Where the gateway is.
    pub gateway: Address,
}

/// Why Discord cannot be a gateway, or one thing was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nowhere to ask.
    #[error("no channel is configured for discord")]
    NoChannels,
    /// There is nobody to ask.
    #[error("no user is configured for discord")]
    NoUsers,
    /// It is not that of a bot.
    #[error("discord does not take the token")]
    Token,
    /// The gateway ended the connection, and would again.
    #[error("discord ends the connection for good ({reason}, code {code})")]
    Closed {
        /// Why, by Discord's list.
        reason: String,
        /// The code.
        code: u16,
    },
    /// The bot does not see a channel.
    #[error("the bot does not see the channel {0}")]
    Channel(Id<ChannelMarker>),
    /// It may not, or it is not there.
    #[error("discord refuses it: {message} (status {status}, code {code})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Discord's code.
        code: u64,
        /// Discord's words.
        message: String,
    },
    /// It was tried for as long as it makes sense.
    #[error("discord cannot be reached: {0}")]
    Unreachable(String),
    /// Discord makes us wait for longer than it makes sense.
    #[error("discord lets us send no more for now")]
    Limited,
    /// Something else than Discord seems to answer.
    #[error("what discord answers cannot be understood: {0}")]
    Odd(String),
    /// Nobody could be trusted.
    #[error("the root certificates of this machine cannot be used: {0}")]
    Roots(String),
    /// The kernel gave none.
    #[error("no random bytes: {0}")]
    Random(std::io::Error),
}

impl Error {
    /// What a person can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoChannels => "set `gateway.discord.channels` to the ids of the channels that may be asked",
            Self::NoUsers => {
                "set `gateway.discord.users` to the ids of the people who may answer: in a channel, anybody could"
            }
            Self::Token => {
                "copy the token anew from the page `Bot` of your application in Discord's developer portal"
            }
            Self::Closed { .. } => {
                "look at the application in Discord's developer portal; it needs no intents"
            }
            Self::Channel(_) => {
                "invite the bot to the server, with the rights to view the channel, send messages and attach files, or \
                 correct `gateway.discord.channels`"
            }
            Self::Refused { .. } => "look at the bot's rights in the channel",
            Self::Unreachable(_) | Self::Limited => "try again later",
            Self::Odd(_) => "look at `gateway.discord.base_url` and `gateway.discord.gateway_url`",
            Self::Roots(_) => "install the package with root certificates, usually `ca-certificates`",
            Self::Random(_) => "look at the kernel's log",
        }
    }
}
