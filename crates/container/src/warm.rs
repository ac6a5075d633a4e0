//! Runs containers whose first process is our init.
//!
//! [`with_init`] adds the init to a specification, and [`start`] creates the container. The resulting [`Warm`]
//! runs concurrent calls until it is dropped or its container ends.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_policy::{Access, Pids};
use tokio::time::timeout;

use super::error::Error;
use super::init::{self, Greeting, INSIDE, InitClient, InitLost, Interpreter};
use super::run_error::RunError;
use super::spec::{Bind, BindError, Binds, Init, Log, Spec, Stdin};
use super::supervisor::{Container, ContainerSupervisor};
use super::task::NewContainer;

/// Processes of a warm interpreter with its idle guests.
const WARM_PROCESSES: u64 = 5;

/// Processes of an internal program that runs beside calls.
const BESIDE: u64 = 2;

/// Timeout for finding the reason of a container's end.
const FIND_OUT: Duration = Duration::from_secs(2);

/// A container whose first process is our init. Dropping it ends the container; closing its supervisor waits for
/// that.
#[derive(Debug)]
pub struct Warm {
    init: InitClient,
    container: Arc<Container>,
}

impl Warm {
    pub fn init(&self) -> &InitClient {
        &self.init
    }

    pub fn container(&self) -> &Container {
        &self.container
    }

    /// Returns a shared handle of the container.
    pub(super) fn shared(&self) -> Arc<Container> {
        Arc::clone(&self.container)
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.init.release();
    }
}

/// Makes `program`, our init, the first process of a container, and raises the process limit for concurrent
/// calls and the interpreter.
///
/// # Errors
/// If the program cannot be mounted there.
pub fn with_init(
    spec: Spec,
    program: &Path,
    calls: u32,
    interpreter: Interpreter,
) -> Result<Spec, BindError> {
    // Exempt from the denylist: it lies in one of our own directories, which no program may see otherwise.
    let ours = Bind::ours(
        program,
        Path::new(INSIDE),
        Access::ReadOnly,
        &DeniedPaths::default(),
    )?;
    let binds = spec.binds.iter().cloned().chain([ours]).collect();
    let ours = match interpreter {
        Interpreter::Warm => 1 + WARM_PROCESSES,
        Interpreter::None => 1,
    };
    let pids = u64::from(spec.resources.pids.get()) + ours + BESIDE + u64::from(calls);
    let mut spec = Spec {
        command: vec![INSIDE.to_owned()],
        init: Init::Program,
        stdin: Stdin::Attached,
        log: Log::None,
        binds: Binds::new(binds)?,
        ..spec
    };
    spec.resources.pids = Pids::try_from(pids).unwrap_or(spec.resources.pids);
    Ok(spec)
}

/// Creates a container specified by [`with_init`], and connects to its init. Removes everything on failure.
///
/// # Errors
/// If the container cannot be created, the init does not answer, or the mounts differ from the checked ones.
pub async fn start(
    supervisor: &ContainerSupervisor,
    new_container: NewContainer,
    interpreter: Interpreter,
) -> Result<Warm, RunError> {
    let greeting = Greeting::of_runs(interpreter, new_container.spec.binds.mount_points());
    greet(supervisor, new_container, greeting).await
}

/// Like [`start`], with this greeting of the init, which names the mount points of the container.
pub(super) async fn greet(
    supervisor: &ContainerSupervisor,
    mut new_container: NewContainer,
    greeting: Greeting,
) -> Result<Warm, RunError> {
    new_container.attach = true;
    new_container.spec.oci_runtime = supervisor.oci_runtime(new_container.spec.oci_runtime)?;
    let spec = new_container.spec.clone();
    let (container, attached) = supervisor.create(new_container).await?;
    let (reader, writer) = attached.ok_or(Error::Closing)?.into_bytes();
    let connected = init::connect(reader, writer, greeting).await;
    let checked = connected.map_err(RunError::from).and_then(|connected| {
        check_mounts(&spec, &connected.0)?;
        Ok(connected)
    });
    let (init, carrier) = match checked {
        Ok(connected) => connected,
        Err(error) => {
            container.stop().await;
            return Err(error);
        }
    };
    let container = Arc::new(container);
    let carried = Arc::clone(&container);
    supervisor.spawn_task(async move {
        if carrier.carry().await == InitLost::Gone {
            // The supervising task finds the reason, if the container has ended.
            let _ = timeout(FIND_OUT, carried.ended()).await;
        }
        carried.stop().await;
    });
    Ok(Warm { init, container })
}

/// Rejects a container that the engine made with other mounts than those that were checked.
fn check_mounts(spec: &Spec, init: &InitClient) -> Result<(), BindError> {
    match spec.reports_mounts() {
        true => {
            let found = &init.ready().mount_points;
            spec.binds.check(found, Path::new(INSIDE), &spec.ledger)
        }
        // They were made by descriptor, or where no program may write.
        false => Ok(()),
    }
}

