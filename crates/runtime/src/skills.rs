//! The host's functions that programs may call, and the one gatekeeper that every call goes through.
//!
//! A [`Skill`] is a source of [`Function`]s: a directory of Python files ([`SkillFiles`]), MCP servers ([`Servers`]), or
//! a type of whoever embeds this crate. [`Skills`] holds the sources with the rules for them, a [`Gatekeeper`] lets one caller's calls through.

mod bridged;
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

use crate::audit::Digest;
pub use crate::bridge::Fault;
pub use bridged::bridged;
pub use files::{Consent, HostLimits, SkillFiles};
pub use function::{Declared, Function, Parameter, ParameterKind, Wrong};
pub use gatekeeper::{Gatekeeper, Visitor};
pub use rules::{ParsePathError, PathPattern, Policy, Rules};
pub use servers::{
    Credential, Events, Reach, ServerPlan, ServerProcess, Servers, Surroundings, read_message, skill_name,
};
pub use table::{Found, Table, path_of};

/// What a skill promises, once awaited.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A source of functions. It is called only with arguments that its own schemas allow, by callers that the rules allow.
pub trait Skill: fmt::Debug + Send + Sync {
    /// What it offers at this moment.
    fn offer(&self) -> Asked<'_, Offer>;

    /// Resolves to the definition under which the function at this path would be called now; `None`: it is not offered any
    /// more.
    fn definition<'a>(&'a self, path: &'a str) -> Asked<'a, Option<Digest>> {
        Box::pin(async move {
            let functions = self.offer().await.functions;
            let function = functions.iter().find(|function| function.path() == path);
            function.map(|function| function.definition())
        })
    }

    /// Calls a function with its arguments by name. To drop the call takes it back.
    fn call<'a>(
        &'a self,
        function: &'a Function,
        arguments: Map<String, Value>,
    ) -> Asked<'a, Result<Value, Fault>>;

    /// Ends what runs for it, and waits for that.
    fn close(&self) -> Asked<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// What a skill offers.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// Its functions.
    pub functions: Vec<Arc<Function>>,
    /// What it cannot offer, and why.
    pub problems: Vec<String>,
}

/// Skills, with the rules for them.
#[derive(Debug)]
pub struct Skills {
    sources: Vec<Arc<dyn Skill>>,
    rules: Rules,
}

impl Skills {
    /// These sources under these rules.
    pub fn new(sources: Vec<Arc<dyn Skill>>, rules: Rules) -> Self {
        Self { sources, rules }
    }

    /// The functions that a scope may call at this moment.
    pub async fn table(&self, scope: &Scope) -> Table {
        let offers = self.sources.iter().map(|source| source.offer());
        let offers = futures_util::future::join_all(offers).await;
        Table::new(self.sources.iter().zip(offers), &self.rules, scope)
    }

    /// The rules.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Ends what runs for the sources, and waits for that.
    pub async fn close(&self) {
        for source in &self.sources {
            source.close().await;
        }
    }
}
