//! Tests the life cycle of containers in real engines.

use std::time::Duration;

use ringfence_policy::EngineKind;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use super::*;
use crate::Surroundings;
use crate::endpoint::Address;
use crate::spec::lower::MAX_PROCESSES;
use crate::spec::{ProcessLimit, Spec};
use crate::state::Failure;
use crate::testing::{engines, owned, spec, volume};

const LONG: Duration = Duration::from_secs(300);

/// Returns a supervisor with an owner of the test's own, so that parallel tests do not sweep each other's
/// containers.
async fn supervisor(engine: &ContainerRuntime) -> ContainerSupervisor {
    ContainerSupervisor::new(engine.clone(), owned(), engine.info().await.unwrap())
}

fn new_container(supervisor: &ContainerSupervisor, command: &[&str], max_duration: Duration) -> NewContainer {
    let spec = Spec {
        owner: supervisor.owner().clone(),
        volumes: vec![volume()],
        ..spec(command)
    };
    NewContainer {
        spec,
        max_duration,
        attach: false,
        belongings: None,
    }
}

/// Starts a container without attaching to it.
async fn create(supervisor: &ContainerSupervisor, new_container: NewContainer) -> Result<Container, Error> {
    supervisor
        .create(new_container)
        .await
        .map(|(container, _)| container)
}

/// Starts a container that sleeps.
async fn sleeper(supervisor: &ContainerSupervisor) -> Container {
    let sleeping = new_container(supervisor, &["sleep", "600"], LONG);
    create(supervisor, sleeping).await.unwrap()
}

/// Lists the names of this supervisor's containers and volumes in the engine.
async fn left(engine: &ContainerRuntime, supervisor: &ContainerSupervisor) -> Vec<String> {
    let owner = supervisor.owner().to_string();
    let mut all = engine.list().await.unwrap();
    all.extend(engine.list_volumes().await.unwrap());
    let ours = all
        .into_iter()
        .filter(|found| found.labels.get("ringfence.owner") == Some(&owner));
    ours.map(|found| found.name).collect()
}

#[tokio::test]
async fn a_container_is_made_used_and_destroyed() {
    for engine in engines().await {
        let supervisor = supervisor(&engine).await;
        let container = sleeper(&supervisor).await;
        assert_eq!(container.life().state, State::Running);
        assert_eq!(left(&engine, &supervisor).await.len(), 2);
        let command = ["bash", "-c", "echo hi > /output/x; cat /output/x"].map(str::to_owned);
        let late = tokio::time::sleep_until(Instant::now() + LONG);
        let result = container.run(&command, late, Bytes::kib(1)).await.unwrap();
        assert_eq!(
            (result.stdout.text.as_str(), result.status),
            ("hi\n", Some(0)),
            "{result:?}"
        );
        container.pause().await.unwrap();
        assert_eq!(container.life().state, State::Paused);
        assert!(matches!(container.pause().await, Err(Error::Illegal(_))));
        container.resume().await.unwrap();
        let end = container.stop().await;
        assert_eq!((end.state, end.problems), (State::Destroyed(None), Vec::new()));
        assert_eq!(left(&engine, &supervisor).await, Vec::<String>::new());
        supervisor.close().await;
    }
}

/// Starts 40 children, prints the error of the one that could not be, and ends them.
const FORKS: &str = "
import os, signal, time
children = []
try:
    for _ in range(40):
        child = os.fork()
        if child == 0:
            time.sleep(600)
        children.append(child)
    print('done')
except OSError as error:
    print(error.strerror)
for child in children:
    os.kill(child, signal.SIGKILL)
";

