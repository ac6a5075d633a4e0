//! Copies: forks and snapshots, hostile trees in them, and what they leave.

use std::sync::Arc;

use ringfence_exec::local::Fence;
use ringfence_policy::{Bytes, Scope};
use ringfence_sandbox::{
    Error, ErrorKind, NewCopies, NewSandbox, PausedProcesses, Sandbox, SandboxLimits, SandboxName, Sandboxes,
    SnapshotInfo, SnapshotStore,
};

use crate::support::{Server, Test, line, run, say, with_server};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_fork_has_the_files_and_nothing_that_runs",
        a_fork_has_the_files_and_nothing_that_runs,
    ),
    (
        "a_snapshot_outlives_its_sandbox_and_its_server",
        a_snapshot_outlives_its_sandbox_and_its_server,
    ),
    (
        "a_scope_has_its_own_copies_alone",
        a_scope_has_its_own_copies_alone,
    ),
    (
        "a_hostile_tree_stays_in_its_place",
        a_hostile_tree_stays_in_its_place,
    ),
    (
        "a_copy_has_bounds_and_leaves_nothing",
        a_copy_has_bounds_and_leaves_nothing,
    ),
];

/// Everything that a copy must bring along, as one text.
const SHOW: &str = "cd /workspace && find . -mindepth 1 -printf '%P %y %m %s %l\\n' | sort; cat deep/er/file; cat /tmp/t; cat /output/o";

async fn snapshot(server: &Server, sandbox: &Sandbox) -> Result<SnapshotInfo, Error> {
    let id = sandbox.id().as_str();
    server.sandboxes.snapshot(&server.scope, id, None).await
}

async fn of_snapshot(server: &Server, info: &SnapshotInfo) -> Result<Arc<Sandbox>, Error> {
    let new = NewSandbox {
        snapshot: Some(info.id.to_string()),
        ..NewSandbox::default()
    };
    server.sandboxes.create(&server.scope, new).await
}

/// Names in the directory of snapshots.
fn kept(server: &Server) -> usize {
    std::fs::read_dir(server.snapshots.path()).map_or(0, Iterator::count)
}

fn a_fork_has_the_files_and_nothing_that_runs() {
    with_server(async |server| {
        let scope = &server.scope;
        let new = NewSandbox {
            name: Some("base".parse().unwrap()),
            env: vec![("MODE".parse().unwrap(), "fast".to_owned())],
            metadata: [("team".to_owned(), "red".to_owned())].into(),
            limits: SandboxLimits {
                disk: Bytes::mib(100),
                ..SandboxLimits::default()
            },
            ..NewSandbox::default()
        };
        let base = server.sandboxes.create(scope, new).await.unwrap();
        say(
            &base,
            "mkdir -p deep/er && echo one > deep/er/file && ln deep/er/file same && ln -s /etc/passwd link && chmod 751 deep && head -c 300000 /dev/zero > zeros; echo t > /tmp/t; echo o > /output/o",
        )
        .await;
        let background = base.start(line("exec sleep 7654")).await.unwrap();
        let forks = server
            .sandboxes
            .fork(scope, "base", NewCopies::of(3))
            .await
            .unwrap();
        assert_eq!(forks.len(), 3);
        let expected = say(&base, SHOW).await;
        assert!(expected.contains("same f 644 4"), "{expected}");
        for fork in &forks {
            assert_eq!(say(fork, SHOW).await, expected);
            assert_eq!(
                say(fork, "echo $MODE; pgrep -c -f 'sleep 765[4]' || true").await,
                "fast\n0\n"
            );
            let info = fork.info();
            assert_eq!((info.name, info.contexts, info.metadata.len()), (None, 0, 1));
            assert_eq!(info.resources.disk_limit, 100 << 20);
        }
        // Each is its own.
        say(&forks[0], "echo changed > deep/er/file").await;
        assert_eq!(say(&base, "cat deep/er/file").await, "one\n");
        assert_eq!(say(&forks[1], "cat deep/er/file").await, "one\n");
        assert!(background.is_running());
        for count in [0, 17] {
            let error = server
                .sandboxes
                .fork(scope, "base", NewCopies::of(count))
                .await
                .unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
        if base.pause(PausedProcesses::Kept).await.is_ok() {
            let error = server
                .sandboxes
                .fork(scope, "base", NewCopies::of(1))
                .await
                .unwrap_err();
            assert!(matches!(error, Error::Paused(_)), "{error}");
            let error = snapshot(&server, &base).await.unwrap_err();
            assert!(matches!(error, Error::Paused(_)), "{error}");
        }
    });
}

fn a_snapshot_outlives_its_sandbox_and_its_server() {
    with_server(async |server| {
        let scope = &server.scope;
        let base = server.sandbox().await;
        say(
            &base,
            "mkdir -p deep/er && echo one > deep/er/file; echo t > /tmp/t; echo o > /output/o",
        )
        .await;
        let expected = say(&base, SHOW).await;
        let named = Some("first".parse::<SandboxName>().unwrap());
        let id = base.id().as_str();
        let made = server.sandboxes.snapshot(scope, id, named.clone()).await.unwrap();
        assert_eq!((&made.sandbox, made.skipped), (base.id(), 0));
        let taken = server.sandboxes.snapshot(scope, id, named).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::Conflict, "{taken}");
        server.sandboxes.remove(scope, id).await.unwrap();
        let store = SnapshotStore::open(server.snapshots.path()).unwrap();
        let next = Sandboxes::new(Arc::clone(&server.local), Fence::Default, store);
        assert_eq!(next.snapshots(scope), std::slice::from_ref(&made));
        for name in ["first", made.id.as_str()] {
            let new = NewSandbox {
                snapshot: Some(name.to_owned()),
                ..NewSandbox::default()
            };
            let sandbox = next.create(scope, new).await.unwrap();
            assert_eq!(say(&sandbox, SHOW).await, expected);
        }
        let small = NewSandbox {
            snapshot: Some("first".to_owned()),
            limits: SandboxLimits {
                disk: Bytes::mib(1),
                ..SandboxLimits::default()
            },
            ..NewSandbox::default()
        };
        let error = next.create(scope, small).await.unwrap_err();
        assert!(
            error.to_string().contains("needs a `disk` of at least 256MiB"),
            "{error}"
        );
        next.remove_snapshot(scope, "first").unwrap();
        assert_eq!(next.snapshots(scope), []);
        assert_eq!(kept(&server), 0);
        next.close().await;
    });
}

