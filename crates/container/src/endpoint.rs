//! Locates the API of the container engine by the rules of the engine's own command line.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ringfence_policy::EngineKind;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The API version that we speak if the engine still does: that of Docker 20.10 and Podman 4.
pub(super) const API_VERSION: ApiVersion = ApiVersion { major: 1, minor: 41 };

/// A version of the engines' API, ordered from old to new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ApiVersion {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Size limit of configuration files of the docker command line.
const MAX_FILE: u64 = 1024 * 1024;

/// The caller's environment, as far as it locates the engine.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Surroundings {
    pub docker_host: Option<String>,
    pub docker_context: Option<String>,
    pub docker_config: Option<PathBuf>,
    pub container_host: Option<String>,
    /// `XDG_RUNTIME_DIR`, else its default if that exists.
    pub runtime_dir: Option<PathBuf>,
    /// Private directory for files that the engine reads; created on demand.
    pub files: PathBuf,
}

/// The address of an API endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// A TCP port of this machine.
    Loopback(SocketAddr),
}

/// An error of determining a container engine's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The address is unsupported.
    #[error("{origin}: cannot use `{address}`: {why}")]
    Address {
        /// Source of the setting, such as a variable.
        origin: String,
        address: String,
        why: &'static str,
    },
    /// A configuration file of the docker command line cannot be used.
    #[error("cannot read {}: {why}", path.display())]
    File {
        path: PathBuf,
        /// Defect of the file.
        why: String,
    },
    /// The docker context does not exist.
    #[error("{origin}: there is no docker context `{name}`")]
    Context {
        /// Source of the setting.
        origin: String,
        name: String,
    },
}

impl Error {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Address { .. } => {
                "name a Unix socket, as in `unix:///var/run/docker.sock`; a remote one can be brought here with \
                 `ssh -L /tmp/docker.sock:/var/run/docker.sock HOST`"
            }
            Self::File { .. } => "correct the file, or set DOCKER_HOST",
            Self::Context { .. } => {
                "`docker context ls` shows which there are; DOCKER_HOST goes before them all"
            }
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Loopback(address) => write!(f, "{address}"),
        }
    }
}

/// Returns the possible addresses of the engine, most likely first; never empty.
///
/// # Errors
/// If the caller configured an address that cannot be used.
pub fn candidates(engine_kind: EngineKind, surroundings: &Surroundings) -> Result<Vec<Address>, Error> {
    match engine_kind {
        EngineKind::Docker => docker(surroundings),
        EngineKind::Podman => podman(surroundings),
    }
}

fn docker(surroundings: &Surroundings) -> Result<Vec<Address>, Error> {
    if let Some(host) = &surroundings.docker_host {
        return Ok(vec![parse("DOCKER_HOST", host)?]);
    }
    if let Some(address) = context(surroundings)? {
        return Ok(vec![address]);
    }
    let rootless = surroundings.runtime_dir.iter();
    Ok(std::iter::once(PathBuf::from("/var/run/docker.sock"))
        .chain(rootless.map(|dir| dir.join("docker.sock")))
        .map(Address::Unix)
        .collect())
}

fn podman(surroundings: &Surroundings) -> Result<Vec<Address>, Error> {
    if let Some(host) = &surroundings.container_host {
        return Ok(vec![parse("CONTAINER_HOST", host)?]);
    }
    let rootless = surroundings.runtime_dir.iter();
    Ok(rootless
        .map(|dir| dir.join("podman/podman.sock"))
        .chain([PathBuf::from("/run/podman/podman.sock")])
        .map(Address::Unix)
        .collect())
}

