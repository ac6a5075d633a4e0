//! The three situations: the result reports exactly the applied layers, and a missing one refuses the run if
//! required.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::finish;
use crate::world::{Mode, Place, Run, World, play};

const NAMESPACES: [&str; 7] = [
    "user_ns",
    "pid_ns",
    "mount_ns",
    "net_ns",
    "ipc_ns",
    "uts_ns",
    "cgroup_ns",
];

fn in_every_mode(place: Place, scenario: impl Fn(&World)) {
    for mode in [Mode::OneShot, Mode::Engine] {
        play(World::new(mode, place), &scenario);
    }
}

/// Prints a program's own view of its fence, to compare with the result.
const LOOK: &str = "import os, socket\nstatus = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)\n\
                    print(status['Seccomp'].strip(), status['NoNewPrivs'].strip(), int(status['CapEff'], 16), int(status['CapBnd'], 16), os.getuid())";

/// Control groups of a world's runs: with or without effect.
#[derive(Clone, Copy, PartialEq)]
enum Groups {
    Hold,
    Lack,
}

/// Asserts that a result claims no limit and no figure that was neither enforced nor measured.
#[track_caller]
fn claims_what_holds(run: &Run, groups: Groups) {
    let limits = run.get("meta.resource_limits");
    let held = |value: &Value| assert_eq!(value.is_null(), groups == Groups::Lack, "{run:?}");
    held(&limits["memory_bytes"]);
    held(&limits["cpus"]);
    held(run.get("meta.peak_memory_bytes"));
    let group = run.get("meta.isolation.cgroup");
    assert_eq!(*group == false, groups == Groups::Lack, "{run:?}");
    assert_eq!(
        (&limits["pids"], &limits["disk_bytes"]),
        (&json!(64), &json!(64 << 20))
    );
    let warned = run.get("meta.warnings").to_string();
    let told = "not all limits hold for the run as a whole: there are no control groups here, so each process may use \
                256MiB of memory and 31 s of processor time";
    assert_eq!(warned.contains(told), groups == Groups::Lack, "{warned}");
}

#[track_caller]
fn fenced_by_namespaces(world: &World, groups: Groups) {
    for language in ["python", "bash", "javascript"] {
        let run = world.json([
            "-l",
            language,
            "-c",
            if language == "javascript" { "1" } else { "" },
        ]);
        run.ended("exited", 0, 0);
        let isolation = run.get("meta.isolation");
        for namespace in NAMESPACES {
            assert_eq!(isolation[namespace], true, "{language} {namespace}: {isolation}");
        }
        assert_eq!(isolation["seccomp"], "fence", "{language}");
        assert_eq!(
            (&isolation["no_new_privs"], &isolation["capabilities_dropped"]),
            (&json!(true), &json!(true))
        );
        claims_what_holds(&run, groups);
        let warnings = run.get("meta.warnings").as_array().map_or(0, Vec::len);
        assert_eq!(warnings, usize::from(groups == Groups::Lack), "{run:?}");
    }
    assert_eq!(world.python(LOOK), "2 1 0 0 1000\n");
    let required = world.run(["--isolation", "required", "-c", "print(1)"]);
    match groups {
        Groups::Hold => assert_eq!(required.ok(), "1\n"),
        Groups::Lack => {
            required.refused(
                125,
                "isolation is required, but no control group here can limit memory and processor time",
            );
            // A run that asks for no limit gets no warning about it.
            assert_eq!(world.run(["-c", "print(1)"]).stderr, "");
            let limited = world.run(["--memory", "64MiB", "-c", "print(1)"]);
            assert!(
                limited.stderr.contains("warning: not all limits hold"),
                "{limited:?}"
            );
        }
    }
    world.run(["--isolation", "best-effort", "-c", "1"]).ok();
}

#[test]
fn here_every_layer_holds() {
    in_every_mode(Place::Here, |world| fenced_by_namespaces(world, Groups::Hold));
}

#[test]
fn an_ordinary_user_has_every_layer_but_control_groups() {
    in_every_mode(Place::User, |world| fenced_by_namespaces(world, Groups::Lack));
}

