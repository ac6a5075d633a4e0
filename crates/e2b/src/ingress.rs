//! Visits of programs in a sandbox: who may make them, and the host that programs see.

use std::sync::Arc;

use axum::http::HeaderValue;
use ringfence_sandbox::MAX_CONNECTIONS;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;

/// Stands for the port in a host that programs see.
const PORT: &str = "${PORT}";

/// Maximum number of connections of anonymous visitors to a sandbox.
const MAX_ANONYMOUS: usize = MAX_CONNECTIONS * 3 / 4;

/// Rules for visits of a sandbox's programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ingress {
    pub(crate) visitors: Visitors,
    /// Value of `Host` in place of the visitor's, in which [`PORT`] stands for the port.
    mask: Option<String>,
}

/// The people and programs that may visit the programs of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Visitors {
    /// Those who know the id of the sandbox.
    Anyone,
    /// Those who also have its traffic token.
    #[default]
    WithToken,
}

impl Ingress {
    /// Reads the rules of a `network` to create a sandbox with: without any, its programs are public, as E2B's are.
    pub(crate) fn of(network: Option<&Value>) -> Result<Self, Error> {
        let member = |name: &str| {
            network
                .and_then(|network| network.get(name))
                .filter(|value| !value.is_null())
        };
        let visitors = match member("allowPublicTraffic").map(Value::as_bool) {
            None | Some(Some(true)) => Visitors::Anyone,
            Some(Some(false)) => Visitors::WithToken,
            Some(None) => return Err(Error::invalid("`network.allowPublicTraffic` is true or false")),
        };
        let mask = member("maskRequestHost").filter(|mask| *mask != "");
        let mask = mask.map(|mask| {
            let mask = mask.as_str().filter(|mask| is_host(&mask.replace(PORT, "")));
            let expected =
                || Error::invalid("`network.maskRequestHost` is a host, such as `localhost:${PORT}`");
            mask.map(str::to_owned).ok_or_else(expected)
        });
        let mask = mask.transpose()?;
        Ok(Self { visitors, mask })
    }

    /// Returns the host that the program on a port sees, if it is not the visitor's.
    pub(crate) fn host(&self, port: u16) -> Option<HeaderValue> {
        let host = self.mask.as_ref()?.replace(PORT, &port.to_string());
        HeaderValue::try_from(host).ok()
    }

    /// Describes the rules, as in the `network` of a sandbox.
    pub(crate) fn to_json(&self) -> Value {
        let mut network = json!({"allowPublicTraffic": self.visitors == Visitors::Anyone});
        if let Some(mask) = &self.mask {
            network["maskRequestHost"] = mask.as_str().into();
        }
        network
    }
}

/// The connections of anonymous visitors to one sandbox: visitors with a credential always find room beside them.
#[derive(Debug)]
pub(crate) struct AnonymousVisitors(Arc<Semaphore>);

impl Default for AnonymousVisitors {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_ANONYMOUS)))
    }
}

impl AnonymousVisitors {
    /// Takes the place of one more.
    pub(crate) fn enter(&self) -> Result<OwnedSemaphorePermit, Error> {
        let permit = Arc::clone(&self.0).try_acquire_owned();
        permit.map_err(|_| {
            Error::busy(format!(
                "the sandbox has {MAX_ANONYMOUS} visitors without a token or key"
            ))
        })
    }
}

/// Returns `true` for the characters of a name or address, with a port.
fn is_host(text: &str) -> bool {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    text.len() <= 253 && text.bytes().all(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_public_unless_that_is_denied() {
        let visitors = |network: Value| Ingress::of(Some(&network)).map(|ingress| ingress.visitors);
        assert_eq!(Ingress::of(None).unwrap().visitors, Visitors::Anyone);
        assert_eq!(
            visitors(json!({"allowPublicTraffic": null})).unwrap(),
            Visitors::Anyone
        );
        assert_eq!(
            visitors(json!({"allowPublicTraffic": false})).unwrap(),
            Visitors::WithToken
        );
        assert!(visitors(json!({"allowPublicTraffic": "false"})).is_err());
        assert_eq!(Ingress::default().visitors, Visitors::WithToken);
    }

    #[test]
    fn a_mask_is_a_host() {
        let host = |mask: Value| {
            Ingress::of(Some(&json!({ "maskRequestHost": mask }))).map(|ingress| ingress.host(80))
        };
        assert_eq!(host(json!("localhost:${PORT}")).unwrap().unwrap(), "localhost:80");
        assert_eq!(host(json!(null)).unwrap(), None);
        for wrong in [json!("a b"), json!("a\r\nb: c"), json!("${OTHER}"), json!(1)] {
            assert!(host(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
