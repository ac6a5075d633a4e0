//! Discord gateway: approval requests as messages with buttons in channels.

mod bot;
mod id;
mod page;
mod press;
mod rest;
mod session;
mod socket;

use std::collections::BTreeSet;

pub(crate) use bot::Bot;

use id::{ChannelId, UserId};

use ringfence_gateway_protocol::Secret;
use ringfence_network::address::Address;

/// Configuration of the bot.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) token: Secret,
    /// Channels to post to; all others are ignored.
    pub(crate) channels: BTreeSet<ChannelId>,
    /// Users whose presses count.
    pub(crate) users: BTreeSet<UserId>,
    /// URL of the REST API.
    pub(crate) rest: Address,
    /// URL of the gateway.
    pub(crate) gateway: Address,
}

/// The gateway cannot run, or an operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no channel is configured for discord")]
    NoChannels,
    #[error("no user is configured for discord")]
    NoUsers,
    /// The bot token is invalid.
    #[error("discord rejects the token")]
    Token,
    /// Discord closed the connection permanently.
    #[error("discord closed the connection permanently ({reason}, code {code})")]
    Closed {
        /// Reason by Discord's list of close codes.
        reason: String,
        code: u16,
    },
    /// The bot cannot see a channel.
    #[error("the bot cannot see the channel {0}")]
    Channel(ChannelId),
    /// Discord refused the request.
    #[error("discord rejects the request: {message} (status {status}, code {code})")]
    Refused {
        status: u16,
        /// Discord's error code.
        code: u64,
        /// Discord's error message.
        message: String,
    },
    /// All retries failed.
    #[error("discord cannot be reached: {0}")]
    Unreachable(String),
    /// The rate limit delays the request beyond its deadline.
    #[error("Discord's rate limit is reached")]
    Limited,
    /// The response is not understood; it may not be Discord's.
    #[error("discord's answer is malformed: {0}")]
    Odd(String),
    /// No root certificates can be used.
    #[error("the root certificates of this machine cannot be used: {0}")]
    Roots(String),
    /// The kernel returned no random bytes.
    #[error("cannot read random bytes: {0}")]
    Random(std::io::Error),
}

impl Error {
    pub(crate) const fn hint(&self) -> &'static str {
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
