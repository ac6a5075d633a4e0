//! `ringfence gateway`: programs that forward the server's questions to people.

mod chat;
mod terminal;

use std::process::ExitCode;

use crate::context::Context;
use ringfence_args::GatewayCommand;

pub(crate) fn run(command: &GatewayCommand, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        GatewayCommand::Terminal { chats } => terminal::run(chats, context),
        GatewayCommand::Telegram { ids } => chat::telegram(*ids, context).map(|never| match never {}),
        GatewayCommand::Discord => chat::discord(context).map(|never| match never {}),
    }
}
