//! Assembles the result of a finished run.

use std::time::Instant;

use ringfence_jail::protocol::Applied;
use ringfence_policy::{
    ExecutionResult, ImageFacts, Isolation, Meta, Network, Outcome, Request, ResourceLimits, RuntimeKind,
};

use super::destination::Destination;
use super::guest::{Guest, LimitScope, Output};
use super::launcher_state::Start;
use super::notice::{full, notice};
use super::output_files;
use super::run::Finished;
use crate::filter::{FENCE, FENCE_NETWORK};
use crate::output::{self, Captured};

/// Collects a guest's output files, and delivers them if there is a destination.
pub(super) fn collect(
    output: &Output,
    destination: Option<&Destination>,
    limit: u64,
) -> output_files::CollectedFiles {
    match output.is_empty() {
        true => output_files::CollectedFiles::default(),
        false => output_files::collect_from(output.open(), destination, limit),
    }
}

/// Assembles the result of a run from its guest.
pub(super) fn assemble(
    request: &Request,
    guest: &Guest,
    finished: Finished,
    start: Start,
    since: Instant,
) -> ExecutionResult {
    let end = ProgramEnd {
        outcome: finished.outcome,
        exit_code: finished.exit_code,
        stdout: finished.stdout,
        stderr: finished.stderr,
    };
    let mut result = execution_result(RuntimeKind::Local, request, end);
    result.duration = since.elapsed().as_secs_f64();
    let meta = &mut result.meta;
    meta.isolation = Some(isolation(guest.applied, &request.network));
    meta.resource_limits = enforced(meta.resource_limits, guest.limit_scope);
    meta.peak_memory_bytes = finished.peak_memory_bytes;
    meta.cpu_seconds = finished.cpu_seconds;
    meta.failed_forks = finished.failed_forks;
    meta.warm = start != Start::Cold;
    meta.preloaded = start == Start::Preloaded;
    meta.image = request.image.as_ref().map(|image| ImageFacts {
        reference: image.reference.clone(),
        digest: image.digest.clone(),
    });
    result
}

/// Adds the version of control groups to the layers of a result.
pub(super) fn add_groups(meta: &mut Meta, version: Option<String>) {
    if let Some(isolation) = &mut meta.isolation {
        isolation.cgroup = version;
    }
}

/// Returns the limits that hold for all processes together.
pub(super) fn enforced(limits: ResourceLimits, limit_scope: LimitScope) -> ResourceLimits {
    match limit_scope {
        LimitScope::Together => limits,
        LimitScope::TogetherButProcessor => ResourceLimits { cpus: None, ..limits },
        LimitScope::EachProcess => ResourceLimits {
            memory_bytes: None,
            cpus: None,
            ..limits
        },
    }
}

/// The end of a program, with its output.
#[derive(Debug)]
pub struct ProgramEnd {
    pub outcome: Outcome,
    pub exit_code: i32,
    pub stdout: Captured,
    pub stderr: Captured,
}

/// Assembles the result of a request from the end of its program, with a notice if the program could not
/// report that itself.
pub fn execution_result(runtime: RuntimeKind, request: &Request, end: ProgramEnd) -> ExecutionResult {
    let ProgramEnd {
        outcome,
        exit_code,
        stdout,
        stderr,
    } = end;
    let mut meta = Meta {
        truncated: stdout.truncated || stderr.truncated,
        stdout_bytes: stdout.total_bytes,
        stderr_bytes: stderr.total_bytes,
        ..Meta::of(runtime, request.language, request.limits, outcome)
    };
    let mut stderr = stderr.text;
    meta.warnings.extend(full(&stderr, runtime, &request.limits));
    if let Some(notice) = notice(outcome, &meta.resource_limits) {
        output::add(&mut stderr, &(notice + "\n"));
    }
    ExecutionResult {
        stdout: stdout.text,
        stderr,
        exit_code,
        duration: 0.0,
        meta,
    }
}

/// Returns the layers that confine a guest.
pub(super) fn isolation(applied: Applied, network: &Network) -> Isolation {
    let filter = match network {
        Network::None => FENCE,
        Network::Allowlist(_) => FENCE_NETWORK,
    };
    let namespaces = applied.namespaces;
    Isolation {
        user_ns: namespaces,
        pid_ns: namespaces,
        mount_ns: namespaces,
        net_ns: namespaces,
        ipc_ns: namespaces,
        uts_ns: namespaces,
        cgroup_ns: namespaces,
        time_ns: applied.time_namespace,
        seccomp: applied.seccomp.then(|| filter.to_owned()),
        landlock_abi: applied.landlock_abi,
        cgroup: None,
        no_new_privs: applied.no_new_privs,
        capabilities_dropped: applied.capabilities_dropped,
    }
}
