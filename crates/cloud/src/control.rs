//! The life of a sandbox: created for one run, and killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use ringfence_network::secret::Secret;
use serde::Deserialize;
use serde_json::json;

use crate::error::{Error, Said};
use crate::exchange::{Answer, Call, Origin};
use crate::settings::{Sandboxes, Settings};

/// Timeout of the creation of a sandbox.
const CREATION: Duration = Duration::from_secs(60);
/// Timeout of the end of a sandbox.
const KILL: Duration = Duration::from_secs(15);

const KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The control plane of a service.
#[derive(Debug)]
pub(crate) struct Control {
    origin: Origin,
    settings: Arc<Settings>,
    /// The key, which is removed from quoted messages of the service.
    key: String,
}

/// A sandbox that was created. Nothing in it has been used yet.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    token: String,
    traffic_token: Option<String>,
}

/// The part of a sandbox's description that is needed.
#[derive(Debug, Deserialize)]
struct Named {
    #[serde(rename = "sandboxID")]
    id: String,
}

#[derive(Debug, Deserialize)]
struct Created {
    #[serde(rename = "sandboxID")]
    id: String,
    #[serde(rename = "envdAccessToken")]
    token: Option<String>,
    #[serde(rename = "trafficAccessToken")]
    traffic_token: Option<String>,
    domain: Option<String>,
}

/// An error of the control plane, or of a sandbox.
#[derive(Debug, Default, Deserialize)]
struct Failure {
    #[serde(default)]
    message: String,
}

impl Control {
    pub(crate) fn new(settings: Arc<Settings>, key: Secret) -> Result<Self, Error> {
        let key = key.into_text();
        let mut value = HeaderValue::try_from(&key).map_err(|_| Error::Protocol("the key cannot be sent"))?;
        value.set_sensitive(true);
        let headers = HeaderMap::from_iter([(KEY, value)]);
        let Settings {
            api, chosen, trust, ..
        } = &*settings;
        Ok(Self {
            origin: Origin::new(api.clone(), *chosen, Arc::clone(trust), headers),
            settings,
            key,
        })
    }

    /// Creates a sandbox without internet access that ends by itself after `lifetime`.
    pub(crate) async fn create(&self, lifetime: Duration) -> Result<Sandbox, Error> {
        let message = json!({
            "templateID": self.settings.template,
            "timeout": lifetime.as_secs() + 1,
            "secure": true,
            "autoPause": false,
            "allow_internet_access": false,
            "network": {"allowPublicTraffic": false},
            "metadata": {"created-by": "ringfence"},
        });
        let call = Call::json(Method::POST, "sandboxes".to_owned(), &message);
        let answer = self.origin.ask(call, Instant::now() + CREATION).await?;
        if answer.status != StatusCode::CREATED && answer.status != StatusCode::OK {
            return Err(self.refusal(&answer));
        }
        let Ok(created) = serde_json::from_slice::<Created>(&answer.body) else {
            let id = serde_json::from_slice(&answer.body).map(|Named { id }| id);
            if let Some(id) = id.ok().filter(|id| is_id(id)) {
                let _ = self.kill(&id).await;
            }
            return Err(Error::Protocol("a new sandbox is described in another way"));
        };
        match self.accepted(created) {
            Ok(sandbox) => Ok(sandbox),
            Err((error, id)) => {
                // It exists, if under a name that can be asked for.
                if is_id(&id) {
                    let _ = self.kill(&id).await;
                }
                Err(error)
            }
        }
    }

    fn accepted(&self, created: Created) -> Result<Sandbox, (Error, String)> {
        let Created {
            id,
            token,
            traffic_token,
            domain,
        } = created;
        let why = match (&token, &domain, &self.settings.sandboxes) {
            _ if !is_id(&id) => "the name of a sandbox has other characters",
            (None, ..) => "a sandbox that was to be closed to others has no token",
            // Code is sent where the user's configuration says, and nowhere else.
            (Some(_), Some(domain), Sandboxes::Below(ours)) if domain != ours => {
                "it has put the sandbox into another domain than the configured one"
            }
            (Some(_), ..) => {
                return Ok(Sandbox {
                    id,
                    token: token.unwrap_or_default(),
                    traffic_token,
                });
            }
        };
        Err((Error::Protocol(why), id))
    }

