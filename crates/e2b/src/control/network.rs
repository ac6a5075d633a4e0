//! Rules for the network of sandboxes. Those of keys have none: a rule that closes it holds already, and one that opens it is refused.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::sandbox::find;
use crate::body;
use crate::client::Client;
use crate::error::Error;
use crate::service::Service;

/// Members of a `network` that open no host.
const HARMLESS: [&str; 3] = ["denyOut", "allowPublicTraffic", "maskRequestHost"];
/// The rule against all hosts.
const EVERYTHING: &str = "0.0.0.0/0";

/// Checks that a new sandbox asks for nothing that opens hosts.
pub(super) fn check(allows_internet: Option<bool>, network: Option<&Value>) -> Result<(), Error> {
    if allows_internet == Some(true) {
        return Err(Error::not_supported(
            "`allow_internet_access`",
            "sandboxes of keys have no network; leave it out or set it to false",
        ));
    }
    let Some(network) = network.filter(|network| !network.is_null()) else {
        return Ok(());
    };
    if is_there(&network["httpsPorts"]) {
        let hint = "programs are reached by HTTP without TLS: leave it out";
        return Err(Error::not_supported("`network.httpsPorts`", hint));
    }
    check_harmless(network, &HARMLESS)
}

/// Replaces the rules of a sandbox that runs, by such as hold already: its network is and stays closed.
pub(super) async fn update(
    service: &Service,
    client: &Client,
    id: &str,
    request: Request,
) -> Result<Response, Error> {
    let sandbox = find(service, client, id)?;
    let rules: Value = body::json(request).await?;
    check_harmless(&rules, &["allow_internet_access", "denyOut"])?;
    let denied = rules["denyOut"].as_array();
    let denies_all = denied.is_some_and(|denied| denied.iter().any(|rule| rule == EVERYTHING));
    // Whoever leaves rules out clears them, and then expects the internet.
    let is_closed = match &rules["allow_internet_access"] {
        Value::Bool(allows) => !allows,
        _ => denies_all,
    };
    if !is_closed || !sandbox.info().allowed_hosts.is_empty() {
        return Err(Error::not_supported(
            "rules of the network that change it",
            "sandboxes of keys have no network: `allow_internet_access: false` or `denyOut` of 0.0.0.0/0 holds already",
        ));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn check_harmless(network: &Value, harmless: &[&str]) -> Result<(), Error> {
    let members = network
        .as_object()
        .ok_or_else(|| Error::invalid("expected an object as `network`"))?;
    let opens = |(name, value): (&String, &Value)| is_there(value) && !harmless.contains(&name.as_str());
    match members.iter().any(opens) {
        false => Ok(()),
        true => Err(Error::not_supported(
            "`network` with rules that open hosts",
            "sandboxes of keys have no network",
        )),
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
