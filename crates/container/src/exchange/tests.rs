//! Tests file transfers with lying and real containers.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::Duration;

use ringfence_exec::local::Connection;
use ringfence_policy::Outcome;

use super::*;
use crate::init::{Finished, Interpreter, file};
use crate::spec::Spec;
use crate::supervisor::ContainerSupervisor;
use crate::task::NewContainer;
use crate::testing::{engines, owned, spec, volume};
use crate::warm::{self, Warm};

fn file_path(text: &str) -> FilePath {
    FilePath::new(Path::new(text)).unwrap()
}

fn sent(path: &str, content: &[u8]) -> (Record, Vec<u8>) {
    let record = Record::File {
        path: file_path(path),
        identity: 7,
        size: content.len() as u64,
        attributes: Attributes {
            mode: 0o4755,
            seconds: 1_700_000_000,
            nanos: 0,
        },
    };
    (record, content.to_vec())
}

fn said(record: Record) -> (Record, Vec<u8>) {
    (record, Vec::new())
}

/// Transfers records of a container to the host directory `outside`; `known` is its content at the last
/// synchronization.
fn transferred(outside: &Path, limit: u64, known: Known, records: &[(Record, Vec<u8>)]) -> Transfer {
    let mut input = Vec::new();
    for (record, content) in records {
        record.write(&mut input).unwrap();
        input.extend(content);
    }
    let taking = Taking::new(outside, limit, known).unwrap();
    taking.run(&mut &input[..])
}

/// Returns the new common content, the warnings, and `true` if it is certain.
fn taken(
    outside: &Path,
    limit: u64,
    known: Known,
    records: &[(Record, Vec<u8>)],
) -> io::Result<(Known, Vec<String>, bool)> {
    let Transfer { known, left, outcome } = transferred(outside, limit, known, records);
    outcome?;
    let certain = known.state == Some(STATE);
    Ok((known, left.warnings("the host", Bytes(limit)), certain))
}

/// A fingerprint of a container's directory.
const STATE: u64 = 77;

const END: Record = Record::End { complete: true };

#[test]
fn what_a_container_sends_lies_on_the_host_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let (outside, precious) = (dir.path().join("out"), dir.path().join("precious"));
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("a"), "precious").unwrap();
    // Left by an older version, when programs wrote to this directory themselves.
    symlink(&precious, outside.join("planted")).unwrap();
    symlink(precious.join("a"), outside.join("link")).unwrap();
    let (known, told, certain) = taken(
        &outside,
        100,
        Known::default(),
        &[
            sent("planted/a", b"evil"),
            sent("link", b"new"),
            said(Record::Directory(file_path("d"))),
            sent("d/x", b"in"),
            said(Record::State(STATE)),
            said(END),
        ],
    )
    .unwrap();
    assert!(certain);
    assert!(told.len() == 1 && told[0].contains("planted/a: "), "{told:?}");
    assert_eq!(fs::read_to_string(precious.join("a")).unwrap(), "precious");
    assert_eq!(fs::read_dir(&precious).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("link")).unwrap(), "new");
    let found = fs::metadata(outside.join("d/x")).unwrap();
    assert_eq!((found.mode() & 0o7777, found.mtime()), (0o755, 1_700_000_000));
    assert_eq!(known.files.len(), 2);
}

#[test]
fn a_container_that_lies_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("kept"), "kept").unwrap();
    let known = || {
        let mut known = Known::default();
        let outside = HostDirectory::open(dir.path()).unwrap().scan().unwrap();
        for (path, found) in outside.files {
            let pair = Pair {
                inside: Some(1),
                outside: found,
            };
            known.files.insert(path, pair);
        }
        known
    };
    let refused = |records: &[(Record, Vec<u8>)]| taken(dir.path(), 100, known(), records).unwrap_err();
    refused(&[said(Record::Same(file_path("never-known"))), said(END)]);
    refused(&[said(Record::Gone(file_path("kept"))), said(END)]);
    refused(&[said(Record::Directory(file_path("d")))]);
    let (mut cut, content) = sent("cut", b"all of it");
    if let Record::File { size, .. } = &mut cut {
        *size = 1 << 40;
    }
    refused(&[(cut, content)]);
    // Files are written completely or not at all.
    assert!(!dir.path().join("cut").exists());
    assert!(dir.path().join("kept").exists());
    let deep: Vec<_> = (0..20_000)
        .map(|number| {
            said(Record::Directory(file_path(&format!(
                "{}{number}",
                "n".repeat(240)
            ))))
        })
        .collect();
    let error = refused(&deep);
    assert!(error.to_string().contains("more files than"), "{error}");
}

