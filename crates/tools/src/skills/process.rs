//! Shared parts of skill processes: a run without a deadline, and messages about its end.

use ringfence_policy::{
    Bytes, ExecutionResult, Language, Limits, Mount, Network, Request, Scope, Timeout, Trusted,
};

/// Scope of skill processes. They share no pre-started process with other scopes anyway.
const SCOPE: &str = "ringfence-skills";

/// Creates a request that runs as long as possible, with this memory limit, network, mounts and trusted
/// paths.
pub(super) fn request(memory: Bytes, network: Network, mounts: Vec<Mount>, trusted: Trusted) -> Request {
    Request {
        code: String::new(),
        name: String::new(),
        language: Language::Command,
        args: Vec::new(),
        env: Vec::new(),
        limits: Limits {
            timeout: Timeout::seconds(Timeout::MAX.as_secs()),
            max_output: Bytes::kib(8),
            memory,
            ..Limits::DEFAULT
        },
        network,
        mounts,
        workspace: None,
        working_directory: None,
        trusted,
        scope: SCOPE.parse().unwrap_or_else(|_| Scope::local()),
        session: None,
        image: None,
    }
}

/// Renders the end of a process.
pub(super) fn words(result: &ExecutionResult) -> String {
    let last = result.stderr.lines().rfind(|line| !line.trim().is_empty());
    match last {
        Some(last) => format!("its process ended: {last}"),
        None if result.exit_code < 0 => format!("signal {} killed its process", -result.exit_code),
        None => format!("its process ended with status {}", result.exit_code),
    }
}
