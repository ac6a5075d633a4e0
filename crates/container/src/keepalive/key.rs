//! The key of reused containers.

use std::path::PathBuf;
use std::time::Duration;

use ringfence_policy::{self as policy, EngineKind, KeepAlive, Limits, Mount, Request, Scope, Trusted};

use super::registry::Rule;
use crate::mounts;
use crate::run_error::RunError;
use crate::settings::Settings;
use crate::spec::Bind;

/// A reused container that a request asks for.
#[derive(Debug, Clone, Copy)]
pub struct KeptContainer<'a> {
    pub engine: EngineKind,
    pub keep_alive: &'a KeepAlive,
}

/// Registry key: calls with equal keys share a container.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) scope: Scope,
    pub(super) engine: EngineKind,
    pub(super) keep_alive: KeepAlive,
    /// Egress policy of its calls, if hosts are allowed: a container has one policy.
    pub(super) reach: policy::Network,
    pub(super) workspace: Option<PathBuf>,
    pub(super) mounts: Vec<Mount>,
    pub(super) trusted: Trusted,
    /// Bind mounts, of protected entries and trusted paths too, with the identities of their sources: a container
    /// keeps the files that were there when it was created.
    pub(super) shown: Vec<Bind>,
    /// Resource limits, without the timeout and the output limit, which are per call.
    pub(super) limits: Limits,
}

impl Key {
    pub(super) fn of(
        request: &Request,
        wanted: KeptContainer<'_>,
        settings: &Settings,
    ) -> Result<Self, RunError> {
        let KeptContainer { engine, keep_alive } = wanted;
        let shown = mounts::shown(request, settings)?;
        Ok(Self {
            scope: request.scope.clone(),
            engine,
            keep_alive: keep_alive.clone(),
            reach: request.network.clone(),
            workspace: request.workspace.clone(),
            mounts: request.mounts.clone(),
            trusted: request.trusted.clone(),
            shown,
            limits: Limits {
                timeout: Limits::DEFAULT.timeout,
                max_output: Limits::DEFAULT.max_output,
                ..request.limits
            },
        })
    }

    pub(super) fn rule(&self) -> Rule {
        Rule {
            max_calls: self.keep_alive.max_calls,
            idle: Duration::from_millis(self.keep_alive.idle_ms),
        }
    }
}
