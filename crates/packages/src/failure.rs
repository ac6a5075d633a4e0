//! Classifies failures of installers by the attempts to reach hosts, and by their messages.

use ringfence_policy::{Bytes, ExecutionResult};

use crate::ecosystem::{Ecosystem, Messages};
use crate::error::InstallError;
use crate::requirement::shown;

/// Returns the error of an installation that failed.
pub(crate) fn classify(ecosystem: Ecosystem, result: &ExecutionResult, disk: Bytes) -> InstallError {
    let messages = ecosystem.messages();
    let errors = result.stderr.as_str();
    let attempts = result.meta.egress.iter().flat_map(|facts| &facts.attempts);
    let failed = attempts.rev().find(|attempt| attempt.verdict != "connected");
    if FULL.iter().any(|full| errors.contains(full)) {
        InstallError::Disk(disk)
    } else if errors.contains(messages.wrong_digest) {
        InstallError::Digest(ecosystem)
    } else if let Some(attempt) = failed {
        InstallError::Unreachable {
            ecosystem,
            attempt: attempt.clone(),
        }
    } else if let Some(name) = missing(messages, errors) {
        InstallError::NotFound {
            ecosystem,
            name: shown(name),
            detail: offered(errors),
        }
    } else if errors.contains(messages.conflict) {
        InstallError::Conflict(excerpt(messages, errors))
    } else {
        InstallError::Failed {
            ecosystem,
            detail: excerpt(messages, errors),
        }
    }
}

const FULL: &[&str] = &["No space left on device", "ENOSPC"];

/// Returns the requirement that was not found.
fn missing<'a>(messages: &Messages, errors: &'a str) -> Option<&'a str> {
    let named = messages.not_found_prefixes.iter().find_map(|(before, ends)| {
        let (_, rest) = errors.rsplit_once(before)?;
        rest.split(*ends).next()
    })?;
    // npm ends a sentence here, and writes "any version" as `@*`.
    Some(named.trim_end_matches('.').trim_end_matches("@*"))
}

/// Maximum length of an excerpt, and maximum number of its lines.
const MAX_EXCERPT: usize = 600;
const MAX_LINES: usize = 6;

/// Returns the versions that the index offers, as pip names them.
fn offered(errors: &str) -> String {
    let found = errors
        .rsplit_once("(from versions: ")
        .and_then(|(_, rest)| rest.split_once(')'));
    match found {
        Some((versions, _)) if versions != "none" => {
            let all: Vec<&str> = versions.split(", ").collect();
            let last = all[all.len().saturating_sub(5)..].join(", ");
            let short: String = last.chars().take(100).collect();
            format!("; the latest are {}", short.escape_debug())
        }
        _ => String::new(),
    }
}

