//! Pauses: no processor, nothing lost, no limit that runs meanwhile, and no process left.

use std::sync::Arc;

use ringfence_exec::local::Chunk;
use ringfence_policy::{Bytes, Outcome, Timeout};
use ringfence_sandbox::context::{Code, Language};
use ringfence_sandbox::files::FileRange;
use ringfence_sandbox::output::Item;
use ringfence_sandbox::process::NewProcess;
use ringfence_sandbox::{
    ContextChoice, Error, ErrorKind, NewSandbox, OnExpiry, PausedProcesses, Sandbox, SandboxState,
};
use tokio::sync::mpsc;

use crate::support::{Server, Test, everywhere, line, run, say, with_server};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_paused_sandbox_uses_no_processor_and_goes_on_where_it_was",
        a_paused_sandbox_uses_no_processor_and_goes_on_where_it_was,
    ),
    (
        "a_paused_sandbox_refuses_what_needs_its_processes",
        a_paused_sandbox_refuses_what_needs_its_processes,
    ),
    (
        "time_limits_stand_still_in_a_pause",
        time_limits_stand_still_in_a_pause,
    ),
    (
        "removing_a_paused_sandbox_ends_its_processes",
        removing_a_paused_sandbox_ends_its_processes,
    ),
    (
        "a_paused_sandbox_expires_and_an_expiry_can_pause",
        a_paused_sandbox_expires_and_an_expiry_can_pause,
    ),
    (
        "a_pause_of_the_files_alone_ends_all_processes",
        a_pause_of_the_files_alone_ends_all_processes,
    ),
    (
        "a_server_that_stops_leaves_no_frozen_process",
        a_server_that_stops_leaves_no_frozen_process,
    ),
];

/// Pauses a sandbox. `false`, and a word about it, if this machine has no freezer.
async fn paused(sandbox: &Sandbox) -> bool {
    match sandbox.pause(PausedProcesses::Kept).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
            assert_eq!(sandbox.state(), SandboxState::Running);
            eprintln!("skipped: {error}");
            false
        }
    }
}

fn processor(sandbox: &Sandbox) -> f64 {
    sandbox.info().resources.cpu_seconds.unwrap()
}

/// Lets time pass that the kernel counts: another sandbox uses this much processor time.
async fn pass_time(server: &Server) {
    let other = server.sandbox().await;
    let burn = "import time\nwhile time.process_time() < 0.3: pass";
    say(&other, &format!("python3 -c '{burn}'")).await;
    assert!(processor(&other) >= 0.3);
}

fn a_paused_sandbox_uses_no_processor_and_goes_on_where_it_was() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let busy = sandbox
            .start(line(
                "trap 'echo heard; exit 7' TERM; echo up; while :; do n=$((n+1)); done",
            ))
            .await
            .unwrap();
        let mut reader = busy.output.read_from(0);
        assert!(reader.next().await.is_some());
        // While it runs, it does use processor time.
        let before = processor(&sandbox);
        pass_time(&server).await;
        assert!(processor(&sandbox) > before);
        if !paused(&sandbox).await {
            return;
        }
        assert_eq!(sandbox.info().state, SandboxState::Paused);
        let before = processor(&sandbox);
        pass_time(&server).await;
        assert_eq!(processor(&sandbox), before);
        assert!(sandbox.info().resources.memory_bytes.unwrap() > 0);
        // Twice is once.
        sandbox.pause(PausedProcesses::Kept).await.unwrap();
        sandbox.resume().await.unwrap();
        sandbox.resume().await.unwrap();
        assert_eq!(sandbox.info().state, SandboxState::Running);
        busy.signal(15);
        assert!(matches!(reader.next().await, Some(Item::Chunk { .. })));
        assert_eq!(busy.output.wait().await.exit_code, 7);
        assert!(processor(&sandbox) > before);
        assert_eq!(say(&sandbox, "echo on").await, "on\n");
    });
}

