//! Rules for the network of sandboxes. It is closed, unless one asks for hosts that the operator has opened to keys.

use axum::Extension;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringfence_policy::{EgressPolicy, HostPattern};
use ringfence_sandbox::{ClosedHost, Error as SandboxError, KeyHosts};
use serde_json::{Value, json};

use super::sandbox::find;
use crate::body::{self, Described};
use crate::client::Client;
use crate::error::Error;
use crate::service::Service;

/// Members of the `network` of a new sandbox that are served.
const NEW: [&str; 4] = ["allowOut", "denyOut", "allowPublicTraffic", "maskRequestHost"];
/// Members of an update that are served.
const EGRESS: [&str; 3] = ["allow_internet_access", "allowOut", "denyOut"];
/// The hint for other members.
const TOLD_ALL: &str = "`allowOut`, and `denyOut` of 0.0.0.0/0, tell all that can be told";
/// The rule against all hosts.
const EVERYTHING: &str = "0.0.0.0/0";

/// Returns the policy of a new sandbox that asks for this network; `None` for one without.
///
/// As E2B has it, `allowOut` comes before `denyOut`, and the internet is all else; here it is the hosts that are open.
pub(super) fn asked(
    open: &KeyHosts,
    allows_internet: Option<bool>,
    network: Option<&Value>,
) -> Result<Option<EgressPolicy>, Error> {
    let rules = network
        .filter(|network| !network.is_null())
        .unwrap_or(&Value::Null);
    if is_there(&rules["httpsPorts"]) {
        let hint = "programs are reached by HTTP without TLS: leave it out";
        return Err(Error::not_supported("`network.httpsPorts`", hint));
    }
    if !rules.is_null() {
        check_harmless(rules, &NEW, TOLD_ALL)?;
    }
    opened(open, allows_internet, rules)
}

/// Returns the policy of a sandbox with these rules; `None` if they open no host.
fn opened(
    open: &KeyHosts,
    allows_internet: Option<bool>,
    rules: &Value,
) -> Result<Option<EgressPolicy>, Error> {
    let is_wide = allows_internet == Some(true) && !denies_all(rules);
    if is_wide && is_there(&rules["denyOut"]) {
        let hint = "only 0.0.0.0/0 can be denied; name the hosts to open in `allowOut`";
        return Err(Error::not_supported("`network.denyOut` of some addresses", hint));
    }
    if is_wide {
        return open.all().map(Some).ok_or_else(|| {
            Error::not_supported(
                "`allow_internet_access`",
                "sandboxes of keys have no network, unless the operator opens hosts in `engine.sandbox_hosts`; \
                 leave it out or set it to false",
            )
        });
    }
    let hosts = match &rules["allowOut"] {
        Value::Null => return Ok(None),
        Value::Array(hosts) if hosts.is_empty() => return Ok(None),
        Value::Array(hosts) => hosts.iter().map(host).collect::<Result<_, _>>()?,
        _ => return Err(Error::invalid("expected a list as `network.allowOut`")),
    };
    open.only(hosts).map(Some).map_err(|ClosedHost(host)| {
        Error::not_supported(
            &format!("the host `{host}` in `network.allowOut`"),
            "sandboxes of keys reach only hosts that the operator opens in `engine.sandbox_hosts`",
        )
    })
}

fn host(rule: &Value) -> Result<HostPattern, Error> {
    let text = rule
        .as_str()
        .ok_or_else(|| Error::invalid("expected texts in `network.allowOut`"))?;
    text.parse()
        .map_err(|error| Error::invalid(format!("`network.allowOut`: {error}")))
}

fn denies_all(rules: &Value) -> bool {
    let denied = rules["denyOut"].as_array();
    denied.is_some_and(|denied| denied.iter().any(|rule| rule == EVERYTHING))
}

/// Adds the hosts that a sandbox may reach to its description.
pub(super) fn describe(detail: &mut Value, hosts: &[String]) {
    detail["allowInternetAccess"] = (!hosts.is_empty()).into();
    if !hosts.is_empty() {
        detail["network"]["allowOut"] = hosts.into();
        detail["network"]["denyOut"] = [EVERYTHING].as_slice().into();
    }
}

/// Replaces the rules of a sandbox that runs. They open what the same ones open at its creation.
pub(super) async fn update(
    service: &Service,
    client: &Client,
    id: &str,
    request: Request,
) -> Result<Response, Error> {
    let sandbox = find(service, client, id)?;
    let rules: Value = body::json(request).await?;
    check_harmless(&rules, &EGRESS, TOLD_ALL)?;
    let allows_internet = match &rules["allow_internet_access"] {
        Value::Null => None,
        Value::Bool(allows) => Some(*allows),
        _ => {
            return Err(Error::invalid(
                "expected a truth value as `allow_internet_access`",
            ));
        }
    };
    // E2B clears rules that are left out, and opens the internet then. At a sandbox's creation here that is no network.
    let is_open = allows_internet.is_none() && !denies_all(&rules) && !is_there(&rules["allowOut"]);
    if is_open && service.sandboxes.key_hosts().all().is_none() {
        return Err(Error::not_supported(
            "to open the network of a sandbox by leaving its rules out",
            "no host is open to sandboxes of keys here (`engine.sandbox_hosts`): close it by `allow_internet_access: false`, or `denyOut` of 0.0.0.0/0",
        ));
    }
    let allows_internet = if is_open { Some(true) } else { allows_internet };
    let egress = opened(service.sandboxes.key_hosts(), allows_internet, &rules)?;
    let hosts = egress.iter().flat_map(|policy| &policy.allowed);
    let hosts: Vec<String> = hosts.map(ToString::to_string).collect();
    sandbox.set_network(egress).map_err(|error| match error {
        SandboxError::NoSockets => Error::not_supported(
            "to open hosts to a sandbox that was created without a network",
            "create it with one of the hosts, or with `network.allowPublicTraffic`: its programs have sockets then",
        ),
        error => error.into(),
    })?;
    let described = Extension(Described(json!({"allowed_hosts": hosts})));
    Ok((StatusCode::NO_CONTENT, described).into_response())
}

fn check_harmless(network: &Value, harmless: &[&str], hint: &str) -> Result<(), Error> {
    let members = network
        .as_object()
        .ok_or_else(|| Error::invalid("expected an object as `network`"))?;
    let opens = |(name, value): (&String, &Value)| is_there(value) && !harmless.contains(&name.as_str());
    match members.iter().any(opens) {
        false => Ok(()),
        true => Err(Error::not_supported("these rules in `network`", hint)),
    }
}

/// Returns `true` for a value that is neither null nor empty.
fn is_there(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
