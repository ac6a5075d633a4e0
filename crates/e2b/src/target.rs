//! Destinations of requests: a plane, and a sandbox.

use axum::extract::Request;
use axum::http::{HeaderMap, Method};

use crate::body;
use crate::domain::{self, Domain, Name};
use crate::error::Error;
use crate::rpc;
use crate::token::header;

/// Port of a sandbox's files and processes.
const ENVD: u16 = 49_983;
/// Port of its code interpreter.
const INTERPRETER: u16 = 49_999;

/// First parts of the control plane's paths.
const CONTROL: &[&str] = &[
    "sandboxes",
    "v2",
    "v3",
    "templates",
    "snapshots",
    "volumes",
    "secrets",
];

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The control plane, which needs a key.
    Control,
    /// Files and processes of this sandbox.
    Envd(String),
    /// The code interpreter of this sandbox.
    Interpreter(String),
    /// A program that listens on a port of this sandbox.
    Program { id: String, port: u16 },
    /// A file of the sandbox whose token made the signature of the request.
    Signed,
    /// None that is served.
    Refused(Error),
}

impl Target {
    /// Returns the destination of a request; `None` if it is none of E2B's.
    pub fn of(request: &Request) -> Option<Self> {
        let headers = request.headers();
        let of_host = header(headers, "host").and_then(split_host);
        let of_host = of_host.map(|(port, id, _)| Self::of_port(id.to_owned(), port));
        if headers.contains_key("e2b-sandbox-id") || headers.contains_key("e2b-sandbox-port") {
            let of_headers = Self::of_headers(headers);
            return Some(match of_host {
                // The page of one sandbox would read what another one answers.
                Some(of_host) if of_host != of_headers => Self::Refused(Error::invalid(
                    "the host and `E2b-Sandbox-Id` name different sandboxes",
                )),
                _ => of_headers,
            });
        }
        if of_host.is_some() {
            return of_host;
        }
        let path = request.uri().path();
        if path == "/files" && request.uri().query().is_some() {
            return Some(Self::Signed);
        }
        let first = path.trim_start_matches('/').split('/').next();
        first
            .filter(|first| CONTROL.contains(first))
            .map(|_| Self::Control)
    }

    /// Returns the destination of a request to a listener whose names are those of a domain; `None` if it is none of E2B's. There the
    /// host alone says which sandbox a request is for, so that the files and programs of none have the origin of the API or of another one.
    pub fn below(domain: &Domain, request: &Request) -> Option<Self> {
        match header(request.headers(), "host").and_then(|host| domain.name(host))? {
            Name::Sandbox { port, id } => Some(Self::of_port(id.to_owned(), port)),
            Name::Api => match Self::of(request)? {
                Self::Control => Some(Self::Control),
                _ => Some(Self::Refused(Error::invalid(format!(
                    "sandboxes have names of their own at this address: send it to PORT-ID.{domain}"
                )))),
            },
        }
    }

    fn of_headers(headers: &HeaderMap) -> Self {
        let id = header(headers, "e2b-sandbox-id");
        let port = header(headers, "e2b-sandbox-port");
        match (id, port.map(str::parse)) {
            (Some(id), Some(Ok(port))) => Self::of_port(id.to_owned(), port),
            (Some(_), Some(Err(_))) => Self::Refused(Error::invalid("expected a port in `E2b-Sandbox-Port`")),
            (None, _) => Self::Refused(Error::invalid("missing header `E2b-Sandbox-Id`")),
            (_, None) => Self::Refused(Error::invalid("missing header `E2b-Sandbox-Port`")),
        }
    }

    fn of_port(id: String, port: u16) -> Self {
        match port {
            ENVD => Self::Envd(id),
            INTERPRETER => Self::Interpreter(id),
            0 => Self::Refused(Error::invalid("a port is at least 1")),
            port => Self::Program { id, port },
        }
    }

