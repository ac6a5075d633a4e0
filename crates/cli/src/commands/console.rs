//! The web console: its address, and the single-use link that opens it.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_http::{CertificateError, CertificateFiles, Keys, Listener, NoRandom, Renewal};
use ringfence_server::api::Api;
use ringfence_server::client::{Client, Error};
use ringfence_server::console::Console;
use ringfence_server::site::{BindError, Domain, Endpoint, Further, Site};
use ringfence_server::wire::ConsoleAccess;
use serde_json::json;

use crate::context::Context;
use crate::ui;
use ringfence::Failure;
use ringfence_args::{ConsoleArgs, ServeArgs};

const CERTIFICATE_HINT: &str = "pass PEM files: the certificate with its chain as `--tls-cert`, and its key, which only the server's user reads, as \
     `--tls-key`";

/// The default address: a random port, so that nobody listens there beforehand and receives a link.
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Prints a link to the console of the running server.
pub(crate) fn run(args: &ConsoleArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let access = runtime.block_on(ask(context))?;
    let text = if args.json {
        let ConsoleAccess { address, token, .. } = &access;
        ui::json(&json!({"address": address, "link": link(&access), "token": token}))?
    } else {
        link(&access) + "\n"
    };
    context.ui.out(text)?;
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
        Error::Unread(_) => none(),
        error @ (Error::Declined(_) | Error::Broken(_) | Error::Answer(_)) => Failure::refused(
            error.to_string(),
            "check the server, and that it has this version",
        ),
    })
}

/// Renders the link. The ticket is in the fragment (`#`), which a browser does not send.
fn link(access: &ConsoleAccess) -> String {
    format!("http://{}/#token={}", access.address, access.ticket)
}

fn defect(error: &NoRandom) -> Failure {
    Failure::refused(error.to_string(), "report this as a defect")
}

/// Opens the HTTP listeners of a server: the console's address, and the one of `--listen`.
pub(super) async fn open(api: Arc<Api>, args: &ServeArgs, context: &Context) -> anyhow::Result<Site> {
    let engine = &context.config()?.engine;
    let tls = certificate(args, context);
    let (asked, further) = match &args.listen {
        Some(endpoint) if endpoint.is_remote() && tls.is_none() && !args.plain_http => {
            return Err(Failure::usage(
                format!("`--listen`: at {endpoint} other machines would send their keys unencrypted"),
                "pass `--tls-cert` and `--tls-key`, listen at 127.0.0.1, or pass `--plain-http` for a trusted network or a \
                 proxy that ends TLS",
            )
            .into());
        }
        Some(Endpoint::Unix(_)) if tls.is_some() => {
            return Err(Failure::usage(
                "`--tls-cert`: a Unix socket has no TLS",
                "leave out `--tls-cert` and `--tls-key`: only your own user reaches the socket",
            )
            .into());
        }
        // With TLS it is a listener of its own: the console stays where browsers reach it without.
        Some(Endpoint::Tcp(address)) if address.ip().is_loopback() && tls.is_none() => (Some(*address), None),
        further => (None, further.as_ref()),
    };
    let at = asked.or_else(|| {
        engine
            .console
            .then(|| engine.listen.map_or(ANYWHERE, |listen| listen.0))
    });
    let mut site = Site::of(api);
    if let Some(address) = at {
        let listener = Listener::bind(address).await;
        site.loopback = Some(listener.map_err(|error| deaf(&address, &error))?);
    }
    if let (Some(listener), true) = (&site.loopback, engine.console) {
        site.console = Some(console(listener.address(), &site.api)?);
    }
    if let Some(endpoint) = further {
        let bound = Further::bind(endpoint, tls, args.domain.clone()).await;
        site.further = Some(bound.map_err(|error| match error {
            BindError::Socket(error) => match endpoint {
                Endpoint::Tcp(_) => deaf(endpoint, &error),
                Endpoint::Unix(_) => Failure::refused(
                    format!("cannot listen at {endpoint}: {error}"),
                    "name a path of at most 107 bytes in a directory that exists and that you may write, where there is nothing but \
                     perhaps a socket that no server uses any more",
                ),
            },
            BindError::Certificate(error) => Failure::refused(error.to_string(), certificate_hint(&error)),
        })?);
    }
    Ok(site)
}

fn certificate_hint(error: &CertificateError) -> Cow<'static, str> {
    match error {
        CertificateError::Open { path, .. } => format!("chmod 600 {}", path.display()).into(),
        _ => CERTIFICATE_HINT.into(),
    }
}

/// Returns the files of `--tls-cert` and `--tls-key`.
fn certificate(args: &ServeArgs, context: &Context) -> Option<CertificateFiles> {
    let (certificate, key) = (args.tls_cert.clone()?, args.tls_key.clone()?);
    Some(CertificateFiles {
        certificate,
        key,
        names: args.domain.iter().flat_map(Domain::names).collect(),
        named: context.named_paths(),
        tell: tell_renewal,
    })
}

/// Says whether the certificate of the files is in use. A failure to do so is ignored.
fn tell_renewal(renewal: Renewal<'_>) {
    let text = match renewal {
        Renewal::Failed(error) => format!("not renewed, and the one in use stays: {error}"),
        Renewal::Current => "in use as its files have it".to_owned(),
    };
    let _ = writeln!(io::stderr(), "ringfence: the certificate is {text}");
}

fn console(address: SocketAddr, api: &Api) -> anyhow::Result<Console> {
    let keys = Keys::new().map_err(|error| defect(&error))?;
    Ok(Console::new(address, keys, api).map_err(|error| defect(&error))?)
}

/// Prints the addresses of a server: the console's with a link only on a terminal, since other output is stored.
pub(super) fn announce(site: &Site, args: &ServeArgs, context: &Context) -> anyhow::Result<()> {
    if args.listen.is_some() {
        let endpoints = site.urls().map(|url| format!("API at {url}\n"));
        context.ui.err(endpoints.collect::<String>())?;
    }
    let Some(console) = &site.console else {
        return Ok(());
    };
    let access = console.door().access().map_err(|error| defect(&error))?;
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

fn deaf(address: &dyn Display, error: &io::Error) -> Failure {
    Failure::refused(
        format!("cannot listen at {address}: {error}"),
        "choose another address in `--listen` or `engine.listen`, or port 0 for any, or set `engine.console = false`",
    )
}
