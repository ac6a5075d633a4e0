//! Tests of usage: counts, quotas, and the file that keeps them.

use super::*;
use crate::api::{KeyForm, NewKey};
use ringfence_policy::{Language, Limits, Meta, Outcome, RuntimeKind};
use ringfence_sandbox::Consumption;
use std::os::unix::fs::PermissionsExt;

fn key(dir: &Path, tenant: Option<&str>) -> StoredKey {
    let new = NewKey {
        name: "ci".to_owned(),
        rights: "run".parse().unwrap(),
        days: None,
        quota: Quota::default(),
        tenant: tenant.map(|name| name.parse().unwrap()),
        form: KeyForm::Own,
    };
    KeyStore::below(dir).create(new).unwrap().1
}

fn account(dir: &Path) -> Account {
    Account::of(&key(dir, None))
}

fn used(cpu_seconds: f64) -> Figures {
    Figures {
        cpu_seconds,
        ..Figures::default()
    }
}

#[test]
fn usage_outlives_its_server_and_goes_with_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let late = key(dir.path(), None);
    let (one, other) = (account(dir.path()), Account::of(&late));
    let usage = Usage::open(dir.path()).unwrap();
    for id in [&one, &other] {
        usage.begin(id, &Quota::default()).unwrap();
        usage.add(&scope_of(id).unwrap(), used(1.5));
    }
    usage.add(&Scope::local(), used(100.0));
    usage.add(&"key-of-nobody".parse().unwrap(), used(100.0));
    usage.add(&scope_of(&one).unwrap(), used(f64::INFINITY));
    usage.save().unwrap();
    let path = dir.path().join("usage.json");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let usage = Usage::open(dir.path()).unwrap();
    let found = usage.of(&one);
    assert_eq!((found.today.runs, found.total.cpu_seconds), (1, 1.5));
    usage.remove(&one).unwrap();
    assert_eq!(
        Usage::open(dir.path()).unwrap().of(&one),
        KeyUsage {
            day: today(),
            ..KeyUsage::default()
        }
    );
    // What comes in late does not bring it back, once its key is gone.
    let keys = KeyStore::below(dir.path());
    keys.revoke(&late.id).unwrap();
    keys.remove(&keys.ended(&late.id).unwrap()).unwrap();
    usage.add(&scope_of(&other).unwrap(), used(1.0));
    usage.begin(&one, &Quota::default()).unwrap();
    usage.save().unwrap();
    let kept = Usage::open(dir.path()).unwrap().all();
    assert_eq!(kept.keys().collect::<Vec<_>>(), [one.as_str()]);
}

#[test]
fn keys_of_a_tenant_use_one_account_that_goes_with_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let usage = Usage::open(dir.path()).unwrap();
    let keys = [key(dir.path(), Some("team")), key(dir.path(), Some("team"))];
    let account = Account::of(&keys[0]);
    assert_eq!(account, Account::of(&keys[1]));
    let quota = Quota {
        cpu_seconds: Some(2),
        ..Quota::default()
    };
    usage.add(&scope_of(&account).unwrap(), used(2.0));
    assert!(usage.check(&account, &quota).is_err());
    let shown = usage.report(Some(&keys[1].id)).unwrap().keys;
    assert_eq!((shown.len(), shown[0].today.cpu_seconds), (1, 2.0));

    let store = KeyStore::below(dir.path());
    for (key, left) in keys.iter().zip([2.0, 0.0]) {
        store.revoke(&key.id).unwrap();
        usage.remove_with(key).unwrap();
        store.remove(key).unwrap();
        assert_eq!(usage.of(&account).total.cpu_seconds, left);
    }
}

#[test]
fn a_quota_holds_for_a_day() {
    let dir = tempfile::tempdir().unwrap();
    let usage = Usage::open(dir.path()).unwrap();
    let quota = Quota {
        cpu_seconds: Some(2),
        runs: Some(2),
        memory_gib_seconds: Some(3),
        egress_bytes: Some(1000),
        sandboxes: None,
    };
    let id = account(dir.path());
    usage.begin(&id, &quota).unwrap();
    usage.begin(&id, &quota).unwrap();
    let runs = Exceeded::Runs { used: 2, quota: 2 };
    assert_eq!(usage.begin(&id, &quota), Err(runs.clone()));
    assert_eq!(usage.check(&id, &quota), Err(runs));
    usage.take_back(&id);
    usage.add(&scope_of(&id).unwrap(), used(2.0));
    let processor = Exceeded::Processor { used: 2.0, quota: 2 };
    assert_eq!(usage.begin(&id, &quota), Err(processor));
    usage.begin(&id, &Quota::default()).unwrap();
    usage.lock().used.get_mut(id.as_str()).unwrap().today.cpu_seconds = 0.0;
    usage.take_back(&id);
    let of_sandboxes = |gib: u32| {
        Figures::of_sandboxes(&Consumption {
            memory_byte_seconds: f64::from(gib) * f64::from(1 << 30),
            ..Consumption::default()
        })
    };
    usage.add(&scope_of(&id).unwrap(), of_sandboxes(2));
    usage.check(&id, &quota).unwrap();
    usage.add(&scope_of(&id).unwrap(), of_sandboxes(1));
    let memory = Exceeded::Memory { used: 3.0, quota: 3 };
    assert_eq!(usage.check(&id, &quota), Err(memory));
    usage
        .lock()
        .used
        .get_mut(id.as_str())
        .unwrap()
        .today
        .memory_gib_seconds = 0.0;
    usage.count(&scope_of(&id).unwrap(), 1000);
    let egress = usage.begin(&id, &quota).unwrap_err().to_string();
    assert_eq!(
        egress,
        "the quota of the key is used up: 1000B of 1000B of egress today"
    );
    usage.begin(&id, &Quota::default()).unwrap();
    usage.lock().used.get_mut(id.as_str()).unwrap().day -= 1;
    usage.begin(&id, &quota).unwrap();
    let found = usage.of(&id);
    assert_eq!((found.today.runs, found.total.runs), (1, 3));
    assert!((1..=DAY).contains(&seconds_left()));
}

#[test]
fn no_file_of_another_form_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let check = |text: &str, expected: &str| {
        fs::write(dir.path().join("usage.json"), text).unwrap();
        let error = Usage::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check("", "not a record of usage");
    check("{}", "has no version");
    check(r#"{"version": 2, "keys": {}}"#, "has the version 2");
    check(
        r#"{"version": 1, "keys": {"rf_1": {"day": -1}}}"#,
        "not a record of usage",
    );
}

#[test]
fn what_nobody_measured_counts_with_its_limits() {
    let check = |measured: Option<(f64, u64)>, expected: (f64, f64)| {
        let limits = Limits {
            memory: Bytes(1 << 30),
            cpus: "2".parse().unwrap(),
            ..Limits::DEFAULT
        };
        let meta = Meta {
            cpu_seconds: measured.map(|(cpu, _)| cpu),
            peak_memory_bytes: measured.map(|(_, peak)| peak),
            ..Meta::of(RuntimeKind::Docker, Language::Python, limits, Outcome::Unknown)
        };
        let used = Figures::of_run(&ExecutionResult {
            stdout: String::new(),
            stderr: String::new(),
            exit_code: 125,
            duration: 3.0,
            meta,
        });
        assert_eq!((used.cpu_seconds, used.memory_gib_seconds), expected);
    };
    check(Some((0.5, 1 << 29)), (0.5, 1.5));
    check(None, (6.0, 3.0));
}
