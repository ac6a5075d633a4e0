//! Rules for the network of sandboxes. It is closed, unless a new sandbox asks for hosts that the operator has opened to keys.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringfence_policy::{EgressPolicy, HostPattern};
use ringfence_sandbox::{ClosedHost, KeyHosts};
use serde_json::Value;

use super::sandbox::find;
use crate::body;
use crate::client::Client;
use crate::error::Error;
use crate::service::Service;

/// Members of a `network` that open no host to programs.
const HARMLESS: [&str; 4] = ["allowOut", "denyOut", "allowPublicTraffic", "maskRequestHost"];
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
        check_harmless(
            rules,
            &HARMLESS,
            "`allowOut`, and `denyOut` of 0.0.0.0/0, tell all that can be told",
        )?;
    }
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

/// Replaces the rules of a sandbox that runs, by such as hold already: what has no network stays without.
pub(super) async fn update(
    service: &Service,
    client: &Client,
    id: &str,
    request: Request,
) -> Result<Response, Error> {
    let sandbox = find(service, client, id)?;
    let rules: Value = body::json(request).await?;
    check_harmless(
        &rules,
        &["allow_internet_access", "denyOut"],
        "ask for hosts at the sandbox's creation",
    )?;
    // Whoever leaves rules out clears them, and then expects the internet.
    let is_closed = match &rules["allow_internet_access"] {
        Value::Bool(allows) => !allows,
        _ => denies_all(&rules),
    };
    if !sandbox.info().allowed_hosts.is_empty() {
        return Err(Error::not_supported(
            "to change the network of a sandbox that has one",
            "create another sandbox with the hosts that it needs",
        ));
    }
    if !is_closed {
        return Err(Error::not_supported(
            "to open the network of a sandbox that runs",
            "ask for it at the sandbox's creation: `allow_internet_access: false` or `denyOut` of 0.0.0.0/0 holds already",
        ));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
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