fn a_paused_sandbox_refuses_what_needs_its_processes() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        say(&sandbox, "echo kept > file").await;
        let code = || Code {
            code: "x = 1".to_owned(),
            user: None,
            variables: Vec::new(),
            timeout: Timeout::seconds(30),
        };
        let python = || ContextChoice::Default(Language::Python);
        sandbox
            .execute(python(), code(), mpsc::channel(16).0)
            .await
            .unwrap();
        if !paused(&sandbox).await {
            return;
        }
        let errors = [
            sandbox.start(line("true")).await.map(drop).unwrap_err(),
            sandbox
                .read_file(
                    "/workspace/file".to_owned(),
                    FileRange {
                        offset: 0,
                        length: None,
                    },
                )
                .await
                .map(drop)
                .unwrap_err(),
            sandbox
                .list_files("/tmp".to_owned(), 1)
                .await
                .map(drop)
                .unwrap_err(),
            sandbox
                .execute(python(), code(), mpsc::channel(16).0)
                .await
                .map(drop)
                .unwrap_err(),
            sandbox
                .create_context(Language::Bash, None, None)
                .await
                .map(drop)
                .unwrap_err(),
            sandbox.interrupt("python").unwrap_err(),
            sandbox.remove_context("python").unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Paused(_)), "{error}");
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert!(error.hint().contains("resume"), "{}", error.hint());
        }
        let scope = &server.scope;
        let id = sandbox.id().as_str();
        let info = server.sandboxes.resume(scope, id).await.unwrap();
        assert_eq!(info.state, SandboxState::Running);
        assert_eq!(say(&sandbox, "cat file").await, "kept\n");
        let stranger = "ann".parse().unwrap();
        assert!(matches!(
            server.sandboxes.pause(&stranger, id).await,
            Err(Error::Unknown(_))
        ));
        assert_eq!(sandbox.state(), SandboxState::Running);
    });
}

fn time_limits_stand_still_in_a_pause() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        // Both end by themselves once they may: neither the limit nor the pause ends them.
        let limited = sandbox
            .start(NewProcess {
                timeout: Some(Timeout::seconds(4)),
                ..line("echo up; until [ -e go ]; do sleep 0.02; done")
            })
            .await
            .unwrap();
        let mut reader = limited.output.read_from(0);
        assert!(reader.next().await.is_some());
        let (output, mut printed) = mpsc::channel::<Chunk>(16);
        let code = Code {
            code: "print('up', flush=True)\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n6 * 7"
                .to_owned(),
            timeout: Timeout::seconds(4),
            user: None,
            variables: Vec::new(),
        };
        let executing = sandbox.spawn_execution(ContextChoice::Default(Language::Python), code, output);
        assert!(printed.recv().await.is_some());
        if !paused(&sandbox).await {
            return;
        }
        // Longer than both limits.
        let other = server.sandbox().await;
        say(&other, "sleep 4.5").await;
        assert!(limited.is_running());
        sandbox.resume().await.unwrap();
        say(&sandbox, "touch go").await;
        let end = limited.output.wait().await;
        assert_eq!((end.exit_code, end.outcome), (0, Outcome::Exited), "{end:?}");
        let executed = executing.await.unwrap().unwrap();
        assert_eq!(executed.outcome, Outcome::Exited, "{executed:?}");
        assert_eq!(executed.value.as_deref(), Some("42"));
        // The limit holds afterwards.
        let endless = NewProcess {
            timeout: Some(Timeout::try_from(0.2).unwrap()),
            ..line("sleep 1000")
        };
        let ran = sandbox.run(endless, Bytes::kib(1)).await.unwrap();
        assert_eq!((ran.end.exit_code, ran.end.outcome), (-1, Outcome::TimedOut));
    });
}

/// Starts a sandbox with busy processes in sessions of their own, and a process that prints `up`.
async fn chatty(
    server: &Arc<Server>,
    marker: &str,
) -> (Arc<Sandbox>, Arc<ringfence_sandbox::process::Process>) {
    let sandbox = server.sandbox().await;
    let text = format!(
        "for n in 1 2 3; do (setsid bash -c 'while :; do echo {marker}; done' {marker} >/dev/null &); done; echo up; exec sleep {marker}"
    );
    let process = sandbox.start(line(&text)).await.unwrap();
    assert!(process.output.read_from(0).next().await.is_some());
    assert!(everywhere(marker) >= 1);
    (sandbox, process)
}

fn removing_a_paused_sandbox_ends_its_processes() {
    with_server(async |server| {
        let marker = format!("{}", 200_000 + std::process::id());
        let (sandbox, process) = chatty(&server, &marker).await;
        if !paused(&sandbox).await {
            return;
        }
        let id = sandbox.id().to_string();
        server.sandboxes.remove(&server.scope, &id).await.unwrap();
        assert_eq!(everywhere(&marker), 0);
        assert_eq!(process.output.wait().await.outcome, Outcome::Unknown);
        let gone = sandbox.resume().await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Internal, "{gone}");
        // The launcher serves on.
        let next = server.sandbox().await;
        assert_eq!(say(&next, "echo fresh").await, "fresh\n");
        assert_eq!(run(&next, "true").await.end.exit_code, 0);
    });
}