/// Without control groups a run's processor time is limited for each process; what lasts longer than a run would be
/// killed by that.
#[test]
fn sessions_and_sandboxes_have_no_limit_of_processor_time() {
    play(World::new(Mode::Engine, Place::User), |world| {
        let of_a_run = world.json(["-l", "bash", "-c", "ulimit -t"]);
        assert_eq!(of_a_run.stdout(), "31\n", "{of_a_run:?}");
        let code = "import resource; print(resource.getrlimit(resource.RLIMIT_CPU))";
        let of_a_session = world.json(["--session", "lab", "-c", code]);
        assert_eq!(of_a_session.stdout(), "(-1, -1)\n", "{of_a_session:?}");
        let warned = of_a_session.get("meta.warnings").to_string();
        assert!(warned.contains("any amount of processor time"), "{warned}");
        let ringfence = |args: &[&str]| finish(&mut world.command(&[], args), b"");
        ringfence(&["sandbox", "create", "--name", "lab"]).ok();
        let of_a_sandbox = ringfence(&["sandbox", "exec", "lab", "--", "bash", "-c", "ulimit -t"]);
        assert_eq!(of_a_sandbox.ok(), "unlimited\n");
    });
}

#[test]
fn an_ordinary_user_with_control_groups_has_every_layer() {
    play(World::new(Mode::OneShot, Place::User), |world| {
        let Some(groups) = Delegated::to(world.uid()) else {
            return eprintln!("skipped: this machine has no control groups of version 1 to hand to a user");
        };
        let run = groups.json(world, &["-c", "print(1)"]);
        claims_what_holds(&run, Groups::Hold);
        assert!(run.get("meta.warnings").is_null(), "{run:?}");
        let required = groups.json(world, &["--isolation", "required", "-c", "print(1)"]);
        required.ended("exited", 0, 0);
    });
}

/// Control groups that belong to an ordinary user.
struct Delegated(Vec<PathBuf>);

impl Delegated {
    fn to(uid: u32) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let name = format!("test-delegated-{}", std::process::id());
        let place = |controller: &str| {
            let line = own
                .lines()
                .find(|line| line.split(':').nth(1) == Some(controller))?;
            let group = line.splitn(3, ':').nth(2)?.trim_start_matches('/');
            let above = Path::new("/sys/fs/cgroup").join(controller).join(group);
            above.is_dir().then(|| above.join(&name))
        };
        let places: Option<Vec<_>> = ["memory", "pids", "cpu"].into_iter().map(place).collect();
        let delegated = Self(places?);
        for place in &delegated.0 {
            std::fs::create_dir(place).unwrap();
            for file in ["", "cgroup.procs", "tasks"] {
                std::os::unix::fs::chown(place.join(file), Some(uid), Some(uid)).unwrap();
            }
        }
        Some(delegated)
    }

    /// Runs `ringfence run --json` in these groups.
    fn json(&self, world: &World, args: &[&str]) -> Run {
        let enter = "while [ \"$1\" != -- ]; do echo $$ > \"$1/cgroup.procs\" || exit 99; shift; done; shift; exec \"$@\"";
        let inner = world.command(&[], ["run", "--no-engine", "--json"].iter().chain(args));
        let mut command = world.dir.program("sh");
        command.args(["-c", enter, "sh"]).args(&self.0).arg("--");
        command.arg(inner.get_program()).args(inner.get_args());
        Run::of(finish(&mut command, b""))
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for place in &self.0 {
            let _ = std::fs::remove_dir(place);
        }
    }
}

