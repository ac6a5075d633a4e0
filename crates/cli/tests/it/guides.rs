//! The commands of the guides.

use std::process::Command;

use crate::support::Dir;

/// Returns the commands of the blocks in `sh`, each with the comment after it: what it must print.
pub(crate) fn commands(guide: &'static str) -> Vec<(String, &'static str)> {
    let mut commands = Vec::new();
    for block in guide.split("```sh\n").skip(1) {
        let mut command = String::new();
        for line in block.split("```").next().unwrap().lines() {
            match line.strip_prefix("# ") {
                Some(expected) => commands.push((std::mem::take(&mut command), expected)),
                None => command += &format!("{line}\n"),
            }
        }
        assert_eq!(command, "", "a command without its output");
    }
    commands
}

/// Returns a shell that finds `ringfence`, which lies in the directory itself.
pub(crate) fn bash(dir: &Dir) -> Command {
    let path = std::env::var_os("PATH").unwrap();
    let mut shell = dir.program("bash");
    shell.env("PATH", format!("{}:{}", dir.path("").display(), path.display()));
    shell
}
