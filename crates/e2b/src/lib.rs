//! E2B's protocol: unmodified E2B SDKs use the sandboxes of this server.
//!
//! - [`Service`]: the sandboxes as E2B's clients know them, with their tokens.
//! - [`Target`]: the plane and the call that a request is for.
//! - [`Domain`]: the names of sandboxes, and of the API, at a listener that has them.
//! - `planes`: the checks of tokens, and the answers of each plane; `known`: a sandbox to its clients.
//! - `control`: the control plane, which creates, finds and ends sandboxes.
//! - `templates`: builds of templates, which become snapshots.
//! - `envd`: files and processes of a sandbox, with Connect's framing in `rpc`.
//! - `interpreter`: the code interpreter of a sandbox.
//! - `reverse_proxy`: requests to programs that listen on ports of a sandbox.
//!
//! The crate checks the tokens of sandboxes; keys, hosts, origins and records are its caller's.
#![forbid(unsafe_code)]

mod body;
mod client;
mod control;
mod domain;
mod envd;
mod error;
mod gzip;
mod ingress;
mod interpreter;
mod known;
mod planes;
mod protocol;
mod reverse_proxy;
mod rpc;
mod service;
mod target;
mod templates;
mod token;

pub use body::Described;
pub use client::{BeginRun, BuildKey, Client, KeyEnd};
pub use domain::{Domain, ParseDomainError};
pub use error::{Error, Failure};
pub use planes::Admitted;
pub use reverse_proxy::{OfProgram, Tunnel};
pub use service::Service;
pub use target::Target;