    /// Ends a sandbox. One that is gone has ended.
    pub(crate) async fn kill(&self, id: &str) -> Result<(), Error> {
        let call = Call {
            method: Method::DELETE,
            path: format!("sandboxes/{id}"),
            headers: Vec::new(),
            body: Vec::new(),
        };
        let answer = self.origin.ask(call, Instant::now() + KILL).await?;
        match answer.status {
            StatusCode::NO_CONTENT | StatusCode::OK | StatusCode::NOT_FOUND => Ok(()),
            _ => Err(self.refusal(&answer)),
        }
    }

    fn refusal(&self, answer: &Answer) -> Error {
        let said = self.said(&answer.body);
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::KeyRefused(said),
            StatusCode::NOT_FOUND => Error::Template(self.settings.template.clone()),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Error::Quota(said),
            status => Error::Service {
                status: status.as_u16(),
                said,
            },
        }
    }

    fn said(&self, body: &[u8]) -> Said {
        let failure: Failure = serde_json::from_slice(body).unwrap_or_default();
        Said::new(&failure.message, &self.key)
    }

    /// Returns the address of a sandbox, with the headers of requests to its files and processes.
    pub(crate) fn origin_of(&self, sandbox: &Sandbox) -> Result<Origin, Error> {
        let Settings {
            sandboxes,
            chosen,
            trust,
            ..
        } = &*self.settings;
        let base = match sandboxes {
            Sandboxes::At(base) => base.clone(),
            Sandboxes::Below(domain) => format!("https://{ENVD}-{}.{domain}", sandbox.id)
                .parse()
                .map_err(|_| Error::Protocol("the name of a sandbox cannot be part of a host's"))?,
        };
        let mut headers = HeaderMap::new();
        let mut add = |name: &'static str, value: &str| {
            let value = HeaderValue::try_from(value);
            let mut value = value.map_err(|_| Error::Protocol("a token cannot be sent"))?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
            Ok::<_, Error>(())
        };
        add("e2b-sandbox-id", &sandbox.id)?;
        add("e2b-sandbox-port", ENVD)?;
        add("x-access-token", &sandbox.token)?;
        if let Some(token) = &sandbox.traffic_token {
            add("e2b-traffic-access-token", token)?;
        }
        Ok(Origin::new(base, *chosen, Arc::clone(trust), headers))
    }
}

/// Port of a sandbox's files and processes.
const ENVD: &str = "49983";

/// Returns `true` for a name that can be a part of a path and of a host name.
fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&id.len()) && id.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use ringfence_exec::key::Key;
    use ringfence_network::fetch::{Chosen, Trust};

    use super::*;

    fn control(domain: &str) -> Control {
        let settings = Settings {
            key: Key::Needless,
            api: Settings::api_below(domain).unwrap(),
            sandboxes: Sandboxes::below(domain).unwrap(),
            template: "t".to_owned(),
            chosen: Chosen::ByUser,
            trust: Arc::new(Trust::default()),
        };
        Control::new(Arc::new(settings), Secret::new("e2b_0123").unwrap()).unwrap()
    }

    fn created(domain: Option<&str>) -> Created {
        Created {
            id: "abc1".to_owned(),
            token: Some("token".to_owned()),
            traffic_token: None,
            domain: domain.map(str::to_owned),
        }
    }

    #[test]
    fn a_sandbox_is_where_the_user_said() {
        let check = |domain: &str, expected: &str| {
            let control = control(domain);
            let sandbox = control.accepted(created(None)).unwrap();
            let origin = control.origin_of(&sandbox).unwrap();
            assert_eq!(origin.base().to_string(), expected);
        };
        check("e2b.app", "https://sandbox.e2b.app/");
        check("cloud.example:8443", "https://49983-abc1.cloud.example:8443/");
        let own = control("cloud.example");
        assert!(own.accepted(created(Some("cloud.example"))).is_ok());
        for elsewhere in ["evil.example", "cloud.example.evil", "127.0.0.1:80", ""] {
            let (error, id) = own.accepted(created(Some(elsewhere))).unwrap_err();
            assert!(error.to_string().contains("another domain"), "{error}");
            assert_eq!(id, "abc1");
        }
    }

    #[test]
    fn a_name_is_one_part_of_a_path_and_of_a_host() {
        assert!(is_id("i1k2") && is_id(&"a".repeat(63)));
        for wrong in [
            "",
            "a/b",
            "..",
            "a.b",
            "A",
            "a?b",
            "a b",
            "a\r\n",
            &"a".repeat(64),
        ] {
            assert!(!is_id(wrong), "{wrong:?}");
        }
    }
}
