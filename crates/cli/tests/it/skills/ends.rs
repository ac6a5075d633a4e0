//! Calls in progress when their evaluation or container ends.

use std::process::{Child, Stdio};

use serde_json::Value;

use super::places::{Place, play};
use super::put;
use crate::containers::engines;
use crate::support::{eventually, finish};
use crate::world::World;

#[test]
fn calls_belong_to_the_evaluation_that_is_under_way() {
    play(Place::session(), |place| {
        let code = "
import threading
add, told, begun = device.Probe.add, [], threading.Event()
def call():
    begun.set()
    for act in (lambda: device.Pace.nap(60), lambda: add(1)):
        try: told.append(act())
        except ConnectionError as error: told.append(str(error))
thread = threading.Thread(target=call)
thread.start()
print(add(1), begun.wait())
";
        assert_eq!(place.run("60s", code).stdout(), "2 True\n");
        let without = place
            .world
            .json(["--session", "s", "-c", "thread.join(); print(*told, sep='\\n')"]);
        let told: Vec<&str> = without.stdout().lines().collect();
        let refused = |line: &&&str| line.contains("evaluation");
        assert_eq!(told.iter().filter(refused).count(), 2, "{without:#?}");
        // References to `device` in the session still work.
        let kept = place.run("60s", "print(add(2), device.Probe.add(3))");
        assert_eq!(kept.stdout(), "3 4\n", "{kept:#?}");
    });
}

#[test]
fn a_variable_of_that_name_is_the_codes_own() {
    play(Place::session(), |place| {
        assert_eq!(place.run("60s", "device = 'cuda'").stdout(), "");
        assert_eq!(place.run("60s", "print(device)").stdout(), "cuda\n");
        assert_eq!(place.run("60s", "del device").get("meta.outcome"), "exited");
        place.is_well();
    });
}

#[test]
fn a_fork_of_a_session_has_bridges_of_its_own() {
    play(Place::session(), |place| {
        assert_eq!(
            place.run("60s", "add = device.Probe.add; print(add(1))").stdout(),
            "2\n"
        );
        let mut fork = place.world.command(&[], ["session", "fork", "s", "t"]);
        finish(&mut fork, b"").ok();
        let own = ["--skills", "skills", "--session", "t", "-c"];
        let run = place
            .world
            .json([&own[..], &["print(add(2), device.Probe.add(3))"]].concat());
        assert_eq!(run.stdout(), "3 4\n", "{run:#?}");
        place.is_well();
    });
}

#[test]
fn a_call_under_way_is_told_as_such_when_its_container_dies() {
    let Some(engine) = engines().into_iter().find(|engine| engine.name == "docker") else {
        return;
    };
    play(Place::docker(), |place| {
        let world = &place.world;
        put(&world.dir, "probe.toml", "[policy]\n'Probe.add' = 'ask'\n");
        let args = [
            "run",
            "--runtime",
            "docker",
            "--skills",
            "skills",
            "--timeout",
            "60s",
            "--json",
        ];
        let mut running = world
            .command(&[], args)
            .args(["-c", "device.Probe.add(41)"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        world.watch(running.id());
        // The question is pending, so the call is in progress.
        eventually("the question is there", || questions(world) == 1);
        let container = engine.running(running.id());
        let name = container[0].split(' ').next().unwrap();
        finish(engine.dir.program("docker").args(["kill", name]), b"").ok();
        let result = result(&mut running);
        assert_eq!(result["meta"]["outcome"], "signalled", "{result:#}");
        let audit = std::fs::read_to_string(world.dir.path("state/ringfence/audit/audit.jsonl")).unwrap();
        let record = audit.lines().find(|line| line.contains("device.Probe.add"));
        assert!(
            record.is_some_and(|record| record.contains("\"cancelled\"")),
            "{audit}"
        );
    });
}

/// Other programs of the container cannot access the process that holds a program's bridge; otherwise they
/// could steal it.
#[test]
fn the_bridge_of_another_program_in_the_container_cannot_be_taken() {
    // Prints the name of each other process whose descriptors can be opened.
    let look = "
import os
for pid in os.listdir('/proc'):
    if pid.isdigit() and int(pid) != os.getpid():
        try:
            os.stat(f'/proc/{pid}/fd/0')
            print(open(f'/proc/{pid}/comm').read().strip())
        except OSError:
            pass
";
    play(Place::kept(), |place| {
        let world = &place.world;
        let open = || -> Vec<String> {
            place
                .run("60s", look)
                .stdout()
                .lines()
                .map(str::to_owned)
                .collect()
        };
        let mut without = place.begin_in("bash", "300s", "exec sleep 300");
        eventually("a program without a bridge can be looked into", || {
            open() == ["sleep"]
        });
        put(&world.dir, "probe.toml", "[policy]\n'Probe.add' = 'ask'\n");
        let mut with = place.begin("300s", "device.Probe.add(41)");
        eventually("the question is there", || questions(world) == 1);
        assert_eq!(open(), ["sleep"]);
        for program in [&mut without, &mut with] {
            program.kill().unwrap();
            program.wait().unwrap();
        }
    });
}

/// Returns the number of pending questions.
pub(super) fn questions(world: &World) -> usize {
    let listed = finish(&mut world.command(&[], ["approvals", "ls", "--json"]), b"");
    let listed: Value = serde_json::from_str(listed.ok()).unwrap();
    listed.as_array().map_or(0, Vec::len)
}

fn result(running: &mut Child) -> Value {
    let printed = std::io::read_to_string(running.stdout.take().unwrap()).unwrap();
    running.wait().unwrap();
    serde_json::from_str(&printed).unwrap()
}
