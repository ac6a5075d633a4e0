//! Defines the errors of container engine calls.

use std::io;
use std::time::Duration;

use bollard::errors::Error as Told;
use ringfence_exec::processors::TooManyProcessors;
use ringfence_policy::{EngineKind, Remedy, remedy};

use super::endpoint::{API_VERSION, Address};
use super::spec::bind::BindError;
use super::spec::name::PREFIX;
use super::{check, endpoint, state};

/// Limit of an engine's message that is passed on, in characters.
const MAX_WORDS: usize = 500;

/// An error of a call to a container engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine does not respond.
    #[error("{} not available: {place}: {why}", daemon(*engine_kind))]
    Unavailable {
        engine_kind: EngineKind,
        /// Address that was tried.
        place: String,
        /// The system's error.
        why: String,
    },
    /// Permission to the socket was denied.
    #[error("{} not available: no permission to use {place}", daemon(*engine_kind))]
    NotPermitted {
        engine_kind: EngineKind,
        /// The socket.
        place: String,
    },
    /// The engine's address cannot be determined.
    #[error(transparent)]
    Endpoint(#[from] endpoint::Error),
    /// The engine's API version is too old.
    #[error("the API of {} is too old: it is version {version}, and {} is needed", daemon(*engine_kind), needed())]
    TooOld {
        engine_kind: EngineKind,
        /// API version of the engine.
        version: String,
    },
    /// The engine does not have the OCI runtime.
    #[error("{} has no OCI runtime {wanted}; it has {}", daemon(*engine_kind), known.join(", "))]
    OciRuntime {
        engine_kind: EngineKind,
        /// The requested OCI runtime.
        wanted: &'static str,
        /// The available OCI runtimes.
        known: Vec<String>,
    },
    /// The OCI runtime ignores the seccomp filter.
    #[error(
        "gVisor does not apply the seccomp filter `{filter}`, so the program could start processes and write files"
    )]
    Unfiltered {
        /// Name of the filter.
        filter: String,
    },
    /// The image is not present.
    #[error("there is no image {image}")]
    ImageMissing {
        /// Reference of the image.
        image: String,
    },
    /// Two mounts have the same mount point.
    #[error(transparent)]
    Place(BindError),
    /// The image declares volumes that cannot be replaced by bounded ones.
    #[error("the image {image} declares more than 16 volumes, or one at a path that cannot be mounted on")]
    ImageVolumes {
        /// Reference of the image.
        image: String,
    },
    /// The image does not exist in its registry.
    #[error("there is no image {image} in its registry")]
    NotInRegistry {
        /// Reference of the image.
        image: String,
    },
    /// The image could not be built or pulled.
    #[error("cannot {doing} {image}: {said}")]
    NotMade {
        /// The operation that failed.
        doing: &'static str,
        image: String,
        /// The engine's message.
        said: String,
    },
    /// Another container or volume has the name.
    #[error("a container or volume named `{}` already exists", chosen(name))]
    NameTaken {
        /// Name of the container or volume.
        name: String,
    },
    /// The engine's disk is full.
    #[error("cannot {doing}: the disk of the container engine is full")]
    DiskFull {
        /// The operation that failed.
        doing: &'static str,
    },
    /// The object does not exist, or no longer.
    #[error("cannot {doing}: there is no {what}")]
    NotFound {
        /// The operation that failed.
        doing: &'static str,
        /// The object.
        what: String,
    },
    /// The object's state does not permit the operation.
    #[error("cannot {doing}: {said}")]
    Conflict {
        /// The operation that failed.
        doing: &'static str,
        /// The engine's message.
        said: String,
    },
    /// The engine did not respond in time.
    #[error("cannot {doing}: the container engine did not answer within {} s", patience.as_secs())]
    Deadline {
        /// The operation that failed.
        doing: &'static str,
        /// The timeout.
        patience: Duration,
    },
    /// The connection broke, or the response was malformed.
    #[error("cannot {doing}: the connection to the engine was lost: {why}")]
    Broken {
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        why: String,
    },
    /// The request is not on our allowlist, and was not sent.
    #[error(transparent)]
    Refused(#[from] check::Refusal),
    /// A file for the engine cannot be written.
    #[error("cannot write a file for the container engine: {why}")]
    Files {
        /// The system's error.
        why: String,
    },
    /// The state of the container does not permit the transition.
    #[error(transparent)]
    Illegal(#[from] state::Illegal),
    /// The container or its supervisor is shut down.
    #[error("the container has ended")]
    Closing,
    /// The limits have more processors than this machine.
    #[error(transparent)]
    Processors(#[from] TooManyProcessors),
    /// The engine rejected the request.
    #[error("cannot {doing}: {said}")]
    Said {
        /// The operation that failed.
        doing: &'static str,
        /// The engine's message.
        said: String,
    },
}

/// Returns a container's name as a user chose it.
fn chosen(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

fn daemon(engine_kind: EngineKind) -> &'static str {
    match engine_kind {
        EngineKind::Docker => "Docker daemon",
        EngineKind::Podman => "Podman service",
    }
}

fn needed() -> String {
    API_VERSION.to_string()
}

impl Error {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::Unavailable { engine_kind, .. } => remedy::Container::StartEngine(*engine_kind).into(),
            Self::NotPermitted { engine_kind, .. } => remedy::Container::JoinEngine(*engine_kind).into(),
            Self::Endpoint(error) => error.hint().into(),
            Self::TooOld { .. } => remedy::Container::UpgradeEngine.into(),
            Self::Unfiltered { .. } => {
                "ask for another OCI runtime, or for a template with the filter `standard`, whose refusals gVisor's kernel makes up for".into()
            }
            Self::OciRuntime { engine_kind, .. } => match engine_kind {
                EngineKind::Docker => {
                    "install it and name it under `runtimes` in /etc/docker/daemon.json, or ask for one that is known".into()
                }
                EngineKind::Podman => {
                    "Podman's service has one for all containers: start it with `podman --runtime NAME system service`, \
                     or ask for the one that it has".into()
                }
            },
            Self::ImageMissing { .. } => remedy::Container::MakeImage.into(),
            Self::Place(error) => error.hint().into(),
            Self::ImageVolumes { .. } => "use another image, or build one from it without `VOLUME`".into(),
            Self::NotInRegistry { .. } => {
                "check its name and its tag, and whether the registry wants a login".into()
            }
            Self::NotMade { .. } => remedy::Container::MakeImageHere.into(),
            Self::NameTaken { .. } => "choose another name, or remove that container".into(),
            Self::DiskFull { .. } => "make room: `docker system df` shows what takes it".into(),
            Self::NotFound { .. } => remedy::Container::List.into(),
            Self::Files { .. } => remedy::Container::OwnState.into(),
            Self::Closing => "make another one".into(),
            Self::Processors(_) => remedy::Run::LowerProcessors.into(),
            Self::Conflict { .. } | Self::Illegal(_) => remedy::Container::Examine.into(),
            Self::Deadline { .. } | Self::Broken { .. } => {
                "check that the container engine runs and is not overloaded".into()
            }
            Self::Refused(_) => "leave it out: nothing can switch that on".into(),
            Self::Said { .. } => "see the log of the container engine".into(),
        }
    }
}

