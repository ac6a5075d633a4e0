//! Tests the life cycle of sandboxes in real engines.

use std::time::Duration;

use ringfence_policy::EngineKind;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use super::*;
use crate::Surroundings;
use crate::endpoint::Address;
use crate::spec::Spec;
use crate::state::Failure;
use crate::testing::{engines, owned, spec, volume};

const LONG: Duration = Duration::from_secs(300);

/// Returns a manager with an owner of the test's own, so that parallel tests do not sweep each other's
/// sandboxes.
async fn manager(engine: &ContainerRuntime) -> Manager {
    Manager::new(engine.clone(), owned(), engine.info().await.unwrap())
}

fn sandbox_spec(manager: &Manager, command: &[&str], max_duration: Duration) -> SandboxSpec {
    let spec = Spec {
        owner: manager.owner().clone(),
        volumes: vec![volume()],
        ..spec(command)
    };
    SandboxSpec {
        spec,
        max_duration,
        attach: false,
        belongings: None,
    }
}

/// Starts a sandbox without attaching to it.
async fn sandbox(manager: &Manager, sandbox_spec: SandboxSpec) -> Result<Sandbox, Error> {
    manager.sandbox(sandbox_spec).await.map(|(sandbox, _)| sandbox)
}

/// Lists the names of this manager's containers and volumes in the engine.
async fn left(engine: &ContainerRuntime, manager: &Manager) -> Vec<String> {
    let owner = manager.owner().to_string();
    let mut all = engine.list().await.unwrap();
    all.extend(engine.list_volumes().await.unwrap());
    let ours = all
        .into_iter()
        .filter(|found| found.labels.get("ringfence.owner") == Some(&owner));
    ours.map(|found| found.name).collect()
}

#[tokio::test]
async fn a_sandbox_is_made_used_and_destroyed() {
    for engine in engines().await {
        let manager = manager(&engine).await;
        let sandbox = sandbox(&manager, sandbox_spec(&manager, &["sleep", "600"], LONG))
            .await
            .unwrap();
        assert_eq!(sandbox.life().state, State::Running);
        assert_eq!(left(&engine, &manager).await.len(), 2);
        let command = ["bash", "-c", "echo hi > /output/x; cat /output/x"].map(str::to_owned);
        let late = tokio::time::sleep_until(Instant::now() + LONG);
        let result = sandbox.run(&command, late, Bytes::kib(1)).await.unwrap();
        assert_eq!(
            (result.stdout.text.as_str(), result.status),
            ("hi\n", Some(0)),
            "{result:?}"
        );
        sandbox.pause().await.unwrap();
        assert_eq!(sandbox.life().state, State::Paused);
        assert!(matches!(sandbox.pause().await, Err(Error::Illegal(_))));
        sandbox.resume().await.unwrap();
        let end = sandbox.stop().await;
        assert_eq!((end.state, end.problems), (State::Destroyed(None), Vec::new()));
        assert_eq!(left(&engine, &manager).await, Vec::<String>::new());
        manager.close().await;
    }
}

