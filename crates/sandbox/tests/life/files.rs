//! Files: written, read, listed, moved and watched, with the rights of programs inside.

use ringfence_jail::init::files::{Copied, Entry, EntryType, FileErrorKind, MadeDirectory, TreeReport};
use ringfence_policy::Bytes;
use ringfence_sandbox::files::{Event, FileRange, Operation, WatchDepth, parse};
use ringfence_sandbox::{Error, ErrorKind, NewSandbox, Sandbox, SandboxLimits};

use crate::support::{Test, run, say, with_server};

pub(crate) const TESTS: &[Test] = &[
    ("files_are_written_and_read", files_are_written_and_read),
    (
        "a_broken_upload_leaves_the_old_file",
        a_broken_upload_leaves_the_old_file,
    ),
    (
        "an_upload_that_its_client_leaves_is_removed",
        an_upload_that_its_client_leaves_is_removed,
    ),
    (
        "an_upload_beyond_the_disk_says_so_and_leaves_nothing",
        an_upload_beyond_the_disk_says_so_and_leaves_nothing,
    ),
    (
        "trees_are_listed_moved_copied_and_removed",
        trees_are_listed_moved_copied_and_removed,
    ),
    (
        "trees_come_out_and_in_as_archives",
        trees_come_out_and_in_as_archives,
    ),
    ("changes_are_told", changes_are_told),
    (
        "nothing_is_reached_that_programs_cannot_reach",
        nothing_is_reached_that_programs_cannot_reach,
    ),
];

const WHOLE: FileRange = FileRange {
    offset: 0,
    length: None,
};

async fn store(sandbox: &Sandbox, path: &str, content: &[u8]) -> Result<Entry, Error> {
    let write = Operation::Write {
        path: path.to_owned(),
        mode: None,
        size: Some(content.len() as u64),
    };
    let operating = sandbox.operate(&write).await?;
    for piece in content.chunks(50_000) {
        if !operating.write(piece.to_vec()).await {
            break;
        }
    }
    parse(&operating.whole().await?)
}

async fn load(sandbox: &Sandbox, path: &str, range: FileRange) -> Result<Vec<u8>, Error> {
    let mut reader = sandbox.read_file(path.to_owned(), range).await?;
    let mut whole = Vec::new();
    while let Some(bytes) = reader.next().await? {
        whole.extend(bytes);
    }
    Ok(whole)
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> FileErrorKind {
    match result {
        Err(Error::File(error)) => error.kind,
        other => panic!("{other:?}"),
    }
}

fn files_are_written_and_read() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let big: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let entry = store(&sandbox, "/workspace/new/dir/data.bin", &big)
            .await
            .unwrap();
        assert_eq!(
            (entry.size, entry.mode, entry.kind),
            (3_000_000, 0o644, EntryType::File)
        );
        assert_eq!(
            say(
                &sandbox,
                "sha256sum < new/dir/data.bin | wc -c; stat -c %u new/dir/data.bin"
            )
            .await,
            "68\n1000\n"
        );
        assert!(
            load(&sandbox, "/workspace/new/dir/data.bin", WHOLE)
                .await
                .unwrap()
                == big
        );
        let middle = FileRange {
            offset: 10,
            length: Some(5),
        };
        assert_eq!(
            load(&sandbox, "/workspace/new/dir/data.bin", middle)
                .await
                .unwrap(),
            big[10..15]
        );
        assert_eq!(
            kind(load(&sandbox, "/workspace/none", WHOLE).await),
            FileErrorKind::NotFound
        );
        assert_eq!(
            kind(load(&sandbox, "/workspace", WHOLE).await),
            FileErrorKind::IsADirectory
        );
        say(&sandbox, "mkfifo pipe").await;
        assert_eq!(
            kind(load(&sandbox, "/workspace/pipe", WHOLE).await),
            FileErrorKind::NotAFile
        );
        assert_eq!(
            kind(load(&sandbox, "relative", WHOLE).await),
            FileErrorKind::Invalid
        );
        store(&sandbox, "/workspace/empty", b"").await.unwrap();
        assert_eq!(load(&sandbox, "/workspace/empty", WHOLE).await.unwrap(), b"");
    });
}

