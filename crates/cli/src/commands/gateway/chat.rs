//! `ringfence gateway telegram` and `discord`: become the program that asks in chats.

use std::convert::Infallible;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use ringfence::gateway_token;
use ringfence_gateway_protocol::{ChatService, PROGRAM, Secret, Start};

use crate::context::Context;
use ringfence::Failure;

/// Capacity of a pipe (pipe(7)): more would block.
const MAX_START: usize = 64 << 10;

pub(super) fn telegram(ids: bool, context: &Context) -> anyhow::Result<Infallible> {
    let config = &context.config()?.gateway.telegram;
    let token = token(&config.token_env, config.token_file.as_deref(), context)?;
    let base_url = config.base_url.clone();
    let service = match ids {
        true => ChatService::TelegramIds { base_url },
        false => ChatService::Telegram {
            base_url,
            chats: config.chats.clone(),
            users: config.users.clone(),
        },
    };
    start(token.expose(), service, context)
}

pub(super) fn discord(context: &Context) -> anyhow::Result<Infallible> {
    let config = &context.config()?.gateway.discord;
    context.parts()?;
    let token = token(&config.token_env, config.token_file.as_deref(), context)?;
    let service = ChatService::Discord {
        base_url: config.base_url.clone(),
        gateway_url: config.gateway_url.clone(),
        channels: config.channels.iter().map(|id| id.0).collect(),
        users: config.users.iter().map(|id| id.0).collect(),
    };
    start(token.expose(), service, context)
}

fn token(variable: &str, file: Option<&Path>, context: &Context) -> Result<Secret, Failure> {
    let token = gateway_token::find(variable, file, context)?;
    Secret::new(&token.text)
        .map_err(|error| Failure::usage(format!("{}: {error}", token.place), "copy the bot's token again"))
}

/// Replaces this process by the gateway (execve(2)), with the settings on its standard input.
#[expect(
    clippy::disallowed_methods,
    reason = "a program of ours, beside this one, where no guest may write"
)]
fn start(token: &str, service: ChatService, context: &Context) -> anyhow::Result<Infallible> {
    // The gateway may start before the first server.
    context.paths.make_runtime()?;
    let settings = serde_json::to_vec(&Start {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        token: token.to_owned(),
        socket: context.paths.gateway_socket(),
        service,
    })?;
    if settings.len() > MAX_START {
        return Err(Failure::usage(
            format!(
                "expected settings of at most {MAX_START} bytes, found {}",
                settings.len()
            ),
            "name fewer chats and users",
        )
        .into());
    }
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    let (reader, mut writer) = std::io::pipe()?;
    writer.write_all(&settings)?;
    drop(writer);
    let error = Command::new(&program).stdin(reader).exec();
    Err(Failure::refused(
        format!("cannot start {}: {error}", program.display()),
        "install it beside `ringfence`: `cargo install --path crates/gateways`",
    )
    .into())
}
