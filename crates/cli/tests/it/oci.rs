//! Containers under every OCI runtime: runc, crun and gVisor's runsc.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::containers::{Engine, engines};
use crate::support::{Dir, Output, eventually, finish};
use crate::world::skip;

/// The kernel version that a program sees under gVisor.
const GVISOR: &str = "4.4.0";

/// A container engine, and its OCI runtime.
struct Maker {
    engine: Engine,
    runtime: &'static str,
    /// Podman's service uses one OCI runtime for all its containers.
    service: Option<Service>,
}

/// A Podman service with its own OCI runtime.
struct Service {
    process: Child,
    address: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns every OCI runtime in every engine. In CI all are required.
fn makers() -> Vec<Maker> {
    let each = |engine: Engine| ["runc", "crun", "runsc"].map(|runtime| (engine.name, runtime));
    let all = engines().into_iter().flat_map(each);
    all.filter_map(|(name, runtime)| maker(name, runtime)).collect()
}

fn maker(name: &'static str, runtime: &'static str) -> Option<Maker> {
    let engine = Engine {
        name,
        dir: Dir::new(),
    };
    let Some(program) = registered(&engine.dir, runtime) else {
        return skip(&format!(
            "docker knows no {runtime} (`cargo xtask setup` adds it)"
        ));
    };
    let service = (name == "podman").then(|| serve(&engine.dir, runtime, &program));
    Some(Maker {
        engine,
        runtime,
        service,
    })
}

/// Returns the program of a runtime, as registered with Docker.
pub(crate) fn registered(dir: &Dir, runtime: &str) -> Option<String> {
    let format = "{{json .Runtimes}}";
    let info = finish(dir.program("docker").args(["info", "--format", format]), b"");
    let known: Value = serde_json::from_str(&info.stdout).ok()?;
    known[runtime]["path"].as_str().map(str::to_owned)
}

/// Starts a service that names its runtime in either of the two possible ways.
fn serve(dir: &Dir, runtime: &str, program: &str) -> Service {
    let socket = dir.path("podman.sock");
    let address = format!("unix://{}", socket.display());
    let mut command = dir.program("podman");
    if runtime == "crun" {
        let text = format!("[engine]\nruntime = '{runtime}'\n[engine.runtimes]\n{runtime} = ['{program}']\n");
        command.env("CONTAINERS_CONF", dir.write("containers.conf", text));
    } else {
        command.args(["--runtime", program]);
    }
    let process = command
        .env_remove("XDG_RUNTIME_DIR")
        .args(["system", "service", "--time=0", &address])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let service = Service { process, address };
    eventually("Podman's service answers", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    service
}

impl Maker {
    /// Runs a program, optionally with this disk limit.
    fn run_with(&self, disk: Option<&str>, args: &[&str]) -> Output {
        let first = ["run", "--runtime", self.engine.name];
        let mut command = self.engine.dir.command(first.iter().chain(args));
        command.env("RINGFENCE_SANDBOX_DOCKER_OCI_RUNTIME", self.runtime);
        if let Some(disk) = disk {
            command.env("RINGFENCE_SANDBOX_DISK", disk);
        }
        if let Some(service) = &self.service {
            command.env("CONTAINER_HOST", &service.address);
        }
        finish(&mut command, b"")
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        self.json_with(None, args)
    }

    #[track_caller]
    fn json_with(&self, disk: Option<&str>, args: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(args);
        let output = self.run_with(disk, &all);
        assert_eq!(self.engine.left_by(output.pid), Vec::<String>::new(), "{self}");
        let parsed = serde_json::from_str(&output.stdout);
        parsed
            .map_err(|error| format!("{self}: {error}: {output:?}"))
            .unwrap()
    }
}

impl std::fmt::Display for Maker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} by {}", self.runtime, self.engine.name)
    }
}

#[test]
fn a_program_runs_and_the_result_says_what_held_it() {
    for maker in makers() {
        let code = "import os, socket, sys\n\
                    status = open('/proc/self/status').read().split()\n\
                    print(os.uname().release, status[status.index('Seccomp:') + 1], os.getuid())\n\
                    for act in (lambda: open('/etc/x', 'w'), lambda: os.setuid(0),\n\
                    \x20           lambda: socket.create_connection(('192.0.2.1', 80), 1)):\n\
                    \x20   try:\n        act(); print('done')\n    except OSError: pass\n\
                    open('/workspace/x', 'w').write('y'); open('/tmp/x', 'w').write('y')\n\
                    print('err', file=sys.stderr); sys.exit(3)";
        let result = maker.json(&["-c", code]);
        let gvisor = maker.runtime == "runsc";
        let own = result["stdout"].as_str().unwrap();
        // gVisor shows its own kernel, where no filter applies any more.
        assert_eq!(own.starts_with(GVISOR), gvisor, "{maker}: {result}");
        let expected = if gvisor { " 0 65534\n" } else { " 2 65534\n" };
        assert!(own.ends_with(expected), "{maker}: {result}");
        let claimed = &result["meta"]["isolation"]["seccomp"];
        assert_eq!(claimed, if gvisor { "gvisor" } else { "standard" }, "{maker}");
        assert_eq!(
            (
                &result["stderr"],
                &result["exit_code"],
                &result["meta"]["outcome"]
            ),
            (&"err\n".into(), &3.into(), &"exited".into()),
            "{maker}"
        );
    }
}