#[test]
fn the_host_holds_no_more_than_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("of-another"), [0; 50]).unwrap();
    let (known, told, certain) = taken(
        dir.path(),
        100,
        Known::default(),
        &[
            sent("a", &[1; 40]),
            sent("b", &[1; 20]),
            sent("c", &[1; 10]),
            said(Record::State(STATE)),
            said(END),
        ],
    )
    .unwrap();
    assert_eq!(
        told,
        ["/output, which holds 100B, is not all on the host: b does not fit in"]
    );
    assert!(certain && !dir.path().join("b").exists());
    assert_eq!(known.files.len(), 2);
    // A replaced file frees its own space.
    let (_, told, _) = taken(
        dir.path(),
        100,
        known,
        &[sent("a", &[2; 40]), sent("c", &[2; 10]), said(END)],
    )
    .unwrap();
    assert_eq!(told, [""; 0]);
}

#[test]
fn what_is_gone_inside_goes_outside_unless_it_is_another_by_now() {
    let dir = tempfile::tempdir().unwrap();
    let all = ["gone", "changed", "d/gone"].map(|path| sent(path, b"x"));
    let records = [
        vec![said(Record::Directory(file_path("d")))],
        all.to_vec(),
        vec![said(END)],
    ]
    .concat();
    let (known, ..) = taken(dir.path(), 100, Known::default(), &records).unwrap();
    fs::remove_file(dir.path().join("changed")).unwrap();
    fs::write(dir.path().join("changed"), "by somebody else").unwrap();
    let cut = [said(Record::State(STATE)), said(Record::End { complete: false })];
    let (known, told, certain) = taken(dir.path(), 100, known, &cut).unwrap();
    assert!(!certain && told.len() == 1, "{told:?}");
    assert!(dir.path().join("gone").exists());
    let (known, ..) = taken(dir.path(), 100, known, &[said(END)]).unwrap();
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["changed"]);
    assert!(known.files.is_empty() && known.directories.is_empty());
}

/// Returns what the next call would put into the container.
fn given_next(outside: &Path, known: &Known) -> Changes {
    known.changes(&HostDirectory::open(outside).unwrap().scan().unwrap())
}

#[test]
fn what_was_really_sent_counts_and_not_what_was_there_at_the_end_of_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let records = |rest: &[(Record, Vec<u8>)]| [&[said(Record::Directory(file_path("d")))], rest].concat();
    // Something was in motion: the container does not say that this is all.
    let (known, _, certain) = taken(dir.path(), 100, Known::default(), &records(&[said(END)])).unwrap();
    assert!(!certain && known.state.is_none() && dir.path().join("d").exists());
    // The next comparison knows what the host has, though the program has removed it meanwhile.
    let (known, _, certain) =
        taken(dir.path(), 100, known, &[said(Record::State(STATE)), said(END)]).unwrap();
    assert!(certain && known.directories.is_empty() && !dir.path().join("d").exists());
}

#[test]
fn a_transfer_that_breaks_off_is_not_taken_for_a_change_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let (known, ..) = taken(
        dir.path(),
        100,
        Known::default(),
        &[sent("old", b"1"), sent("kept", b"1"), said(END)],
    )
    .unwrap();
    // Ends without its last record.
    let records = [
        said(Record::Directory(file_path("d"))),
        sent("d/new", b"2"),
        sent("old", b"22"),
        said(Record::State(STATE)),
    ];
    let Transfer { known, outcome, .. } = transferred(dir.path(), 100, known, &records);
    assert!(outcome.is_err() && known.state.is_none());
    assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"22");
    let changes = given_next(dir.path(), &known);
    assert!(changes.is_none(), "{changes:?}");
    // All of it is compared again, and goes if it is gone.
    let (known, ..) = taken(dir.path(), 100, known, &[said(END)]).unwrap();
    assert!(known.files.is_empty() && fs::read_dir(dir.path()).unwrap().next().is_none());
}