    /// Returns the rest of a host name behind `PORT-ID.`, which names a sandbox.
    pub fn host_of_sandbox(host: &str) -> Option<&str> {
        split_host(host).map(|(_, _, rest)| rest)
    }

    /// Returns the maximum memory of a request's body, in bytes: 0 for one that is streamed.
    pub fn max_body_in_memory(&self, method: &Method, path: &str) -> usize {
        let is_streamed = match self {
            Self::Control => matches!(
                (method.as_str(), &crate::protocol::parts(path)[..]),
                ("PUT", ["templates", _, "files", _])
            ),
            Self::Envd(_) | Self::Signed => plane_parts(path) == ["files"],
            Self::Interpreter(_) => false,
            Self::Program { .. } | Self::Refused(_) => true,
        };
        match self {
            _ if is_streamed => 0,
            Self::Envd(_) if plane_parts(path).last() == Some(&"StreamInput") => rpc::MAX_IN_STREAM,
            _ => body::MAX,
        }
    }

    /// Returns the name of the record that the request leaves. `None`: it changes nothing and shows no content.
    pub fn operation(&self, method: &Method, path: &str) -> Option<&'static str> {
        match self {
            Self::Control => control_operation(method, path),
            Self::Envd(_) | Self::Signed => envd_operation(method, path),
            Self::Interpreter(_) => interpreter_operation(method, path),
            Self::Program { .. } => Some("sandbox.connect"),
            Self::Refused(_) => None,
        }
    }
}

fn control_operation(method: &Method, path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = crate::protocol::parts(path);
    match (method.as_str(), &parts[..]) {
        ("POST", ["sandboxes"] | ["v2", "sandboxes"]) => Some("sandbox.create"),
        ("POST", ["sandboxes", _, "connect" | "resume" | "timeout"]) => Some("sandbox.timeout"),
        ("PUT", ["sandboxes", _, "network"]) => Some("sandbox.network"),
        ("POST", ["sandboxes", _, "pause"]) => Some("sandbox.pause"),
        ("POST", ["sandboxes", _, "snapshots"]) => Some("sandbox.snapshot"),
        ("POST", ["sandboxes", _, "fork"]) => Some("sandbox.fork"),
        ("POST", ["v2", "templates", _, "builds", _]) => Some("sandbox.create"),
        ("POST", ["v3", "templates"]) => Some("template.create"),
        ("POST", ["templates", "tags"]) => Some("template.tag"),
        ("DELETE", ["templates", "tags"]) => Some("template.untag"),
        ("PUT", ["templates", _, "files", _]) => Some("template.upload"),
        ("DELETE", ["templates", _]) => Some("snapshot.remove"),
        ("DELETE", ["sandboxes", _]) => Some("sandbox.remove"),
        _ => None,
    }
}

fn envd_operation(method: &Method, path: &str) -> Option<&'static str> {
    match (method.as_str(), &plane_parts(path)[..]) {
        ("GET", ["files"]) => Some("sandbox.read"),
        ("POST", ["files"]) => Some("sandbox.write"),
        (_, ["process.Process", "Start"]) => Some("sandbox.start"),
        (_, ["process.Process", "SendInput" | "StreamInput"]) => Some("sandbox.stdin"),
        (_, ["process.Process", "SendSignal"]) => Some("sandbox.signal"),
        (_, ["filesystem.Filesystem", "MakeDir"]) => Some("sandbox.mkdir"),
        (_, ["filesystem.Filesystem", "Move"]) => Some("sandbox.move"),
        (_, ["filesystem.Filesystem", "Remove"]) => Some("sandbox.delete"),
        _ => None,
    }
}

fn interpreter_operation(method: &Method, path: &str) -> Option<&'static str> {
    match (method.as_str(), &plane_parts(path)[..]) {
        ("POST", ["execute"]) => Some("sandbox.run"),
        ("POST", ["contexts"]) => Some("sandbox.create_context"),
        ("POST", ["contexts", _, "restart"]) => Some("sandbox.restart_context"),
        ("DELETE", ["contexts", _]) => Some("sandbox.remove_context"),
        _ => None,
    }
}