/// Returns the warning for a program that requested a bridge and got none.
pub(super) fn without_bridge(why: &str) -> String {
    format!(
        "the program had no bridge to the skills, and no `device`: that needs Ringfence's init in the container, and {why}"
    )
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::path::PathBuf;

    use ringfence_exec::local::Connection;
    use ringfence_policy::{Bytes, Language, Outcome, Request};
    use tokio::sync::mpsc;

    use super::*;
    use crate::ContainerRuntime;
    use crate::init::{Finished, file};
    use crate::state::State;
    use crate::testing::{engines, owned, spec};

    /// Sends a message on drop.
    struct Told(mpsc::UnboundedSender<()>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }

    async fn supervisor(engine: &ContainerRuntime) -> ContainerSupervisor {
        ContainerSupervisor::new(engine.clone(), owned(), engine.info().await.unwrap())
    }

    fn new_container(
        supervisor: &ContainerSupervisor,
        program: &Path,
        belongings: Option<Box<dyn Any + Send + Sync>>,
    ) -> NewContainer {
        let spec = Spec {
            owner: supervisor.owner().clone(),
            ..spec(&["replaced"])
        };
        NewContainer {
            spec: with_init(spec, program, 2, Interpreter::Warm).unwrap(),
            max_duration: Duration::from_secs(300),
            attach: false,
            belongings,
        }
    }

    fn program() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let program = file(&place.path().join("init")).unwrap();
        (place, program)
    }

    async fn run(warm: &Warm, language: Language, code: &str, connection: Connection) -> Finished {
        let start = init::start(&Request::new(language, code), "/tmp", false).unwrap();
        let running = warm.init().run(start, Bytes::kib(10), connection);
        running.await.unwrap()
    }

    #[test]
    fn there_is_room_for_the_init_and_its_supervisors() {
        let (_place, program) = program();
        let before = spec(&["python3"]);
        let pids = before.resources.pids.get();
        let after = with_init(before, &program, 8, Interpreter::Warm).unwrap();
        assert_eq!(after.resources.pids.get(), pids + 6 + 2 + 8);
        assert_eq!(after.command, [INSIDE]);
        assert_eq!(
            (after.init, after.stdin, after.log),
            (Init::Program, Stdin::Attached, Log::None)
        );
        let bind = after.binds.iter().next().unwrap();
        assert_eq!(
            (bind.guest(), bind.access()),
            (Path::new(INSIDE), Access::ReadOnly)
        );
        let once = |spec| with_init(spec, &program, 1, Interpreter::None);
        let alone = once(spec(&["x"])).unwrap();
        assert_eq!(alone.resources.pids.get(), pids + 1 + 2 + 1);
        let twice = once(alone);
        assert!(matches!(twice, Err(BindError::Twice(_))));
    }

    #[tokio::test]
    async fn calls_run_until_it_is_dropped_and_its_belongings_go_last() {
        for engine in engines().await {
            let supervisor = supervisor(&engine).await;
            let (_place, program) = program();
            let (sender, mut told) = mpsc::unbounded_channel();
            let new_container = new_container(&supervisor, &program, Some(Box::new(Told(sender))));
            let warm = start(&supervisor, new_container, Interpreter::Warm)
                .await
                .unwrap();
            let python = run(&warm, Language::Python, "print(6 * 7)", Connection::none()).await;
            assert_eq!(python.stdout.text, "42\n", "{python:?}");
            let bash = run(
                &warm,
                Language::Bash,
                "echo $((6 * 7)); exit 3",
                Connection::none(),
            )
            .await;
            assert_eq!(
                (bash.stdout.text.as_str(), bash.exit_code),
                ("42\n", 3),
                "{bash:?}"
            );
            let id = warm.container().id().clone();
            assert!(told.try_recv().is_err());
            drop(warm);
            supervisor.close().await;
            told.try_recv().unwrap();
            assert!(matches!(engine.inspect(&id).await, Err(Error::NotFound { .. })));
        }
    }

    #[tokio::test]
    async fn a_container_that_is_killed_ends_its_calls_as_unknown_and_is_removed() {
        for engine in engines().await {
            let supervisor = supervisor(&engine).await;
            let (_place, program) = program();
            let warm = start(
                &supervisor,
                new_container(&supervisor, &program, None),
                Interpreter::Warm,
            )
            .await
            .unwrap();
            let (output, mut heard) = mpsc::channel(1);
            let connection = Connection {
                output: Some(output),
                ..Connection::none()
            };
            let code = "echo up; sleep 1000";
            let (finished, ()) = tokio::join!(run(&warm, Language::Bash, code, connection), async {
                heard.recv().await.unwrap();
                engine.kill(warm.container().id()).await.unwrap();
            });
            assert_eq!(finished.outcome, Outcome::Unknown, "{finished:?}");
            assert!(matches!(
                warm.container().ended().await.state,
                State::Destroyed(_)
            ));
            let again = init::start(&Request::new(Language::Bash, "true"), "/tmp", false).unwrap();
            let again = warm.init().run(again, Bytes::kib(1), Connection::none()).await;
            assert_eq!(again.unwrap_err(), init::NotRun::InitLost(InitLost::Gone));
            drop(warm);
            supervisor.close().await;
        }
    }

    #[tokio::test]
    async fn what_is_no_init_leaves_nothing() {
        for engine in engines().await {
            let supervisor = supervisor(&engine).await;
            let place = tempfile::tempdir().unwrap();
            for (name, text) in [("script", "#!/bin/bash\necho no init\n"), ("words", "no program")] {
                let program = place.path().join(name);
                std::fs::write(&program, text).unwrap();
                crate::testing::open_to_all(&program);
                let new_container = new_container(&supervisor, &program, None);
                let id = super::super::runtime::Id::from(&new_container.spec.name);
                start(&supervisor, new_container, Interpreter::Warm)
                    .await
                    .unwrap_err();
                assert!(
                    matches!(engine.inspect(&id).await, Err(Error::NotFound { .. })),
                    "{name}"
                );
            }
            supervisor.close().await;
        }
    }
}