/// Returns the address of the current docker context; `None` for the default context.
fn context(surroundings: &Surroundings) -> Result<Option<Address>, Error> {
    let Some(config) = &surroundings.docker_config else {
        return Ok(None);
    };
    let (origin, name) = match &surroundings.docker_context {
        Some(name) => ("DOCKER_CONTEXT".to_owned(), name.clone()),
        None => {
            let file = config.join("config.json");
            let Some(Config { current_context }) = read::<Config>(&file)? else {
                return Ok(None);
            };
            (file.display().to_string(), current_context)
        }
    };
    if name.is_empty() || name == "default" {
        return Ok(None);
    }
    let digest: String = Sha256::digest(name.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let meta = config.join("contexts/meta").join(digest).join("meta.json");
    let no_context = || Error::Context {
        origin,
        name: name.clone(),
    };
    let found: Meta = read(&meta)?.ok_or_else(no_context)?;
    let host = found
        .endpoints
        .docker
        .map(|docker| docker.host)
        .unwrap_or_default();
    parse(&format!("docker context `{name}`"), &host).map(Some)
}

#[derive(Deserialize)]
struct Config {
    #[serde(rename = "currentContext", default)]
    current_context: String,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "Endpoints", default)]
    endpoints: Endpoints,
}

#[derive(Deserialize, Default)]
struct Endpoints {
    docker: Option<Docker>,
}

#[derive(Deserialize)]
struct Docker {
    #[serde(rename = "Host", default)]
    host: String,
}

/// Reads a configuration file of the docker command line; `None` if it does not exist.
fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let wrong = |why: String| Error::File {
        path: path.to_path_buf(),
        why,
    };
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error.to_string())),
    };
    if !meta.is_file() || meta.len() > MAX_FILE {
        return Err(wrong("it is not a file of at most 1 MiB".to_owned()));
    }
    let text = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| wrong(error.to_string()))
}

/// Parses an address in the syntax of `DOCKER_HOST`.
fn parse(origin: &str, text: &str) -> Result<Address, Error> {
    let wrong = |why| Error::Address {
        origin: origin.to_owned(),
        address: text.to_owned(),
        why,
    };
    let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
    match scheme {
        "unix" if Path::new(rest).is_absolute() => Ok(Address::Unix(PathBuf::from(rest))),
        "unix" => Err(wrong("the socket's path is not absolute")),
        "tcp" | "http" => loopback(rest.trim_end_matches('/'))
            .map(Address::Loopback)
            .ok_or_else(|| wrong("only a port of this machine is spoken to without encryption")),
        "ssh" => Err(wrong("engines are not reached over ssh")),
        "https" => Err(wrong("engines are not reached over TLS")),
        _ => Err(wrong("the scheme is unknown")),
    }
}

