//! The sandboxes of a server as E2B's clients know them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use ringfence_policy::{Scope, Timeout};
use ringfence_sandbox::{Sandbox, SandboxState, Sandboxes};
use serde_json::Value;

use crate::envd::{FileMetadata, Signature, Tags, Watchers};
use crate::error::Error;
use crate::ingress::{Ingress, Visitors};
use crate::reverse_proxy::{AnonymousVisitors, Visit};
use crate::target::Target;
use crate::templates::Templates;
use crate::token::{Token, header};
use crate::{control, envd, interpreter, reverse_proxy};

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
    known: Mutex<BTreeMap<String, Entry>>,
}

/// A sandbox that some of its owner's clients know.
#[derive(Debug)]
struct Entry {
    scope: Scope,
    shared: Arc<Shared>,
    /// The first is the one that made it, unless its key has ended.
    clients: Vec<Arc<Known>>,
}

/// The part of a sandbox that all its clients know.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// Tags of processes.
    pub(crate) tags: Tags,
    pub(crate) watchers: Watchers,
    pub(crate) file_metadata: FileMetadata,
    anonymous_visitors: AnonymousVisitors,
}

/// A sandbox as one of E2B's clients knows it. Its tokens are this client's alone: what they open is done in its name.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    /// Opens its files, processes and interpreters.
    pub(crate) token: Token,
    /// Opens its interpreters and programs alone.
    pub(crate) traffic_token: Token,
}

