//! Tests of faithful transfer, and of hostile directories.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use super::*;

/// Makes a FIFO.
pub(super) fn make_fifo(path: &Path) {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    crate::sys::make_fifo(&path).unwrap();
}

fn file_path(text: &str) -> FilePath {
    FilePath::new(Path::new(text)).unwrap()
}

/// Returns a collector's records, and the files' contents separately.
fn collected(root: &Path, limit: u64, known: &[Record]) -> (Vec<Record>, BTreeMap<String, Vec<u8>>) {
    let mut input = Vec::new();
    for record in known.iter().chain([&Record::End { complete: true }]) {
        record.write(&mut input).unwrap();
    }
    let mut out = Vec::new();
    collect(root, limit, &input[..], &mut out).unwrap();
    let (mut rest, mut records, mut contents) = (&out[..], Vec::new(), BTreeMap::new());
    loop {
        let record = Record::read(&mut rest).unwrap();
        if let Record::File { path, size, .. } = &record {
            let mut content = Vec::new();
            assert!(copy_content(*size, &mut rest, &mut content).unwrap());
            contents.insert(path.as_path().display().to_string(), content);
        }
        let over = matches!(record, Record::End { .. });
        records.push(record);
        if over {
            assert!(rest.is_empty());
            return (records, contents);
        }
    }
}

/// Sends records to a container, and returns its answers.
fn placed(root: &Path, records: &[(Record, &[u8])]) -> Vec<Record> {
    let mut input = Vec::new();
    for (record, content) in records {
        record.write(&mut input).unwrap();
        input.extend(*content);
    }
    Record::End { complete: true }.write(&mut input).unwrap();
    let mut out = Vec::new();
    place(root, &input[..], &mut out).unwrap();
    let (mut rest, mut answers) = (&out[..], Vec::new());
    loop {
        match Record::read(&mut rest).unwrap() {
            Record::End { .. } => return answers,
            answer => answers.push(answer),
        }
    }
}

fn sent(path: &str, content: &[u8]) -> Record {
    Record::File {
        path: file_path(path),
        identity: 0,
        size: content.len() as u64,
        attributes: Attributes {
            mode: 0o640,
            seconds: 1_000_000,
            nanos: 5,
        },
    }
}

fn left(records: &[Record]) -> Vec<(String, Reason)> {
    let left = records.iter().filter_map(|record| match record {
        Record::Left { path, why } => Some((path.display().to_string(), *why)),
        _ => None,
    });
    left.collect()
}

#[test]
fn only_names_are_paths() {
    for good in ["a", "a/b", "a b/ö", "...", ".hidden", "-x"] {
        assert!(FilePath::new(Path::new(good)).is_some(), "{good}");
    }
    let deep = vec!["d"; MAX_DEPTH + 1].join("/");
    let long = "n".repeat(MAX_PATH + 1);
    for bad in [
        "", ".", "..", "/a", "a/..", "a/../b", "a//b", "a/", "./a", "a\0b", &deep, &long,
    ] {
        assert!(FilePath::new(Path::new(bad)).is_none(), "{bad}");
    }
}

#[test]
fn records_are_read_as_they_are_written_and_nothing_else_is() {
    let all = [
        Record::Known {
            path: file_path("a"),
            identity: 7,
        },
        Record::Same(file_path("a/b")),
        Record::Directory(file_path("a")),
        sent("x/y", b"content"),
        Record::Left {
            path: "../x".into(),
            why: Reason::Changed,
        },
        Record::Gone(file_path("a")),
        Record::State(7),
        Record::End { complete: true },
        Record::End { complete: false },
    ];
    for record in all {
        let mut bytes = Vec::new();
        record.write(&mut bytes).unwrap();
        assert_eq!(Record::read(&mut &bytes[..]).unwrap(), record);
        assert!(
            Record::read(&mut &bytes[..bytes.len() - 1]).is_err(),
            "{record:?}"
        );
    }
    for bad in [
        &b"D\x02\0\0\0.."[..],
        b"D\x02\0\0\0/a",
        b"D\0\0\0\0",
        b"X\x01\0\0\0a",
        b"L\x02\0\0\0\x09a",
        b"D\xff\xff\xff\xff",
    ] {
        assert!(Record::read(&mut &bad[..]).is_err(), "{bad:?}");
    }
}