fn a_scope_has_its_own_copies_alone() {
    with_server(async |server| {
        let base = server.sandbox().await;
        say(&base, "echo secret > file").await;
        let made = snapshot(&server, &base).await.unwrap();
        let ann: Scope = "ann".parse().unwrap();
        let (id, source) = (made.id.as_str(), base.id().as_str());
        assert_eq!(server.sandboxes.snapshots(&ann), []);
        let new = NewSandbox {
            snapshot: Some(id.to_owned()),
            ..NewSandbox::default()
        };
        let errors = [
            server.sandboxes.find_snapshot(&ann, id).map(drop).unwrap_err(),
            server.sandboxes.remove_snapshot(&ann, id).unwrap_err(),
            server.sandboxes.create(&ann, new).await.map(drop).unwrap_err(),
            server
                .sandboxes
                .fork(&ann, source, NewCopies::of(1))
                .await
                .map(drop)
                .unwrap_err(),
            server
                .sandboxes
                .snapshot(&ann, source, None)
                .await
                .map(drop)
                .unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
        // The owner can.
        let again = of_snapshot(&server, &made).await.unwrap();
        assert_eq!(say(&again, "cat file").await, "secret\n");
    });
}

fn a_hostile_tree_stays_in_its_place() {
    with_server(async |server| {
        let base = server.sandbox().await;
        say(
            &base,
            "mkfifo fifo; ln -s / root; ln -s ../../../../etc up; mkdir names; cd names; seq 10000 | xargs touch; cd ..; printf x > $'new\\nline'; mkdir -p a; ln -s /usr/bin a/bin; ln -s a/bin b; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")' 2>/dev/null; true",
        )
        .await;
        let made = snapshot(&server, &base).await.unwrap();
        assert!(made.skipped >= 1, "the fifo: {made:?}");
        let show = "find . -mindepth 1 ! -type p ! -type s -printf '%P %y %l\\n' | sort | sha256sum";
        let expected = say(&base, show).await;
        let copy = of_snapshot(&server, &made).await.unwrap();
        assert_eq!(say(&copy, show).await, expected);
        assert_eq!(
            say(&copy, "ls names | wc -l; test -e fifo || echo none").await,
            "10000\nnone\n"
        );
        // Nobody looked into it here: names of its files are nowhere in the directory, and nothing is a link.
        for entry in std::fs::read_dir(server.snapshots.path()).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_file());
            let name = entry.file_name().into_string().unwrap();
            assert!(name.starts_with(made.id.as_str()), "{name}");
        }
    });
}

fn a_copy_has_bounds_and_leaves_nothing() {
    with_server(async |server| {
        let base = server.sandbox().await;
        let alone = server.sandboxes.list(&server.scope, &[].into()).len();
        // Files of a gigabyte that take no room.
        say(&base, "truncate -s 250M giant1 giant2 giant3 giant4").await;
        let error = snapshot(&server, &base).await.unwrap_err();
        assert!(matches!(error, Error::CopyTooLarge(_)), "{error}");
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        let id = base.id().as_str();
        let error = server
            .sandboxes
            .fork(&server.scope, id, NewCopies::of(2))
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::CopyTooLarge(_) | Error::File(_)),
            "the archive, or the disk of the copies: {error}"
        );
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert_eq!(server.sandboxes.list(&server.scope, &[].into()).len(), alone);
        // A client that goes away in the middle leaves no half of a snapshot.
        say(&base, "rm giant*; head -c 100M /dev/zero > large").await;
        let begun = async {
            while kept(&server) == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            made = snapshot(&server, &base) => panic!("{made:?}"),
            () = begun => {}
        }
        // The writer removes its file on a thread of its own.
        let left = async {
            while kept(&server) > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), left)
            .await
            .unwrap();
        let fresh = server.sandbox().await;
        assert_eq!(run(&fresh, "true").await.end.exit_code, 0);
    });
}
