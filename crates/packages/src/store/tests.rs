//! Tests of the store.

use super::*;

const NOW: SystemTime = UNIX_EPOCH;

fn digest(text: &str) -> Digest {
    Digest::of([text.as_bytes()])
}

fn interpreter(version: &str) -> Fingerprint {
    Fingerprint::of(&version).unwrap()
}

fn store(root: &Path, environments: usize) -> Store {
    let keep = Keep {
        environments,
        bytes: Bytes::mib(1),
    };
    Store::new(root.join("packages"), keep)
}

/// Publishes an environment of one file for the request of the same name.
fn publish(store: &Store, name: &str, bytes: u64) -> Checkout {
    let staging = store.begin().unwrap();
    fs::write(staging.site_packages().join("module.py"), name).unwrap();
    let tree = Tree {
        digest: digest(name),
        bytes,
        packages: vec![format!("{name}==1")],
    };
    let publication = Publication {
        request: digest(name),
        key: digest(&format!("key of {name}")),
        ecosystem: Ecosystem::Npm,
        interpreter: interpreter("3.11"),
    };
    store.publish(staging, &tree, &publication, NOW).unwrap()
}

fn listed(store: &Store) -> Vec<String> {
    let mut names: Vec<String> = store
        .list()
        .unwrap()
        .into_iter()
        .flat_map(|kept| kept.packages)
        .collect();
    names.sort();
    names
}

#[test]
fn an_environment_is_found_by_its_request_until_it_is_old() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    assert!(store.recent(&digest("a"), NOW).unwrap().is_none());
    let made = publish(&store, "a", 1);
    let found = store.recent(&digest("a"), NOW).unwrap().unwrap();
    assert_eq!(found.site_packages, made.site_packages);
    assert_eq!(
        fs::read_to_string(found.site_packages.join("module.py")).unwrap(),
        "a"
    );
    assert!(store.recent(&digest("b"), NOW).unwrap().is_none());
    assert!(store.recent(&digest("a"), NOW + MAX_AGE).unwrap().is_none());
    assert!(store.any(&digest("a")).unwrap().is_some());
}

#[test]
fn an_environment_is_opened_for_its_interpreter_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    let made = publish(&store, "a", 1);
    let of = |version| move |ecosystem| (ecosystem == Ecosystem::Npm).then(|| interpreter(version));
    let opened = store.open(&made.key, of("3.11")).unwrap();
    assert_eq!(opened, Some(made));
    let key = digest("key of a");
    assert!(matches!(
        store.open(&key, of("3.12")),
        Err(StoreError::Interpreter(Ecosystem::Npm))
    ));
    assert_eq!(store.open(&digest("none"), of("3.11")).unwrap(), None);
}

#[test]
fn the_same_content_is_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    drop(publish(&store, "a", 1));
    let again = publish(&store, "a", 1);
    assert_eq!(again.packages, ["a==1"]);
    assert_eq!(listed(&store), ["a==1"]);
    assert!(!dir.path().join("packages/installing").exists());
}

#[test]
fn what_a_killed_installation_left_is_never_used() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    let staging = store.begin().unwrap();
    let directory = dir.path().join("packages/installing");
    drop(staging);
    assert!(!directory.exists());
    fs::create_dir_all(directory.join("site-packages")).unwrap();
    fs::write(directory.join("site-packages/half.py"), "").unwrap();
    assert_eq!(listed(&store), [""; 0]);
    assert!(store.recent(&digest("a"), NOW).unwrap().is_none());
    let made = publish(&store, "a", 1);
    assert!(!made.site_packages.join("half.py").exists());
}

#[test]
fn the_one_used_longest_ago_goes_first_and_none_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 2);
    let used = publish(&store, "a", 1);
    drop(publish(&store, "b", 1));
    let aged = |name: &str, seconds: u64| {
        let lock = store.environment(&digest(&format!("key of {name}"))).join("lock");
        let file = OpenOptions::new().write(true).open(lock).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
            .unwrap();
    };
    aged("a", 1);
    aged("b", 2);
    let third = publish(&store, "c", 1);
    assert_eq!(listed(&store), ["a==1", "c==1"]);
    drop((used, third));
    // The size counts, too; what was published is in use.
    let _large = publish(&store, "large", Bytes::mib(1).0);
    assert_eq!(listed(&store), ["large==1"]);
    assert_eq!(
        names(&dir.path().join("packages/requests")).unwrap(),
        [digest("large")]
    );
}

#[test]
fn an_environment_in_use_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    let used = publish(&store, "a", 1);
    let key = digest("key of a");
    assert_eq!(store.remove(&key).unwrap(), Removal::InUse);
    assert!(used.site_packages.exists());
    drop(used);
    assert_eq!(store.remove(&key).unwrap(), Removal::Removed);
    assert_eq!(store.remove(&key).unwrap(), Removal::Removed);
    assert!(store.recent(&digest("a"), NOW).unwrap().is_none());
}

#[test]
fn a_removal_that_was_cut_off_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    drop(publish(&store, "a", 1));
    let directory = store.environment(&digest("key of a"));
    fs::remove_file(directory.join(RECORD)).unwrap();
    assert!(store.recent(&digest("a"), NOW).unwrap().is_none());
    drop(publish(&store, "b", 1));
    assert!(!directory.exists());
}

#[test]
fn an_environment_with_a_damaged_record_is_installed_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    drop(publish(&store, "a", 1));
    let record = store.environment(&digest("key of a")).join(RECORD);
    fs::write(record, "damaged").unwrap();
    assert!(store.recent(&digest("a"), NOW).unwrap().is_none());
    let again = publish(&store, "a", 1);
    assert_eq!(again.packages, ["a==1"]);
}

#[test]
fn others_do_not_enter() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    let made = publish(&store, "a", 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path().join("packages")), 0o700);
    assert_eq!(mode(&made.site_packages), 0o755);
    assert_eq!(mode(made.site_packages.parent().unwrap()), 0o700);
}
