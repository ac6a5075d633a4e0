//! What the processes of skills have in common: a run without an end, and the words for how it ended.

use ringfence_policy::{
    Bytes, ExecutionResult, Language, Limits, Mount, Network, Request, Scope, Timeout, Trusted,
};

/// The scope of such processes. They share nothing warm with anybody in any case.
const SCOPE: &str = "ringfence-skills";

/// A run that serves for as long as a run may take, and may reach and see this, and change nothing that is trusted.
pub(super) fn request(memory: Bytes, network: Network, (mounts, trusted): (Vec<Mount>, Trusted)) -> Request {
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
    }
}

/// How a process ended.
pub(super) fn words(result: &ExecutionResult) -> String {
    let last = result.stderr.lines().rfind(|line| !line.trim().is_empty());
    match last {
        Some(last) => format!("its process ended: {last}"),
        None if result.exit_code < 0 => format!("signal {} killed its process", -result.exit_code),
        None => format!("its process ended with status {}", result.exit_code),
    }
}