#[test]
fn what_the_transfer_itself_removed_from_the_host_is_not_removed_inside() {
    let dir = tempfile::tempdir().unwrap();
    let first = [
        said(Record::Directory(file_path("was-directory"))),
        sent("changed", b"1"),
        sent("was-file", b"1"),
        said(END),
    ];
    let (known, ..) = taken(dir.path(), 100, Known::default(), &first).unwrap();
    let records = [
        sent("changed", b"2"),
        said(Record::Left {
            path: "changed".into(),
            why: Reason::Changed,
        }),
        said(Record::Directory(file_path("was-file"))),
        sent("was-directory", b"2"),
        said(Record::End { complete: false }),
    ];
    let (known, ..) = taken(dir.path(), 100, known, &records).unwrap();
    assert!(!dir.path().join("changed").exists());
    let changes = given_next(dir.path(), &known);
    assert!(changes.is_none(), "{changes:?}");
}

/// A container of the test's own, and a host directory.
struct Place {
    supervisor: ContainerSupervisor,
    warm: Warm,
    exchange: Exchange,
    host: tempfile::TempDir,
    _program: tempfile::TempDir,
}

impl Place {
    async fn all() -> Vec<Self> {
        let mut places = Vec::new();
        for engine in engines().await {
            let supervisor = ContainerSupervisor::new(engine.clone(), owned(), engine.info().await.unwrap());
            let directory = tempfile::tempdir().unwrap();
            let program = file(&directory.path().join("init")).unwrap();
            let spec = Spec {
                owner: supervisor.owner().clone(),
                volumes: vec![volume()],
                ..spec(&["replaced"])
            };
            let new_container = NewContainer {
                spec: warm::with_init(spec, &program, 4, Interpreter::None).unwrap(),
                max_duration: Duration::from_secs(300),
                attach: true,
                belongings: None,
            };
            let warm = warm::start(&supervisor, new_container, Interpreter::None)
                .await
                .unwrap();
            let host = tempfile::tempdir().unwrap();
            places.push(Self {
                supervisor,
                warm,
                exchange: Exchange::of_output(host.path().to_path_buf(), Bytes::mib(4), Users::Several),
                host,
                _program: directory,
            });
        }
        places
    }

    /// Runs a script with file transfers; returns its output, and the warnings of the transfers.
    async fn bash(&self, script: &str) -> (String, Vec<String>) {
        let (init, since) = (self.warm.init(), SystemTime::now());
        let mut told = self.exchange.give(init).await;
        let start = Start {
            program: Program::Bash {
                name: "test".to_owned(),
                code: script.to_owned(),
            },
            input: false,
            directory: OUTPUT.to_owned(),
            ..start(&[])
        };
        let finished: Finished = init.run(start, Bytes::kib(10), Connection::none()).await.unwrap();
        assert_eq!(finished.outcome, Outcome::Exited, "{finished:?}");
        let taken = self.exchange.take(init, finished.output.unwrap(), since).await;
        told.extend(taken.warnings);
        (finished.stdout.text + &finished.stderr.text, told)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.host.path().join(name)
    }

    async fn close(self) {
        drop(self.warm);
        self.supervisor.close().await;
    }
}

