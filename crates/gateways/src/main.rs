//! `ringfence-gateway`: asks people in Telegram chats and Discord channels, and returns their answers to the server.
//!
//! A program of its own, so that neither `ringfence` nor the server links the libraries of chat services. `ringfence
//! gateway` becomes this program, with the settings ([`Start`]) on standard input.
#![forbid(unsafe_code)]

mod card;
mod desk;
mod discord;
mod http;
mod proxy;
mod telegram;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::process::ExitCode;

use ringfence_gateway_protocol::{ChatService, Secret, Start, interrupted, visible};
use ringfence_network::address::Address;

/// Maximum length of the settings.
const MAX_START: u64 = 1 << 20;

/// An error message with a hint.
struct Failure {
    /// 2 for wrong settings, 125 for a gateway that cannot run.
    status: u8,
    message: String,
    hint: &'static str,
}

impl Failure {
    fn usage(message: impl Into<String>, hint: &'static str) -> Self {
        Self {
            status: 2,
            message: message.into(),
            hint,
        }
    }

    fn refused(message: impl Into<String>, hint: &'static str) -> Self {
        Self {
            status: 125,
            message: message.into(),
            hint,
        }
    }
}

impl From<telegram::Error> for Failure {
    fn from(error: telegram::Error) -> Self {
        use telegram::Error;
        let (message, hint) = (error.to_string(), error.hint());
        match error {
            Error::NoChats | Error::NoUsers | Error::BaseUrl(_) | Error::Proxy(_) => {
                Self::usage(message, hint)
            }
            Error::Setup(_) | Error::Token | Error::Conflict(_) | Error::Broken => {
                Self::refused(message, hint)
            }
        }
    }
}

impl From<discord::Error> for Failure {
    fn from(error: discord::Error) -> Self {
        use discord::Error;
        let (message, hint) = (error.to_string(), error.hint());
        match error {
            Error::NoChannels | Error::NoUsers => Self::usage(message, hint),
            _ => Self::refused(message, hint),
        }
    }
}

fn main() -> ExitCode {
    let Err(failure) = read().and_then(run) else {
        return ExitCode::SUCCESS;
    };
    log(&format!("error: {}", failure.message));
    log(&format!("hint: {}", failure.hint));
    ExitCode::from(failure.status)
}

/// Reads the settings from standard input.
fn read() -> Result<Start, Failure> {
    let ours = "this program is started by `ringfence gateway telegram` or `ringfence gateway discord`";
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_START)
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format!("cannot read the settings: {error}"), ours))?;
    let start: Start = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("expected settings on standard input: {error}"), ours))?;
    if start.version != env!("CARGO_PKG_VERSION") {
        let message = format!(
            "expected settings of version {}, found version {}",
            env!("CARGO_PKG_VERSION"),
            start.version
        );
        let hint = "install `ringfence` and `ringfence-gateway` of one version";
        return Err(Failure::refused(message, hint));
    }
    Ok(start)
}

/// Runs the gateway until a signal or an error that no retry helps against.
fn run(start: Start) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::refused(
            format!("cannot start: {error}"),
            "look at the limits of this user",
        )
    })?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = serve(start) => ended.map(|never| match never {}),
            () = interrupted() => Ok(()),
        }
    });
    // A DNS lookup may still block a thread for long.
    runtime.shutdown_background();
    ended
}

async fn serve(
    Start {
        token,
        socket,
        service,
        ..
    }: Start,
) -> Result<Infallible, Failure> {
    let correct = "correct it in the section `gateway` of the configuration";
    let wrong = |error: &dyn std::error::Error| Failure::usage(error.to_string(), correct);
    let token = Secret::new(&token).map_err(|error| wrong(&error))?;
    let http = |text: &str| Address::http(text).map_err(|error| wrong(&error));
    match service {
        ChatService::Telegram {
            base_url,
            chats,
            users,
        } => {
            let settings = telegram::Settings::new(&http(&base_url)?, token, chats, users)?;
            Ok(settings.supervise(&socket, log).await?)
        }
        ChatService::TelegramIds { base_url } => Ok(telegram::tell_ids(&http(&base_url)?, token, log).await?),
        ChatService::Discord {
            base_url,
            gateway_url,
            channels,
            users,
        } => {
            let setup = discord::Setup {
                token,
                channels: channels.into_iter().map(Into::into).collect(),
                users: users.into_iter().map(Into::into).collect(),
                rest: http(&base_url)?,
                gateway: Address::websocket(&gateway_url).map_err(|error| wrong(&error))?,
            };
            Ok(discord::Bot::open(setup, socket)
                .await?
                .supervise(&mut log)
                .await?)
        }
    }
}

/// Prints a line on standard error.
fn log(line: &str) {
    // A closed standard error leaves nobody to notify.
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(line));
}
