//! The sandboxes of a server as E2B's clients know them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use ringfence_policy::Scope;
use ringfence_sandbox::{Sandbox, SandboxState, Sandboxes};
use serde_json::Value;

use crate::envd::{Signature, Tags, Watchers};
use crate::error::Error;
use crate::ingress::{Ingress, Visitors};
use crate::program::Visit;
use crate::target::Target;
use crate::templates::Templates;
use crate::token::{Token, header};
use crate::{control, envd, interpreter, program};

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

/// Resolves when a client's key is revoked or expires; never, if it cannot.
pub type KeyEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The part of a request's body that its record shows: attached to the response.
#[derive(Debug, Clone)]
pub struct Described(pub Value);

/// The sandboxes of a server, with what E2B's clients know of each.
#[derive(Debug)]
pub struct Service {
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) templates: Templates,
    known: Mutex<BTreeMap<String, Arc<Known>>>,
}

/// A sandbox as E2B's clients know it, with its tokens.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    /// Opens its files, processes and interpreters.
    pub(crate) token: Token,
    /// Opens its interpreters and programs alone.
    pub(crate) traffic_token: Token,
    /// Tags of processes.
    pub(crate) tags: Tags,
    pub(crate) watchers: Watchers,
}

/// Settings of a sandbox that E2B's clients know and nobody else.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) template: String,
    pub(crate) ingress: Ingress,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            template: control::BASE.to_owned(),
            ingress: Ingress::default(),
        }
    }
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
    is_anonymous: bool,
    plane: Plane,
}

#[derive(Debug)]
enum Plane {
    Envd(Opened),
    Interpreter(Opened),
    Program(Visit),
}

impl Admitted {
    /// Returns the holder of the key in whose name the request is answered: the one that made the sandbox, unless it was named by
    /// another of the same owner.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns `true` if the request had no credential, and needed none.
    pub const fn is_anonymous(&self) -> bool {
        self.is_anonymous
    }
}

impl Service {
    /// Creates the service of these sandboxes, whose clients may build templates on these images.
    pub fn new(sandboxes: Arc<Sandboxes>, template_images: Vec<String>) -> Self {
        Self {
            sandboxes,
            templates: Templates::new(template_images),
            known: Mutex::default(),
        }
    }

    /// Answers a request to the control plane by a client whose key has been checked, and ends what goes on behind it with the key.
    pub async fn control(&self, client: &Client, key_end: KeyEnd, request: Request) -> Response {
        let answer = control::answer(self, client, key_end, request).await;
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
            Target::Program { id, port } => return self.admit_visitor(id, *port, request),
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
            is_anonymous: false,
            plane: plane(opened),
        })
    }

    /// Checks the traffic token of a request to a program, unless programs of the sandbox are public.
    fn admit_visitor(&self, id: &str, port: u16, request: &Request) -> Result<Admitted, Error> {
        let Opened { sandbox, known, .. } = self.open(id)?;
        let given = header(request.headers(), "e2b-traffic-access-token");
        let ingress = &known.settings.ingress;
        let is_anonymous = match given {
            Some(given) if known.traffic_token.is(given) => false,
            _ if ingress.visitors == Visitors::Anyone => true,
            Some(_) => {
                let why = "Provided token in header 'e2b-traffic-access-token' is invalid";
                return Err(Error::no_visitor(id, why));
            }
            None => {
                let why = "Token header 'e2b-traffic-access-token' is missing";
                return Err(Error::no_visitor(id, why));
            }
        };
        let host = ingress.host(port);
        Ok(Admitted {
            client: known.client.clone(),
            is_anonymous,
            plane: Plane::Program(Visit { sandbox, port, host }),
        })
    }

    /// Lets a client whose key has been checked in to programs of its sandboxes, also of those that it created by another protocol.
    /// `None` if the request is for anything else.
    pub fn admit_owner(&self, client: &Client, target: &Target) -> Option<Admitted> {
        let Target::Program { id, port } = target else {
            return None;
        };
        let sandbox = self.sandboxes.get(&client.scope, id).ok()?;
        if sandbox.id().as_str() != id || sandbox.state() == SandboxState::Paused {
            return None;
        }
        let known = self.known().get(id).cloned();
        let host = known.and_then(|known| known.settings.ingress.host(*port));
        let port = *port;
        Some(Admitted {
            client: client.clone(),
            is_anonymous: false,
            plane: Plane::Program(Visit { sandbox, port, host }),
        })
    }

    /// Answers a request that was admitted.
    pub async fn answer(&self, admitted: Admitted, request: Request) -> Response {
        let answer = match admitted.plane {
            Plane::Envd(opened) => envd::answer(opened, request).await,
            Plane::Interpreter(opened) => interpreter::answer(opened, request).await,
            Plane::Program(visit) => program::answer(visit, request).await,
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
        settings: Settings,
    ) -> Result<Arc<Known>, Error> {
        let mut all = self.known();
        if let Some(known) = all.get(sandbox.id().as_str()) {
            return Ok(Arc::clone(known));
        }
        let token = || Token::random().ok_or_else(|| Error::internal("no random bytes".to_owned()));
        let known = Arc::new(Known {
            client: client.clone(),
            settings,
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
        let settings = self.known().get(id).map(|known| known.settings.clone());
        settings.unwrap_or_default().template
    }

    pub(crate) fn forget(&self, id: &str) {
        self.known().remove(id);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
