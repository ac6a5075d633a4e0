//! Tests of watches, over pipes as the server uses them.

use std::fs;
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::thread::JoinHandle;

use super::super::FileErrorKind;
use super::super::staged::Staged;
use super::*;

/// A watch in a thread of its own. Dropping `stop` ends it.
struct Running {
    stop: Option<File>,
    events: BufReader<File>,
    thread: JoinHandle<Result<(), FileError>>,
}

impl Running {
    fn start(path: &Path, depth: WatchDepth) -> Self {
        let (stopped, stop) = sys::pipe().unwrap();
        let (events, out) = sys::pipe().unwrap();
        let path = path.to_owned();
        let thread =
            std::thread::spawn(move || watch(&path, depth, &mut File::from(stopped), &mut File::from(out)));
        let mut running = Self {
            stop: Some(File::from(stop)),
            events: BufReader::new(File::from(events)),
            thread,
        };
        assert_eq!(running.next().unwrap(), (EventType::Ready, ".".to_owned()));
        running
    }

    fn next(&mut self) -> Option<(EventType, String)> {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        let event: Event = serde_json::from_str((!line.is_empty()).then_some(&line)?).unwrap();
        Some((event.kind, event.path))
    }

    /// Returns the events up to the creation of an entry.
    fn until(&mut self, path: &str) -> Vec<(EventType, String)> {
        let last = (EventType::Create, path.to_owned());
        let mut events = Vec::new();
        while events.last() != Some(&last) {
            events.push(self.next().expect("it goes on"));
        }
        events
    }

    /// Ends the watch, and returns what it still wrote.
    fn finish(mut self) -> Vec<(EventType, String)> {
        self.stop = None;
        let events = std::iter::from_fn(|| self.next()).collect();
        self.thread.join().unwrap().unwrap();
        events
    }
}

fn event(kind: EventType, path: &str) -> (EventType, String) {
    (kind, path.to_owned())
}

#[test]
fn a_file_that_is_written_as_a_whole_has_no_other_name_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path(), WatchDepth::Flat);
    let directory = Directory::open_readable(dir.path()).unwrap();
    for content in ["one", "two"] {
        let make = |name: &OsStr| File::create_new(dir.path().join(name));
        let (staged, mut file) = Staged::create(&directory, make).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        staged.finish(OsStr::new("a")).unwrap();
    }
    drop(Staged::create(&directory, |name| File::create_new(dir.path().join(name))).unwrap());
    // A name that only looks like one.
    fs::write(dir.path().join(".ringfence-notes"), "").unwrap();
    let stored = [EventType::Create, EventType::Chmod, EventType::Write];
    let mut expected = [stored, stored].concat();
    expected.push(EventType::Create);
    let (kinds, paths): (Vec<_>, Vec<_>) = running.until(".ringfence-notes").into_iter().unzip();
    assert_eq!(kinds, expected);
    assert!(paths[..6].iter().all(|path| path == "a"), "{paths:?}");
    running.finish();
}

#[test]
fn changes_are_reported_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("sub")).unwrap();
    let mut running = Running::start(dir.path(), WatchDepth::Flat);
    fs::write(path("a\nb"), "1").unwrap();
    fs::set_permissions(path("a\nb"), Permissions::from_mode(0o600)).unwrap();
    fs::rename(path("a\nb"), path("c")).unwrap();
    fs::remove_file(path("c")).unwrap();
    fs::write(path("sub/unseen"), "").unwrap();
    fs::write(path("last"), "").unwrap();
    let events = running.until("last");
    let expected = [
        event(EventType::Create, "a\nb"),
        event(EventType::Write, "a\nb"),
        event(EventType::Chmod, "a\nb"),
        event(EventType::Rename, "a\nb"),
        event(EventType::Create, "c"),
        event(EventType::Remove, "c"),
        event(EventType::Create, "last"),
    ];
    assert_eq!(events, expected);
    assert_eq!(running.finish(), []);
}

/// However fast they come: each entry of new directories is created exactly once.
#[test]
fn new_directories_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path(), WatchDepth::Recursive);
    let mut expected = HashSet::new();
    for one in 0..40 {
        let deep = format!("d{one}/e/f");
        fs::create_dir_all(dir.path().join(&deep)).unwrap();
        for name in ["x", "y", "z"] {
            fs::write(dir.path().join(&deep).join(name), "").unwrap();
            expected.insert(format!("{deep}/{name}"));
        }
        expected.extend([format!("d{one}"), format!("d{one}/e"), deep]);
    }
    fs::write(dir.path().join("last"), "").unwrap();
    let mut created: Vec<String> = Vec::new();
    // Directories are scanned in between, so entries in them can follow the last one.
    let mut is_last = false;
    while !is_last || created.len() <= expected.len() {
        let (kind, path) = running.next().unwrap();
        is_last |= path == "last";
        if kind == EventType::Create {
            created.push(path);
        }
    }
    assert!(
        running
            .finish()
            .iter()
            .all(|(kind, _)| *kind != EventType::Create)
    );
    let unique: HashSet<String> = created.iter().cloned().collect();
    assert_eq!(unique.len(), created.len(), "{created:?}");
    expected.insert("last".to_owned());
    assert_eq!(unique, expected);
}