/// Settings of a sandbox that E2B's clients know and nobody else.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) template: String,
    pub(crate) ingress: Ingress,
    /// Set if a request resumes it while it is paused.
    pub(crate) auto_resume: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            template: control::BASE.to_owned(),
            ingress: Ingress::default(),
            auto_resume: false,
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
    /// Returns the holder of the key in whose name the request is answered: the one whose token it has, and for anonymous visitors the one that
    /// made the sandbox.
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
        for entry in self
            .known()
            .values_mut()
            .filter(|entry| entry.scope == client.scope)
        {
            entry
                .clients
                .retain(|known| known.client.name == client.name || !has_ended(&known.client.name));
        }
    }

    /// Forgets what an owner's clients know and build. Its sandboxes and snapshots are removed by others.
    pub fn clear(&self, scope: &Scope) {
        self.known().retain(|_, entry| entry.scope != *scope);
        self.templates.clear(scope);
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
                let given = header(request.headers(), "x-access-token");
                let signature = Signature::of(request).ok();
                let opened = self.open(id, |known| match given {
                    Some(given) => known.token.is(given),
                    None => signature
                        .as_ref()
                        .is_some_and(|signature| signature.is_by(&known.token)),
                })?;
                if !envd::is_open(request) {
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
                let token = header(request.headers(), "x-access-token");
                let traffic = header(request.headers(), "e2b-traffic-access-token");
                let is_right = |known: &Known| {
                    token.is_some_and(|token| known.token.is(token))
                        || traffic.is_some_and(|token| known.traffic_token.is(token))
                };
                let opened = self.open(id, is_right)?;
                if !interpreter::is_open(request) && !is_right(&opened.known) {
                    return Err(Error::unauthenticated("missing or invalid traffic access token"));
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
        let given = header(request.headers(), "e2b-traffic-access-token");
        let opened = self.open(id, |known| {
            given.is_some_and(|given| known.traffic_token.is(given))
        })?;
        let Opened { sandbox, known, .. } = opened;
        let ingress = &known.shared.settings.ingress;
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
        let visit = Visit {
            sandbox,
            port,
            host: ingress.host(port),
            anonymous: match is_anonymous {
                true => Some(known.shared.anonymous_visitors.enter()?),
                false => None,
            },
        };
        Ok(Admitted {
            client: known.client.clone(),
            is_anonymous,
            plane: Plane::Program(visit),
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
        let shared = self.known().get(id).map(|entry| Arc::clone(&entry.shared));
        let visit = Visit {
            sandbox,
            port: *port,
            host: shared.and_then(|shared| shared.settings.ingress.host(*port)),
            anonymous: None,
        };
        Some(Admitted {
            client: client.clone(),
            is_anonymous: false,
            plane: Plane::Program(visit),
        })
    }

    /// Answers a request that was admitted.
    pub async fn answer(&self, admitted: Admitted, request: Request) -> Response {
        let answer = match self.wake(&admitted).await {
            Err(error) => Err(error),
            Ok(()) => match admitted.plane {
                Plane::Envd(opened) => envd::answer(opened, request).await,
                Plane::Interpreter(opened) => interpreter::answer(opened, request).await,
                Plane::Program(visit) => reverse_proxy::answer(visit, request).await,
            },
        };
        answer.unwrap_or_else(IntoResponse::into_response)
    }

    /// Resumes a paused sandbox for a request that may do so, as a connection without a timeout does.
    async fn wake(&self, admitted: &Admitted) -> Result<(), Error> {
        let sandbox = match &admitted.plane {
            Plane::Envd(opened) | Plane::Interpreter(opened) => &opened.sandbox,
            Plane::Program(visit) => &visit.sandbox,
        };
        if sandbox.state() == SandboxState::Running {
            return Ok(());
        }
        let (scope, id) = (&admitted.client.scope, sandbox.id().as_str());
        self.sandboxes.resume(scope, id).await?;
        self.sandboxes
            .set_timeout(scope, id, Timeout::seconds(control::LIFETIME))?;
        Ok(())
    }

    /// Finds the sandbox whose token made the signature of a request.
    fn signed(&self, request: &Request) -> Result<Opened, Error> {
        let signature = Signature::of(request)?;
        let all: Vec<(String, Arc<Known>)> = self
            .known()
            .iter()
            .flat_map(|(id, entry)| entry.clients.iter().map(|known| (id.clone(), Arc::clone(known))))
            .collect();
        let found = all.into_iter().find(|(_, known)| signature.is_by(&known.token));
        let (id, known) = found.ok_or_else(|| Error::unauthenticated("invalid signature"))?;
        signature.check(&known.token)?;
        self.open(&id, |other| other.client == known.client)
    }

    /// Returns a sandbox that runs or may be woken, as the client knows it whose credential is right, or else as the first one does.
    fn open(&self, id: &str, is_right: impl Fn(&Known) -> bool) -> Result<Opened, Error> {
        let known = self.known().get(id).and_then(|entry| {
            let right = entry.clients.iter().find(|known| is_right(known));
            right.or(entry.clients.first()).cloned()
        });
        let known = known.ok_or_else(|| Error::gone(id))?;
        let sandbox = self.sandboxes.get(&known.client.scope, id);
        let sandbox = sandbox.map_err(|_| {
            self.known().remove(id);
            Error::gone(id)
        })?;
        // To E2B's clients a paused sandbox is none until somebody connects, or may wake it.
        let Settings {
            ingress, auto_resume, ..
        } = &known.shared.settings;
        let may_wake = || *auto_resume && (is_right(&known) || ingress.visitors == Visitors::Anyone);
        if sandbox.state() == SandboxState::Paused && !may_wake() {
            return Err(Error::gone(id));
        }
        Ok(Opened {
            sandboxes: Arc::clone(&self.sandboxes),
            sandbox,
            known,
        })
    }

    /// Returns what a client knows of a sandbox, with new tokens if it has not asked before.
    pub(crate) fn know(
        &self,
        client: &Client,
        sandbox: &Sandbox,
        settings: Settings,
    ) -> Result<Arc<Known>, Error> {
        let token = || Token::random().ok_or_else(|| Error::internal("no random bytes".to_owned()));
        let mut all = self.known();
        if !all.contains_key(sandbox.id().as_str()) {
            all.retain(|id, entry| self.sandboxes.get(&entry.scope, id).is_ok());
        }
        let entry = all.entry(sandbox.id().to_string()).or_insert_with(|| Entry {
            scope: client.scope.clone(),
            shared: Arc::new(Shared {
                settings,
                ..Shared::default()
            }),
            clients: Vec::new(),
        });
        let of_client = |known: &&Arc<Known>| known.client.name == client.name;
        if let Some(known) = entry.clients.iter().find(of_client) {
            return Ok(Arc::clone(known));
        }
        let known = Arc::new(Known {
            client: client.clone(),
            shared: Arc::clone(&entry.shared),
            token: token()?,
            traffic_token: token()?,
        });
        entry.clients.push(Arc::clone(&known));
        Ok(known)
    }

    /// Returns the template of a sandbox.
    pub(crate) fn template_of(&self, id: &str) -> String {
        let settings = self.known().get(id).map(|entry| entry.shared.settings.clone());
        settings.unwrap_or_default().template
    }

    pub(crate) fn forget(&self, id: &str) {
        self.known().remove(id);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
