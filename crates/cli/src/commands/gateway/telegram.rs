//! `ringfence gateway telegram`: asks in Telegram chats.

use std::convert::Infallible;
use std::process::ExitCode;

use ringfence_server::gateway::telegram::{self, Error, Settings};

use super::token::token;
use crate::commands::run::interrupted;
use crate::context::Context;
use crate::exit::Failure;
use crate::ui::visible;

pub(crate) fn run(context: &Context) -> anyhow::Result<ExitCode> {
    let config = &context.config()?.gateway.telegram;
    let token = token(&config.token_env, config.token_file.as_deref(), context)?;
    let (chats, users) = (config.chats.iter().copied(), config.users.iter().copied());
    let settings = Settings::new(&config.base_url, token, chats, users).map_err(failure)?;
    // The gateway may start before the first server.
    context.paths.make_runtime()?;
    let socket = context.paths.gateway_socket();
    until_interrupted(settings.attend(&socket, |line| log(line, context)))
}

pub(crate) fn tell_ids(context: &Context) -> anyhow::Result<ExitCode> {
    let config = &context.config()?.gateway.telegram;
    let token = token(&config.token_env, config.token_file.as_deref(), context)?;
    until_interrupted(telegram::tell_ids(&config.base_url, token, |line| {
        log(line, context);
    }))
}

fn log(line: &str, context: &Context) {
    // A closed standard error leaves nobody to notify.
    let _ = context.ui.err(format!("{}\n", visible(line)));
}

fn until_interrupted(work: impl Future<Output = Result<Infallible, Error>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = work => match ended {
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

fn failure(error: Error) -> Failure {
    let (message, hint) = (error.to_string(), error.hint());
    match error {
        Error::NoChats | Error::NoUsers | Error::BaseUrl => Failure::usage(message, hint),
        _ => Failure::refused(message, hint),
    }
}