/// Splits a path of a sandbox's planes. Routing, records and quotas match the same parts.
pub(crate) fn plane_parts(path: &str) -> Vec<&str> {
    path.strip_prefix('/').unwrap_or(path).split('/').collect()
}

/// Splits `PORT-ID.REST`.
fn split_host(host: &str) -> Option<(u16, &str, &str)> {
    let (label, rest) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    let (port, id) = domain::sandbox(port, id)?;
    Some((port, id, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn target(line: &str, headers: &[(&str, &str)]) -> Option<Target> {
        let mut request = Request::builder().uri(line);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Target::of(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn headers_come_before_hosts_and_hosts_before_paths() {
        let here = ("host", "127.0.0.1:80");
        let of = |port| [("e2b-sandbox-id", "abc1"), ("e2b-sandbox-port", port), here];
        let envd = Some(Target::Envd("abc1".to_owned()));
        assert_eq!(target("/sandboxes", &of("49983")), envd);
        assert_eq!(
            target("/v1/run", &of("49999")),
            Some(Target::Interpreter("abc1".to_owned()))
        );
        assert_eq!(target("/files", &[("host", "49983-abc1.localhost:80")]), envd);
        assert_eq!(target("/v2/sandboxes", &[here]), Some(Target::Control));
        assert_eq!(target("/files?path=/a", &[here]), Some(Target::Signed));
        for ours in ["/", "/v1/sandboxes", "/healthz", "/api/runs", "/files"] {
            assert_eq!(target(ours, &[here]), None, "{ours}");
        }
        for half in [("e2b-sandbox-id", "abc1"), ("e2b-sandbox-port", "49983")] {
            let refused = matches!(target("/health", &[half, here]), Some(Target::Refused(_)));
            assert!(refused, "{half:?}");
        }
        let id = "abc1".to_owned();
        assert_eq!(target("/", &of("8000")), Some(Target::Program { id, port: 8000 }));
        assert!(matches!(target("/", &of("0")), Some(Target::Refused(_))));
    }

    #[test]
    fn below_a_domain_the_host_alone_names_a_sandbox() {
        let domain: Domain = "a.test".parse().unwrap();
        let below = |line: &str, headers: &[(&str, &str)]| {
            let mut request = Request::builder().uri(line);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            Target::below(&domain, &request.body(Body::empty()).unwrap())
        };
        let (api, sandbox) = (("host", "api.a.test:8443"), ("host", "49983-abc1.a.test:8443"));
        let envd = Some(Target::Envd("abc1".to_owned()));
        let other = ("e2b-sandbox-id", "other");
        for line in ["/health", "/v1/run", "/sandboxes", "/files?path=/a", "/"] {
            assert_eq!(below(line, &[sandbox, other]), envd, "{line}");
            assert_eq!(below(line, &[("host", "b.test")]), None, "{line}");
        }
        let (id, port) = ("abc1".to_owned(), 8000);
        let program = below("/sandboxes", &[("host", "8000-abc1.a.test"), other]);
        assert_eq!(program, Some(Target::Program { id, port }));
        assert_eq!(below("/v2/sandboxes", &[api]), Some(Target::Control));
        assert_eq!(below("/v1/run", &[api]), None);
        for refused in [
            below("/health", &[api, other]),
            below("/files?path=/a&signature=x", &[api]),
            below("/", &[("host", "0-abc1.a.test")]),
        ] {
            assert!(matches!(refused, Some(Target::Refused(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_sandbox_host_is_a_port_an_id_and_a_rest() {
        assert_eq!(
            Target::host_of_sandbox("49983-abc1.localhost:80"),
            Some("localhost:80")
        );
        for other in [
            "localhost:80",
            "a-b.c",
            "1-B.c",
            "1-.c",
            "-a.c",
            "99999999-a.c",
            "1-a",
        ] {
            assert_eq!(Target::host_of_sandbox(other), None, "{other}");
        }
    }
}
