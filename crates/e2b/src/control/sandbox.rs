//! A sandbox of a client, as the control plane finds it and hands it over.

use std::sync::Arc;

use axum::Json;
use ringfence_sandbox::Sandbox;
use serde_json::{Value, json};

use crate::client::Client;
use crate::error::Error;
use crate::known::Known;
use crate::protocol::ENVD_VERSION;
use crate::service::Service;

/// Returns a sandbox of a client by its id.
pub(super) fn find(service: &Service, client: &Client, id: &str) -> Result<Arc<Sandbox>, Error> {
    match service.sandboxes.get(&client.scope, id) {
        Ok(found) if found.id().as_str() == id => Ok(found),
        Err(ended @ ringfence_sandbox::Error::Gone { .. }) => Err(Error::not_found(ended.to_string())),
        Ok(_) | Err(_) => {
            let id: String = id.chars().take(80).collect();
            Err(Error::not_found(format!("sandbox `{id}` was not found")))
        }
    }
}

/// Returns the answer that gives a client its sandbox.
pub(super) fn handed_over(client: &Client, sandbox: &Sandbox, known: &Known) -> Json<Value> {
    Json(json!({
        "sandboxID": sandbox.id().as_str(),
        "templateID": known.shared.settings.template,
        "clientID": "ringfence",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": known.token.as_str(),
        "trafficAccessToken": known.traffic_token.as_str(),
        "domain": client.domain,
    }))
}
