//! The sandboxes of a server as E2B's clients know them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use ringfence_policy::Scope;
use ringfence_sandbox::{Sandbox, SandboxState, Sandboxes};
use serde_json::Value;

use crate::envd::{Signature, Tags, Watchers};
use crate::error::Error;
use crate::target::Target;
use crate::token::{Token, header};
use crate::{control, envd, interpreter};

/// The holder of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Owner of what it makes.
    pub scope: Scope,
    /// Name of the credential in records; no part of a secret.
    pub name: String,
    /// Domain below which it has reached the server and reaches sandboxes, with the port; `None` at an address without names.
    pub domain: Option<String>,
}

/// The part of a request's body that its record shows: attached to the response.
#[derive(Debug, Clone)]
pub struct Described(pub Value);

/// The sandboxes of a server, with what E2B's clients know of each.
#[derive(Debug)]
pub struct Service {
    pub(crate) sandboxes: Arc<Sandboxes>,
    known: Mutex<BTreeMap<String, Arc<Known>>>,
}

/// A sandbox as E2B's clients know it, with its tokens.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) client: Client,
    pub(crate) template: String,
    /// Opens its files, processes and interpreters.
    pub(crate) token: Token,
    /// Opens its interpreters alone.
    pub(crate) traffic_token: Token,
    /// Tags of processes.
    pub(crate) tags: Tags,
    pub(crate) watchers: Watchers,
}

/// A sandbox that a request is for, once its token is checked.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    sandboxes: Arc<Sandboxes>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) known: Arc<Known>,
}

impl Opened {
    /// Returns `true` until the sandbox ends.
    pub(crate) fn is_running(&self) -> bool {
        let found = self
            .sandboxes
            .get(&self.known.client.scope, self.sandbox.id().as_str());
        found.is_ok()
    }
}

/// A request whose credential was right.
#[derive(Debug)]
pub struct Admitted {
    client: Client,
    plane: Plane,
}

#[derive(Debug)]
enum Plane {
    Envd(Opened),
    Interpreter(Opened),
}

impl Admitted {
    /// Returns the holder of the key that made the sandbox.
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

impl Service {
    /// Creates the service of these sandboxes.
    pub fn new(sandboxes: Arc<Sandboxes>) -> Self {
        Self {
            sandboxes,
            known: Mutex::default(),
        }
    }

    /// Answers a request to the control plane by a client whose key has been checked.
    pub async fn control(&self, client: &Client, request: Request) -> Response {
        let answer = control::answer(self, client, request).await;
        answer.unwrap_or_else(IntoResponse::into_response)
    }

    /// Forgets the tokens of sandboxes of this client's owner that were made for other clients whose keys have ended.
    pub fn forget_ended(&self, client: &Client, has_ended: impl Fn(&str) -> bool) {
        self.known().retain(|_, known| {
            let of = &known.client;
            of.scope != client.scope || of.name == client.name || !has_ended(&of.name)
        });
    }

    /// Checks the token or signature of a request to a sandbox.
    ///
    /// # Errors
    /// If it is wrong or missing, or there is no such sandbox.
    pub fn admit(&self, target: &Target, request: &Request) -> Result<Admitted, Error> {
        let (opened, plane): (Opened, fn(Opened) -> Plane) = match target {
            Target::Control => return Err(Error::internal("the control plane takes keys".to_owned())),
            Target::Refused(error) => return Err(error.clone()),
            Target::Signed => (self.signed(request)?, Plane::Envd),
            Target::Envd(id) => {
                let opened = self.open(id)?;
                if !envd::is_open(request) {
                    let given = header(request.headers(), "x-access-token");
                    let signature = || Signature::of(request)?.check(&opened.known.token);
                    match given {
                        Some(given) if opened.known.token.is(given) => {}
                        Some(_) => return Err(Error::unauthenticated("invalid access token")),
                        None if envd::is_signable(request) => signature()?,
                        None => return Err(Error::unauthenticated("missing access token")),
                    }
                }
                (opened, Plane::Envd)
            }
            Target::Interpreter(id) => {
                let opened = self.open(id)?;
                if !interpreter::is_open(request) {
                    let token = header(request.headers(), "x-access-token");
                    let traffic = header(request.headers(), "e2b-traffic-access-token");
                    let known = &opened.known;
                    let is_right = token.is_some_and(|token| known.token.is(token))
                        || traffic.is_some_and(|token| known.traffic_token.is(token));
                    if !is_right {
                        return Err(Error::unauthenticated("missing or invalid traffic access token"));
                    }
                }
                (opened, Plane::Interpreter)
            }
        };
        Ok(Admitted {
            client: opened.known.client.clone(),
            plane: plane(opened),
        })
    }

    /// Answers a request that was admitted.
    pub async fn answer(&self, admitted: Admitted, request: Request) -> Response {
        let answer = match admitted.plane {
            Plane::Envd(opened) => envd::answer(opened, request).await,
            Plane::Interpreter(opened) => interpreter::answer(opened, request).await,
        };
        answer.unwrap_or_else(IntoResponse::into_response)
    }

    /// Finds the sandbox whose token made the signature of a request.
    fn signed(&self, request: &Request) -> Result<Opened, Error> {
        let signature = Signature::of(request)?;
        let all: Vec<(String, Arc<Known>)> = self
            .known()
            .iter()
            .map(|(id, known)| (id.clone(), Arc::clone(known)))
            .collect();
        let found = all.into_iter().find(|(_, known)| signature.is_by(&known.token));
        let (id, known) = found.ok_or_else(|| Error::unauthenticated("invalid signature"))?;
        signature.check(&known.token)?;
        self.open(&id)
    }

    /// Returns a sandbox that runs.
    fn open(&self, id: &str) -> Result<Opened, Error> {
        let known = self.known().get(id).cloned();
        let known = known.ok_or_else(|| Error::gone(id))?;
        let sandbox = self.sandboxes.get(&known.client.scope, id);
        let sandbox = sandbox.map_err(|_| {
            self.known().remove(id);
            Error::gone(id)
        })?;
        // To E2B's clients a paused sandbox is none until somebody connects.
        if sandbox.state() == SandboxState::Paused {
            return Err(Error::gone(id));
        }
        Ok(Opened {
            sandboxes: Arc::clone(&self.sandboxes),
            sandbox,
            known,
        })
    }

    /// Returns what clients know of a sandbox, with new tokens if none of them has asked before.
    pub(crate) fn know(
        &self,
        client: &Client,
        sandbox: &Sandbox,
        template: &str,
    ) -> Result<Arc<Known>, Error> {
        let mut all = self.known();
        if let Some(known) = all.get(sandbox.id().as_str()) {
            return Ok(Arc::clone(known));
        }
        let token = || Token::random().ok_or_else(|| Error::internal("no random bytes".to_owned()));
        let known = Arc::new(Known {
            client: client.clone(),
            template: template.to_owned(),
            token: token()?,
            traffic_token: token()?,
            tags: Tags::default(),
            watchers: Watchers::default(),
        });
        all.retain(|id, known| self.sandboxes.get(&known.client.scope, id).is_ok());
        all.insert(sandbox.id().to_string(), Arc::clone(&known));
        Ok(known)
    }

    /// Returns the template of a sandbox.
    pub(crate) fn template_of(&self, id: &str) -> String {
        let template = self.known().get(id).map(|known| known.template.clone());
        template.unwrap_or_else(|| control::BASE.to_owned())
    }

    pub(crate) fn forget(&self, id: &str) {
        self.known().remove(id);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