#[tokio::test]
async fn a_sandbox_whose_time_is_up_is_destroyed_and_says_so() {
    for engine in engines().await {
        let manager = manager(&engine).await;
        let at_once = sandbox(
            &manager,
            sandbox_spec(&manager, &["sleep", "600"], Duration::ZERO),
        )
        .await;
        let end = at_once.unwrap().ended().await;
        assert_eq!(end.state, State::Destroyed(Some(Failure::TimedOut)));
        let brief = Duration::from_secs(3);
        let sandbox = sandbox(&manager, sandbox_spec(&manager, &["sleep", "600"], brief))
            .await
            .unwrap();
        sandbox.pause().await.unwrap();
        let end = sandbox.ended().await;
        assert_eq!(end.state, State::Destroyed(Some(Failure::TimedOut)));
        assert_eq!(left(&engine, &manager).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn every_other_end_is_told_apart() {
    let eat = ["python3", "-c", "x = bytearray(500 << 20)"];
    let crashed = Some(Failure::Crashed);
    for engine in engines().await {
        let manager = manager(&engine).await;
        // Podman's monitor misses OOM kills on hosts with both versions of control groups mounted.
        let out_of_memory = match engine.kind() {
            EngineKind::Docker => Some(Failure::OutOfMemory),
            EngineKind::Podman => crashed,
        };
        for (command, failure, exit_code) in [
            (&["true"][..], None, Some(0)),
            (&["bash", "-c", "exit 3"], crashed, Some(3)),
            (&["bash", "-c", "kill -9 $$"], crashed, Some(137)),
            (&eat, out_of_memory, Some(137)),
        ] {
            let sandbox = sandbox(&manager, sandbox_spec(&manager, command, LONG))
                .await
                .unwrap();
            let end = sandbox.ended().await;
            assert_eq!(
                (end.state, end.exit_code),
                (State::Destroyed(failure), exit_code),
                "{command:?}"
            );
        }
        let no_program = sandbox(&manager, sandbox_spec(&manager, &["/no/such/program"], LONG)).await;
        let end = no_program.unwrap().ended().await;
        assert_eq!(end.state, State::Destroyed(crashed));
        assert_eq!(left(&engine, &manager).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_sandbox_that_vanishes_is_noticed() {
    for engine in engines().await {
        let manager = manager(&engine).await;
        let sandbox = sandbox(&manager, sandbox_spec(&manager, &["sleep", "600"], LONG))
            .await
            .unwrap();
        engine.remove(sandbox.id()).await.unwrap();
        let end = tokio::time::timeout(Duration::from_secs(60), sandbox.ended())
            .await
            .unwrap();
        let vanished = matches!(
            end.state,
            State::Destroyed(Some(Failure::Vanished | Failure::Crashed))
        );
        assert!(vanished, "{end:?}");
        assert_eq!(left(&engine, &manager).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_made_leaves_nothing() {
    for engine in engines().await {
        let manager = manager(&engine).await;
        let mut missing = sandbox_spec(&manager, &["true"], LONG);
        missing.spec.image = "no-such-image:1".parse().unwrap();
        let error = sandbox(&manager, missing).await.unwrap_err();
        assert!(matches!(error, Error::ImageMissing { .. }), "{error}");
        manager.close().await;
        let again = self::manager(&engine).await;
        assert_eq!(left(&engine, &again).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_dropped_sandbox_is_gone_when_its_manager_has_closed() {
    for engine in engines().await {
        let manager = manager(&engine).await;
        let sandbox = sandbox(&manager, sandbox_spec(&manager, &["sleep", "600"], LONG))
            .await
            .unwrap();
        let name = sandbox.name().as_str().to_owned();
        drop(sandbox);
        manager.close().await;
        let listed = engine.list().await.unwrap();
        assert!(!listed.iter().any(|found| found.name == name));
    }
}

#[tokio::test]
async fn orphans_are_removed_and_nobody_elses() {
    for engine in engines().await {
        let (living, sweeping) = (manager(&engine).await, manager(&engine).await);
        let kept = sandbox(&living, sandbox_spec(&living, &["sleep", "600"], LONG))
            .await
            .unwrap();
        // One of a dead process, and one without an owner.
        let dead = dead_of(living.owner());
        let mut orphan = spec(&["sleep", "600"]);
        orphan.owner = dead.clone();
        engine.create(&orphan).await.unwrap();
        // Any process beside this test may sweep it first.
        let _ = engine.start(&Id::from(&orphan.name)).await;
        let theirs = volume();
        engine
            .create_volume(&theirs, crate::spec::lower::labels(&dead, "test"))
            .await
            .unwrap();
        let foreign = volume();
        engine
            .create_volume(&foreign, std::collections::HashMap::default())
            .await
            .unwrap();
        let (volume, foreign) = (theirs.name, foreign.name);

        let swept = sweeping.sweep().await.unwrap();
        assert!(swept.failed.is_empty(), "{swept:?}");
        let mut all = engine.list().await.unwrap();
        all.extend(engine.list_volumes().await.unwrap());
        let there = |name: &Name| all.iter().any(|found| found.name == name.as_str());
        assert!(!there(&orphan.name) && !there(&volume), "{swept:?}");
        assert!(there(kept.name()) && there(&foreign), "{swept:?}");
        assert!(
            !swept
                .removed
                .iter()
                .any(|name| name == kept.name().as_str() || name == foreign.as_str())
        );
        assert_eq!(kept.life().state, State::Running);
        assert_eq!(
            engine.inspect(kept.id()).await.unwrap().status,
            super::super::runtime::Status::Running
        );
        engine.remove_volume(&foreign).await.unwrap();
        kept.stop().await;
        living.close().await;
    }
}

/// Returns a dead owner: this process's id with another start time.
fn dead_of(owner: &Owner) -> Owner {
    let text = owner.to_string();
    let (rest, part) = text.rsplit_once('.').unwrap();
    let (rest, start) = rest.rsplit_once('.').unwrap();
    format!("{rest}.{}.{part}", start.parse::<u64>().unwrap() + 1)
        .parse()
        .unwrap()
}

/// A proxy to an engine that can be disconnected.
struct Way {
    place: tempfile::TempDir,
    engine: ContainerRuntime,
    serving: JoinSet<()>,
}

impl Way {
    async fn to(engine: &ContainerRuntime) -> Self {
        let mut way = Self {
            place: tempfile::tempdir().unwrap(),
            engine: engine.clone(),
            serving: JoinSet::new(),
        };
        way.open();
        way
    }

    fn open(&mut self) {
        let Address::Unix(far) = self.engine.address().clone() else {
            return;
        };
        let near = UnixListener::bind(self.place.path().join("socket")).unwrap();
        self.serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut caller, _)) = near.accept().await {
                let mut engine = UnixStream::connect(&far).await.unwrap();
                connections.spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut caller, &mut engine).await;
                });
            }
        });
    }

    async fn shut(&mut self) {
        self.serving.shutdown().await;
        std::fs::remove_file(self.place.path().join("socket")).unwrap();
    }

    async fn engine(&self) -> ContainerRuntime {
        let address = format!("unix://{}", self.place.path().join("socket").display());
        let surroundings = Surroundings {
            docker_host: Some(address.clone()),
            container_host: Some(address),
            files: self.place.path().join("files"),
            ..Surroundings::default()
        };
        ContainerRuntime::open(self.engine.kind(), &surroundings)
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn what_could_not_be_removed_is_removed_once_the_engine_answers() {
    let Some(engine) = engines().await.into_iter().next() else {
        return;
    };
    let mut way = Way::to(&engine).await;
    let near = way.engine().await;
    let (going_on, closing) = (manager(&near).await, manager(&near).await);
    let sleep = &["sleep", "600"];
    let one = sandbox(&going_on, sandbox_spec(&going_on, sleep, LONG))
        .await
        .unwrap();
    let other = sandbox(&closing, sandbox_spec(&closing, sleep, LONG))
        .await
        .unwrap();
    way.shut().await;
    for end in <[Life; 2]>::from(tokio::join!(one.ended(), other.ended())) {
        assert_eq!(end.state, State::Destroyed(Some(Failure::Vanished)));
        assert!(!end.problems.is_empty());
    }
    way.open();
    assert_eq!(left(&engine, &going_on).await.len(), 2);
    let next = sandbox(&going_on, sandbox_spec(&going_on, sleep, LONG))
        .await
        .unwrap();
    let gone = async { while left(&engine, &going_on).await.len() > 2 {} };
    tokio::time::timeout(LONG, gone).await.unwrap();
    assert_eq!(next.life().state, State::Running);
    drop(next);
    assert_eq!(left(&engine, &closing).await.len(), 2);
    for manager in [going_on, closing] {
        manager.close().await;
        assert_eq!(left(&engine, &manager).await, Vec::<String>::new());
    }
}
/// Rejects a name in use, and leaves its owner's container alone.
#[tokio::test]
async fn a_name_is_had_once() {
    for engine in engines().await {
        let (first, second) = (manager(&engine).await, manager(&engine).await);
        let kept = sandbox_spec(&first, &["sleep", "600"], LONG);
        let name = kept.spec.name.clone();
        let kept = sandbox(&first, kept).await.unwrap();
        for manager in [&first, &second] {
            let mut again = sandbox_spec(manager, &["sleep", "600"], LONG);
            again.spec.name = name.clone();
            let volume = again.spec.volumes[0].name.clone();
            let error = sandbox(manager, again).await.unwrap_err();
            assert!(matches!(error, Error::NameTaken { .. }), "{error}");
            let volumes = engine.list_volumes().await.unwrap();
            assert!(!volumes.iter().any(|found| found.name == volume.as_str()));
        }
        let mut same_volume = sandbox_spec(&second, &["sleep", "600"], LONG);
        let theirs = volume();
        let labels = crate::spec::lower::labels(first.owner(), "test");
        engine.create_volume(&theirs, labels).await.unwrap();
        same_volume.spec.volumes = vec![theirs.clone()];
        let error = sandbox(&second, same_volume).await.unwrap_err();
        assert!(matches!(error, Error::NameTaken { .. }), "{error}");
        engine.remove_volume(&theirs.name).await.unwrap();
        second.sweep().await.unwrap();
        first.sweep().await.unwrap();
        let status = engine.inspect(kept.id()).await.unwrap().status;
        assert_eq!(status, crate::runtime::Status::Running);
        kept.stop().await;
        assert_eq!(left(&engine, &first).await, Vec::<String>::new());
        assert_eq!(left(&engine, &second).await, Vec::<String>::new());
    }
}

/// Two hundred sandboxes, half of them in each engine.
#[tokio::test]
async fn sandboxes_leave_nothing_however_many_there_were() {
    for engine in engines().await {
        let manager = manager(&engine).await;
        let mut ids = Vec::new();
        for _ in 0..25 {
            let four = [(); 4].map(|()| sandbox(&manager, sandbox_spec(&manager, &["sleep", "600"], LONG)));
            for sandbox in futures_util::future::join_all(four).await {
                let sandbox = sandbox.unwrap();
                ids.push(sandbox.id().as_str().to_owned());
                // A dropped sandbox is removed in the background.
                drop(sandbox);
            }
        }
        manager.close().await;
        assert_eq!(left(&engine, &manager).await, Vec::<String>::new());
        let named = |name: &str| ids.iter().any(|id| name.contains(id));
        let groups = groups(std::path::Path::new("/sys/fs/cgroup"), 3);
        let groups: Vec<_> = groups.into_iter().filter(|name| named(name)).collect();
        assert_eq!(groups, Vec::<String>::new());
        // Monitors exit shortly after their containers.
        let deadline = Instant::now() + LONG;
        while commands().iter().any(|line| named(line)) {
            assert!(Instant::now() < deadline);
            tokio::task::yield_now().await;
        }
    }
}

/// Lists the control groups of this machine, up to a depth.
fn groups(place: &std::path::Path, depth: u32) -> Vec<String> {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found = Vec::new();
    for directory in directories {
        found.push(directory.file_name().to_string_lossy().into_owned());
        if depth > 0 {
            found.extend(groups(&directory.path(), depth - 1));
        }
    }
    found
}

/// Lists the command lines of this machine's processes.
fn commands() -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .collect()
}
