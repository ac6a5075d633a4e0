//! Snapshots: what they keep, and what they leave out.

use tokio::sync::mpsc;

use super::transfer::Piece;
use super::*;

fn info(name: Option<&str>) -> SnapshotInfo {
    SnapshotInfo {
        id: SandboxId::random().unwrap(),
        name: name.map(|name| name.parse().unwrap()),
        sandbox: SandboxId::random().unwrap(),
        created_at: rfc3339(SystemTime::now()),
        size: 0,
        memory_limit: 1,
        disk_limit: 1,
        cpu_limit: Some(0.5),
        skipped: 0,
        not_copied: Vec::new(),
        image: None,
        fence: None,
        user: None,
        template: None,
    }
}

/// Writes a snapshot of these pieces; without its end if it is cut.
fn write(store: &SnapshotStore, owner: &Scope, info: SnapshotInfo, end: bool) -> Result<SnapshotInfo, Error> {
    let (sender, received) = mpsc::channel(4);
    let unfinished = Unfinished::begin(store, owner, info, false)?;
    sender.try_send(Piece::Bytes(vec![7; 1000])).ok();
    if end {
        sender.try_send(Piece::End { skipped: 2 }).ok();
    }
    drop(sender);
    unfinished.write(received)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_is_there_again_after_a_restart() {
    use std::os::unix::fs::MetadataExt;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("snapshots");
    let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    let store = SnapshotStore::open(&path).unwrap();
    let made = write(&store, &ann, info(Some("base")), true).unwrap();
    assert_eq!((made.size, made.skipped), (1000, 2));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    for name in names(&path) {
        let mode = fs::metadata(path.join(&name)).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    let again = SnapshotStore::open(&path).unwrap();
    assert_eq!(again.list(&ann), std::slice::from_ref(&made));
    assert_eq!(again.get(&ann, "base").unwrap(), made);
    for foreign in ["base", made.id.as_str()] {
        assert!(matches!(again.get(&bob, foreign), Err(Error::NoSnapshot(_))));
        assert!(again.remove(&bob, foreign).is_err());
    }
    let taken = write(&again, &ann, info(Some("base")), true).unwrap_err();
    assert!(matches!(taken, Error::SnapshotTaken(_)), "{taken}");
    write(&again, &bob, info(Some("base")), true).unwrap();
    again.remove(&ann, "base").unwrap();
    assert_eq!(again.list(&ann), []);
    assert_eq!(names(&path).len(), 2, "those of the other owner");
}

#[test]
fn what_is_broken_off_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(dir.path()).unwrap();
    let ann: Scope = "ann".parse().unwrap();
    write(&store, &ann, info(None), false).unwrap_err();
    assert_eq!(names(dir.path()), [""; 0]);
    // A full disk: every write to this device is refused.
    let (sender, received) = mpsc::channel(4);
    sender.try_send(Piece::Bytes(vec![0; 10])).ok();
    let unfinished = Unfinished::begin(&store, &ann, info(None), false).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let error = unfinished.write_to(full, received).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::LimitExceeded, "{error}");
    assert_eq!(lock(&store.index).of(None).count(), 0);
    // The owner is removed when all is written, and the next one of the name finds nothing.
    let (sender, received) = mpsc::channel(4);
    let unfinished = Unfinished::begin(&store, &ann, info(None), false).unwrap();
    store.clear(&ann).unwrap();
    sender.try_send(Piece::End { skipped: 0 }).ok();
    let error = unfinished.write(received).unwrap_err();
    assert!(error.to_string().contains(BROKEN_OFF), "{error}");
    assert_eq!((store.list(&ann), names(dir.path())), (Vec::new(), Vec::new()));
    // What a server that was killed leaves.
    let made = write(&store, &ann, info(None), true).unwrap();
    for left in ["a.tar", "b.tar.part", "c.json.part"] {
        fs::write(dir.path().join(left), "x").unwrap();
    }
    // One whose archive is not what its record says.
    let cut = write(&store, &ann, info(None), true).unwrap();
    fs::write(archive_path(dir.path(), &cut.id), "short").unwrap();
    // A later version's is left alone.
    let record = |version: u32| format!(r#"{{"version":{version},"owner":"ann"}}"#);
    fs::write(dir.path().join("later.json"), record(VERSION + 1)).unwrap();
    fs::write(dir.path().join("later.tar"), "x").unwrap();
    let again = SnapshotStore::open(dir.path()).unwrap();
    assert_eq!(again.list(&ann), std::slice::from_ref(&made));
    let mut left = [format!("{}.json", made.id), format!("{}.tar", made.id)].to_vec();
    left.extend(["later.json", "later.tar"].map(str::to_owned));
    left.sort();
    assert_eq!(names(dir.path()), left);
}

/// Keeps a build of a template with these tags.
fn build(store: &SnapshotStore, owner: &Scope, tags: &[&str]) -> SnapshotInfo {
    let (sender, received) = mpsc::channel(4);
    let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
    let template = Template {
        tags: new_tags(tags).unwrap(),
        ..Template::default()
    };
    let info = SnapshotInfo {
        template: Some(template),
        ..info(Some("tools"))
    };
    let unfinished = Unfinished::begin(store, owner, info, true).unwrap();
    sender.try_send(Piece::End { skipped: 0 }).ok();
    unfinished.write(received).unwrap()
}

#[test]
fn a_snapshot_with_a_user_is_unknown_to_older_servers() {
    let dir = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(dir.path()).unwrap();
    let ann: Scope = "ann".parse().unwrap();
    let version = |info: &SnapshotInfo| {
        let text = fs::read(record_path(dir.path(), &info.id)).unwrap();
        serde_json::from_slice::<Record>(&text).unwrap().version
    };
    let one = build(&store, &ann, &[]);
    assert!(version(&one) < WITHOUT_USER);
    let with_user = SnapshotInfo {
        user: Some("ada".to_owned()),
        ..one
    };
    store.write_record(&ann, &with_user).unwrap();
    assert_eq!(version(&with_user), VERSION);
    assert_eq!(SnapshotStore::open(dir.path()).unwrap().list(&ann), [with_user]);
}

#[test]
fn no_record_is_written_that_could_not_be_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(dir.path()).unwrap();
    let ann = Scope::local();
    let with_start = |length: usize| SnapshotInfo {
        template: Some(Template {
            start: Some("x".repeat(length)),
            ..Template::default()
        }),
        ..build(&store, &ann, &[])
    };
    store
        .write_record(&ann, &with_start(MAX_RECORD as usize / 2))
        .unwrap();
    let error = store
        .write_record(&ann, &with_start(MAX_RECORD as usize))
        .unwrap_err();
    assert!(error.to_string().contains("at most 64KiB"), "{error}");
}

