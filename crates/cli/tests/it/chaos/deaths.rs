//! Processes killed under load.

use super::storm::{CallBehaviour, Fate, Storm};
use super::{Setting, until};
use crate::leftovers::processes;

/// Minimum number of calls waiting in the container at the kill.
const STRUCK: usize = 10;

fn unknown(behaviour: CallBehaviour, fate: Fate) -> bool {
    (behaviour, fate) == (CallBehaviour::Waiting, Fate::Unknown)
}

fn success(_: CallBehaviour, fate: Fate) -> bool {
    fate == Fate::Success
}

/// Checks the fates of calls whose container, or a process above it, was killed.
#[track_caller]
fn struck(fates: &super::storm::Fates) {
    assert!(
        fates.count(unknown) >= STRUCK && fates.count(success) >= 5,
        "{fates:?}"
    );
}

fn engine(setting: Setting) {
    let storm = Storm::begin(&setting);
    let container = setting.container();
    setting.world.stop_engine("KILL");
    let fates = storm.ended();
    // Later callers fall back to their own process.
    let broken = fates.count(|behaviour, fate| (behaviour, fate) == (CallBehaviour::Waiting, Fate::Error));
    assert!(broken >= STRUCK && fates.count(success) >= 5, "{fates:?}");
    setting.goes_on(&container);
}

/// Kills a process above the container of a hundred calls, found from the container's first process.
fn strike(setting: Setting, victim: impl FnOnce(u32) -> u32) {
    let storm = Storm::begin(&setting);
    let container = setting.container();
    setting.signal("-KILL", victim(container.pid));
    struck(&storm.ended());
    setting.replaces(&container);
    setting.goes_on(&container);
}

/// Returns the parent of a process, which must run this program.
#[track_caller]
fn parent(pid: u32, program: &str) -> u32 {
    let all = processes();
    let child = all.iter().find(|process| process.pid == pid).unwrap();
    let parent = all.iter().find(|process| process.pid == child.parent).unwrap();
    assert!(parent.command.contains(program), "{parent:?}");
    parent.pid
}

#[test]
fn the_engine() {
    engine(Setting::new());
}

#[test]
fn the_engine_over_podman() {
    engine(Setting::with_podman());
}

#[test]
fn the_init_of_a_container() {
    strike(Setting::new(), |init| init);
}

#[test]
fn the_init_of_a_container_of_podman() {
    strike(Setting::with_podman(), |init| init);
}

#[test]
fn the_shim_of_a_container() {
    strike(Setting::new(), |init| parent(init, "containerd-shim"));
}

#[test]
fn the_monitor_of_a_container_of_podman() {
    strike(Setting::with_podman(), |init| parent(init, "conmon"));
}

#[test]
fn the_docker() {
    let setting = Setting::with_daemon();
    let storm = Storm::begin(&setting);
    let container = setting.container();
    setting.daemon().unwrap().kill();
    struck(&storm.ended());
    setting.refused("Docker daemon not available");
    setting.daemon().unwrap().again(&setting.world);
    setting.replaces(&container);
    setting.goes_on(&container);
}

#[test]
fn the_service_of_podman() {
    let setting = Setting::with_podman();
    let storm = Storm::begin(&setting);
    let container = setting.container();
    setting.podman().unwrap().kill();
    struck(&storm.ended());
    setting.refused("Podman service not available");
    setting.podman().unwrap().again(&setting.world);
    setting.replaces(&container);
    setting.goes_on(&container);
}

/// Docker restarts containerd. Calls may survive that or not, but each is reported correctly.
#[test]
fn the_containerd_of_docker() {
    let setting = Setting::with_daemon();
    let storm = Storm::begin(&setting);
    let container = setting.container();
    let daemon = setting.daemon().unwrap().pid();
    let all = processes();
    let containerd = all.iter().find(|process| process.parent == daemon).unwrap();
    assert!(containerd.command.contains("containerd"), "{containerd:?}");
    setting.signal("-KILL", containerd.pid);
    let fates = storm.ended();
    assert!(fates.count(success) >= 5, "{fates:?}");
    until("containers are made again", || setting.works());
    setting.goes_on(&container);
}

#[test]
fn those_who_ask() {
    let setting = Setting::new();
    setting.goes_well();
    let container = setting.container();
    let idle = container.processes();
    let mut storm = Storm::begin(&setting);
    storm.kill(CallBehaviour::Waiting);
    until("the others end, and nothing runs for the dead", || {
        storm.running() == 0 && container.processes() <= idle
    });
    let fates = storm.ended();
    assert_eq!(fates.count(Fate::is_as_ever), 80, "{fates:?}");
    setting.goes_on(&container);
}
