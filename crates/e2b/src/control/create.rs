//! Creates sandboxes.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringfence_policy::Timeout;
use ringfence_sandbox::{KeyHosts, NewSandbox, OnExpiry, SandboxLimits, SnapshotInfo, Unclaimed};
use serde::Deserialize;
use serde_json::{Value, json};

use super::copies::processes;
use super::network;
use super::sandbox::handed_over;
use crate::body::{self, Described};
use crate::client::{BeginRun, Client};
use crate::envd::ACCOUNT;
use crate::error::Error;
use crate::ingress::Ingress;
use crate::known::Settings;
use crate::protocol::{BASE, is_machine};
use crate::service::Service;
use crate::templates::start::{self, Sockets};

/// A version of the route, which differ in the lifetime of sandboxes that ask for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

impl Version {
    const fn lifetime(self) -> u64 {
        match self {
            Self::One => 15,
            Self::Two => 300,
        }
    }
}

/// A sandbox to create. Unknown members are ignored, as E2B does; known ones that would weaken or change what a sandbox
/// is are refused by name.
#[derive(Debug, Deserialize)]
struct CreateSandbox {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<u64>,
    metadata: Option<BTreeMap<String, String>>,
    #[serde(rename = "envVars")]
    env: Option<BTreeMap<String, String>>,
    allow_internet_access: Option<bool>,
    #[serde(rename = "autoPause")]
    auto_pause: Option<bool>,
    #[serde(rename = "autoResume")]
    auto_resume: Option<AutoResume>,
    #[serde(rename = "autoPauseMemory")]
    auto_pause_memory: Option<bool>,
    network: Option<Value>,
    iam: Option<Value>,
    mcp: Option<Value>,
    #[serde(rename = "volumeMounts")]
    volumes: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
struct AutoResume {
    #[serde(default)]
    enabled: bool,
}

pub(super) async fn create(
    service: &Service,
    client: &Client,
    begin_run: &BeginRun,
    version: Version,
    request: Request,
) -> Result<Response, Error> {
    let asked: CreateSandbox = body::json(request).await?;
    let template = asked.template.clone();
    let snapshot = match is_machine(&template) {
        true => None,
        false => Some(find(service, client, &template)?),
    };
    let ingress = Ingress::of(asked.network.as_ref())?;
    let auto_resume = asked.auto_resume.as_ref().is_some_and(|asked| asked.enabled);
    if let Some(snapshot) = &snapshot {
        service.templates.check_open(snapshot)?;
    }
    let of_template = snapshot.as_ref().and_then(|snapshot| snapshot.template.clone());
    // Names of ports are good for something below a domain alone. Elsewhere sockets are for those who ask for them.
    let sockets = match client.domain.is_some() || asked.asks_for_visitors() {
        true => Sockets::Some,
        false => Sockets::None,
    };
    let new = NewSandbox {
        ports: sockets == Sockets::Some,
        most: client.most_sandboxes,
        ..asked.checked(version, snapshot, service.sandboxes.key_hosts())?
    };
    let sandbox = service.sandboxes.create(&client.scope, new).await?;
    // A client that leaves while the template's commands start has no id of it, and E2B's protocol no keys by which it could ask again.
    let unclaimed = Unclaimed::new(&service.sandboxes, &client.scope, &sandbox);
    if let Some(of_template) = of_template
        .as_ref()
        .filter(|template| start::has_commands(template))
    {
        // Programs of the client's choice, as those of a build's steps.
        begin_run().map_err(Error::busy)?;
        start::start(&sandbox, of_template, sockets).await?;
    }
    let settings = Settings {
        template: template.clone(),
        ingress,
        auto_resume,
    };
    let known = service.know(client, &sandbox, settings)?;
    unclaimed.keep();
    let described = Described(json!({"template": template, "id": sandbox.id().as_str()}));
    Ok((
        StatusCode::CREATED,
        Extension(described),
        handed_over(client, &sandbox, &known),
    )
        .into_response())
}

impl CreateSandbox {
    fn checked(
        self,
        version: Version,
        snapshot: Option<SnapshotInfo>,
        open: &KeyHosts,
    ) -> Result<NewSandbox, Error> {
        self.check_support()?;
        let egress = network::asked(open, self.allow_internet_access, self.network.as_ref())?;
        let snapshot = snapshot.as_ref();
        let new = NewSandbox {
            limits: snapshot.map_or_else(SandboxLimits::default, SnapshotInfo::limits),
            snapshot: snapshot.map(|snapshot| snapshot.id.to_string()),
            on_expiry: match self.auto_pause {
                Some(true) => OnExpiry::Pause,
                Some(false) | None => OnExpiry::Kill,
            },
            at_expiry: processes(self.auto_pause_memory),
            account: ACCOUNT,
            egress,
            metadata: self.metadata.unwrap_or_default(),
            timeout: Some(timeout(self.timeout.unwrap_or(version.lifetime()))?),
            ..NewSandbox::default()
        };
        start::with_settings(new, snapshot, self.env.unwrap_or_default())
    }

    fn asks_for_visitors(&self) -> bool {
        let network = self.network.as_ref();
        network.is_some_and(|network| network["allowPublicTraffic"] == true)
    }

    fn check_support(&self) -> Result<(), Error> {
        let refuse = |what: &str, hint: &str| Err(Error::not_supported(what, hint));
        let wakes = self.auto_resume.as_ref().is_some_and(|asked| asked.enabled);
        if wakes && self.auto_pause == Some(true) && self.auto_pause_memory == Some(false) {
            return Err(Error::invalid(
                "`autoResume` with `autoPauseMemory: false`: a sandbox without its processes is resumed by `connect` alone",
            ));
        }
        if self.iam.as_ref().is_some_and(|value| !value.is_null()) {
            return refuse("`iam`", "leave it out");
        }
        if self.mcp.as_ref().is_some_and(|value| !value.is_null()) {
            return refuse("`mcp`", "leave it out");
        }
        if self.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty()) {
            return refuse("`volumeMounts`", "write the files into the sandbox");
        }
        Ok(())
    }
}

/// Returns the snapshot that a template names.
fn find(service: &Service, client: &Client, template: &str) -> Result<SnapshotInfo, Error> {
    service.sandboxes.find_snapshot(&client.scope, template).map_err(|_| {
        let name: String = template.chars().take(80).collect();
        Error::not_found(format!(
            "template `{name}` was not found: there are `{BASE}`, `code-interpreter-v1`, your snapshots, and templates that you build with `Template.build`"
        ))
    })
}

/// Returns a lifetime. E2B's 0 is the shortest one.
pub(super) fn timeout(seconds: u64) -> Result<Timeout, Error> {
    let seconds = if seconds == 0 { 0.001 } else { seconds as f64 };
    Timeout::try_from(seconds).map_err(|error| Error::invalid(format!("`timeout`: {error}")))
}
