//! Tests of plans built from arguments and configuration.

use super::*;
use clap::Parser;
use ringfence::env::Environment;
use ringfence_args::{Cli, Command};
use ringfence_policy::{Limits, Network, RuntimeKind};
use std::path::Path;

fn plan_with(environment: Environment, args: &[&str]) -> anyhow::Result<RunPlan> {
    let cli = Cli::try_parse_from(["ringfence", "run"].iter().chain(args))?;
    let context = Context::new(environment, cli.global, ringfence_args::ErrorFormat::Text);
    let Command::Run(args) = cli.command else {
        panic!("`run` is parsed as {:?}", cli.command);
    };
    plan(&args, &context)
}

fn plan_of(args: &[&str]) -> anyhow::Result<RunPlan> {
    plan_with(
        Environment::from([("XDG_STATE_HOME", "/none"), ("XDG_RUNTIME_DIR", "/none")]),
        args,
    )
}

#[track_caller]
fn refused(args: &[&str], words: &str) {
    let error = plan_of(args).unwrap_err().to_string();
    assert!(error.contains(words), "{args:?}: {error}");
}

#[test]
fn defaults_are_those_of_the_specification() {
    let plan = plan_of(&["-c", "print(1)"]).unwrap();
    assert_eq!(plan.spec.request.limits, Limits::DEFAULT);
    assert_eq!(
        (plan.spec.request.code.as_str(), plan.spec.request.name.as_str()),
        ("print(1)", "<string>")
    );
    assert!(matches!(plan.stdin, StdinSource::Empty), "{:?}", plan.stdin);
    assert_eq!((plan.engine, plan.report), (Engine::Use, Report::Stream));
    assert_eq!(
        (plan.spec.target.runtime(), plan.spec.fence),
        (RuntimeKind::Local, Fence::Default)
    );
    assert_eq!(plan.spec.request.network, Network::None);
    assert_eq!(
        plan.settings.artifacts_dir,
        Path::new("/none/ringfence/artifacts")
    );
    assert!(plan.settings.blocked_imports.is_empty());
}

#[test]
fn the_command_line_wins_over_the_environment() {
    let environment = || Environment::from([("SANDBOX_TIMEOUT_SEC", "7"), ("SANDBOX_TYPE", "docker")]);
    let plan = plan_with(environment(), &["-c", "1"]).unwrap();
    assert_eq!(
        (
            plan.spec.request.limits.timeout.to_string(),
            plan.spec.target.runtime()
        ),
        ("7s".to_owned(), RuntimeKind::Docker)
    );
    let plan = plan_with(environment(), &["-c", "1", "--timeout", "2s", "-r", "local"]).unwrap();
    assert_eq!(
        (
            plan.spec.request.limits.timeout.to_string(),
            plan.spec.target.runtime()
        ),
        ("2s".to_owned(), RuntimeKind::Local)
    );
}

#[test]
fn a_bad_variable_refuses_the_run() {
    let error = plan_with(Environment::from([("SANDBOX_TIMEOUT_SEC", "0")]), &["-c", "1"]).unwrap_err();
    assert!(error.to_string().contains("SANDBOX_TIMEOUT_SEC"), "{error}");
}

#[test]
fn the_import_check_is_on_when_asked_for() {
    let plan = plan_with(
        Environment::from([("SANDBOX_BLOCK_DANGEROUS_IMPORTS", "true")]),
        &["-c", "1"],
    )
    .unwrap();
    assert_eq!(
        plan.settings.blocked_imports,
        ["os", "subprocess", "shutil", "socket"]
    );
}

#[test]
fn what_cannot_be_is_refused_and_not_ignored() {
    refused(
        &["-l", "bash", "-c", "1", "--session", "s"],
        "a session is a Python interpreter",
    );
    refused(&["-l", "bash", "-c", "1", "--skills", "d"], "called from Python");
    let nowhere = ["-c", "1", "--network", "none", "--allow-host", "a"];
    refused(&nowhere, "no effect with --network none");
}

#[test]
fn a_network_is_what_its_lists_name() {
    let plan = plan_of(&[
        "-c",
        "1",
        "--network",
        "allowlist",
        "--allow-host",
        "*.a.test:8443",
    ])
    .unwrap();
    let Network::Allowlist(policy) = plan.spec.request.network else {
        panic!("no network")
    };
    assert_eq!(policy.allowed, ["*.a.test:8443".parse().unwrap()]);
    assert!(policy.private_networks.is_empty());
    let with = |more: [&'static str; 2]| [["-c", "1"], ["--network", "allowlist"], more].concat();
    refused(&with(["--session", "s"]), "a session has no network");
    refused(&with(["--allow-host", "http://a.test/"]), "--allow-host: ");
    refused(&["-c", "1", "--network", "allowlist", "--unfenced"], "--unfenced");
}

#[test]
fn only_the_command_line_can_take_the_fence_away() {
    let fence = |args: &[&str]| plan_of(args).unwrap().spec.fence;
    assert_eq!(fence(&["-c", "1", "--unfenced"]), Fence::Unfenced);
    assert_eq!(
        fence(&["-c", "1", "--isolation", "best-effort"]),
        Fence::BestEffort
    );
    let unfenced = Environment::from([("RINGFENCE_SANDBOX_ISOLATION", "unfenced")]);
    assert!(plan_with(unfenced, &["-c", "1"]).is_err());
}

#[test]
fn variables_are_passed_by_name_and_overridden_by_options() {
    let environment = Environment::from([
        ("RINGFENCE_SANDBOX_PASS_ENV", "LANG, TZ"),
        ("LANG", "C"),
        ("TZ", "UTC"),
        ("SECRET", "x"),
    ]);
    let plan = plan_with(environment, &["-c", "1", "--env", "TZ=CET"]).unwrap();
    let seen: Vec<_> = plan
        .spec
        .request
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(seen, [("LANG", "C"), ("TZ", "CET")]);
}

#[test]
fn mounts_are_resolved_and_must_exist() {
    let dir = tempfile::tempdir().unwrap();
    let spec = format!("{}:/data:ro", dir.path().display());
    let plan = plan_of(&["-c", "1", "--mount", &spec]).unwrap();
    assert_eq!(
        plan.spec.request.mounts[0].host,
        dir.path().canonicalize().unwrap()
    );
    refused(
        &["-c", "1", "--mount", "/no/such/place:/data"],
        "cannot use /no/such/place",
    );
    refused(
        &["-c", "1", "--mount", &spec, "--mount", &spec],
        "two mounts at /data",
    );
}

#[test]
fn interpreters_must_exist_and_not_depend_on_the_directory() {
    refused(
        &["-c", "1", "--python", "/no/such/python"],
        "there is no interpreter",
    );
    let python = |value: &str| {
        plan_with(
            Environment::from([("RINGFENCE_SANDBOX_PYTHON", value)]),
            &["-c", "1"],
        )
    };
    assert!(
        python("venv/bin/python")
            .unwrap_err()
            .to_string()
            .contains("relative path")
    );
    assert_eq!(
        python("python3.12").unwrap().settings.python.as_deref(),
        Some(Path::new("python3.12"))
    );
}

#[test]
fn program_and_input_cannot_share_standard_input() {
    refused(&["-", "--stdin", "-"], "cannot be both");
}