#[test]
fn what_fills_a_directory_fails_there_whatever_makes_the_container() {
    for maker in makers() {
        let fill = "import os\nfor place in '/output', '/workspace':\n\
            \x20   for act in (lambda: open(f'{place}/big', 'wb').write(bytes(5 << 20)),\n\
            \x20               lambda: [open(f'{place}/{n}', 'x').close() for n in range(1_100)]):\n\
            \x20       try: act()\n        except OSError as error: print(place, error.errno)\n\
            \x20       for name in os.listdir(place): os.remove(f'{place}/{name}')\n\
            open('/output/kept', 'w').write('kept')";
        let result = maker.json_with(
            Some("4MiB"),
            &[
                "-o",
                &maker.engine.dir.path("out").display().to_string(),
                "-c",
                fill,
            ],
        );
        let full = "/output 28\n/output 28\n/workspace 28\n/workspace 28\n";
        assert_eq!(
            (&result["stdout"], &result["exit_code"]),
            (&full.into(), &0.into()),
            "{maker}: {result}"
        );
        let kept = std::fs::read_to_string(maker.engine.dir.path("out/kept"));
        assert_eq!(kept.unwrap(), "kept", "{maker}: {result}");
    }
}

#[test]
fn a_program_is_held_to_its_limits() {
    for maker in makers() {
        let timed_out = maker.json(&[
            "--timeout",
            "2s",
            "-c",
            "print('on', flush=True)\nwhile True: pass",
        ]);
        assert_eq!(
            (
                &timed_out["stdout"],
                &timed_out["exit_code"],
                &timed_out["meta"]["outcome"]
            ),
            (&"on\n".into(), &(-1).into(), &"timed_out".into()),
            "{maker}"
        );
        let eaten = maker.json(&["--memory", "96MiB", "-c", "x = bytearray(300 << 20)"]);
        // The kernel kills gVisor's container as a whole, including our init, and Podman's monitor does not
        // see the reason if both versions of control groups are mounted.
        let expected = match (maker.engine.name, maker.runtime) {
            ("podman", "runsc") => "signalled",
            _ => "memory_exceeded",
        };
        assert_eq!(
            (&eaten["exit_code"], &eaten["meta"]["outcome"]),
            (&(-9).into(), &expected.into()),
            "{maker}: {eaten}"
        );
        let flood = maker.json(&["--max-output", "1KiB", "-c", "print('x' * 2_000_000)"]);
        assert_eq!(
            (&flood["meta"]["truncated"], &flood["meta"]["stdout_bytes"]),
            (&true.into(), &2_000_001.into()),
            "{maker}"
        );
    }
}

/// A program may have all the processes that it asked for; beyond them a kernel denies, and gVisor exits.
#[test]
fn a_program_has_the_processes_that_it_may() {
    let code = "import os, time\nn = 0\ntry:\n    while n < 100:\n        if os.fork() == 0: time.sleep(60); os._exit(0)\n        n += 1\n\
                \x20       if n == 8: print('eight', flush=True)\nexcept BlockingIOError: print('no more', flush=True)";
    for maker in makers() {
        let result = maker.json(&["--pids", "12", "-c", code]);
        let printed = result["stdout"].as_str().unwrap();
        match maker.runtime {
            "runsc" => assert_eq!(
                (printed, result["exit_code"] == 0),
                ("eight\n", false),
                "{maker}: {result}"
            ),
            _ => assert_eq!(
                (printed, result["exit_code"] == 0),
                ("eight\nno more\n", true),
                "{maker}: {result}"
            ),
        }
    }
}

/// gVisor ignores the filter that keeps a program from making set-user-ID files of a workspace's owner.
#[test]
fn only_filtered_containers_have_the_rights_of_an_owner() {
    for maker in makers() {
        let workspace = maker.engine.dir.path("roots");
        std::fs::create_dir(&workspace).unwrap();
        let mut permissions = std::fs::metadata(&workspace).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        std::fs::set_permissions(&workspace, permissions).unwrap();
        let path = workspace.to_str().unwrap();
        let result = maker.json(&["--workspace", path, "-l", "bash", "-c", "echo 1 > made"]);
        let may = result["exit_code"] == 0;
        let is_told = result["meta"]["warnings"].to_string().contains("may not write");
        assert_eq!(
            (may, is_told, workspace.join("made").exists()),
            match maker.runtime {
                "runsc" => (false, true, false),
                _ => (true, false, true),
            },
            "{maker}: {result}"
        );
    }
}

#[test]
fn what_the_engine_does_not_know_is_refused_with_what_it_knows() {
    let engines = engines();
    for engine in &engines {
        let dir = &engine.dir;
        let command = |wanted: &str| {
            let mut command = dir.command(["run", "--runtime", engine.name, "-c", "print(1)"]);
            command.env("RINGFENCE_SANDBOX_DOCKER_OCI_RUNTIME", wanted);
            finish(&mut command, b"")
        };
        // Its service uses runc for all containers, whatever a request asks for.
        if engine.name == "podman" {
            let refused = command("runsc");
            refused.refused(125, "Podman service has no OCI runtime runsc; it has runc");
            assert!(
                refused.stderr.contains("podman --runtime NAME system service"),
                "{refused:?}"
            );
        }
        let unknown = command("kata");
        assert_eq!(unknown.status, 2, "{unknown:?}");
        assert!(
            unknown.stderr.contains("sandbox.docker.oci_runtime"),
            "{unknown:?}"
        );
    }
}
