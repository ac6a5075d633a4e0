//! Threat: a forged exit. A broken run is reported as broken, and leaves nothing behind.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use super::exhaustion::processes_with;
use super::fence::{Fence, signal};
use crate::support::{entries, finish};

/// Returns the children of a process, from the kernel's list.
fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    found
}

/// A running run: it has opened a pipe of the test, which closes only with the last of its processes.
struct Running {
    ringfence: Child,
    pipe: fs::File,
    mark: String,
    fence: Fence,
}

fn start(fence: Fence, line: u32) -> Running {
    let mark = format!("RINGFENCE_TEST={}-{line}", std::process::id());
    fs::create_dir(fence.dir.path("work/data")).unwrap();
    let pipe = fence.dir.path("work/data/pipe");
    fence
        .outside(
            "import os, sys\nos.mkfifo(sys.argv[1])",
            &[pipe.to_str().unwrap()],
        )
        .ok();
    let code = "import os, signal\n\
                pipe = open('/data/pipe', 'w')\n\
                if os.fork() == 0: os.setsid()\n\
                print('ready', file=pipe, flush=True)\n\
                signal.pause()";
    let mut command = fence.ringfence(&[
        "--json",
        "--timeout",
        "8s",
        "--mount",
        "data:/data:rw",
        "--env",
        &mark,
        "-c",
        code,
    ]);
    let ringfence = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = fs::File::open(pipe).unwrap();
    let mut ready = [0; 12];
    pipe.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\nready\n");
    assert_eq!(processes_with(&mark).len(), 2);
    Running {
        ringfence,
        pipe,
        mark,
        fence,
    }
}

impl Running {
    /// Asserts that every process of the run is gone. Waits as long as one holds the pipe.
    fn assert_gone(&mut self) {
        self.pipe.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(processes_with(&self.mark), [0; 0]);
    }
}

fn kill(pid: u32) {
    assert!(signal("KILL", pid).unwrap().success());
}

/// Returns the control groups that bear the name of a process.
fn control_groups(pid: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with("ringfence") && name.contains(&pid.to_string()) {
                    found.push(entry.path());
                }
            }
        }
    }
    found
}

fn a_killed_launcher_is_reported(line: u32, find: impl Fn(u32) -> u32) {
    let Some(fence) = Fence::root() else { return };
    let mut running = start(fence, line);
    let pid = running.ringfence.id();
    assert!(!control_groups(pid).is_empty());
    kill(find(pid));
    running.assert_gone();
    let output = running.ringfence.wait_with_output().unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(125), "{result:#}");
    assert_eq!(result["meta"]["outcome"], "unknown");
    assert_ne!(result["exit_code"], 0);
    assert_eq!(control_groups(pid), Vec::<PathBuf>::new());
    assert_eq!(entries(&running.fence.dir.path("run")), [""; 0]);
    assert_eq!(entries(&running.fence.dir.path("tmp")), [""; 0]);
}

#[test]
fn a_run_whose_launcher_was_killed_is_unknown() {
    a_killed_launcher_is_reported(line!(), |ringfence| children(children(ringfence)[0])[0]);
}

#[test]
fn a_run_whose_launchers_parent_was_killed_is_unknown() {
    a_killed_launcher_is_reported(line!(), |ringfence| children(ringfence)[0]);
}

#[test]
fn a_guest_that_was_killed_from_outside_was_signalled() {
    let Some(fence) = Fence::root() else { return };
    let mut running = start(fence, line!());
    let processes = processes_with(&running.mark);
    kill(*processes.iter().min().unwrap());
    running.assert_gone();
    let output = running.ringfence.wait_with_output().unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(137), "{result:#}");
    assert_eq!(
        (result["meta"]["outcome"].as_str(), result["exit_code"].as_i64()),
        (Some("signalled"), Some(-9))
    );
}

#[test]
fn nothing_runs_on_when_ringfence_was_killed() {
    let Some(fence) = Fence::root() else { return };
    let mut running = start(fence, line!());
    kill(running.ringfence.id());
    running.assert_gone();
    assert!(!running.ringfence.wait().unwrap().success());
    // Only a living process can remove the remaining control groups: the next one does.
    running.fence.printed(&[], "print('after')");
    assert_eq!(control_groups(running.ringfence.id()), Vec::<PathBuf>::new());
}

/// A guest determines its output and its exit status, and nothing more.
#[test]
fn a_guest_cannot_speak_for_the_launcher() {
    let Some(fence) = Fence::root() else { return };
    let code = "import json, os, sys\n\
                forged = json.dumps({'Exited': {'id': 1, 'status': 0, 'cpu_micros': 0, 'max_rss': 0}}) + '\\n'\n\
                for fd in range(3, 64):\n    \
                    try: os.write(fd, forged.encode())\n    \
                    except OSError: pass\n\
                print(forged, flush=True)\n\
                os._exit(7)";
    let result = fence.result(&[], code);
    assert_eq!(
        (result["meta"]["outcome"].as_str(), result["exit_code"].as_i64()),
        (Some("exited"), Some(7))
    );
}

/// Output arrives even if the program exits before we read it.
#[test]
fn what_was_printed_arrives() {
    let Some(fence) = Fence::root() else { return };
    let lost = std::thread::scope(|scope| {
        let run = |_: &i32| {
            let output = finish(
                &mut fence.ringfence(&["-l", "bash", "-c", "echo out; echo err >&2"]),
                b"",
            );
            (output.status, output.stdout, output.stderr) != (0, "out\n".to_owned(), "err\n".to_owned())
        };
        let threads: Vec<_> = (0..6)
            .map(|_| scope.spawn(move || (0..25).filter(run).count()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<usize>()
    });
    assert_eq!(lost, 0, "of 150 runs");
}
