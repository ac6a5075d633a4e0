//! `ringfence gateway`: programs that forward the server's questions to people.

mod board;
mod discord;
mod telegram;
mod terminal;
mod token;

use std::process::ExitCode;

use crate::args::GatewayCommand;
use crate::context::Context;

pub(crate) fn run(command: &GatewayCommand, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        GatewayCommand::Terminal { chats } => terminal::run(chats, context),
        GatewayCommand::Telegram { ids: false } => telegram::run(context),
        GatewayCommand::Telegram { ids: true } => telegram::tell_ids(context),
        GatewayCommand::Discord => discord::run(context),
    }
}