#[tokio::test]
async fn files_of_a_container_and_of_the_host_are_the_same() {
    for place in Place::all().await {
        let none: [String; 0] = [];
        assert_eq!(place.bash("mkdir d; echo one > a; echo two > d/b").await.1, none);
        assert_eq!(fs::read_to_string(place.path("a")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(place.path("d/b")).unwrap(), "two\n");
        // Changes on both sides, some to the same path.
        fs::remove_file(place.path("a")).unwrap();
        fs::write(place.path("c"), "three\n").unwrap();
        let (printed, told) = place.bash("ls -A . d; cat c; rm -r d; echo four > c").await;
        assert_eq!(
            (printed.as_str(), &told[..]),
            (".:\nc\nd\n\nd:\nb\nthree\n", &none[..])
        );
        assert_eq!(fs::read_to_string(place.path("c")).unwrap(), "four\n");
        assert_eq!(fs::read_dir(place.host.path()).unwrap().count(), 1);
        // A file that is rewritten with its old time has a new identity.
        let script = "touch -r c /tmp/time; echo five > c; touch -r /tmp/time c";
        assert_eq!(place.bash(script).await.1, none);
        assert_eq!(fs::read_to_string(place.path("c")).unwrap(), "five\n");
        place.close().await;
    }
}

#[tokio::test]
async fn what_fills_a_container_fails_there_and_can_be_deleted() {
    for place in Place::all().await {
        let (printed, told) = place.bash("head -c 5M /dev/zero > big; ls -s").await;
        assert!(printed.contains("No space left on device"), "{printed}");
        assert!(told.is_empty(), "{told:?}");
        assert_eq!(fs::metadata(place.path("big")).unwrap().len(), 4 << 20);
        let (printed, told) = place.bash("echo x > more; rm big; echo y > last").await;
        assert!(printed.contains("No space left on device"), "{printed}");
        assert!(told.is_empty(), "{told:?}");
        assert!(!place.path("big").exists());
        assert_eq!(fs::read_to_string(place.path("last")).unwrap(), "y\n");
        // Sparse files, links and excess data do not reach the host, and cause warnings.
        let (_, told) = place
            .bash("truncate -s 1G sparse; head -c 3M /dev/zero > a; ln a b; ln -s /etc/passwd l")
            .await;
        let told = told.join("\n");
        for what in ["sparse does not fit", "b does not fit", "l is not a regular file"] {
            assert!(told.contains(what), "{what}: {told}");
        }
        assert_eq!(fs::metadata(place.path("a")).unwrap().len(), 3 << 20);
        assert!(!place.path("sparse").exists() && fs::symlink_metadata(place.path("l")).is_err());
        // Files that do not fit there cause a warning, and stay on the host.
        fs::write(place.path("huge"), vec![1; 5 << 20]).unwrap();
        let (_, told) = place.bash("rm sparse b l last more").await;
        assert!(told.join("\n").contains("huge does not fit"), "{told:?}");
        assert_eq!(place.bash("ls").await.0, "a\n");
        assert!(place.path("huge").exists());
        place.close().await;
    }
}

#[tokio::test]
async fn what_is_in_motion_while_it_is_taken_holds_nobody_up() {
    for place in Place::all().await {
        let init = place.warm.init();
        let busy = Start {
            program: Program::Bash {
                name: "busy".to_owned(),
                code: "while :; do echo x > a; mkdir -p d/e; mv a d/e/b; ln -s /etc d/l; rm -r d; mkfifo p; rm p; done 2> /dev/null"
                    .to_owned(),
            },
            input: false,
            directory: OUTPUT.to_owned(),
            ..start(&[])
        };
        let (cancel, cancelled) = tokio::sync::watch::channel(false);
        let connection = Connection {
            cancelled: Some(cancelled),
            ..Connection::none()
        };
        let busy = init.run(busy, Bytes::kib(1), connection);
        let taking = async {
            for _ in 0..20 {
                place.bash("echo mine > mine").await;
            }
            cancel.send_replace(true);
        };
        let (busy, ()) = tokio::join!(busy, taking);
        assert_eq!(busy.unwrap().outcome, Outcome::Cancelled);
        // The program's last process may still be exiting, and create one more directory.
        let names = || -> Vec<_> {
            let entries = fs::read_dir(place.host.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect()
        };
        for _ in 0..500 {
            place.bash("rm -rf a d p").await;
            if names() == ["mine"] {
                break;
            }
        }
        assert_eq!(names(), ["mine"]);
        place.close().await;
    }
}

#[test]
fn files_beyond_the_limit_are_left_out_and_named() {
    let host = tempfile::tempdir().unwrap();
    for (name, size) in [("a", 3), ("b", 5), ("c", 1)] {
        fs::write(host.path().join(name), vec![0; size]).unwrap();
    }
    let found = HostDirectory::open(host.path()).unwrap().scan().unwrap();
    let mut changes = Known::default().changes(&found);
    let left = changes.leave_out(&found, Bytes(4));
    assert_eq!(changes.files, [file_path("a"), file_path("c")]);
    assert_eq!(
        left.warnings_of_earlier(),
        ["not all files of `/output` are there: b exceeds the limit of 4B together with the others"]
    );
}
