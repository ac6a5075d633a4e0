//! Tests reused containers of real engines.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_exec::backend::Fingerprint;
use ringfence_exec::local::{Fence, NOBODY};
use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::Ledger;
use ringfence_network::egress::proxy::Injection;
use ringfence_network::egress::{NetworkSettings, Resolver};
use ringfence_policy::{KeepAlive, Language, Limits, NetworkMode};
use tokio::sync::{mpsc, watch};

use super::place::Runs;
use super::*;
use crate::backend::Settings;
use crate::init::InitLost;
use crate::outputs::Outputs;
use crate::runtime::Id;
use crate::spec::{OciRuntime, User};
use crate::testing::{IMAGE, engines, own_uid};
use crate::{ContainerRuntime, Surroundings};

/// Returns containers of the test's own, and their working directory.
fn containers() -> (tempfile::TempDir, Containers) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().canonicalize().unwrap();
    let uid = own_uid();
    let settings = Settings {
        surroundings: Surroundings {
            files: path.join("files"),
            ..Surroundings::default()
        },
        image: IMAGE.parse().unwrap(),
        pins: path.join("images.json"),
        network: NetworkMode::None,
        oci_runtime: OciRuntime::Default,
        filter: "standard".to_owned(),
        hidden: DeniedPaths::default(),
        ledger: Ledger::default(),
        protected: Vec::new(),
        scratch: path.clone(),
        init: path.join("init"),
        outputs: Outputs::new(path.join("output"), (uid == 0).then_some(NOBODY)),
        user: User { uid, gid: uid },
        egress: NetworkSettings {
            resolver: Resolver::system(),
            trust: Arc::default(),
            injections: Vec::new(),
        },
    };
    (place, Containers::new(settings))
}

#[test]
fn a_setting_of_containers_changes_their_fingerprint() {
    let (_place, containers) = containers();
    let settings = containers.settings();
    let fingerprint = |settings: &Settings| Fingerprint::of(settings).unwrap();
    assert_eq!(fingerprint(settings), fingerprint(&settings.clone()));
    let host = "api.example.com".parse().unwrap();
    let injection = Injection::new(host, None, "authorization", "", None).unwrap();
    let others = [
        Settings {
            network: NetworkMode::Bridge,
            ..settings.clone()
        },
        Settings {
            hidden: DeniedPaths::new([(PathBuf::from("/srv/own"), "ours")]),
            ..settings.clone()
        },
        Settings {
            egress: NetworkSettings {
                injections: vec![injection],
                ..settings.egress.clone()
            },
            ..settings.clone()
        },
    ];
    for other in others {
        assert_ne!(fingerprint(settings), fingerprint(&other), "{other:?}");
    }
}

struct Wanted {
    engine: EngineKind,
    keep_alive: KeepAlive,
}

impl Wanted {
    fn container(&self) -> KeptContainer<'_> {
        KeptContainer {
            engine: self.engine,
            keep_alive: &self.keep_alive,
        }
    }
}

fn fenced(request: &Request) -> FencedRequest<'_> {
    FencedRequest {
        request,
        fence: Fence::Default,
    }
}

fn wanted(engine: &ContainerRuntime) -> Wanted {
    let keep_alive = KeepAlive {
        image: IMAGE.to_owned(),
        network: NetworkMode::None,
        session: None,
        max_calls: 50,
        idle_ms: 600_000,
    };
    Wanted {
        engine: engine.kind(),
        keep_alive,
    }
}

fn request(language: Language, code: &str, timeout: &str) -> Request {
    Request {
        env: vec![("WORD".parse().unwrap(), "said".to_owned())],
        limits: Limits {
            timeout: timeout.parse().unwrap(),
            ..Limits::DEFAULT
        },
        ..Request::new(language, code)
    }
}

fn bash(code: &str) -> Request {
    request(Language::Bash, code, "60s")
}

async fn call(containers: &Containers, wanted: &Wanted, request: &Request) -> ExecutionResult {
    containers
        .call(wanted.container(), fenced(request), Connection::none())
        .await
        .unwrap()
}

#[tokio::test]
async fn two_first_calls_at_once_make_one_container() {
    for engine in engines().await {
        let (_place, containers) = containers();
        let wanted = wanted(&engine);
        let (one, two) = (
            bash("touch /tmp/one; ls -d /workspace $TMPDIR; echo $WORD"),
            bash("echo 2"),
        );
        let (one, two) = tokio::join!(call(&containers, &wanted, &one), call(&containers, &wanted, &two));
        assert_eq!(one.stdout, "/tmp\n/workspace\nsaid\n", "{one:?}");
        assert_eq!(two.stdout, "2\n", "{two:?}");
        assert_eq!(containers.kept(Some(&Scope::local())).len(), 1);
        let there = call(&containers, &wanted, &bash("ls /tmp")).await;
        assert_eq!((there.stdout.as_str(), there.meta.warm), ("one\n", true));
        containers.close().await;
        let never = bash("true");
        let closed = containers.call(wanted.container(), fenced(&never), Connection::none());
        closed.await.unwrap_err();
    }
}

