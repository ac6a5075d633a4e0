//! Network access of programs and tools.

use std::fmt::Display;
use std::str::FromStr;

use ringfence_policy::Network;

use crate::args::{NetworkChoice, RunArgs};
use crate::context::Context;
use ringfence::Failure;
use ringfence::settings::default_network;

/// Returns the network of a run.
///
/// # Errors
/// If it is not available for this run.
pub(super) fn network(args: &RunArgs, context: &Context) -> Result<Network, Failure> {
    // A named host implies an allowlist.
    let implied = (!args.allow_host.is_empty()).then_some(NetworkChoice::Allowlist);
    let network = match args.network.or(implied) {
        Some(NetworkChoice::None) => Network::None,
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
        Some(NetworkChoice::Allowlist) => Network::Allowlist(context.parts()?.egress.policy.clone()),
        // The configured default does not fail runs that cannot have a network.
        None if args.session.is_some() || args.unfenced => Network::None,
        None => default_network(context)?,
    };
    let more = parsed(
        "--allow-host",
        &args.allow_host,
        "write it like `example.com` or `*.example.com:8443`",
    )?;
    match network {
        Network::None if more.is_empty() => Ok(Network::None),
        Network::None => Err(Failure::usage(
            "--allow-host has no effect with --network none",
            "pass `--network allowlist`, or leave --allow-host out",
        )),
        Network::Allowlist(mut policy) => {
            policy.allowed.extend(more);
            if policy.allowed.is_empty() {
                context.ui.warn(NO_HOSTS);
            }
            Ok(Network::Allowlist(policy))
        }
    }
}

const NO_HOSTS: &str = "no host is allowed, so the program reaches none; name them with `--allow-host` or `egress.allowed_hosts`";

fn parsed<T: FromStr<Err: Display>>(what: &str, texts: &[String], hint: &str) -> Result<Vec<T>, Failure> {
    let parse = |text: &String| {
        text.parse()
            .map_err(|error| Failure::usage(format!("{what}: {error}"), hint))
    };
    texts.iter().map(parse).collect()
}
