//! Network access of programs and tools, and the credentials injected into requests.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use ringfence_exec::trust::NamedPaths;
use ringfence_network::egress::proxy::Injection;
use ringfence_network::egress::{NetworkSettings, Resolver};
use ringfence_network::fetch::Trust;
use ringfence_network::secret::{KeyError, Secret};
use ringfence_packages::Indexes;
use ringfence_policy::{EgressPolicy, Host, HostPattern};

use super::Packages;
use super::checks::{Checks, Wrong};
use crate::config::schema::Inject;
use crate::env::Environment;

/// The egress allowlist and the network settings.
#[derive(Debug, Clone)]
pub struct Egress {
    /// The allowlist.
    pub policy: EgressPolicy,
    /// Network settings of guests.
    pub network: NetworkSettings,
}

pub(super) fn egress(checks: &mut Checks<'_>) -> Option<Egress> {
    let egress = &checks.config().egress;
    let allowed = checks.parse_all("egress.allowed_hosts", &egress.allowed_hosts);
    let private_networks = checks.parse_all("egress.private_networks", &egress.private_networks);
    let trust = authorities(checks, "egress.ca_file", egress.ca_file.as_deref());
    let (environment, named) = (checks.environment, checks.named_paths());
    let injections: Vec<_> = egress
        .inject
        .iter()
        .map(|inject| checks.keep(injection(inject, environment, &named)))
        .collect();
    Some(Egress {
        policy: EgressPolicy {
            allowed: allowed?,
            private_networks: private_networks?,
        },
        network: NetworkSettings {
            resolver: Resolver::system(),
            trust: Arc::new(trust?),
            injections: injections.into_iter().collect::<Option<_>>()?,
        },
    })
}

/// The word for the hosts of the package indexes.
const PACKAGES: &str = "packages";

/// Returns the hosts that sandboxes of API keys may reach.
pub(super) fn key_hosts(
    checks: &mut Checks<'_>,
    egress: &Egress,
    packages: &Packages,
) -> Option<EgressPolicy> {
    let mut texts = checks.config().engine.sandbox_hosts.clone();
    let named = texts.len();
    texts.retain(|text| text != PACKAGES);
    let mut allowed: Vec<HostPattern> = checks.parse_all("engine.sandbox_hosts", &texts)?;
    if texts.len() < named {
        let Indexes { python, npm } = &packages.indexes;
        let hosts = python.allowed().into_iter().chain(npm.allowed());
        // Whoever asks for a host without a port asks for both of HTTP and HTTPS.
        allowed.extend(hosts.map(HostPattern::at_usual_ports));
    }
    Some(EgressPolicy {
        allowed,
        private_networks: egress.policy.private_networks.clone(),
    })
}

/// Returns the certificate authorities of the system, with those of `file` if one is named.
pub(super) fn authorities(checks: &mut Checks<'_>, key: &str, file: Option<&Path>) -> Option<Trust> {
    let trust = Trust::opened_by(file.map(Path::to_path_buf), checks.named_paths().opener());
    let checked = trust.check_own().map_err(|error| {
        let found = file.unwrap_or(Path::new("")).display();
        Wrong::new(
            key,
            format!("expected a file of certificates, found {found}: {error}"),
            error.hint(),
        )
    });
    checks.keep(checked).map(|()| trust)
}

fn injection(inject: &Inject, environment: &Environment, named: &NamedPaths) -> Result<Injection, Wrong> {
    let (host, port) = host(&inject.host)?;
    let secret = secret(inject, environment, named)?;
    let prefix = inject.prefix.as_deref().unwrap_or_default();
    Injection::new(host, port, &inject.header, prefix, secret)
        .map_err(|error| wrong(&inject.host, &error, error.hint()))
}

/// Parses a host with an optional port; rejects patterns.
fn host(text: &str) -> Result<(Host, Option<u16>), Wrong> {
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

/// Reads the credential; `None` if its variable is unset, which may change.
fn secret(inject: &Inject, environment: &Environment, named: &NamedPaths) -> Result<Option<Secret>, Wrong> {
    let unusable = |error: KeyError| wrong(&inject.host, &error, error.hint());
    match (&inject.value_env, &inject.value_file) {
        (None, Some(file)) => ringfence_exec::key::read_file(file, named)
            .map(Some)
            .map_err(unusable),
        (Some(name), None) => {
            let value = environment.get(name).map(|value| value.to_string_lossy());
            value
                .map(|value| Secret::new(&value))
                .transpose()
                .map_err(unusable)
        }
        _ => Err(wrong(
            &inject.host,
            &"set exactly one of `value_env` and `value_file`",
            "name a variable with `value_env`, or a file with `value_file`",
        )),
    }
}

fn wrong(host: &str, message: &dyn Display, hint: &str) -> Wrong {
    Wrong::new(
        "egress.inject",
        format!("for `{}`: {message}", host.escape_debug()),
        hint,
    )
}
