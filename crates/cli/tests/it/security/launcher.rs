//! Threat: the first process of a cell is a copy of a process that knows the caller's input.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;

use crate::leftovers::processes;
use crate::world::{Mode, Place, World, play};

const TOKEN: &str = "what-the-callers-environment-holds";
const CODE: &str = "import sys\nprint('up', flush=True)\nsys.stdin.read()\n# what-the-callers-arguments-hold";

#[test]
fn neither_launcher_nor_cell_holds_what_the_caller_was_given() {
    for place in [Place::Here, Place::User] {
        play(World::new(Mode::OneShot, place), |world| {
            let call = world.call(["--stdin", "-", "-c", CODE]);
            let mut child = call.env("HOST_TOKEN", TOKEN).start();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap())
                .read_line(&mut line)
                .unwrap();
            assert_eq!(line, "up\n");
            let ours = processes().into_iter().filter(|process| {
                process
                    .executable
                    .starts_with(world.dir.path("").canonicalize().unwrap())
            });
            let (caller, others): (Vec<_>, Vec<_>) = ours.partition(|process| process.pid == child.id());
            // The launcher, its representative on the host, and the cell's first process.
            assert_eq!((caller.len(), others.len()), (1, 3), "{others:?}");
            assert_eq!(told(child.id()), [true, true], "this would not find anything");
            for process in others {
                assert_eq!(told(process.pid), [false, false], "{process:?}");
                assert_eq!(process.command.trim_end(), "ringfence __jail");
                let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap();
                assert!(environment.iter().all(|byte| *byte == 0), "{process:?}");
            }
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        });
    }
}

/// Searches a process's writable memory for the environment and the arguments of the caller.
fn told(pid: u32) -> [bool; 2] {
    let places = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut found = [false; 2];
    for place in places.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = place.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        memory.read_exact_at(&mut bytes, from).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for (found, mark) in found.iter_mut().zip([TOKEN, "what-the-callers-arguments-hold"]) {
            *found |= text.contains(mark);
        }
    }
    found
}