#[tokio::test]
async fn closing_ends_what_runs_as_unknown() {
    for engine in engines().await {
        let (_place, containers) = containers();
        let wanted = wanted(&engine);
        let (output, mut heard) = mpsc::channel(1);
        let connection = Connection {
            output: Some(output),
            ..Connection::none()
        };
        let endless = bash("echo up; sleep 1000");
        let running = containers.call(wanted.container(), fenced(&endless), connection);
        let (result, ()) = tokio::join!(running, async {
            heard.recv().await.unwrap();
            containers.close().await;
        });
        assert_eq!(result.unwrap().meta.outcome, Outcome::Unknown);
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_its_container_is_there_leaves_none() {
    for engine in engines().await {
        let (_place, containers) = containers();
        let wanted = wanted(&engine);
        let (cancel, cancelled) = watch::channel(false);
        cancel.send_replace(true);
        let connection = Connection {
            cancelled: Some(cancelled),
            ..Connection::none()
        };
        let never = bash("echo never");
        let result = containers
            .call(wanted.container(), fenced(&never), connection)
            .await;
        assert_eq!(result.unwrap().meta.outcome, Outcome::Cancelled);
        assert_eq!(containers.kept(Some(&Scope::local())), Vec::new());
        containers.close().await;
    }
}

/// Creates a container in which our init cannot run.
async fn without_init(
    place: &Path,
    containers: &Containers,
    wanted: &Wanted,
    request: &Request,
) -> ReusedContainer {
    let program = place.join("words");
    std::fs::write(&program, "no program").unwrap();
    let wanted = wanted.container();
    let supervisor = containers.supervisor(wanted.engine).await.unwrap();
    let key = Key::of(request, wanted, containers.settings()).unwrap();
    let made = place::make_with(containers.settings(), supervisor, &key, &program).await;
    let container = made.unwrap();
    assert!(matches!(container.runs, Runs::Exec(..)));
    container
}

#[tokio::test]
async fn where_the_init_cannot_run_the_container_engine_starts_programs_and_that_is_told() {
    for engine in engines().await {
        let (place, containers) = containers();
        let wanted = wanted(&engine);
        let run = async |request: &Request| {
            let container = without_init(place.path(), &containers, &wanted, request).await;
            let result = serve::serve(&container, request, Duration::ZERO, Connection::none())
                .await
                .unwrap();
            let alive = container.is_alive();
            container.end().await;
            let never = serve::serve(&container, request, Duration::ZERO, Connection::none());
            let never = never.await.unwrap_err();
            assert!(
                matches!(never, RunError::NotRun(NotRun::InitLost(InitLost::Gone))),
                "{never:?}"
            );
            (result, alive)
        };
        let (python, _) = run(&request(
            Language::Python,
            "import os; print(os.environ['WORD'])",
            "60s",
        ))
        .await;
        assert_eq!(python.stdout, "said\n", "{python:?}");
        assert!(
            python.meta.warnings[0].contains("the init does not run in this image"),
            "{python:?}"
        );
        assert_eq!(python.meta.resource_limits.disk_bytes, None);
        let (status, alive) = run(&bash("echo err >&2; pwd > /output/where; exit 3")).await;
        assert_eq!(
            (status.stderr.as_str(), status.exit_code, alive),
            ("err\n", 3, true)
        );
        assert_eq!(status.meta.output_files[0].path, "where");
        let (late, alive) = run(&request(
            Language::Bash,
            "yes | head -c 5000000; sleep 1000",
            "2s",
        ))
        .await;
        assert_eq!(
            (late.meta.outcome, late.exit_code),
            (Outcome::TimedOut, -1),
            "{late:?}"
        );
        assert!(late.stdout.starts_with("y\n"));
        // An engine can only kill all processes of a container at once.
        assert!(!alive);
        containers.close().await;
    }
}

#[tokio::test]
async fn where_the_init_cannot_run_a_cancelled_call_keeps_its_output() {
    for engine in engines().await {
        let (place, containers) = containers();
        let endless = bash("yes | head -c 5000000; echo > /output/begun; sleep 1000");
        let container = without_init(place.path(), &containers, &wanted(&engine), &endless).await;
        let (cancel, cancelled) = watch::channel(false);
        let connection = Connection {
            cancelled: Some(cancelled),
            ..Connection::none()
        };
        let begun = container.output.path().join("begun");
        let cancelling = async {
            while !begun.exists() {
                tokio::task::yield_now().await;
            }
            cancel.send_replace(true);
        };
        let serving = serve::serve(&container, &endless, Duration::ZERO, connection);
        let (result, ()) = tokio::join!(serving, cancelling);
        let result = result.unwrap();
        assert_eq!(
            (result.meta.outcome, result.exit_code),
            (Outcome::Cancelled, -9),
            "{result:?}"
        );
        // More than is ever on the way, so that some has arrived.
        assert!(result.stdout.starts_with("y\n"));
        assert!(!container.is_alive());
        containers.close().await;
    }
}

#[tokio::test]
async fn one_that_died_while_idle_is_replaced_and_the_next_call_is_told_once() {
    for engine in engines().await {
        let (_place, containers) = containers();
        let wanted = wanted(&engine);
        let look = bash("ls /tmp; touch /tmp/left");
        let id = || Id::new(&containers.kept(Some(&Scope::local()))[0].1.name).unwrap();
        call(&containers, &wanted, &look).await;
        let mut before = id();
        for removed in [false, true] {
            match removed {
                true => engine.remove(&before).await.unwrap(),
                false => engine.kill(&before).await.unwrap(),
            }
            let next = call(&containers, &wanted, &look).await;
            assert_eq!((next.stdout.as_str(), next.meta.warm), ("", false), "{next:?}");
            assert_eq!(next.meta.warnings, [LOST]);
            assert_ne!(before, id());
            before = id();
            let later = call(&containers, &wanted, &look).await;
            assert_eq!((later.stdout.as_str(), later.meta.warnings.len()), ("left\n", 0));
        }
        containers.close().await;
    }
}
