//! Network access of programs and tools.

use std::fmt::Display;
use std::str::FromStr;

use ringfence_policy::Network;

use crate::context::Context;
use ringfence::{Failure, Request, resolve, settings};
use ringfence_args::{NetworkChoice, RunArgs};

/// Sets the network of a request, and the hosts that it reaches.
///
/// # Errors
/// If they are not available for this run.
pub(super) fn choose(request: &mut Request, args: &RunArgs, context: &Context) -> Result<(), Failure> {
    request.network = match NetworkChoice::of(args.network, &args.allow_host)? {
        Some(NetworkChoice::None) => Some(Network::None),
        Some(NetworkChoice::Allowlist) if args.session.is_some() => {
            return Err(Failure::usage(
                "a session has no network",
                "leave --session out, or --network and --allow-host",
            ));
        }
        Some(NetworkChoice::Allowlist) if args.unfenced => {
            return Err(Failure::usage(
                "--unfenced has no fence to limit the network to allowed hosts",
                "leave --unfenced out, or --network and --allow-host",
            ));
        }
        Some(NetworkChoice::Allowlist) => Some(Network::Allowlist(context.parts()?.egress.policy.clone())),
        None => None,
    };
    request.allowed_hosts = parsed(
        "--allow-host",
        &args.allow_host,
        "write it like `example.com` or `*.example.com:8443`",
    )?;
    let network = resolve::network(request, context)?;
    if matches!(network, Network::Allowlist(policy) if policy.allowed.is_empty()) {
        context.ui.warn(settings::NO_HOSTS);
    }
    Ok(())
}

fn parsed<T: FromStr<Err: Display>>(what: &str, texts: &[String], hint: &str) -> Result<Vec<T>, Failure> {
    let parse = |text: &String| {
        text.parse()
            .map_err(|error| Failure::usage(format!("{what}: {error}"), hint))
    };
    texts.iter().map(parse).collect()
}