/// Context of an API call, for the conversion of its error.
#[derive(Debug, Clone, Copy)]
pub(super) struct ApiCall<'a> {
    pub(super) engine_kind: EngineKind,
    pub(super) address: &'a Address,
    /// The operation, worded to follow "cannot".
    pub(super) doing: &'static str,
    /// The object, worded to follow "there is no".
    pub(super) what: &'a str,
}

impl ApiCall<'_> {
    pub(super) fn failed(self, error: Told) -> Error {
        let doing = self.doing;
        match error {
            Told::DockerResponseServerError { status_code, message } => self.answered(status_code, &message),
            Told::IOError { err } => self.io(err),
            Told::RequestTimeoutError => Error::Broken {
                doing,
                why: "no answer".to_owned(),
            },
            Told::DockerStreamError { error } => Error::Said {
                doing,
                said: words(&error),
            },
            other => Error::Broken {
                doing,
                why: words(&chain(&other)),
            },
        }
    }

    /// Converts the error of a failed connection, or of a request that was not sent.
    pub(super) fn io(self, error: io::Error) -> Error {
        let refusal = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<check::Refusal>());
        if let Some(refusal) = refusal {
            return Error::Refused(refusal.clone());
        }
        let place = self.address.to_string();
        match error.kind() {
            io::ErrorKind::PermissionDenied => Error::NotPermitted {
                engine_kind: self.engine_kind,
                place,
            },
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::Unavailable {
                engine_kind: self.engine_kind,
                place,
                why: words(&error.to_string()),
            },
            _ => Error::Broken {
                doing: self.doing,
                why: words(&error.to_string()),
            },
        }
    }

    /// Converts an HTTP status and message. The statuses are Docker's; Podman distinguishes some errors by
    /// message only.
    fn answered(self, status: u16, message: &str) -> Error {
        let said = words(message);
        let doing = self.doing;
        let has = |part: &str| said.to_ascii_lowercase().contains(part);
        if has("no space left on device") {
            return Error::DiskFull { doing };
        }
        if has("is already in use") {
            return Error::NameTaken {
                name: self.what.to_owned(),
            };
        }
        match status {
            404 if has("no such image") || has("image not known") => Error::ImageMissing {
                image: self.what.to_owned(),
            },
            404 => Error::NotFound {
                doing,
                what: self.what.to_owned(),
            },
            409 => Error::Conflict { doing, said },
            _ => Error::Said { doing, said },
        }
    }
}