#[test]
fn what_is_collected_is_placed_as_it_was() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(from.path().join("sub/empty")).unwrap();
    fs::write(from.path().join("sub/a"), "hello").unwrap();
    fs::set_permissions(from.path().join("sub/a"), Permissions::from_mode(0o751)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
    let written = File::options()
        .write(true)
        .open(from.path().join("sub/a"))
        .unwrap();
    written.set_modified(time).unwrap();
    let (records, contents) = collected(from.path(), 100, &[]);
    let sending: Vec<(Record, &[u8])> = records[..records.len() - 1]
        .iter()
        .map(|record| match record {
            Record::File { path, .. } => {
                let content = &contents[&path.as_path().display().to_string()];
                (record.clone(), &content[..])
            }
            other => (other.clone(), &b""[..]),
        })
        .collect();
    assert_eq!(sending.len(), 4, "{records:?}");
    let (state_record, sending) = sending.split_last().unwrap();
    assert_eq!(state_record.0, Record::State(state(from.path())));
    let answers = placed(to.path(), sending);
    let found = fs::metadata(to.path().join("sub/a")).unwrap();
    assert_eq!((found.mode() & 0o777, found.modified().unwrap()), (0o751, time));
    assert_eq!(fs::read(to.path().join("sub/a")).unwrap(), b"hello");
    assert!(to.path().join("sub/empty").is_dir());
    let known = Record::Known {
        path: file_path("sub/a"),
        identity: identity(&found),
    };
    assert_eq!(answers, std::slice::from_ref(&known));
    // Known files are not sent again.
    let (again, contents) = collected(to.path(), 100, &[known]);
    assert!(again.contains(&Record::Same(file_path("sub/a"))), "{again:?}");
    assert!(contents.is_empty());
}

#[test]
fn a_change_is_seen_though_its_time_is_set_back() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(state(dir.path()), EMPTY);
    let path = dir.path().join("a");
    fs::write(&path, "one").unwrap();
    let (first, before) = (state(dir.path()), fs::metadata(&path).unwrap());
    assert_ne!(first, EMPTY);
    // The kernel's clock is coarse.
    while identity(&fs::metadata(&path).unwrap()) == identity(&before) {
        let file = File::options().write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut &file, b"two").unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
    }
    assert_ne!(state(dir.path()), first);
    let second = state(dir.path());
    assert_eq!(state(dir.path()), second);
    fs::remove_file(&path).unwrap();
    assert_eq!(state(dir.path()), EMPTY);
    fs::create_dir(dir.path().join("d")).unwrap();
    let third = state(dir.path());
    symlink("x", dir.path().join("d/link")).unwrap();
    assert_ne!(state(dir.path()), third);
}

#[test]
fn what_is_no_file_is_told_of_and_left() {
    let dir = tempfile::tempdir().unwrap();
    symlink("/etc/passwd", dir.path().join("link")).unwrap();
    symlink("/etc", dir.path().join("linked")).unwrap();
    std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let deep = dir.path().join(vec!["d"; MAX_DEPTH + 3].join("/"));
    fs::create_dir_all(deep).unwrap();
    let (records, contents) = collected(dir.path(), 100, &[]);
    let deepest = vec!["d"; MAX_DEPTH].join("/");
    let expected = [
        (deepest.as_str(), Reason::Path),
        ("link", Reason::Kind),
        ("linked", Reason::Kind),
        ("socket", Reason::Kind),
    ];
    assert_eq!(left(&records), expected.map(|(path, why)| (path.to_owned(), why)));
    assert!(contents.is_empty());
    assert_eq!(records.last(), Some(&Record::End { complete: true }));
}

#[test]
fn no_more_is_sent_than_wanted_however_much_there_seems_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let huge = File::create(dir.path().join("a-huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    fs::write(dir.path().join("b"), [1; 60]).unwrap();
    for name in ["c", "d"] {
        fs::hard_link(dir.path().join("b"), dir.path().join(name)).unwrap();
    }
    let (records, contents) = collected(dir.path(), 130, &[]);
    let expected = ["a-huge", "d"].map(|name| (name.to_owned(), Reason::Room));
    assert_eq!(left(&records), expected);
    assert_eq!(contents.keys().collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn a_place_that_resists_is_told_of_and_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "precious").unwrap();
    symlink(outside.path().join("precious"), dir.path().join("a")).unwrap();
    symlink(outside.path(), dir.path().join("d")).unwrap();
    fs::create_dir_all(dir.path().join("f/below")).unwrap();
    let answers = placed(
        dir.path(),
        &[
            (sent("a", b"new"), b"new"),
            (Record::Directory(file_path("d")), b""),
            (sent("d/x", b"in"), b"in"),
            (sent("f", b"file"), b"file"),
            (sent("missing/x", b"lost"), b"lost"),
            (sent("last", b"here"), b"here"),
            (Record::Gone(file_path("nothing")), b""),
        ],
    );
    assert_eq!(left(&answers), [("missing/x".to_owned(), Reason::Denied)]);
    assert_eq!(fs::read(outside.path().join("precious")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    for (name, content) in [("a", "new"), ("d/x", "in"), ("f", "file"), ("last", "here")] {
        assert_eq!(
            fs::read_to_string(dir.path().join(name)).unwrap(),
            content,
            "{name}"
        );
    }
    placed(
        dir.path(),
        &[
            (Record::Gone(file_path("d")), b""),
            (Record::Gone(file_path("a")), b""),
        ],
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}
