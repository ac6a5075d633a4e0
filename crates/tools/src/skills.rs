//! Host functions that programs may call, and the gatekeeper of every call.
//!
//! A [`Skill`] is a source of [`Function`]s: a directory of Python files ([`SkillFiles`]), MCP servers
//! ([`Servers`]), or a type of the embedding program. [`Skills`] holds the sources and their rules; a
//! [`Gatekeeper`] authorizes the calls of one caller.

mod fault;
mod files;
mod function;
mod gatekeeper;
mod journal;
mod needs;
mod process;
mod rules;
mod servers;
mod table;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ringfence_policy::Scope;
use serde_json::{Map, Value};

pub use files::{Consent, HostLimits, SkillFiles, manifest_problems};
pub use function::{Declared, Function, Parameter, ParameterKind, Wrong};
pub use gatekeeper::{CallInfo, Gatekeeper};
pub use ringfence_exec::bridge::CallError;
use ringfence_records::audit::Digest;
pub use rules::{ParsePathError, PathPattern, Policy, Rules};
pub use servers::{
    Credential, Events, Reach, ServerPlan, ServerProcess, Servers, Surroundings, read_message, skill_name,
};
pub use table::{FunctionMatch, Table, path_of};

/// A future of a skill.
pub type SkillFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A source of functions. It is called only with arguments that its own schemas allow, by callers that the
/// rules allow.
pub trait Skill: fmt::Debug + Send + Sync {
    /// Returns the functions that it offers now.
    fn offer(&self) -> SkillFuture<'_, Offer>;

    /// Resolves to the digest of the current definition of the function at this path. `None` if it is no
    /// longer offered.
    fn definition<'a>(&'a self, path: &'a str) -> SkillFuture<'a, Option<Digest>> {
        Box::pin(async move {
            let functions = self.offer().await.functions;
            let function = functions.iter().find(|function| function.path() == path);
            function.map(|function| function.definition())
        })
    }

    /// Calls a function with its arguments by name. Dropping the future cancels the call.
    fn call<'a>(
        &'a self,
        function: &'a Function,
        arguments: Map<String, Value>,
    ) -> SkillFuture<'a, Result<Value, CallError>>;

    /// Stops the source's processes, and waits for them.
    fn close(&self) -> SkillFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[derive(Debug, Clone, Default)]
pub struct Offer {
    pub functions: Vec<Arc<Function>>,
    /// Errors of functions that are unavailable.
    pub problems: Vec<String>,
}

#[derive(Debug)]
pub struct Skills {
    sources: Vec<Arc<dyn Skill>>,
    rules: Rules,
}

impl Skills {
    pub fn new(sources: Vec<Arc<dyn Skill>>, rules: Rules) -> Self {
        Self { sources, rules }
    }

    /// Returns the functions that a scope may call now.
    pub async fn table(&self, scope: &Scope) -> Table {
        let offers = self.sources.iter().map(|source| source.offer());
        let offers = futures_util::future::join_all(offers).await;
        Table::new(self.sources.iter().zip(offers), &self.rules, scope)
    }

    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Stops the processes of all sources, and waits for them.
    pub async fn close(&self) {
        for source in &self.sources {
            source.close().await;
        }
    }
}