fn a_broken_upload_leaves_the_old_file() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        store(&sandbox, "/workspace/file", b"old").await.unwrap();
        let write = || Operation::Write {
            path: "/workspace/file".to_owned(),
            mode: None,
            size: Some(10),
        };
        let short = sandbox.operate(&write()).await.unwrap();
        assert!(short.write(b"new".to_vec()).await);
        assert_eq!(kind(short.whole().await), FileErrorKind::Invalid);
        let dropped = sandbox.operate(&write()).await.unwrap();
        assert!(dropped.write(b"new".to_vec()).await);
        drop(dropped);
        assert_eq!(say(&sandbox, "cat file").await, "old");
        let full = vec![b'x'; 600 << 20];
        assert_eq!(
            kind(store(&sandbox, "/workspace/file", &full).await),
            FileErrorKind::NoSpace
        );
        assert_eq!(say(&sandbox, "cat file").await, "old");
    });
}

fn an_upload_that_its_client_leaves_is_removed() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        store(&sandbox, "/workspace/file", b"old").await.unwrap();
        for size in [None, Some(10)] {
            let write = Operation::Write {
                path: "/workspace/file".to_owned(),
                mode: None,
                size,
            };
            let dropped = sandbox.operate(&write).await.unwrap();
            assert!(dropped.write(b"new".to_vec()).await);
            // What has arrived is in a file under another name.
            let unfinished = "cat .ringfence-* 2>&-; true";
            while say(&sandbox, unfinished).await != "new" {}
            drop(dropped);
            while say(&sandbox, unfinished).await == "new" {}
            assert_eq!(say(&sandbox, "ls -A; cat file").await, "file\nold");
        }
    });
}

fn an_upload_beyond_the_disk_says_so_and_leaves_nothing() {
    with_server(async |server| {
        let new = NewSandbox {
            limits: SandboxLimits {
                disk: Bytes::mib(8),
                ..SandboxLimits::default()
            },
            ..NewSandbox::default()
        };
        let sandbox = server.sandboxes.create(&server.scope, new).await.unwrap();
        // One file as large as the disk reaches the limit on its size, several the end of the disk.
        let full = vec![b'x'; 9 << 20];
        for before in ["", "head -c 1M /dev/zero > before"] {
            say(&sandbox, before).await;
            let error = store(&sandbox, "/workspace/file", &full).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
            let left = say(&sandbox, "ls -A; rm -f before").await;
            assert_eq!(left, if before.is_empty() { "" } else { "before\n" });
        }
        store(&sandbox, "/workspace/file", &full[..7 << 20])
            .await
            .unwrap();
    });
}

fn trees_are_listed_moved_copied_and_removed() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        say(
            &sandbox,
            "mkdir -p a/b; echo 1 > a/b/one; ln -s /etc/passwd a/link; chmod 600 a/b/one",
        )
        .await;
        let listed = sandbox.list_files("/workspace".to_owned(), 3).await.unwrap();
        let names: Vec<(&str, EntryType)> = listed
            .entries
            .iter()
            .map(|entry| (entry.path.as_str(), entry.kind))
            .collect();
        assert_eq!(
            names,
            [
                ("/workspace/a", EntryType::Directory),
                ("/workspace/a/b", EntryType::Directory),
                ("/workspace/a/b/one", EntryType::File),
                ("/workspace/a/link", EntryType::Symlink),
            ]
        );
        assert!(listed.complete);
        let copied: Copied = sandbox
            .change(&Operation::Copy {
                from: "/workspace/a".to_owned(),
                to: "/tmp/deep/copy".to_owned(),
            })
            .await
            .unwrap();
        assert_eq!((copied.entries, copied.skipped), (4, 0));
        let _: Entry = sandbox
            .change(&Operation::Move {
                from: "/workspace/a".to_owned(),
                to: "/workspace/moved".to_owned(),
            })
            .await
            .unwrap();
        assert_eq!(
            say(
                &sandbox,
                "ls; stat -c %a /tmp/deep/copy/b/one; readlink /tmp/deep/copy/link"
            )
            .await,
            "moved\n600\n/etc/passwd\n"
        );
        let make = Operation::MakeDirectory {
            path: "/workspace/x/y".to_owned(),
        };
        let made: MadeDirectory = sandbox.change(&make).await.unwrap();
        assert!(made.created);
        let made: MadeDirectory = sandbox.change(&make).await.unwrap();
        assert!(!made.created);
        sandbox.remove_file("/workspace/moved".to_owned()).await.unwrap();
        assert_eq!(say(&sandbox, "ls; cat /etc/passwd | wc -l").await, "x\n3\n");
        assert_eq!(
            kind(sandbox.remove_file("/".to_owned()).await),
            FileErrorKind::Invalid
        );
    });
}

