//! Processes stopped, temporarily and for good.

use super::{Setting, until};
use serde_json::{Value, json};

use super::storm::{CallBehaviour, Fate, Storm};
use crate::support::eventually;

#[test]
fn a_container_that_stands_still_for_a_while_holds_up_nobody_else_and_loses_nothing() {
    let setting = Setting::new();
    let storm = Storm::begin(&setting);
    let container = setting.container();
    // On a busy machine runc gives up freezing processes that come and go, and leaves them running.
    eventually("the container stands still", || {
        setting.ask(&["pause", &container.id]).status == 0
    });
    assert_eq!(setting.world.python("print(6 * 7)"), "42\n");
    setting.ask(&["unpause", &container.id]).ok();
    let fates = storm.ended();
    assert_eq!(fates.count(Fate::is_as_ever), 100, "{fates:?}");
    setting.goes_on(&container);
}

#[test]
fn an_init_that_stands_still_for_good_is_given_up_with_its_container() {
    let setting = Setting::new();
    let storm = Storm::begin(&setting);
    let container = setting.container();
    setting.signal("-STOP", container.pid);
    let fates = storm.ended();
    let unknown = fates.count(|behaviour, fate| (behaviour, fate) == (CallBehaviour::Waiting, Fate::Unknown));
    let successes = fates.count(|_, fate| fate == Fate::Success);
    assert!(unknown >= 10 && successes >= 5, "{fates:?}");
    setting.replaces(&container);
    setting.goes_on(&container);
}

#[test]
fn a_docker_that_stands_still_holds_up_no_call_beyond_its_time() {
    let setting = Setting::with_daemon();
    setting.goes_well();
    let daemon = setting.daemon().unwrap();
    setting.signal("-STOP", daemon.pid());
    let call = |number| {
        let arguments = json!({"language": "python", "code": "print(1)", "timeout": 2});
        // The first user has a container already, the second none yet.
        let user = if number < 5 { "local" } else { "bob" };
        setting.begin(number, &arguments, &["--user", user])
    };
    let mut calls: Vec<_> = (0..10).map(call).collect();
    until("every call has ended", || {
        calls.iter_mut().all(|call| call.try_wait().unwrap().is_some())
    });
    for number in 0..calls.len() {
        let (stdout, stderr) = setting.printed(number);
        let printed: Value = serde_json::from_str(&stdout).unwrap();
        let message = printed["error"]["message"].as_str().unwrap_or_default();
        let told = printed["meta"]["outcome"] == "unknown" || message.contains("make a container");
        assert!(told, "{stdout}{stderr}");
    }
    setting.signal("-CONT", daemon.pid());
    setting.goes_well();
    until("what came too late is removed", || {
        setting.containers().len() == 1
    });
    let container = setting.container();
    setting.goes_on(&container);
}