fn fenced_without_namespaces(world: &World) {
    let run = world.json(["-c", "print('in')"]);
    run.ended("exited", 0, 0);
    let isolation = run.get("meta.isolation");
    for namespace in NAMESPACES {
        assert_eq!(isolation[namespace], false, "{namespace}: {isolation}");
    }
    assert_eq!(
        (&isolation["seccomp"], &isolation["no_new_privs"]),
        (&json!("fence"), &json!(true))
    );
    assert!(isolation["landlock_abi"].as_u64().unwrap() > 0, "{isolation}");
    claims_what_holds(&run, Groups::Lack);
    assert!(
        run.get("meta.warnings")[0]
            .as_str()
            .unwrap()
            .contains("this machine forbids namespaces")
    );
    let seen = world.python(LOOK);
    assert!(seen.starts_with("2 1 0 "), "{seen}");
    assert!(!seen.ends_with(" 0\n"), "the program must not be root: {seen}");
    // No file of the container itself is accessible.
    let code = "for path in '/etc/shadow', '/root/x', '/proc/1/environ', '/var/lib/dpkg/status', '/tmp/x':\n    try:\n        \
                open(path, 'w' if path.endswith('x') else 'r')\n        print('opened', path)\n    except OSError:\n        pass";
    assert_eq!(world.python(code), "");
}

#[test]
fn in_a_container_the_other_layers_hold() {
    in_every_mode(Place::Container, fenced_without_namespaces);
    in_every_mode(Place::ContainerUser, fenced_without_namespaces);
}

#[test]
fn in_a_container_what_is_required_is_refused() {
    in_every_mode(Place::Container, |world| {
        world
            .run(["--isolation", "required", "-c", "print(1)"])
            .refused(125, "namespace");
        let configured = world.call(["-c", "print(1)"]);
        world.dir.write(
            "config/ringfence/ringfence.toml",
            "[sandbox]\nisolation = 'required'\n",
        );
        configured.output().refused(125, "namespace");
        world.run(["--isolation", "best-effort", "-c", "print(1)"]).ok();
    });
}

#[test]
fn without_a_fence_it_is_loud_and_says_so() {
    in_every_mode(Place::Here, |world| {
        // Wherever isolation is required, it is no way around.
        let refused = "isolation is required";
        let run = ["run", "--unfenced", "-c", "print(1)"];
        let variable = ("RINGFENCE_SANDBOX_ISOLATION".into(), "required".into());
        finish(&mut world.command(&[variable], run), b"").refused(125, refused);
        let file = world
            .dir
            .write("work/required.toml", "[sandbox]\nisolation = 'required'\n");
        let config = ["--config", file.to_str().unwrap()];
        finish(&mut world.command(&[], [&run[..], &config].concat()), b"").refused(125, refused);
        let output = world.run(["--unfenced", "-c", "import os; print(os.getuid())"]);
        let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
        assert_eq!(output.ok(), format!("{uid}\n"));
        assert!(output.stderr.contains("warning: running unfenced"), "{output:?}");
        let run = world.json([
            "--unfenced",
            "--timeout",
            "500ms",
            "-l",
            "bash",
            "-c",
            "sleep 1006 & sleep 1007",
        ]);
        run.ended("timed_out", -1, 124);
        let isolation = run.get("meta.isolation");
        for layer in NAMESPACES {
            assert_eq!(isolation[layer], false, "{layer}");
        }
        assert_eq!(
            (&isolation["seccomp"], &isolation["landlock_abi"]),
            (&json!(false), &json!(0))
        );
    });
}

#[test]
fn output_files_and_mounts_work_everywhere() {
    for place in [Place::User, Place::Container, Place::ContainerUser] {
        in_every_mode(place, |world| {
            let data = world.dir.write("work/data.txt", "given");
            std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
            // Without namespaces a mount can only appear at its host path.
            let guest = if world.container() {
                data.as_path()
            } else {
                std::path::Path::new("/data")
            };
            let mount = format!("{}:{}", data.display(), guest.display());
            let code = format!(
                "import os\ntext = open('{}').read()\nout = os.environ['RINGFENCE_OUTPUT']\nopen(out + '/copy', 'w').write(text)",
                guest.display()
            );
            let run = world.json(["--mount", &mount, "--output", "out", "-c", &code]);
            run.ended("exited", 0, 0);
            assert_eq!(
                std::fs::read_to_string(world.dir.path("work/out/copy")).unwrap(),
                "given"
            );
            if world.container() {
                let elsewhere = format!("{}:/data", data.display());
                world
                    .run(["--mount", &elsewhere, "-c", "1"])
                    .refused(125, "namespace");
            }
        });
    }
}