fn loopback(text: &str) -> Option<SocketAddr> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?),
        None => text.parse().ok()?,
    };
    address.ip().is_loopback().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &str) -> Address {
        Address::Unix(PathBuf::from(path))
    }

    fn check(engine_kind: EngineKind, surroundings: &Surroundings, expected: &[Address]) {
        assert_eq!(candidates(engine_kind, surroundings).as_deref(), Ok(expected));
    }

    /// Creates a docker configuration with the current context `context`, and a context `far` at `host`.
    fn docker_config(context: &str, host: &str) -> (tempfile::TempDir, Surroundings) {
        let dir = tempfile::tempdir().unwrap();
        let config = format!(r#"{{"auths": {{}}, "currentContext": "{context}"}}"#);
        fs::write(dir.path().join("config.json"), config).unwrap();
        // The output of `printf far | sha256sum`.
        let digest = "512eea46ceb3921dff4363c7069d89d4964d1d9fccaa0f411851a7aa60a5c868";
        let meta = dir.path().join("contexts/meta").join(digest);
        fs::create_dir_all(&meta).unwrap();
        let endpoint = format!(
            r#"{{"Name": "far", "Metadata": {{}}, "Endpoints": {{"docker": {{"Host": "{host}", "SkipTLSVerify": false}}}}}}"#
        );
        fs::write(meta.join("meta.json"), endpoint).unwrap();
        let surroundings = Surroundings {
            docker_config: Some(dir.path().to_path_buf()),
            ..Surroundings::default()
        };
        (dir, surroundings)
    }

    #[test]
    fn without_a_word_the_customary_sockets_are_tried() {
        let surroundings = Surroundings {
            runtime_dir: Some(PathBuf::from("/run/user/7")),
            ..Surroundings::default()
        };
        check(
            EngineKind::Docker,
            &surroundings,
            &[unix("/var/run/docker.sock"), unix("/run/user/7/docker.sock")],
        );
        check(
            EngineKind::Podman,
            &surroundings,
            &[
                unix("/run/user/7/podman/podman.sock"),
                unix("/run/podman/podman.sock"),
            ],
        );
    }

    #[test]
    fn each_engine_has_a_variable_of_its_own() {
        let surroundings = Surroundings {
            docker_host: Some("unix:///a".to_owned()),
            container_host: Some("unix:///b".to_owned()),
            ..Surroundings::default()
        };
        check(EngineKind::Docker, &surroundings, &[unix("/a")]);
        check(EngineKind::Podman, &surroundings, &[unix("/b")]);
    }

    #[test]
    fn the_current_context_is_used_unless_a_variable_says_otherwise() {
        let (_dir, surroundings) = docker_config("far", "unix:///far.sock");
        check(EngineKind::Docker, &surroundings, &[unix("/far.sock")]);
        let named = |docker_host: Option<&str>, docker_context: Option<&str>| Surroundings {
            docker_host: docker_host.map(str::to_owned),
            docker_context: docker_context.map(str::to_owned),
            ..surroundings.clone()
        };
        check(EngineKind::Docker, &named(Some("unix:///x"), None), &[unix("/x")]);
        check(
            EngineKind::Docker,
            &named(None, Some("default")),
            &[unix("/var/run/docker.sock")],
        );
        let missing = candidates(EngineKind::Docker, &named(None, Some("near"))).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "DOCKER_CONTEXT: there is no docker context `near`"
        );
        let (_dir, surroundings) = docker_config("", "unix:///far.sock");
        check(EngineKind::Docker, &surroundings, &[unix("/var/run/docker.sock")]);
    }

    #[test]
    fn a_broken_configuration_is_told() {
        let (dir, surroundings) = docker_config("far", "unix:///far.sock");
        fs::write(dir.path().join("config.json"), "{").unwrap();
        let error = candidates(EngineKind::Docker, &surroundings).unwrap_err();
        assert!(error.to_string().contains("config.json: EOF"), "{error}");
    }

    #[test]
    fn addresses_that_cannot_be_used_say_why() {
        for (text, why) in [
            ("ssh://host", "over ssh"),
            ("https://127.0.0.1:2376", "over TLS"),
            ("tcp://192.0.2.1:2375", "only a port of this machine"),
            ("tcp://example.com:2375", "only a port of this machine"),
            ("tcp://localhost.example.com:2375", "only a port of this machine"),
            ("unix://docker.sock", "not absolute"),
            ("/var/run/docker.sock", "no scheme"),
            ("npipe:////./pipe/docker_engine", "unknown"),
            ("", "no scheme"),
        ] {
            let surroundings = Surroundings {
                docker_host: Some(text.to_owned()),
                ..Surroundings::default()
            };
            let error = candidates(EngineKind::Docker, &surroundings).unwrap_err();
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_port_of_this_machine_may_be_named() {
        for text in [
            "tcp://127.0.0.1:2375",
            "tcp://localhost:2375/",
            "http://127.0.0.1:2375",
        ] {
            let surroundings = Surroundings {
                docker_host: Some(text.to_owned()),
                ..Surroundings::default()
            };
            let expected = Address::Loopback(SocketAddr::from(([127, 0, 0, 1], 2375)));
            check(EngineKind::Docker, &surroundings, &[expected]);
        }
    }
}
