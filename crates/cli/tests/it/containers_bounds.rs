//! Limits, counters and names of containers: what a run may use, and what it learns of the host.

use crate::containers::{IMAGE, engines};
use crate::support::finish;

#[test]
fn memory_and_processor_time_are_measured() {
    for engine in engines() {
        let plenty = engine.json(&["--memory", "512MiB", "-c", "x = bytearray(300 << 20)"]);
        assert_eq!(plenty["exit_code"], 0, "{plenty}");
        let peak = plenty["meta"]["peak_memory_bytes"].as_u64().unwrap();
        assert!((300 << 20..512 << 20).contains(&peak), "{plenty}");
        let spent = "import time\nwhile time.process_time() < 0.2: pass";
        let spent = engine.json(&["-c", spent])["meta"]["cpu_seconds"]
            .as_f64()
            .unwrap();
        assert!((0.2..30.0).contains(&spent), "{spent}");
        // The kernel counts a process with the parent that waits for it: this one's does not.
        let detached = "
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        memory = bytearray(200 << 20)
        while time.process_time() < 2: pass
        open('/tmp/done', 'w')
        os._exit(0)
    os._exit(0)
os.wait()
while not os.path.exists('/tmp/done'): time.sleep(0.1)
used = os.times()
print(used.user + used.system + used.children_user + used.children_system < 1)";
        let detached = engine.json(&["--memory", "512MiB", "-c", detached]);
        assert_eq!(detached["stdout"], "True\n", "{detached}");
        let meta = &detached["meta"];
        assert!(meta["cpu_seconds"].as_f64() >= Some(2.0), "{detached}");
        assert!(meta["peak_memory_bytes"].as_u64() > Some(200 << 20), "{detached}");
    }
}

/// Without the init, a run's directories would lie on the host's disk, without a size.
#[test]
fn an_image_that_keeps_the_init_out_runs_nothing() {
    for engine in engines() {
        let run = |file: &str| {
            engine.dir.write(&format!("work/{file}"), "");
            let name = format!("ringfence-file-{}:1", std::process::id());
            let archive = engine.dir.path("archive.tar");
            let archive = archive.to_str().unwrap();
            let program = |name: &str, args: &[&str]| finish(engine.dir.program(name).args(args), b"");
            program(
                "tar",
                &[
                    "-cf",
                    archive,
                    "-C",
                    engine.dir.path("work").to_str().unwrap(),
                    file,
                ],
            )
            .ok();
            program(engine.name, &["import", archive, &name]).ok();
            let mut command = engine.dir.command(["run", "--runtime", engine.name, "-c", "1"]);
            let output = finish(command.env("DOCKER_IMAGE", &name), b"");
            program(engine.name, &["rmi", "--force", &name]).ok();
            output
        };
        // There the init runs, and looks for the interpreter.
        run("elsewhere").refused(125, "there is no python3 in the image");
        run(".ringfence").refused(125, "cannot start Ringfence's init, without which");
    }
}

/// An engine gives containers copies of the host's files of names, which may say whom its operator knows.
#[test]
fn the_names_that_the_host_knows_are_not_shown() {
    for engine in engines() {
        let look = "cat /etc/hosts /etc/resolv.conf";
        let mut outside = engine.dir.program(engine.name);
        if engine.name == "podman" {
            outside.args(["--runtime", "runc"]);
        }
        // Podman's default limits may exceed its permissions.
        outside.args(["run", "--rm", "--network", "none", "--ulimit", "nofile=512:512"]);
        outside.args(["--ulimit", "nproc=4096:4096", IMAGE, "sh", "-c", look]);
        let outside = finish(&mut outside, b"");
        let inside = engine.run(&["-l", "bash", "-c", look]);
        let names = "127.0.0.1 localhost sandbox\n::1 localhost\n# This container has no network.\n";
        assert_eq!(inside.ok(), names);
        assert!(
            outside.stdout.contains("localhost") && outside.stdout != names,
            "{outside:?}"
        );
        let write = engine.run(&["-l", "bash", "-c", "echo 192.0.2.1 example.com > /etc/hosts"]);
        assert_eq!(write.status, 1, "{write:?}");
        assert!(
            write.stderr.contains("Read-only file system") || write.stderr.contains("Permission denied"),
            "{write:?}"
        );
    }
}
