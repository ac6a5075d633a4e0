//! The commands of the guide.

use std::fs;

use super::Lab;
use crate::guides::{bash, commands};
use crate::local_images::root_archive;

const GUIDE: &str = include_str!("../../../../../docs/guide/sandboxes.md");

#[test]
fn every_command_of_the_guide_prints_what_it_says() {
    let lab = Lab::here();
    let archive = root_archive(&lab.world.dir);
    fs::rename(archive, lab.world.dir.path("work/rootfs.tar")).unwrap();
    let commands = commands(GUIDE);
    assert!(commands.len() >= 20);
    for (command, expected) in commands {
        let output = bash(&lab.world.dir)
            .args(["-uc", &format!("{{ {command}}} 2>&1")])
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(expected), "{command}: {printed}");
    }
    lab.world.stop_engine("TERM");
    fs::remove_dir_all(lab.world.dir.path("state/ringfence/images")).unwrap();
    lab.close();
}

#[test]
fn nothing_but_the_start_a_terminal_and_a_container_is_shown_unrun() {
    let fences = GUIDE.lines().filter(|line| line.starts_with("```"));
    let unrun = fences.step_by(2).filter(|fence| *fence != "```sh").count();
    assert_eq!(unrun, 3);
}
