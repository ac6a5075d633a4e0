//! `ringfence gateway discord`: asks in Discord channels.

use std::process::ExitCode;

use ringfence_server::gateway::discord::{Bot, Error, Setup};

use super::token::token;
use crate::commands::run::interrupted;
use crate::context::Context;
use crate::exit::Failure;
use crate::ui::visible;

pub(crate) fn run(context: &Context) -> anyhow::Result<ExitCode> {
    let setup = setup(context)?;
    // The gateway may start before the first server.
    context.paths.make_runtime()?;
    let engine = context.paths.gateway_socket();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut log = |line: &str| {
        // A closed standard error leaves nobody to notify.
        let _ = context.ui.err(format!("{}\n", visible(line)));
    };
    let ended = runtime.block_on(async {
        let mut bot = Bot::new(setup, engine).map_err(failure)?;
        tokio::select! {
            ended = bot.attend(&mut log) => match ended {
                Ok(never) => match never {},
                Err(error) => Err(failure(error)),
            },
            () = interrupted() => Ok(()),
        }
    });
    // A DNS lookup may still block a thread for long.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}

/// Returns the bot's settings from the configuration.
fn setup(context: &Context) -> anyhow::Result<Setup> {
    let config = &context.config()?.gateway.discord;
    let addresses = &context.parts()?.gateways;
    let setup = Setup {
        token: token(&config.token_env, config.token_file.as_deref(), context)?,
        channels: config.channels.iter().map(|id| id.0.into()).collect(),
        users: config.users.iter().map(|id| id.0.into()).collect(),
        rest: addresses.discord_rest.clone(),
        gateway: addresses.discord_gateway.clone(),
    };
    Ok(setup)
}

fn failure(error: Error) -> Failure {
    let (message, hint) = (error.to_string(), error.hint());
    match error {
        Error::NoChannels | Error::NoUsers => Failure::usage(message, hint),
        _ => Failure::refused(message, hint),
    }
}
