//! What is killed.

use super::storm::{Fate, Storm, Work};
use super::{Setting, until};
use crate::leftovers::processes;

/// At least so many calls wait in the container when it is struck.
const STRUCK: usize = 10;

fn unknown(work: Work, fate: Fate) -> bool {
    (work, fate) == (Work::Waiting, Fate::Unknown)
}

fn success(_: Work, fate: Fate) -> bool {
    fate == Fate::Success
}

#[test]
fn the_engine() {
    let setting = Setting::new();
    let storm = Storm::begin(&setting);
    let container = setting.container();
    setting.world.stop_engine("KILL");
    let fates = storm.ended();
    // Whoever asks from here on serves itself.
    let broken = fates.count(|work, fate| (work, fate) == (Work::Waiting, Fate::Error));
    assert!(broken >= STRUCK && fates.count(success) >= 5, "{fates:?}");
    setting.goes_on(&container);
}

/// Kills what holds the container of a hundred calls, which is found by the container's first process.
fn strike(victim: impl FnOnce(u32) -> u32) {
    let setting = Setting::new();
    let storm = Storm::begin(&setting);
    let container = setting.container();
    setting.signal("-KILL", victim(container.pid));
    let fates = storm.ended();
    assert!(
        fates.count(unknown) >= STRUCK && fates.count(success) >= 5,
        "{fates:?}"
    );
    setting.replaces(&container);
    setting.goes_on(&container);
}

#[test]
fn the_agent_of_a_container() {
    strike(|agent| agent);
}

#[test]
fn the_shim_of_a_container() {
    strike(|agent| {
        let all = processes();
        let first = all.iter().find(|process| process.pid == agent).unwrap();
        let shim = all.iter().find(|process| process.pid == first.parent).unwrap();
        assert!(shim.command.contains("containerd-shim"), "{shim:?}");
        shim.pid
    });
}

#[test]
fn the_docker() {
    let setting = Setting::with_daemon();
    let storm = Storm::begin(&setting);
    let container = setting.container();
    let daemon = setting.daemon.as_ref().unwrap();
    daemon.kill();
    let fates = storm.ended();
    assert!(
        fates.count(unknown) >= STRUCK && fates.count(success) >= 5,
        "{fates:?}"
    );
    setting.refused("Docker daemon not available");
    daemon.again(&setting.world);
    setting.replaces(&container);
    setting.goes_on(&container);
}

#[test]
fn those_who_ask() {
    let setting = Setting::new();
    setting.goes_well();
    let container = setting.container();
    let idle = container.processes();
    let mut storm = Storm::begin(&setting);
    storm.kill(Work::Waiting);
    until("the others end, and nothing runs for the dead", || {
        storm.running() == 0 && container.processes() <= idle
    });
    let fates = storm.ended();
    assert_eq!(fates.count(Fate::is_as_ever), 80, "{fates:?}");
    setting.goes_on(&container);
}
