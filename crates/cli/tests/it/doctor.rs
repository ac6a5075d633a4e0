//! `ringfence doctor`, in the situations of a machine.

use serde_json::Value;

use crate::containers::engines;
use crate::support::{Output, entries, finish};
use crate::world::{Mode, Place, World};

/// The layers in every report.
const LAYERS: &[&str] = &[
    "user namespace",
    "pid namespace",
    "mount namespace",
    "net namespace",
    "ipc namespace",
    "uts namespace",
    "cgroup namespace",
    "time namespace",
    "fresh /proc",
    "tmpfs",
    "id-mapped mount",
    "landlock",
    "seccomp",
    "no_new_privs",
    "pidfd",
    "vm.memfd_noexec",
    "control groups",
    "whole fence",
    "python",
    "bash",
    "javascript",
    "docker",
    "podman",
    "gvisor",
    "fence box",
    "pyodide",
    "pyodide wheels",
    "e2b",
    "state directory",
    "runtime directory",
];

/// Runs `ringfence doctor ARGS…` in a world.
fn doctor(world: &World, args: &[&str]) -> Output {
    finish(world.command(&[], ["doctor"]).args(args), b"")
}

/// Returns the JSON report, after checking its shape.
#[track_caller]
fn report(world: &World) -> Value {
    let output = doctor(world, &["--json"]);
    let report: Value = serde_json::from_str(output.ok()).unwrap();
    let layers = report["layers"].as_array().unwrap();
    let names: Vec<_> = layers
        .iter()
        .map(|layer| layer["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, LAYERS);
    for layer in layers {
        let status = layer["status"].as_str().unwrap();
        assert!(["ok", "missing", "info"].contains(&status), "{layer}");
        assert!(
            layer["detail"].as_str().is_some_and(|detail| !detail.is_empty()),
            "{layer}"
        );
        // A missing layer always has a fix, a working one never does.
        match status {
            "missing" => assert!(
                layer["fix"].as_str().is_some_and(|fix| !fix.is_empty()),
                "{layer}"
            ),
            "ok" => assert!(layer["fix"].is_null(), "{layer}"),
            _ => {}
        }
    }
    report
}

fn layer<'a>(report: &'a Value, name: &str) -> &'a Value {
    let layers = report["layers"].as_array().unwrap();
    layers.iter().find(|layer| layer["name"] == name).unwrap()
}

#[test]
fn a_container_engine_is_found_where_runs_find_it() {
    let world = World::here();
    let doctor = |host: &str| {
        let host = [("DOCKER_HOST".into(), host.into())];
        let output = finish(&mut world.command(&host, ["doctor", "--json"]), b"");
        let report: Value = serde_json::from_str(output.ok()).unwrap();
        layer(&report, "docker").clone()
    };
    let missing = doctor("unix:///no/such.sock");
    assert_eq!(missing["status"], "info", "{missing}");
    assert_eq!(missing["fix"], "Set SANDBOX_TYPE=local or start Docker daemon");
    for engine in engines() {
        if engine.name == "docker" {
            let found = doctor("unix:///var/run/docker.sock");
            assert_eq!(found["status"], "info", "{found}");
            assert_eq!(found["fix"], "ringfence setup image --engine docker");
            for words in [
                "at /var/run/docker.sock, makes containers with ",
                "is there, and not pinned",
            ] {
                assert!(found["detail"].as_str().unwrap().contains(words), "{found}");
            }
        }
    }
}

/// Doctor and runs look for Pyodide in the same directory.
#[test]
fn pyodide_is_told_of_where_runs_look_for_it() {
    let world = World::here();
    let missing = layer(&report(&world), "pyodide").clone();
    assert_eq!(missing["status"], "info", "{missing}");
    assert_eq!(missing["fix"], "run `ringfence setup deno`");
    let config = format!(
        "[skills.sandbox]\ndirectory = '{}'\n",
        crate::pyodide::installed().display()
    );
    world.dir.write("config/ringfence/ringfence.toml", &config);
    let found = layer(&report(&world), "pyodide").clone();
    assert_eq!(found["status"], "ok", "{found}");

    let wheels = world.dir.path("work/wheels");
    std::fs::create_dir(&wheels).unwrap();
    std::fs::write(wheels.join("a-1-py3-none-any.whl"), "").unwrap();
    world.dir.write(
        "config/ringfence/ringfence.toml",
        config + "packages = 'wheels'\n",
    );
    let usable = layer(&report(&world), "pyodide wheels").clone();
    assert_eq!(usable["status"], "ok", "{usable}");
    std::fs::write(wheels.join("b-1-cp313-cp313-win_amd64.whl"), "").unwrap();
    let refused = layer(&report(&world), "pyodide wheels").clone();
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("it is for cp313-cp313-win_amd64"), "{refused}");
}

/// Returns the isolation that a run of Python reports in the same world.
fn isolation(world: &World) -> Value {
    world.json(["-c", "print(1)"]).result["meta"]["isolation"].clone()
}