#[test]
fn builds_of_one_name_have_tags_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("snapshots");
    let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    let store = SnapshotStore::open(&path).unwrap();
    let one = build(&store, &ann, &["v1", "Stable"]);
    let two = build(&store, &ann, &[]);
    let foreign = build(&store, &bob, &["v1"]);
    let id_of = |store: &SnapshotStore, name: &str| store.get(&ann, name).ok().map(|info| info.id);
    let tags = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
    for store in [&store, &SnapshotStore::open(&path).unwrap()] {
        assert_eq!(id_of(store, "tools:v1"), Some(one.id.clone()));
        assert_eq!(id_of(store, one.id.as_str()), Some(one.id.clone()));
        assert_eq!(id_of(store, "tools"), Some(two.id.clone()));
        assert_eq!(id_of(store, "tools:v2"), None);
    }
    assert_eq!(store.builds(&ann, "tools").unwrap(), [one.clone(), two.clone()]);
    // A tag changes from one build to another; one that has none left goes.
    let moved = store
        .assign_tags(&ann, "tools", &tags(&["stable", "v2"]))
        .unwrap();
    assert_eq!(moved.id, two.id);
    assert_eq!(id_of(&store, "tools:stable"), Some(two.id.clone()));
    assert_eq!(id_of(&store, "tools:v1"), Some(one.id.clone()));
    store
        .remove_tags(&ann, one.id.as_str(), &tags(&["v1", "unknown"]))
        .unwrap();
    assert_eq!(id_of(&store, one.id.as_str()), None);
    let again = SnapshotStore::open(&path).unwrap();
    assert_eq!(again.list(&ann), [moved]);
    let three = build(&store, &ann, &["default", "v2", "stable"]);
    assert_eq!(store.builds(&ann, "tools").unwrap(), [three]);
    assert_eq!(store.builds(&bob, "tools").unwrap(), [foreign]);
    assert!(store.assign_tags(&bob, two.id.as_str(), &tags(&["x"])).is_err());
    let many: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = store.assign_tags(&ann, "tools", &tags(&many)).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::LimitExceeded, "{error}");
}

#[test]
fn owners_have_a_number_of_snapshots_and_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(dir.path()).unwrap();
    let ann: Scope = "ann".parse().unwrap();
    let all: Vec<Unfinished> = (0..MAX_OF_SCOPE)
        .map(|_| Unfinished::begin(&store, &ann, info(None), false).unwrap())
        .collect();
    let error = Unfinished::begin(&store, &ann, info(None), false).err().unwrap();
    assert!(matches!(error, Error::TooManySnapshots(MAX_OF_SCOPE)), "{error}");
    Unfinished::begin(&store, &"bob".parse().unwrap(), info(None), false).unwrap();
    let large = SnapshotInfo {
        size: MAX_BYTES_OF_SCOPE.0 + 1,
        ..all[0].info.clone()
    };
    let error = store.count_bytes(&ann, &large).unwrap_err();
    assert!(matches!(error, Error::SnapshotsFull(_)), "{error}");
    drop(all);
    Unfinished::begin(&store, &ann, info(None), false).unwrap();
}
