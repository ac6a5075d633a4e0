//! The vocabulary of the workspace as values: requests, limits, policies, results.
//!
//! This crate does no I/O, reads no clock and knows neither Linux nor HTTP: a value of one of these types is
//! valid because it exists.
#![forbid(unsafe_code)]

mod account;
mod bounds;
pub mod cascade;
mod command;
mod egress;
mod files;
pub mod hints;
mod image;
mod isolation;
pub mod json;
mod limits;
mod mount;
mod network;
mod outcome;
mod protected_names;
mod quota;
pub mod remedy;
mod remote;
mod request;
pub mod shell;
mod store_policy;
mod target;
pub mod timestamp;
mod trusted;
mod units;

pub use account::Account;
pub use bounds::{disk, memory};
pub use egress::{
    AddressClass, Cidr, EgressPolicy, Host, HostName, HostPattern, ParseCidrError, ParseHostError,
    ParsePatternError, Refusal, is_public,
};
pub use files::{UserRoot, UserRootError, UserScope};
pub use image::{EntrySource, Image, RootEntry};
pub use isolation::{Isolation, IsolationMode};
pub use limits::Limits;
pub use mount::{Access, Mount, NODE_MODULES, PACKAGES, ParseMountError};
pub use network::Network;
pub use outcome::{
    EgressAttempt, EgressFacts, ExecutionResult, ImageFacts, Meta, Outcome, OutputFile, ResourceLimits,
    RichResult, SessionFacts,
};
pub use protected_names::PROTECTED;
pub use quota::{CpuTime, ParseCpuTimeError, Quota};
pub use remedy::Remedy;
pub use remote::{RemoteLanguage, RemoteRequest, RemoteRun, Terms};
pub use request::{
    EnvName, Language, ParseEnvNameError, ParseIdError, Request, Scope, SessionId, UnknownName,
};
pub use store_policy::StorePolicy;
pub use target::{
    EngineKind, Fallback, Family, Feature, KeepAlive, Lack, NetworkMode, RuntimeKind, Target, Traits,
};
pub use trusted::{HostServer, Imports, Trusted};
pub use units::{AskedTimeout, Bytes, Cpus, ParseUnitError, Pids, Timeout};
