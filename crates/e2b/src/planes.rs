//! Admission of requests to the planes of the protocol, and their answers.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use ringfence_policy::Timeout;
use ringfence_sandbox::SandboxState;

use crate::client::{BuildKey, Client};
use crate::envd::signature::Signature;
use crate::error::Error;
use crate::ingress::Visitors;
use crate::known::{Known, Opened};
use crate::protocol::LIFETIME;
use crate::reverse_proxy::Visit;
use crate::service::Service;
use crate::target::Target;
use crate::token::header;
use crate::{control, envd, interpreter, reverse_proxy};

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

    /// Returns the id of the sandbox that the request is for.
    pub fn sandbox_id(&self) -> &str {
        let sandbox = match &self.plane {
            Plane::Envd(opened) | Plane::Interpreter(opened) => &opened.sandbox,
            Plane::Program(visit) => &visit.sandbox,
        };
        sandbox.id().as_str()
    }

    /// Returns `true` if the request had no credential, and needed none.
    pub const fn is_anonymous(&self) -> bool {
        self.is_anonymous
    }
}

impl Service {
    /// Answers a request to the control plane by a client whose key has been checked, and ends what goes on behind it with the key.
    pub async fn control(&self, client: &Client, key: BuildKey, request: Request) -> Response {
        let answer = control::answer(self, client, key, request).await;
        answer.unwrap_or_else(IntoResponse::into_response)
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
                        .is_some_and(|signature| signature.check(&known.token).is_ok()),
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
            .set_timeout(scope, id, Timeout::seconds(LIFETIME))?;
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
}
