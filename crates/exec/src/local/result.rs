//! Assembles the result of a finished run.

use std::time::Instant;

use ringfence_jail::protocol::Applied;
use ringfence_policy::{
    ExecutionResult, Isolation, Meta, Network, Outcome, Request, ResourceLimits, RuntimeKind,
};

use super::destination::Destination;
use super::guest::{Guest, Held, Output};
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
) -> output_files::Harvest {
    let source = match output {
        Output::Handle(handle) if output_files::is_empty_tmpfs(handle) => {
            return output_files::Harvest::default();
        }
        Output::Handle(handle) => handle.try_clone(),
        Output::Directory(directory) => output_files::open_directory(&directory.path().join("output")),
    };
    output_files::collect_from(source, destination, limit)
}

/// Assembles the result of a run from its guest.
pub(super) fn assemble(
    request: &Request,
    guest: &Guest,
    finished: Finished,
    warm: bool,
    since: Instant,
) -> ExecutionResult {
    let mut result = told(
        (RuntimeKind::Local, request),
        (finished.stdout, finished.stderr),
        (finished.outcome, finished.exit_code),
    );
    result.duration = since.elapsed().as_secs_f64();
    let meta = &mut result.meta;
    meta.isolation = isolation(guest.applied, &request.network);
    meta.resource_limits = held(meta.resource_limits, guest.held);
    meta.peak_memory_bytes = finished.peak_memory_bytes;
    meta.cpu_seconds = finished.cpu_seconds;
    meta.failed_forks = finished.failed_forks;
    meta.warm = warm;
    result
}

/// Returns the limits that hold for all processes together.
fn held(limits: ResourceLimits, held: Held) -> ResourceLimits {
    match held {
        Held::Together => limits,
        Held::TogetherButProcessor => ResourceLimits { cpus: None, ..limits },
        Held::EachProcess => ResourceLimits {
            memory_bytes: None,
            cpus: None,
            ..limits
        },
    }
}

/// Assembles the result of a request from the program's output and outcome, with a notice if the program
/// could not report its end itself.
pub fn told(
    (runtime, request): (RuntimeKind, &Request),
    (stdout, stderr): (Captured, Captured),
    (outcome, exit_code): (Outcome, i32),
) -> ExecutionResult {
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