#[test]
fn the_situation_is_the_one_that_a_run_finds() {
    for place in [Place::Here, Place::User] {
        let Some(world) = World::new(Mode::OneShot, place) else {
            continue;
        };
        let (report, isolation) = (report(&world), isolation(&world));
        let situation = report["situation"].as_str().unwrap();
        let namespaces = matches!(situation, "root" | "user-namespace");
        assert_eq!(
            Value::from(namespaces),
            isolation["user_ns"],
            "{place:?}: {report:#}"
        );
        let whole = layer(&report, "whole fence")["status"] == "ok";
        let groups = layer(&report, "control groups")["status"] == "ok";
        assert_eq!(whole, namespaces && groups, "{place:?}: {report:#}");
        assert_eq!(groups, isolation["cgroup"].is_string(), "{place:?}: {report:#}");
        let can_be_root = layer(&report, "fence box")["status"] == "ok";
        assert_eq!(
            can_be_root,
            situation == "root" && groups,
            "{place:?}: {report:#}"
        );
        if place == Place::User {
            assert_ne!(situation, "root");
            let fix = layer(&report, "fence box")["fix"].as_str();
            assert!(
                fix.is_some_and(|fix| fix.contains("run the server as root")),
                "{report:#}"
            );
            assert_eq!(layer(&report, "id-mapped mount")["status"], "info");
        }
        assert_eq!(layer(&report, "python")["status"], "ok", "{place:?}: {report:#}");
    }
}

#[test]
fn a_default_container_is_told_of_the_filter_that_is_in_the_way() {
    let Some(world) = World::new(Mode::OneShot, Place::Container) else {
        return;
    };
    let report = report(&world);
    assert_eq!(report["situation"], "flat");
    assert_eq!(isolation(&world)["user_ns"], false);
    for name in ["user namespace", "mount namespace", "whole fence"] {
        let layer = layer(&report, name);
        assert_eq!(layer["status"], "missing", "{layer}");
        assert!(
            layer["detail"]
                .as_str()
                .unwrap()
                .contains("Operation not permitted"),
            "{layer}"
        );
        let fix = layer["fix"].as_str().unwrap();
        for words in ["--security-opt seccomp=", "systempaths=unconfined", "best effort"] {
            assert!(fix.contains(words), "{fix}");
        }
    }
    for name in ["landlock", "seccomp", "no_new_privs", "python"] {
        assert_eq!(layer(&report, name)["status"], "ok", "{report:#}");
    }
}

#[test]
fn without_a_python_a_default_run_fails_and_so_does_the_doctor() {
    let world = World::here();
    // A Python that is too old, or broken, counts as missing.
    let broken = world.dir.write("work/python3", "#!/bin/sh\nexit 3\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&broken, mode).unwrap();
    let config = format!("[sandbox]\npython = {:?}\n", broken.to_str().unwrap());
    world.dir.write("config/ringfence/ringfence.toml", config);
    let output = finish(&mut world.command(&[], ["doctor", "--json"]), b"");
    assert_eq!(output.status, 1, "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["situation"], "none");
    let python = layer(&report, "python");
    assert_eq!(python["status"], "missing");
    assert!(
        python["fix"].as_str().unwrap().contains("apt install python3"),
        "{python}"
    );
}

#[test]
fn pythons_that_were_passed_over_are_named_with_the_reason() {
    let world = World::here();
    let shim = world
        .dir
        .write("work/python3", "#!/bin/sh\necho no such version >&2\nexit 3\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&shim, mode).unwrap();
    let mut command = world.command(&[], ["doctor", "--json"]);
    command.env(
        "PATH",
        format!("{}:/usr/bin:/bin", world.dir.path("work").display()),
    );
    let report: Value = serde_json::from_str(finish(&mut command, b"").ok()).unwrap();
    let detail = layer(&report, "python")["detail"].as_str().unwrap().to_owned();
    let expected = format!(
        "passed over {}: it gave no answer: no such version",
        shim.display()
    );
    assert!(detail.contains(&expected), "{detail}");
    let rule = "the first usable `python3` on the PATH, programs before scripts";
    assert!(detail.contains(rule), "{detail}");
}

#[test]
fn people_get_aligned_lines_a_verdict_and_no_colours_but_on_a_terminal() {
    let world = World::here();
    let output = doctor(&world, &[]);
    let text = output.ok();
    assert!(!text.contains('\u{1b}'), "{text}");
    let columns: Vec<_> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with(' '))
        .map(|line| (line[..7].trim_end(), line[26..28].trim_end()))
        .collect();
    assert_eq!(columns.len(), LAYERS.len(), "{text}");
    assert!(
        columns
            .iter()
            .all(|(word, gap)| ["ok", "missing", "info"].contains(word) && gap.is_empty()),
        "{text}"
    );
    assert!(text.lines().last().unwrap().starts_with("verdict: "), "{text}");
    let coloured = finish(&mut world.command(&[], ["--color", "always", "doctor"]), b"");
    assert!(coloured.ok().contains("\u{1b}[32mok"), "{coloured:?}");
}

#[test]
fn a_state_directory_that_others_may_write_hides_no_layer() {
    let world = World::here();
    let state = world.dir.path("state/ringfence");
    std::fs::create_dir_all(&state).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&state, mode).unwrap();
    let report = report(&world);
    let refused = layer(&report, "state directory");
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        refused["status"] == "missing" && detail.contains("others may write to it"),
        "{refused}"
    );
    assert_eq!(layer(&report, "python")["status"], "ok", "{report:#}");
    assert_eq!(entries(&state), Vec::<String>::new());
}

#[test]
fn nothing_is_left_behind() {
    let world = World::here();
    doctor(&world, &[]).ok();
    assert_eq!(entries(&world.dir.path("tmp")), Vec::<String>::new());
    let state = entries(&world.dir.path("state/ringfence"));
    assert!(!state.iter().any(|name| name.starts_with("doctor-")), "{state:?}");
}