/// The kernel counts the processes of one user in all containers, which guests of a rootful engine are.
#[tokio::test]
async fn processes_are_limited_for_a_container_and_not_for_its_user() {
    for engine in engines().await {
        let supervisor = supervisor(&engine).await;
        let mut small = new_container(&supervisor, &["sleep", "600"], LONG);
        small.spec.resources.pids = "16".parse().unwrap();
        let (small, other) = (
            create(&supervisor, small).await.unwrap(),
            sleeper(&supervisor).await,
        );
        let run = async |container: &Container, words: [&str; 3]| {
            let words = words.map(str::to_owned);
            let ran = container.run(&words, std::future::pending(), Bytes::kib(10));
            ran.await.unwrap().stdout.text
        };
        let forked = run(&other, ["python3", "-c", FORKS]).await;
        assert_eq!(forked, "done\n");
        if supervisor.info().process_limit() == ProcessLimit::Container {
            let forked = run(&small, ["python3", "-c", FORKS]).await;
            assert_eq!(forked, "Resource temporarily unavailable\n");
            let limit = run(&other, ["bash", "-c", "ulimit -H -u"]).await;
            let limit = limit.trim().parse::<i64>();
            assert!(
                limit.as_ref().is_ok_and(|limit| *limit > MAX_PROCESSES) || limit.is_err(),
                "{limit:?}"
            );
        }
        drop((small, other));
        supervisor.close().await;
    }
}

