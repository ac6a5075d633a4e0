//! The web console: its address, its token, and the link that holds both.

use std::fs;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_runtime::approval::Service;
use ringfence_server::console::{Console, Sources};
use ringfence_server::http::{Listener, Token, TokenError};

use crate::context::Context;
use crate::exit::Failure;
use crate::high;

/// Where the console is unless somebody says otherwise.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8737);

/// Prints the link to the console of the engine that is running.
pub(crate) fn run(context: &Context) -> anyhow::Result<ExitCode> {
    // A link to where an engine was would hand the token to whoever is there instead.
    let alive = context
        .paths
        .socket_if_ours()
        .is_some_and(|socket| UnixStream::connect(socket).is_ok());
    let address = fs::read_to_string(context.paths.console_address());
    let address: Option<SocketAddr> = address.ok().and_then(|text| text.trim().parse().ok());
    let (true, Some(address)) = (alive, address) else {
        let what = if alive {
            "the engine that is running serves no console"
        } else {
            "the console is the engine's, and none is running"
        };
        let hint = "start one with `ringfence serve`, without `engine.console = false`";
        return Err(Failure::refused(what, hint).into());
    };
    let token = Token::read(&context.paths.console_token()).map_err(|error| untrusted(&error))?;
    context.ui.out(link(address, &token) + "\n")?;
    Ok(ExitCode::SUCCESS)
}

/// The token stands behind the `#`, which a browser keeps to itself.
fn link(address: SocketAddr, token: &Token) -> String {
    format!("http://{address}/#token={}", token.as_str())
}

fn untrusted(error: &TokenError) -> Failure {
    let hint = error.hint();
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    Failure::refused(format!("{error}{}", source.unwrap_or_default()), hint)
}

/// The engine's console.
#[derive(Debug)]
pub(super) struct Served {
    console: Console,
    address: Announced,
    link: String,
}

/// The file that says where the console is, removed when this is dropped.
#[derive(Debug)]
struct Announced(PathBuf);

impl Drop for Announced {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Served {
    /// Opens the console, if it is wanted. The caller must hold the engine's lock.
    pub(super) async fn open(approvals: Service, context: &Context) -> anyhow::Result<Option<Self>> {
        let file = context.paths.console_address();
        // One that was left by an engine that was killed.
        let left = Announced(file.clone());
        drop(left);
        let engine = &context.config()?.engine;
        if !engine.console {
            return Ok(None);
        }
        let token = Token::keep(&context.paths.console_token()).map_err(|error| untrusted(&error))?;
        let listener = bind(engine.listen.map(|listen| listen.0), context).await?;
        let address = listener.address();
        fs::write(&file, format!("{address}\n"))?;
        let sources = Sources {
            approvals,
            audit: high::audit::directory(context)?,
        };
        let link = link(address, &token);
        let console = Console::new(listener, token, sources).map_err(|error| untrusted(&error))?;
        Ok(Some(Self {
            console,
            address: Announced(file),
            link,
        }))
    }

    /// Tells where it is: the token only to a terminal, for what goes elsewhere is kept.
    pub(super) fn announce(&self, context: &Context) -> io::Result<()> {
        if io::stderr().is_terminal() {
            return context.ui.err(format!("console at {}\n", self.link));
        }
        let bare = self.link.split('#').next().unwrap_or_default();
        context.ui.err(format!(
            "console at {bare}; `ringfence console` prints the link\n"
        ))
    }

    /// Serves it until `stop` ends.
    pub(super) async fn serve(self, stop: impl Future<Output = ()>) {
        self.console.serve(stop).await;
        drop(self.address);
    }
}

/// Listens where the person said, and nowhere else; where nothing was said, at another port if the usual one is taken.
async fn bind(wanted: Option<SocketAddr>, context: &Context) -> anyhow::Result<Listener> {
    let address = wanted.unwrap_or(USUAL);
    match Listener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if wanted.is_none() && error.kind() == io::ErrorKind::AddrInUse => {
            context.ui.warn(&format!(
                "{USUAL} is taken, so the console has another port until the next start"
            ));
            Ok(Listener::bind(SocketAddr::new(USUAL.ip(), 0)).await?)
        }
        Err(error) => Err(Failure::refused(
            format!("cannot listen at {address}, where `engine.listen` has the console: {error}"),
            "choose another address, or port 0 for any, or set `engine.console = false`",
        )
        .into()),
    }
}
