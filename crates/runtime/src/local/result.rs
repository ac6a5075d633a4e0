//! From a finished run to its result.

use std::time::Instant;

use ringfence_jail::protocol::Applied;
use ringfence_policy::{ExecutionResult, Isolation, Meta, Network, Outcome, Request, RuntimeKind};

use super::destination::Destination;
use super::guest::{Guest, Output};
use super::harvest;
use super::notice::notice;
use super::run::Finished;
use crate::filter::{FENCE, FENCE_NETWORK};

/// The files that a guest left for its caller, delivered if there is a destination.
pub(super) fn collect(output: &Output, destination: Option<&Destination>, limit: u64) -> harvest::Harvest {
    let source = match output {
        Output::Handle(handle) => handle.try_clone(),
        Output::Directory(directory) => harvest::open_directory(&directory.path().join("output")),
    };
    match source {
        // An empty directory is the common case, and is found so in one call.
        Ok(source) => harvest::collect(&source, destination, limit),
        Err(error) => harvest::Harvest {
            files: Vec::new(),
            warnings: vec![format!("the output files could not be collected: {error}")],
        },
    }
}

/// The result of a run, as far as the guest tells.
pub(super) fn assemble(
    request: &Request,
    guest: &Guest,
    finished: Finished,
    warm: bool,
    since: Instant,
) -> ExecutionResult {
    let mut stderr = finished.stderr.text;
    if let Some(notice) = notice(finished.outcome, &request.limits.into()) {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(&notice);
        stderr.push('\n');
    }
    ExecutionResult {
        stdout: finished.stdout.text,
        stderr,
        exit_code: finished.exit_code,
        duration: since.elapsed().as_secs_f64(),
        meta: Meta {
            runtime: RuntimeKind::Local.as_str().to_owned(),
            language: request.language.as_str().to_owned(),
            truncated: finished.stdout.truncated || finished.stderr.truncated,
            timed_out: finished.outcome == Outcome::TimedOut,
            blocked_imports: Vec::new(),
            resource_limits: request.limits.into(),
            isolation: isolation(guest.applied, &request.network),
            outcome: finished.outcome,
            stdout_bytes: finished.stdout.total_bytes,
            stderr_bytes: finished.stderr.total_bytes,
            peak_memory_bytes: finished.peak_memory_bytes,
            cpu_seconds: finished.cpu_seconds,
            artifact: None,
            warm,
            output_files: Vec::new(),
            egress: None,
            session: None,
            warnings: Vec::new(),
        },
    }
}

fn isolation(applied: Applied, network: &Network) -> Isolation {
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
