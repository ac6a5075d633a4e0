//! Suggests remedies for code in a sandbox that hit a limit or lacked a module, input or the network.

use ringfence_policy::hints::hint_in_sandbox;
use ringfence_policy::{
    EgressFacts, ExecutionResult, ImageFacts, Language, Limits, Meta, ResourceLimits, RuntimeKind, Timeout,
};

use super::context::Execution;
use super::spec::{Runtime, SandboxInfo};

/// Returns the hint for the user about code that failed in a sandbox, as for a run.
pub fn hint(
    sandbox: &SandboxInfo,
    language: Language,
    timeout: Timeout,
    execution: &Execution,
    stderr: &str,
) -> Option<String> {
    let runtime = match sandbox.runtime {
        Runtime::Local => RuntimeKind::Local,
        Runtime::Docker => RuntimeKind::Docker,
        Runtime::Podman => RuntimeKind::Podman,
    };
    let limits = sandbox.resources;
    let image = sandbox.image_digest.clone().map(|digest| ImageFacts {
        reference: sandbox.image.clone(),
        digest,
    });
    let result = ExecutionResult {
        stdout: String::new(),
        stderr: stderr.to_owned(),
        exit_code: execution.exit_code,
        duration: execution.duration,
        meta: Meta {
            resource_limits: ResourceLimits {
                timeout: timeout.as_duration().as_secs_f64(),
                memory_bytes: limits.memory_limit,
                cpus: limits.cpu_limit,
                pids: limits.pids_limit,
                disk_bytes: Some(limits.disk_limit),
                ..Limits::DEFAULT.into()
            },
            image,
            egress: (!sandbox.allowed_hosts.is_empty()).then(EgressFacts::default),
            ..Meta::of(runtime, language, Limits::DEFAULT, execution.outcome)
        },
    };
    hint_in_sandbox(&result)
}