#[test]
fn a_renamed_directory_has_its_new_name() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("old/sub")).unwrap();
    std::os::unix::fs::symlink(outside.path(), path("link")).unwrap();
    let mut running = Running::start(dir.path(), WatchDepth::Recursive);
    fs::rename(path("old"), path("new")).unwrap();
    assert_eq!(
        running.until("new/sub"),
        [
            event(EventType::Rename, "old"),
            event(EventType::Create, "new"),
            event(EventType::Create, "new/sub"),
        ]
    );
    fs::write(path("new/sub/file"), "").unwrap();
    assert_eq!(running.until("new/sub/file").len(), 1);
    // Out of the tree, it is watched no more, and neither is what a link leads to.
    fs::rename(path("new"), outside.path().join("new")).unwrap();
    assert_eq!(running.next().unwrap(), event(EventType::Rename, "new"));
    fs::write(outside.path().join("new/sub/more"), "").unwrap();
    fs::write(outside.path().join("more"), "").unwrap();
    fs::write(path("last"), "").unwrap();
    assert_eq!(running.until("last"), [event(EventType::Create, "last")]);
    assert_eq!(running.finish(), []);
}

#[test]
fn a_directory_that_vanishes_ends_its_watch() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let gone = [event(EventType::Gone, ".")];
    let check = |vanish: &dyn Fn()| {
        fs::create_dir_all(path("above/watched")).unwrap();
        let mut running = Running::start(&path("above/watched"), WatchDepth::Recursive);
        vanish();
        let events: Vec<_> = std::iter::from_fn(|| running.next()).collect();
        assert_eq!(events, gone);
        running.thread.join().unwrap().unwrap();
    };
    check(&|| fs::remove_dir(path("above/watched")).unwrap());
    check(&|| fs::rename(path("above/watched"), path("elsewhere")).unwrap());
    check(&|| fs::rename(path("above"), path("elsewhere too")).unwrap());
    let open = std::cell::OnceCell::new();
    check(&|| {
        open.get_or_init(|| File::open(path("above/watched")).unwrap());
        fs::remove_dir(path("above/watched")).unwrap();
    });
}

#[test]
fn only_directories_are_watched() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let check = |name: &str, kind: FileErrorKind| {
        let (mut stop, _) = sys::pipe()
            .map(|(read, write)| (File::from(read), write))
            .unwrap();
        let watched = watch(
            &dir.path().join(name),
            WatchDepth::Flat,
            &mut stop,
            &mut io::sink(),
        );
        assert_eq!(watched.unwrap_err().kind, kind, "{name}");
    };
    check("file", FileErrorKind::NotADirectory);
    check("missing", FileErrorKind::NotFound);
}

/// Returns a watcher that writes to memory.
fn silent<'a>(path: &Path, out: &'a mut Vec<u8>) -> Watcher<'a> {
    let mut watcher = Watcher {
        inotify: Inotify::new().unwrap(),
        root: path.to_owned(),
        depth: WatchDepth::Recursive,
        watches: HashMap::new(),
        was_staged: false,
        found: HashSet::new(),
        is_limited: false,
        first: -1,
        out,
    };
    watcher.first = watcher.add(Path::new("")).unwrap();
    watcher
}

fn kinds(out: &[u8]) -> Vec<EventType> {
    let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice::<Event>(line).unwrap().kind)
        .collect()
}

#[test]
fn too_many_watches_are_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let deep = vec!["d"; MAX_TREE_DEPTH + 5].join("/");
    fs::create_dir_all(dir.path().join(deep)).unwrap();
    let mut out = Vec::new();
    let mut watcher = silent(dir.path(), &mut out);
    watcher.scan(Path::new(""), Scan::Silent).unwrap();
    assert_eq!(watcher.watches.len(), MAX_TREE_DEPTH);
    for number in 0..MAX_WATCHES {
        watcher
            .watches
            .insert(-2 - i32::try_from(number).unwrap(), PathBuf::from("x"));
    }
    fs::create_dir(dir.path().join("one more")).unwrap();
    watcher.is_limited = false;
    assert!(!watcher.follow(Path::new("one more")).unwrap());
    assert!(!watcher.follow(Path::new("one more")).unwrap());
    assert_eq!(kinds(&out), [EventType::Limit, EventType::Limit]);
}

#[test]
fn an_overflow_is_an_event_and_new_directories_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let mut watcher = silent(dir.path(), &mut out);
    fs::create_dir(dir.path().join("lost")).unwrap();
    let overflow = Notice {
        watch: -1,
        mask: libc::IN_Q_OVERFLOW,
        name: "".into(),
    };
    watcher.notice(&overflow).unwrap();
    assert_eq!(watcher.watches.len(), 2);
    assert_eq!(kinds(&out), [EventType::Overflow]);
}
