//! Parts of requests, as handlers take them.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Query, RawPathParams};
use axum::http::request::Parts;
use ringfence_policy::Scope;
use ringfence_sandbox::process::Process;
use ringfence_sandbox::{Error, Sandbox};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{ApiError, Reason};
use super::keys::Grant;
use super::state::Api;

/// The owner of what a request asks for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Owner {
    /// User on whose behalf the server's own user asks. Holders of keys have no others.
    user: Option<Scope>,
}

impl Owner {
    /// Returns the scope of what a client makes.
    pub(super) fn scope(&self, grant: &Grant) -> Result<Scope, ApiError> {
        match (grant.is_owner(), &self.user) {
            (true, Some(user)) => Ok(user.clone()),
            (true, None) => Ok(Scope::local()),
            (false, None) => {
                let scope = grant.scope();
                scope.ok_or_else(|| Error::Broken("its key has no scope".to_owned()).into())
            }
            (false, Some(_)) => Err(ApiError::new(
                Reason::PermissionDenied,
                "a key has its own sandboxes and no others",
                "leave `user` out",
            )),
        }
    }
}

/// The parameters of a query.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let parsed = Query::try_from_uri(&parts.uri);
        parsed
            .map(|Query(parameters)| Self(parameters))
            .map_err(|rejection| {
                ApiError::new(
                    Reason::InvalidArguments,
                    rejection.body_text(),
                    "GET /openapi.json describes the parameters",
                )
            })
    }
}

/// The client of a request.
pub(super) struct Client {
    /// Owner of what it makes.
    pub(super) scope: Scope,
    /// Set for the server's own user.
    pub(super) is_owner: bool,
    /// Sandboxes that it may have at a time, by the quota of its key.
    pub(super) most_sandboxes: Option<usize>,
}

impl FromRequestParts<Arc<Api>> for Client {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let Params(owner) = Params::<Owner>::from_request_parts(parts, api).await?;
        let grant = parts.extensions.get::<Arc<Grant>>();
        let grant = grant.ok_or_else(|| ApiError::from(Error::Broken("nobody asks".to_owned())))?;
        Ok(Self {
            scope: owner.scope(grant)?,
            is_owner: grant.is_owner(),
            most_sandboxes: grant.allowance.most_sandboxes(),
        })
    }
}

/// Returns a part of the path.
pub(super) async fn part(name: &str, parts: &mut Parts, api: &Arc<Api>) -> Result<String, ApiError> {
    let found = RawPathParams::from_request_parts(parts, api).await;
    let found = found.map_err(|_| ApiError::from(Error::Invalid("the path is not UTF-8".to_owned())))?;
    let value = found.iter().find(|(known, _)| *known == name);
    Ok(value.map(|(_, value)| value.to_owned()).unwrap_or_default())
}

/// The id or name of the path's sandbox.
pub(super) struct IdOrName(pub(super) String);

impl FromRequestParts<Arc<Api>> for IdOrName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        part("id", parts, api).await.map(Self)
    }
}

/// The path's sandbox, which the client may use.
pub(super) struct InSandbox(pub(super) Arc<Sandbox>);

impl FromRequestParts<Arc<Api>> for InSandbox {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let client = Client::from_request_parts(parts, api).await?;
        let id = part("id", parts, api).await?;
        Ok(Self(api.sandboxes.get(&client.scope, &id)?))
    }
}

/// The process that `{id}` and `{pid}` of the path name.
pub(super) struct InProcess(pub(super) Arc<Process>);

impl FromRequestParts<Arc<Api>> for InProcess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let InSandbox(sandbox) = InSandbox::from_request_parts(parts, api).await?;
        let pid = part("pid", parts, api).await?;
        let number = pid
            .parse()
            .map_err(|_| Error::Invalid("a process id is a number".to_owned()))?;
        Ok(Self(sandbox.process(number)?))
    }
}

/// The path's process, in a sandbox that is not paused.
pub(super) struct InActiveProcess(pub(super) Arc<Process>);

impl FromRequestParts<Arc<Api>> for InActiveProcess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let InSandbox(sandbox) = InSandbox::from_request_parts(parts, api).await?;
        sandbox.check_running()?;
        let InProcess(process) = InProcess::from_request_parts(parts, api).await?;
        Ok(Self(process))
    }
}

/// The path's TCP port.
pub(super) struct Port(pub(super) u16);

impl FromRequestParts<Arc<Api>> for Port {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let port = part("port", parts, api)
            .await?
            .parse()
            .ok()
            .filter(|port| *port != 0);
        let port = port.ok_or_else(|| Error::Invalid("a port is a number from 1 to 65535".to_owned()))?;
        Ok(Self(port))
    }
}

/// The id of the path's context.
pub(super) struct ContextId(pub(super) String);

impl FromRequestParts<Arc<Api>> for ContextId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        part("context", parts, api).await.map(Self)
    }
}