fn trees_come_out_and_in_as_archives() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        say(&sandbox, "mkdir -p t/sub; echo hello > t/sub/file; mkfifo t/pipe").await;
        let mut operating = sandbox
            .operate(&Operation::Archive {
                path: "/workspace/t".to_owned(),
            })
            .await
            .unwrap();
        operating.end_input();
        let mut archive = Vec::new();
        while let Some(bytes) = operating.next().await.unwrap() {
            archive.extend(bytes);
        }
        assert_eq!(operating.report().unwrap().skipped, 1);
        let operating = sandbox
            .operate(&Operation::Extract {
                path: "/tmp/out".to_owned(),
            })
            .await
            .unwrap();
        assert!(operating.write(archive).await);
        let report: TreeReport = parse(&operating.whole().await.unwrap()).unwrap();
        assert_eq!(report.skipped, 0);
        assert_eq!(say(&sandbox, "cat /tmp/out/sub/file").await, "hello\n");
    });
}

fn changes_are_told() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let mut watching = sandbox
            .operate(&Operation::Watch {
                path: "/workspace".to_owned(),
                depth: WatchDepth::Recursive,
            })
            .await
            .unwrap();
        let mut text = String::new();
        let mut changed = false;
        while !text.contains("\"a/b/file\"") {
            let bytes = watching.next().await.unwrap().unwrap();
            text.push_str(&String::from_utf8(bytes).unwrap());
            // The first line says that it watches.
            if !changed {
                say(&sandbox, "mkdir -p a/b; echo 1 > a/b/file").await;
                changed = true;
            }
        }
        let events: Vec<Event> = text
            .lines()
            .filter_map(|line| parse(line.as_bytes()).ok())
            .collect();
        assert!(events.len() >= 2, "{text}");
    });
}

fn nothing_is_reached_that_programs_cannot_reach() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        for path in ["/etc/shadow", "/root/.profile", "/cell/tmp/x", "/proc/1/environ"] {
            assert_ne!(run(&sandbox, &format!("cat {path}")).await.end.exit_code, 0);
            let denied = kind(load(&sandbox, path, WHOLE).await);
            assert!(
                matches!(denied, FileErrorKind::NotFound | FileErrorKind::Denied),
                "{path}: {denied:?}"
            );
        }
        let denied = kind(store(&sandbox, "/usr/bin/new", b"x").await);
        assert!(
            matches!(denied, FileErrorKind::ReadOnly | FileErrorKind::Denied),
            "{denied:?}"
        );
        // What a program reads of itself would be the process of the operation here, which no program may look into.
        say(
            &sandbox,
            "ln -s /proc/self/maps maps; sleep 1000 > /dev/null 2>&1 & echo $! > pid",
        )
        .await;
        let program = load(&sandbox, "/workspace/pid", WHOLE).await.unwrap();
        let program = String::from_utf8(program).unwrap().trim().to_owned();
        for path in [
            "/proc/self/maps",
            "/proc/thread-self/status",
            "/proc/self/root/etc/passwd",
            "/proc/self/fdinfo/0",
            "/workspace/maps",
            &format!("/proc/{program}/root/etc/passwd"),
        ] {
            assert_eq!(run(&sandbox, &format!("cat {path}")).await.end.exit_code, 0);
            let denied = load(&sandbox, path, WHOLE).await;
            let text = format!("{denied:?}");
            assert_eq!(kind(denied), FileErrorKind::Denied, "{path}");
            assert!(text.contains("are closed to file operations"), "{path}: {text}");
        }
        let of_program = load(&sandbox, &format!("/proc/{program}/environ"), WHOLE).await;
        assert!(of_program.unwrap().windows(5).any(|text| text == b"PATH="));
        for path in ["/proc/self/fd", "/proc/self/map_files"] {
            assert_eq!(run(&sandbox, &format!("ls {path}")).await.end.exit_code, 0);
            let denied = kind(sandbox.list_files(path.to_owned(), 1).await);
            assert_eq!(denied, FileErrorKind::Denied, "{path}");
        }
        // Its own number is in no list: every directory there is of a program that programs see.
        let listed = sandbox.list_files("/proc".to_owned(), 1).await.unwrap();
        let is_number = |entry: &&Entry| entry.name.bytes().all(|byte| byte.is_ascii_digit());
        let numbers: Vec<_> = listed.entries.iter().filter(is_number).collect();
        let seen = format!(
            "ls -d {}",
            numbers
                .iter()
                .map(|entry| entry.path.as_str())
                .collect::<Vec<_>>()
                .join(" ")
        );
        assert_eq!(run(&sandbox, &seen).await.end.exit_code, 0, "{seen}");
        // A link that a program made leads no further than the program.
        say(&sandbox, "ln -s /etc/shadow way").await;
        assert_eq!(
            kind(load(&sandbox, "/workspace/way", WHOLE).await),
            FileErrorKind::NotFound
        );
    });
}
