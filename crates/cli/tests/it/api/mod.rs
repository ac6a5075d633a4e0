//! The HTTP API of the built binary.

mod admission;
mod approvals;
mod audit;
mod batch;
mod bodies;
mod docs;
mod guard;
mod guide;
mod idempotency;
mod images;
mod jupyter;
mod key_removal;
pub(crate) mod keys;
mod librechat;
pub(crate) mod listen;
mod lost_launchers;
mod mcp;
mod metrics;
mod output;
pub(crate) mod private_networks;
mod readiness;
mod revocation;
mod run;
mod runs;
mod sandbox_fusion;
mod stops;
mod tenants;
mod terminals;
mod tls;
mod usage;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

use crate::network::Server;
use crate::world::World;

const CONFIG: &str = "[engine]\nlisten = '127.0.0.1:0'\npool_size = 1\n";

pub(crate) const KEY: &str = "a fixed key of any form, 0123456789";

/// Starts a server that accepts [`KEY`].
pub(crate) fn world() -> World {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", CONFIG);
    world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], &[]);
    world
}

/// Returns a server at which the programs of keys, those with a network too, reach a page.
fn networked(page: &Server) -> World {
    let world = World::before_engine();
    let config = format!(
        "{CONFIG}[sandbox]\nnetwork = 'allowlist'\n\
         [egress]\nallowed_hosts = ['127.0.0.1:{}']\nprivate_networks = ['127.0.0.0/8']\n",
        page.port
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], &[]);
    world
}

/// A surface of the API.
pub(crate) enum Surface {
    Socket(PathBuf),
    Tcp(SocketAddr),
}

/// Returns the loopback address that a server listens on.
pub(crate) fn loopback_address(world: &World) -> SocketAddr {
    world.console()["address"].as_str().unwrap().parse().unwrap()
}

pub(crate) trait Connection: Read + Write {}
impl<T: Read + Write> Connection for T {}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let json = serde_json::from_str(&self.body);
        assert!(json.is_ok(), "{self:?}");
        json.unwrap()
    }

    /// Checks the status, the type of the error and its form.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, kind: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let error = &self.json()["error"];
        assert_eq!(error["type"], kind, "{self:?}");
        for part in ["message", "hint"] {
            assert!(
                error[part].as_str().is_some_and(|text| text.len() > 5),
                "{self:?}"
            );
        }
        assert_eq!(self.json().as_object().unwrap().len(), 1);
        assert!(!self.body.contains(KEY) && !self.head.contains(KEY));
    }
}

impl Surface {
    pub(crate) fn socket(world: &World) -> Self {
        Self::Socket(world.socket())
    }

    pub(crate) fn loopback(world: &World) -> Self {
        Self::Tcp(loopback_address(world))
    }

    fn connect(&self) -> Box<dyn Connection> {
        match self {
            Self::Socket(path) => Box::new(UnixStream::connect(path).unwrap()),
            Self::Tcp(address) => Box::new(TcpStream::connect(address).unwrap()),
        }
    }

    fn host(&self) -> String {
        match self {
            Self::Socket(_) => "localhost".to_owned(),
            Self::Tcp(address) => address.to_string(),
        }
    }

    /// Sends a request, and returns the connection. `HOST` and `KEY` in headers are replaced; a JSON body is announced
    /// unless a header names another type.
    pub(crate) fn send(&self, line: &str, headers: &[&str], body: &str) -> Box<dyn Connection> {
        let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
        let mut add = |name: &str, value: &str| {
            if !headers.iter().any(|header| header.starts_with(name)) {
                text.push_str(&format!("{name} {value}\r\n"));
            }
        };
        add("Host:", "HOST");
        add("Content-Length:", &body.len().to_string());
        add("Content-Type:", "application/json");
        for header in headers {
            text.push_str(&format!("{header}\r\n"));
        }
        let text = text.replace("HOST", &self.host()).replace("KEY", KEY);
        let mut stream = self.connect();
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    pub(crate) fn ask(&self, line: &str, headers: &[&str], body: &str) -> Reply {
        reply(&mut self.send(line, headers, body))
    }
}

/// Reads a response to its end.
pub(crate) fn reply(stream: &mut dyn Read) -> Reply {
    let mut bytes = Vec::new();
    // A refused body is not read: its sender may be told so by a reset.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let head = head.to_ascii_lowercase();
    Reply {
        status: head.split(' ').nth(1).unwrap_or("0").parse().unwrap(),
        body: match head.contains("transfer-encoding: chunked") {
            true => dechunked(body),
            false => body.to_owned(),
        },
        head,
    }
}

fn dechunked(mut text: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&rest[..size]);
        text = &rest[size + 2..];
    }
    body
}

/// A header with [`KEY`].
pub(crate) const BEARER: &str = "Authorization: Bearer KEY";
