//! The web console: its address, and the single-use link that opens it.

use std::future::Future;
use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use ringfence_records::approval::Service;
use ringfence_server::client::{Client, Error};
use ringfence_server::console::{Console, Door, Sources};
use ringfence_server::http::{Keys, Listener, NoRandom};
use ringfence_server::wire::ConsoleAccess;
use serde_json::json;

use crate::args::ConsoleArgs;
use crate::context::Context;
use ringfence::Failure;
use ringfence::audit;

/// The default address: a random port, so that no other process can listen there beforehand and receive a
/// link.
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Prints a link to the console of the running server.
pub(crate) fn run(args: &ConsoleArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let access = runtime.block_on(ask(context))?;
    let text = if args.json {
        let ConsoleAccess { address, token, .. } = &access;
        serde_json::to_string_pretty(&json!({"address": address, "link": link(&access), "token": token}))?
    } else {
        link(&access)
    };
    context.ui.out(text + "\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Requests access over the server's socket, which no other user can own.
async fn ask(context: &Context) -> Result<ConsoleAccess, Failure> {
    let none = || {
        let what = "the console is the server's, and none is running";
        Failure::refused(
            what,
            "start one with `ringfence serve`, without `engine.console = false`",
        )
    };
    let socket = context.paths.socket_if_ours().ok_or_else(none)?;
    let mut client = Client::connect(&socket).await.map_err(|_| none())?;
    client.console().await.map_err(|error| match error {
        Error::Refused(refusal) => Failure::refused(refusal.message, refusal.hint),
        error @ (Error::Declined(_) | Error::Broken(_) | Error::Answer(_)) => Failure::refused(
            error.to_string(),
            "check the server, and that it has this version",
        ),
    })
}

/// Renders the link. The ticket stands behind the `#`, which a browser does not send.
fn link(access: &ConsoleAccess) -> String {
    format!("http://{}/#token={}", access.address, access.ticket)
}

fn defect(error: &NoRandom) -> Failure {
    Failure::refused(error.to_string(), "report this as a defect")
}

/// The server's console.
#[derive(Debug)]
pub(super) struct Served(Console);

impl Served {
    /// Opens the console, unless the configuration disables it.
    pub(super) async fn open(approvals: Service, context: &Context) -> anyhow::Result<Option<Self>> {
        let engine = &context.config()?.engine;
        if !engine.console {
            return Ok(None);
        }
        let listener = bind(engine.listen.map_or(ANYWHERE, |listen| listen.0)).await?;
        let sources = Sources {
            approvals,
            audit: audit::directory(context)?,
        };
        let keys = Keys::new().map_err(|error| defect(&error))?;
        let console = Console::new(listener, keys, sources).map_err(|error| defect(&error))?;
        Ok(Some(Self(console)))
    }

    /// Returns the access to the console.
    pub(super) fn door(&self) -> &Door {
        self.0.door()
    }

    /// Prints the console's address: with a link only on a terminal, since other output is stored.
    pub(super) fn announce(&self, context: &Context) -> anyhow::Result<()> {
        let access = self.door().access().map_err(|error| defect(&error))?;
        let text = if io::stderr().is_terminal() {
            format!(
                "console at {}\n(for one browser, within ten minutes; `ringfence console` prints another link)\n",
                link(&access)
            )
        } else {
            let address = access.address;
            format!("console at http://{address}/; `ringfence console` prints a link\n")
        };
        Ok(context.ui.err(text)?)
    }

    /// Serves the console until `stop` resolves.
    pub(super) async fn serve(self, stop: impl Future<Output = ()>) {
        self.0.serve(stop).await;
    }
}

/// Listens at the configured address only.
async fn bind(address: SocketAddr) -> Result<Listener, Failure> {
    Listener::bind(address).await.map_err(|error| {
        Failure::refused(
            format!("cannot listen at {address}, the console's address in `engine.listen`: {error}"),
            "choose another address, or port 0 for any, or set `engine.console = false`",
        )
    })
}
