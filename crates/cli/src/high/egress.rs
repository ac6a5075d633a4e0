//! What programs and tools may reach over a network.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use ringfence_policy::{EgressPolicy, Host, Network};
use ringfence_runtime::assessor::{KeyError, Secret};
use ringfence_runtime::egress::NetworkSettings;
use ringfence_runtime::egress::Resolver;
use ringfence_runtime::egress::proxy::Injection;
use ringfence_runtime::fetch::Trust;

use crate::args::{NetworkChoice, RunArgs};
use crate::config::Config;
use crate::config::schema::{Egress, Inject};
use crate::config::values::NetworkKind;
use crate::env::Environment;
use crate::exit::Failure;

const CORRECT: &str = "correct it; `ringfence config schema` describes it";

/// What the configuration lets be reached.
///
/// # Errors
/// If an element of a list cannot be read.
pub(crate) fn policy(egress: &Egress) -> Result<EgressPolicy, Failure> {
    Ok(EgressPolicy {
        allowed: parsed("`egress.allowed_hosts`", &egress.allowed_hosts, CORRECT)?,
        private_networks: parsed("`egress.private_networks`", &egress.private_networks, CORRECT)?,
    })
}

/// The network of what tools run.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn default_network(config: &Config) -> Result<Network, Failure> {
    Ok(match config.sandbox.network {
        NetworkKind::None => Network::None,
        NetworkKind::Allowlist => Network::Allowlist(policy(&config.egress)?),
    })
}

/// The network of a run.
///
/// # Errors
/// If it cannot be had.
pub(super) fn network(args: &RunArgs, config: &Config) -> Result<Network, Failure> {
    let network = match args.network {
        Some(NetworkChoice::None) => Network::None,
        Some(NetworkChoice::Allowlist) if args.session.is_some() => {
            return Err(Failure::usage(
                "a session has no network",
                "leave --session or --network out",
            ));
        }
        Some(NetworkChoice::Allowlist) if args.unfenced => {
            return Err(Failure::usage(
                "--network allowlist needs the fence that --unfenced leaves out",
                "leave one of them out",
            ));
        }
        Some(NetworkChoice::Allowlist) => Network::Allowlist(policy(&config.egress)?),
        // What is configured for runs in general does not keep those from running that can have no network.
        None if args.session.is_some() || args.unfenced => Network::None,
        None => default_network(config)?,
    };
    let more = parsed(
        "--allow-host",
        &args.allow_host,
        "write it like `example.com` or `*.example.com:8443`",
    )?;
    match network {
        Network::None if more.is_empty() => Ok(Network::None),
        Network::None => Err(Failure::usage(
            "--allow-host has no effect without --network allowlist",
            "leave it out",
        )),
        Network::Allowlist(mut policy) => {
            policy.allowed.extend(more);
            Ok(Network::Allowlist(policy))
        }
    }
}

/// How guests get out.
///
/// # Errors
/// If a credential is configured in a way that can never work.
pub(crate) fn settings(egress: &Egress, environment: &Environment) -> Result<NetworkSettings, Failure> {
    let injections = egress.inject.iter().map(|inject| injection(inject, environment));
    Ok(NetworkSettings {
        resolver: Resolver::system(),
        trust: Arc::new(Trust::new(egress.ca_file.clone())),
        injections: injections.collect::<Result<_, _>>()?,
    })
}

fn injection(inject: &Inject, environment: &Environment) -> Result<Injection, Failure> {
    let (host, port) = host(&inject.host)?;
    let secret = secret(inject, environment)?;
    let prefix = inject.prefix.as_deref().unwrap_or_default();
    Injection::new((host, port), &inject.header, prefix, secret)
        .map_err(|error| wrong(&inject.host, &error, error.hint()))
}

/// One host by its name, with a port or without: never a pattern.
fn host(text: &str) -> Result<(Host, Option<u16>), Failure> {
    let hint = "write one host, like `api.example.com` or `api.example.com:8443`";
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let port = port
        .map(str::parse)
        .transpose()
        .map_err(|error| wrong(text, &error, hint))?;
    let host = name.parse().map_err(|error| wrong(text, &error, hint))?;
    Ok((host, port))
}

/// The credential; none where its variable is not set, which may be so another time.
fn secret(inject: &Inject, environment: &Environment) -> Result<Option<Secret>, Failure> {
    let unusable = |error: KeyError| wrong(&inject.host, &error, error.hint());
    match (&inject.value_env, &inject.value_file) {
        (None, Some(file)) => Secret::of_file(file).map(Some).map_err(unusable),
        (Some(name), None) => {
            let value = environment.get(name).map(|value| value.to_string_lossy());
            value
                .map(|value| Secret::new(&value))
                .transpose()
                .map_err(unusable)
        }
        _ => Err(wrong(
            &inject.host,
            &"it has not one source of its value",
            "name a variable with `value_env`, or a file with `value_file`",
        )),
    }
}

fn wrong(host: &str, message: &dyn Display, hint: &str) -> Failure {
    Failure::usage(
        format!("`egress.inject` for `{}`: {message}", host.escape_debug()),
        hint,
    )
}

fn parsed<T: FromStr<Err: Display>>(what: &str, texts: &[String], hint: &str) -> Result<Vec<T>, Failure> {
    let parse = |text: &String| {
        text.parse()
            .map_err(|error| Failure::usage(format!("{what}: {error}"), hint))
    };
    texts.iter().map(parse).collect()
}