/// Returns the last errors in the output of an installer, bounded and without control characters.
fn excerpt<'a>(messages: &Messages, errors: &'a str) -> String {
    let text_of = |line: &'a str| {
        let mut begins = messages.error_lines.iter();
        begins.find_map(|begin| line.strip_prefix(*begin))
    };
    let lines: Vec<&str> = errors.lines().filter_map(text_of).collect();
    let last = &lines[lines.len().saturating_sub(MAX_LINES)..];
    let text = last
        .iter()
        .map(|line| line.escape_debug().to_string())
        .collect::<Vec<_>>()
        .join("; ");
    match text.chars().take(MAX_EXCERPT).collect::<String>() {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{
        EgressAttempt, EgressFacts, EgressPolicy, Language, Limits, Meta, Outcome, RuntimeKind,
    };

    fn failed(stderr: &str, verdict: &str, reason: Option<String>) -> InstallError {
        failed_in(Ecosystem::Python, stderr, verdict, reason)
    }

    fn failed_in(ecosystem: Ecosystem, stderr: &str, verdict: &str, reason: Option<String>) -> InstallError {
        let mut meta = Meta::of(
            RuntimeKind::Local,
            Language::Python,
            Limits::DEFAULT,
            Outcome::Exited,
        );
        meta.egress = Some(EgressFacts {
            bytes: 0,
            attempts: vec![EgressAttempt {
                target: "index.test:443".to_owned(),
                verdict: verdict.to_owned(),
                reason,
            }],
            left_off: 0,
        });
        let result = ExecutionResult {
            stdout: String::new(),
            stderr: stderr.to_owned(),
            exit_code: 4,
            duration: 0.0,
            meta,
        };
        classify(ecosystem, &result, Bytes::mib(2))
    }

    #[test]
    fn failures_of_pip_are_told_apart() {
        let missing = "ERROR: Could not find a version that satisfies the requirement nope==3 (from versions: 1.0, 2.0)\nERROR: No matching distribution found for nope==3\n";
        for (stderr, verdict, expected) in [
            (
                missing,
                "connected",
                "`nope==3`, or no wheel of it for this Python and machine; the latest are 1.0, 2.0",
            ),
            (missing, "refused", "could not be reached: index.test:443 refused"),
            (
                "OSError: [Errno 28] No space left on device",
                "connected",
                "do not fit into 2MiB",
            ),
            (
                "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM",
                "connected",
                "does not match the hash",
            ),
            (
                "ERROR: ResolutionImpossible: for help",
                "connected",
                "conflicting dependencies: ResolutionImpossible",
            ),
            (
                "noise\nERROR: odd \u{1b}[31m",
                "connected",
                "pip failed: odd \\u{1b}[31m",
            ),
            ("", "connected", "pip failed"),
        ] {
            let found = failed(stderr, verdict, None).to_string();
            assert!(found.contains(expected), "{stderr}: {found}");
        }
        let long = failed(&"ERROR: x".repeat(1000), "connected", None);
        assert!(long.to_string().len() < 700);
    }

    #[test]
    fn failures_of_npm_are_told_apart() {
        for (stderr, expected) in [
            (
                "npm error code E404\nnpm error 404  The requested resource 'nope@*' could not be found\n",
                "the registry has no package `nope`, or no such version of it",
            ),
            (
                "npm ERR! 404  'nope@^2' is not in this registry.",
                "the registry has no package `nope@^2`",
            ),
            (
                "npm error code ETARGET\nnpm error notarget No matching version found for a@>=9 <10.\nnpm error x",
                "the registry has no package `a@>=9 <10`",
            ),
            (
                "npm error code EINTEGRITY\n",
                "a file from the registry does not match the hash",
            ),
            (
                "npm error code ERESOLVE\nnpm error could not resolve\n",
                "conflicting dependencies: code ERESOLVE; could not resolve",
            ),
            (
                "npm error ENOSPC: no space left on device, write",
                "do not fit into 2MiB",
            ),
            (
                "npm warn x\nnpm error odd \u{1b}[31m",
                "npm failed: odd \\u{1b}[31m",
            ),
        ] {
            let found = failed_in(Ecosystem::Npm, stderr, "connected", None).to_string();
            assert!(found.contains(expected), "{stderr}: {found}");
        }
        for (verdict, key) in [
            ("unreachable", "`packages.npm_registry`"),
            ("refused", "`packages.npm_hosts`"),
        ] {
            let hint = failed_in(Ecosystem::Npm, "", verdict, None).hint();
            assert!(hint.contains(key), "{hint}");
        }
    }

    #[test]
    fn a_host_that_was_not_reached_has_its_remedy() {
        let host = "index.test".parse().unwrap();
        let policy = EgressPolicy::default();
        let closed = policy.check_address(&host, "10.0.0.1".parse().unwrap());
        let unlisted = policy.check_host(&host, 443);
        for (verdict, reason, expected) in [
            (
                "refused",
                closed.err().map(|refusal| refusal.to_string()),
                "`egress.private_networks`",
            ),
            (
                "refused",
                unlisted.err().map(|refusal| refusal.to_string()),
                "`packages.hosts`",
            ),
            ("unreachable", None, "`packages.index`"),
        ] {
            let hint = failed("", verdict, reason).hint();
            assert!(hint.contains(expected), "{verdict}: {hint}");
        }
    }
}