/// Formats an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        // Wrappers often print the error they wrap.
        if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

/// Reduces an engine's message to one line of limited length: it may quote text chosen by a guest.
pub(super) fn words(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    // Colour sequences are removed as a whole, as their digits would remain otherwise.
    let text = anstream::adapter::strip_str(text.trim()).to_string();
    let line: String = text.chars().map(plain).take(MAX_WORDS).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn answered(status: u16, message: &str) -> Error {
        let address = Address::Unix(PathBuf::from("/d.sock"));
        let call = ApiCall {
            engine_kind: EngineKind::Docker,
            address: &address,
            doing: "make a container",
            what: "thing",
        };
        call.failed(Told::DockerResponseServerError {
            status_code: status,
            message: message.to_owned(),
        })
    }

    #[test]
    fn what_an_engine_says_is_understood() {
        for (status, message, expected) in [
            (404, "No such image: x:latest", "there is no image thing"),
            (404, "x: image not known", "there is no image thing"),
            (
                404,
                "No such container: x",
                "cannot make a container: there is no thing",
            ),
            (
                409,
                "Conflict. The container name \"/x\" is already in use by container 1",
                "a container or volume named `thing` already exists",
            ),
            (
                500,
                "the container name \"x\" is already in use",
                "a container or volume named `thing` already exists",
            ),
            (
                409,
                "Container x is not running",
                "cannot make a container: Container x is not running",
            ),
            (
                500,
                "write /var/x: no space left on device",
                "cannot make a container: the disk of the container engine is full",
            ),
            (500, "a\nb\x1b[2J", "cannot make a container: a b"),
            (
                500,
                "\x1b[91mred\x1b[0m \x1b]0;title\x07x",
                "cannot make a container: red x",
            ),
        ] {
            assert_eq!(answered(status, message).to_string(), expected, "{message}");
        }
    }

    #[test]
    fn a_taken_name_is_the_users() {
        let name = "fw-sandbox-build".to_owned();
        assert_eq!(
            Error::NameTaken { name }.to_string(),
            "a container or volume named `build` already exists"
        );
    }

    #[test]
    fn a_missing_daemon_is_told_in_the_known_words() {
        let address = Address::Unix(PathBuf::from("/d.sock"));
        let failed = |engine_kind, kind| {
            let call = ApiCall {
                engine_kind,
                address: &address,
                doing: "ask",
                what: "",
            };
            let error = call.io(io::Error::from(kind));
            (error.to_string(), error.hint().person().into_owned())
        };
        let (message, hint) = failed(EngineKind::Docker, io::ErrorKind::NotFound);
        assert!(
            message.starts_with("Docker daemon not available: /d.sock"),
            "{message}"
        );
        assert_eq!(hint, "Set SANDBOX_TYPE=local or start Docker daemon");
        let (message, hint) = failed(EngineKind::Docker, io::ErrorKind::PermissionDenied);
        assert!(message.contains("no permission to use /d.sock"), "{message}");
        assert!(hint.contains("usermod"), "{hint}");
        let (message, _) = failed(EngineKind::Podman, io::ErrorKind::ConnectionRefused);
        assert!(message.starts_with("Podman service not available"), "{message}");
    }

    #[test]
    fn an_engines_words_are_short() {
        assert_eq!(words(&"x".repeat(10_000)).len(), MAX_WORDS);
    }
}