fn a_paused_sandbox_expires_and_an_expiry_can_pause() {
    with_server(async |server| {
        let scope = &server.scope;
        let soon = Timeout::try_from(0.1).unwrap();
        let (sandbox, pausing) = (server.sandbox().await, {
            let new = NewSandbox {
                on_expiry: OnExpiry::Pause,
                ..NewSandbox::default()
            };
            server.sandboxes.create(scope, new).await.unwrap()
        });
        let process = sandbox.start(line("sleep 1000")).await.unwrap();
        if !paused(&sandbox).await {
            return;
        }
        server
            .sandboxes
            .set_timeout(scope, sandbox.id().as_str(), soon)
            .unwrap();
        process.output.wait().await;
        let gone = server.sandboxes.get(scope, sandbox.id().as_str()).unwrap_err();
        assert!(gone.to_string().contains(" expired at 20"), "{gone}");

        let id = pausing.id().as_str();
        let first = server.sandboxes.set_timeout(scope, id, soon).unwrap();
        let mut state = pausing.watch_state();
        state
            .wait_for(|state| *state == SandboxState::Paused)
            .await
            .unwrap();
        // It is given more time at once.
        let later = async {
            while pausing.info().expires_at <= first.expires_at {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), later)
            .await
            .unwrap();
        let info = pausing.info();
        let resumed = server.sandboxes.resume(scope, id).await.unwrap();
        assert!(resumed.expires_at < info.expires_at, "its own lifetime again");
        assert_eq!(say(&pausing, "echo on").await, "on\n");
    });
}

/// Leaves a process that nobody waits for, and which forks without end.
async fn leave(sandbox: &Sandbox, marker: &str) {
    let forking = "trap '' TERM HUP; while :; do (:); done";
    say(
        sandbox,
        &format!("(setsid bash -c \"{forking}\" {marker} > /dev/null 2>&1 &)"),
    )
    .await;
    while everywhere(marker) == 0 {
        tokio::task::yield_now().await;
    }
}

fn a_pause_of_the_files_alone_ends_all_processes() {
    with_server(async |server| {
        let new = NewSandbox {
            on_expiry: OnExpiry::Pause,
            at_expiry: PausedProcesses::Ended,
            ..NewSandbox::default()
        };
        let Ok(sandbox) = server.sandboxes.create(&server.scope, new).await else {
            let sandbox = server.sandbox().await;
            assert!(!paused(&sandbox).await, "it can be paused");
            return;
        };
        let marker = format!("left-{}", std::process::id());
        let boot = async || say(&sandbox, "cat /proc/sys/kernel/random/boot_id").await;
        say(&sandbox, "echo kept > file").await;
        leave(&sandbox, &marker).await;
        let booted = boot().await;
        assert!(paused(&sandbox).await);
        sandbox.resume().await.unwrap();
        assert_eq!(boot().await, booted);
        let started = sandbox.start(line("sleep 1000")).await.unwrap();
        assert!(sandbox.pause(PausedProcesses::Ended).await.unwrap());
        assert!(sandbox.is_emptied() && sandbox.state() == SandboxState::Paused);
        assert_eq!(everywhere(&marker), 0);
        assert_eq!(started.output.wait().await.outcome, Outcome::Cancelled);
        sandbox.resume().await.unwrap();
        assert!(!sandbox.is_emptied());
        assert_eq!(say(&sandbox, "cat file").await, "kept\n");
        let again = boot().await;
        assert!(again.len() == booted.len() && again != booted, "{booted}{again}");

        leave(&sandbox, &marker).await;
        let soon = Timeout::try_from(0.1).unwrap();
        server
            .sandboxes
            .set_timeout(&server.scope, sandbox.id().as_str(), soon)
            .unwrap();
        while !sandbox.is_emptied() {
            tokio::task::yield_now().await;
        }
        assert_eq!(everywhere(&marker), 0);
    });
}

fn a_server_that_stops_leaves_no_frozen_process() {
    let marker = format!("{}", 300_000 + std::process::id());
    with_server(async |server| {
        let (sandbox, _) = chatty(&server, &marker).await;
        if paused(&sandbox).await {
            server.sandboxes.close().await;
            assert_eq!(everywhere(&marker), 0);
        }
    });
    assert_eq!(everywhere(&marker), 0);
}
