//! `ringfence sandbox port`: a port of a sandbox at an address of this machine.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;

use ringfence::Failure;
use ringfence_args::{ErrorFormat, SandboxPortArgs};
use serde_json::json;
use tokio::net::TcpListener;

use super::{failure, print_json, sandbox_only};
use crate::context::Context;
use crate::exit;

/// Default listen address. Not 127.0.0.1, since browsers would send the console's cookies to this port, too.
const HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

pub(super) async fn port(args: &SandboxPortArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let sandbox = sandbox_only(&args.name, "`port`", &args.options, context).await?;
    let info = sandbox.info().await.map_err(failure)?;
    if info["ports"] != true {
        let hint = "create one with `ringfence sandbox create --ports`";
        return Err(Failure::refused("the sandbox was created without ports", hint).into());
    }
    if args.port == ringfence_sandbox::PROXY_PORT {
        let own = ringfence_sandbox::Error::OwnPort(args.port);
        return Err(Failure::refused(own.to_string(), own.hint()).into());
    }
    let address = args.listen.unwrap_or(SocketAddrV4::new(HOST, args.port));
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::refused(
            format!("cannot listen at {address}: {error}"),
            "name another address with `--listen 127.0.0.2:PORT`",
        )
    })?;
    let address = listener.local_addr()?;
    match args.options.json {
        true => print_json(&json!({ "address": address }), context)?,
        false => {
            context.ui.out(format!("{address}\n"))?;
            ExitCode::SUCCESS
        }
    };
    let tell = |error: &ringfence_client::Error| context.ui.warn(&error.to_string());
    let error = failure(sandbox.forward(&listener, args.port, tell).await);
    // The address is printed, and is the document.
    Ok(exit::report(context.ui, ErrorFormat::Text, &error))
}
