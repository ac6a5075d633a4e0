//! The rest of a connection whose protocol a program has switched, such as to WebSocket.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::headers;
use crate::error::Error;
use crate::token;

/// The rest of a visitor's connection, if it is switched: set with the answer, and run by whoever serves the connection once that is
/// sent. So it ends with the connection, whatever ends that.
#[derive(Clone, Default)]
pub struct Tunnel(Arc<Mutex<Option<Relay>>>);

type Relay = Pin<Box<dyn Future<Output = ()> + Send>>;

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tunnel(…)")
    }
}

impl Tunnel {
    /// Takes out what is left to do on the connection.
    pub fn take(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends it, if there is one, when `end` resolves.
    pub fn until(&self, end: impl Future<Output = ()> + Send + 'static) {
        if let Some(relay) = self.take() {
            self.set(async move {
                tokio::select! {
                    () = relay => {}
                    () = end => {}
                }
            });
        }
    }

    /// Sets what is left to do on the connection.
    pub fn set(&self, relay: impl Future<Output = ()> + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(relay));
    }
}

/// A request to switch the protocol.
pub(super) struct Switch {
    protocol: HeaderValue,
    visitor: OnUpgrade,
    tunnel: Tunnel,
}

impl Switch {
    /// Takes the wish to switch the protocol out of a request; `None` if it has none.
    ///
    /// # Errors
    /// If nobody would run the tunnel.
    pub(super) fn of(request: &mut Request) -> Result<Option<Self>, Error> {
        let Some(protocol) = protocol(request.headers()).cloned() else {
            return Ok(None);
        };
        let tunnel = request.extensions().get::<Tunnel>().cloned();
        let tunnel =
            tunnel.ok_or_else(|| Error::not_supported("`Upgrade` at this address", "leave it out"))?;
        Ok(Some(Self {
            protocol,
            visitor: hyper::upgrade::on(request),
            tunnel,
        }))
    }

    /// Sets the headers that ask for it.
    pub(super) fn ask(&self, headers: &mut HeaderMap) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, self.protocol.clone());
    }

    /// Returns `true` if the headers of an answer switch to the protocol that was asked for.
    pub(super) fn is_to(&self, headers: &HeaderMap) -> bool {
        let answered = protocol(headers);
        answered.is_some_and(|answered| answered.as_bytes().eq_ignore_ascii_case(self.protocol.as_bytes()))
    }

    /// Completes the answer that switches, and passes bytes on after it. `held` is kept meanwhile.
    pub(super) fn accept(self, headers: &mut HeaderMap, program: OnUpgrade, held: impl Send + 'static) {
        self.ask(headers);
        let visitor = self.visitor;
        self.tunnel.set(async move {
            let _held = held;
            if let (Ok(visitor), Ok(program)) = tokio::join!(visitor, program) {
                let (mut visitor, mut program) = (TokioIo::new(visitor), TokioIo::new(program));
                // An error ends it, too: there is no one to report it to.
                let _ = copy_bidirectional(&mut visitor, &mut program).await;
            }
        });
    }
}

/// Returns the protocol that a head switches to, if its connection is meant.
fn protocol(headers: &HeaderMap) -> Option<&HeaderValue> {
    token::header(headers, header::UPGRADE.as_str())?;
    let is_meant = headers::connection_options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| is_meant)
}
