//! The sandbox tests of other projects, if the collection lies beside the repository.

use std::path::PathBuf;

use serde_json::Value;

use super::fence::Fence;
use crate::support::finish;

/// Output of failed attempts.
const EVIDENCE: &[&str] = &[
    "denied",
    "not permitted",
    "not found",
    "No such file",
    "network_failed",
    "commands blocked",
    "errno 1",
    "OK",
];

/// Output of successful attempts.
const ESCAPED: &[&str] = &[
    "FAIL",
    "elevated\n",
    "root:x:0:0:root:/root",
    "PRIVATE KEY",
    "<html",
];

fn cases() -> Option<Vec<Value>> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora/escape_cases.jsonl");
    let Ok(text) = std::fs::read_to_string(file) else {
        // It is no part of the repository, so that its absence is never a failure.
        eprintln!("skipped: there is no collection of escape cases beside the repository");
        return None;
    };
    let cases = text.lines().map(|line| serde_json::from_str(line).unwrap());
    Some(cases.filter(concerns_us).collect())
}

fn concerns_us(case: &Value) -> bool {
    let code = text(case, "code");
    // Some cases show a policy of their original tool, or need a reachable host.
    let other_policy = text(case, "policy_args").contains("--block-command");
    let needs = ["curl", "host ", "zsh", "brew"]
        .iter()
        .any(|name| code.contains(name));
    case["layer"] == "runtime"
        && case["templated"] == false
        && ["bash", "python"].contains(&text(case, "language"))
        && match text(case, "expected") {
            "contain" => !other_policy,
            "succeed" => !needs,
            _ => false,
        }
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_default()
}

#[test]
fn the_cases_of_others_are_contained_or_work() {
    let (Some(fence), Some(cases)) = (Fence::root(), cases()) else {
        return;
    };
    assert!(cases.len() >= 20, "only {} cases", cases.len());
    let failures: Vec<String> = cases.iter().filter_map(|case| failure(&fence, case)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn failure(fence: &Fence, case: &Value) -> Option<String> {
    let options = [
        "--timeout",
        "10s",
        "-l",
        text(case, "language"),
        "-c",
        text(case, "code"),
    ];
    let output = finish(&mut fence.ringfence(&options), b"");
    let said = format!("{}{}", output.stdout, output.stderr);
    let escaped = ESCAPED.iter().any(|mark| said.contains(mark));
    let evidence = output.status != 0 || said.is_empty() || EVIDENCE.iter().any(|mark| said.contains(mark));
    // 124: a hang; 125: a failure of ours.
    let good = match text(case, "expected") {
        "contain" => evidence && !escaped && ![124, 125].contains(&output.status),
        _ => output.status == 0 && !escaped,
    };
    (!good).then(|| format!("{}: {output:?}", text(case, "id")))
}
