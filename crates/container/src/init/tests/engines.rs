//! Tests the init in containers of real engines: no network, a read-only root, no capabilities, our seccomp
//! filter.

use std::path::Path;

use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_policy::{Access, EngineKind};

use super::*;
use crate::ContainerRuntime;
use crate::runtime::Id;
use crate::spec::{Bind, Binds, Filter, Init, Log, Name, OciRuntime, Stdin};
use crate::testing::{engines, removed, spec};

/// A container whose first process is our init.
struct EngineContainer {
    init: InitClient,
    id: Id,
    name: Name,
    carriers: JoinSet<InitLost>,
    _place: tempfile::TempDir,
}

impl EngineContainer {
    async fn new(engine: &ContainerRuntime, filter: &str) -> Self {
        Self::made_by(engine, OciRuntime::Default, filter).await
    }

    async fn made_by(engine: &ContainerRuntime, oci_runtime: OciRuntime, filter: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let program = file(&place.path().join("init")).unwrap();
        let bind = Bind::at(
            &program,
            Path::new(INSIDE),
            Access::ReadOnly,
            &DeniedPaths::default(),
        )
        .unwrap();
        let mut spec = spec(&[INSIDE]);
        spec.filter = Filter::named(filter).unwrap();
        spec.oci_runtime = oci_runtime;
        // gVisor keeps its own process state within the container's memory limit.
        if oci_runtime == OciRuntime::Runsc {
            spec.resources.memory = Bytes::mib(512);
        }
        spec.binds = Binds::new(vec![bind]).unwrap();
        (spec.init, spec.stdin, spec.log) = (Init::Program, Stdin::Attached, Log::None);
        let id = engine.create(&spec).await.unwrap();
        let attached = engine.attach(&id).await.unwrap();
        engine.start(&id).await.unwrap();
        let (reader, writer) = attached.into_bytes();
        let (init, carriers) = connected(reader, writer).await;
        Self {
            init,
            id,
            name: spec.name,
            carriers,
            _place: place,
        }
    }

    async fn run(&self, request: &Request) -> Finished {
        let start = start(request, "/tmp", false).unwrap();
        self.init
            .run(start, Bytes::kib(10), Connection::none())
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn calls_run_in_a_container_and_end_with_it() {
    for engine in engines().await {
        calls_run(&engine, OciRuntime::Default, "standard").await;
    }
}

/// Docker only: Podman uses one OCI runtime for all containers.
#[tokio::test]
async fn calls_run_whatever_makes_the_container() {
    for engine in engines().await {
        if engine.kind() == EngineKind::Podman {
            continue;
        }
        for oci_runtime in [OciRuntime::Crun, OciRuntime::Runsc] {
            calls_run(&engine, oci_runtime, "standard").await;
        }
    }
}

/// The seccomp filter of the local fence denies the system call that makes supervisors subreapers.
#[tokio::test]
async fn calls_run_and_end_where_supervisors_cannot_adopt() {
    for engine in engines().await {
        calls_run(&engine, OciRuntime::Default, "fence").await;
    }
}

async fn calls_run(engine: &ContainerRuntime, oci_runtime: OciRuntime, filter: &str) {
    let mut container = EngineContainer::made_by(engine, oci_runtime, filter).await;
    while !container.run(&python("pass")).await.warm {}
    ended(&container.run(&python("print('hello')")).await, 0, "hello\n");
    let who = "echo $$ > /tmp/x; id -u; echo > /x; grep -E 'NoNewPrivs|CapEff|Seccomp:' /proc/self/status";
    // gVisor ignores the filter, always sets no_new_privs, and does not report it.
    let told = match oci_runtime {
        OciRuntime::Runsc => "1000\nSeccomp:\t0\n",
        _ => "1000\nNoNewPrivs:\t1\nSeccomp:\t2\n",
    };
    let found = container.run(&bash(who)).await;
    let without_capabilities = found.stdout.text.replace("CapEff:\t0000000000000000\n", "");
    assert_eq!(without_capabilities, told, "{found:?}");
    // gVisor checks the directory's mode first.
    let refusal = match oci_runtime {
        OciRuntime::Runsc => "Permission denied",
        _ => "Read-only file system",
    };
    assert!(found.stderr.text.contains(refusal), "{found:?}");
    let code =
        "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nwhile True: pass";
    let late = container.run(&timed(python(code), 500)).await;
    assert_eq!(late.outcome, Outcome::TimedOut);
    // A grandchild that was orphaned, in the session of the first process and in another.
    let leaves = "import subprocess\nfor new in False, True:\n    code = f'import subprocess\\nsubprocess.Popen([\"sleep\", \"1000\"], start_new_session={new})'\n    \
                      subprocess.run(['python3', '-c', code], stdout=subprocess.DEVNULL)\nprint('end')";
    ended(&container.run(&python(leaves)).await, 0, "end\n");
    let left = container.run(&bash("cat /proc/[0-9]*/comm")).await;
    assert!(!left.stdout.text.contains("sleep"), "{}", left.stdout.text);
    let numbers: Vec<Request> = (0..16)
        .map(|number| python(&format!("print({number})")))
        .collect();
    let mut running = JoinSet::new();
    for (number, request) in numbers.into_iter().enumerate() {
        let init = container.init.clone();
        running.spawn(async move {
            let start = start(&request, "/tmp", false).unwrap();
            let finished = init.run(start, Bytes::kib(1), Connection::none()).await.unwrap();
            ended(&finished, 0, &format!("{number}\n"));
        });
    }
    while let Some(joined) = running.join_next().await {
        joined.unwrap();
    }
    container.init.release();
    assert_eq!(
        container.carriers.join_next().await.unwrap().unwrap(),
        InitLost::Released
    );
    assert_eq!(engine.wait(&container.id).await.unwrap(), 0);
    removed(engine, &container.name).await;
}

#[tokio::test]
async fn what_takes_all_memory_is_told_so_and_the_container_goes_on() {
    for engine in engines().await {
        let container = EngineContainer::new(&engine, "standard").await;
        let hungry = container
            .run(&python("x = bytearray(1 << 30)\nprint(len(x))"))
            .await;
        let expected = (Outcome::MemoryExceeded, -9);
        assert_eq!((hungry.outcome, hungry.exit_code), expected, "{hungry:?}");
        ended(&container.run(&python("print(2)")).await, 0, "2\n");
        removed(&engine, &container.name).await;
    }
}

#[tokio::test]
async fn a_container_that_is_removed_ends_its_calls_as_unknown() {
    for engine in engines().await {
        let mut container = EngineContainer::new(&engine, "standard").await;
        let (output, mut heard) = mpsc::channel(1);
        let connection = Connection {
            output: Some(output),
            ..Connection::none()
        };
        let start = start(&bash("echo up; sleep 1000"), "/tmp", false).unwrap();
        let init = container.init.clone();
        let running = init.run(start, Bytes::kib(1), connection);
        let (finished, ()) = tokio::join!(running, async {
            heard.recv().await.unwrap();
            removed(&engine, &container.name).await;
        });
        assert_eq!(finished.unwrap().outcome, Outcome::Unknown);
        assert_eq!(
            container.carriers.join_next().await.unwrap().unwrap(),
            InitLost::Gone
        );
    }
}