#[tokio::test]
async fn a_container_whose_time_is_up_is_destroyed_and_says_so() {
    for engine in engines().await {
        let supervisor = supervisor(&engine).await;
        let at_once = create(
            &supervisor,
            new_container(&supervisor, &["sleep", "600"], Duration::ZERO),
        )
        .await;
        let end = at_once.unwrap().ended().await;
        assert_eq!(end.state, State::Destroyed(Some(Failure::TimedOut)));
        let brief = Duration::from_secs(3);
        let container = create(&supervisor, new_container(&supervisor, &["sleep", "600"], brief))
            .await
            .unwrap();
        container.pause().await.unwrap();
        let end = container.ended().await;
        assert_eq!(end.state, State::Destroyed(Some(Failure::TimedOut)));
        assert_eq!(left(&engine, &supervisor).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn every_other_end_is_told_apart() {
    let eat = ["python3", "-c", "x = bytearray(500 << 20)"];
    let crashed = Some(Failure::Crashed);
    for engine in engines().await {
        let supervisor = supervisor(&engine).await;
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
            let container = create(&supervisor, new_container(&supervisor, command, LONG))
                .await
                .unwrap();
            let end = container.ended().await;
            assert_eq!(
                (end.state, end.exit_code),
                (State::Destroyed(failure), exit_code),
                "{command:?}"
            );
        }
        let no_program = create(
            &supervisor,
            new_container(&supervisor, &["/no/such/program"], LONG),
        )
        .await;
        let end = no_program.unwrap().ended().await;
        assert_eq!(end.state, State::Destroyed(crashed));
        assert_eq!(left(&engine, &supervisor).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_container_that_vanishes_is_noticed() {
    for engine in engines().await {
        let supervisor = supervisor(&engine).await;
        let container = sleeper(&supervisor).await;
        engine.remove(container.id()).await.unwrap();
        let end = tokio::time::timeout(Duration::from_secs(60), container.ended())
            .await
            .unwrap();
        let vanished = matches!(
            end.state,
            State::Destroyed(Some(Failure::Vanished | Failure::Crashed))
        );
        assert!(vanished, "{end:?}");
        assert_eq!(left(&engine, &supervisor).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_container_that_cannot_be_made_leaves_nothing() {
    for engine in engines().await {
        let supervisor = supervisor(&engine).await;
        let mut missing = new_container(&supervisor, &["true"], LONG);
        missing.spec.image = "no-such-image:1".parse().unwrap();
        let error = create(&supervisor, missing).await.unwrap_err();
        assert!(matches!(error, Error::ImageMissing { .. }), "{error}");
        supervisor.close().await;
        let again = self::supervisor(&engine).await;
        assert_eq!(left(&engine, &again).await, Vec::<String>::new());
    }
}

/// Podman refuses to stop or to remove a paused container, and loses its state over the attempt.
#[tokio::test]
async fn a_paused_container_leaves_nothing() {
    for engine in engines().await {
        let supervisor = supervisor(&engine).await;
        let container = sleeper(&supervisor).await;
        container.pause().await.unwrap();
        let life = container.stop().await;
        assert_eq!(life.problems, Vec::<String>::new());
        assert_eq!(left(&engine, &supervisor).await, Vec::<String>::new());
        // So does one whose process died.
        let orphan = Spec {
            owner: supervisor.owner().clone(),
            ..spec(&["sleep", "600"])
        };
        let id = engine.create(&orphan).await.unwrap();
        engine.start(&id).await.unwrap();
        engine.pause(&id).await.unwrap();
        let swept = supervisor.sweep().await.unwrap();
        assert!(swept.failed.is_empty(), "{swept:?}");
        assert_eq!(left(&engine, &supervisor).await, Vec::<String>::new());
        supervisor.close().await;
    }
}

#[tokio::test]
async fn a_dropped_container_is_gone_when_its_supervisor_has_closed() {
    for engine in engines().await {
        let supervisor = supervisor(&engine).await;
        let container = sleeper(&supervisor).await;
        let name = container.name().as_str().to_owned();
        drop(container);
        supervisor.close().await;
        let listed = engine.list().await.unwrap();
        assert!(!listed.iter().any(|found| found.name == name));
    }
}

#[tokio::test]
async fn orphans_are_removed_and_nobody_elses() {
    for engine in engines().await {
        let (living, sweeping) = (supervisor(&engine).await, supervisor(&engine).await);
        let kept = sleeper(&living).await;
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
    let (going_on, closing) = (supervisor(&near).await, supervisor(&near).await);
    let sleep = &["sleep", "600"];
    let one = create(&going_on, new_container(&going_on, sleep, LONG))
        .await
        .unwrap();
    let other = create(&closing, new_container(&closing, sleep, LONG))
        .await
        .unwrap();
    way.shut().await;
    for end in <[Life; 2]>::from(tokio::join!(one.ended(), other.ended())) {
        assert_eq!(end.state, State::Destroyed(Some(Failure::Vanished)));
        assert!(!end.problems.is_empty());
    }
    way.open();
    assert_eq!(left(&engine, &going_on).await.len(), 2);
    let next = create(&going_on, new_container(&going_on, sleep, LONG))
        .await
        .unwrap();
    let gone = async { while left(&engine, &going_on).await.len() > 2 {} };
    tokio::time::timeout(LONG, gone).await.unwrap();
    assert_eq!(next.life().state, State::Running);
    drop(next);
    assert_eq!(left(&engine, &closing).await.len(), 2);
    for supervisor in [going_on, closing] {
        supervisor.close().await;
        assert_eq!(left(&engine, &supervisor).await, Vec::<String>::new());
    }
}
/// Rejects a name in use, and leaves its owner's container alone.
#[tokio::test]
async fn a_name_is_had_once() {
    for engine in engines().await {
        let (first, second) = (supervisor(&engine).await, supervisor(&engine).await);
        let kept = new_container(&first, &["sleep", "600"], LONG);
        let name = kept.spec.name.clone();
        let kept = create(&first, kept).await.unwrap();
        for supervisor in [&first, &second] {
            let mut again = new_container(supervisor, &["sleep", "600"], LONG);
            again.spec.name = name.clone();
            let volume = again.spec.volumes[0].name.clone();
            let error = create(supervisor, again).await.unwrap_err();
            assert!(matches!(error, Error::NameTaken { .. }), "{error}");
            let volumes = engine.list_volumes().await.unwrap();
            assert!(!volumes.iter().any(|found| found.name == volume.as_str()));
        }
        let mut same_volume = new_container(&second, &["sleep", "600"], LONG);
        let theirs = volume();
        let labels = crate::spec::lower::labels(first.owner(), "test");
        engine.create_volume(&theirs, labels).await.unwrap();
        same_volume.spec.volumes = vec![theirs.clone()];
        let error = create(&second, same_volume).await.unwrap_err();
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

/// Two hundred containers, half of them in each engine.
#[tokio::test]
async fn containers_leave_nothing_however_many_there_were() {
    for engine in engines().await {
        let supervisor = supervisor(&engine).await;
        let mut ids = Vec::new();
        for _ in 0..25 {
            let four =
                [(); 4].map(|()| create(&supervisor, new_container(&supervisor, &["sleep", "600"], LONG)));
            for container in futures_util::future::join_all(four).await {
                let container = container.unwrap();
                ids.push(container.id().as_str().to_owned());
                // A dropped container is removed in the background.
                drop(container);
            }
        }
        supervisor.close().await;
        assert_eq!(left(&engine, &supervisor).await, Vec::<String>::new());
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
