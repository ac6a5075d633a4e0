//! `ringfence image`: import, list, remove.

use std::fs;

use super::root_archive;
use crate::guides::{bash, commands};
use crate::support::Dir;

#[test]
fn a_root_file_system_is_imported_listed_and_removed() {
    let dir = Dir::new();
    dir.run(["image", "ls"]).ok();
    let archive = root_archive(&dir);
    let path = archive.to_str().unwrap();
    dir.run(["image", "import", path])
        .refused(125, "the image has no name");
    let imported = dir.run(["image", "import", path, "--name", "test/root:1"]);
    assert!(
        imported.ok().starts_with("docker.io/test/root:1  sha256:"),
        "{imported:?}"
    );
    let listed = dir.run(["image", "ls"]);
    assert!(listed.ok().ends_with("MB  docker.io/test/root:1\n"), "{listed:?}");
    let all: serde_json::Value = serde_json::from_str(dir.run(["image", "ls", "--json"]).ok()).unwrap();
    assert_eq!(all[0]["references"][0], "docker.io/test/root:1");
    let missing = dir.run(["run", "--image", "test/root:2", "-l", "bash", "-c", "true"]);
    missing.refused(125, "there is no image `docker.io/test/root:2`");
    assert!(
        missing.stderr.ends_with(
            "`ringfence image pull docker.io/test/root:2`, or from a file with `ringfence image import`\n"
        ),
        "{missing:?}"
    );
    dir.run(["image", "rm", "test/root:1"]).ok();
    assert_eq!(dir.run(["image", "ls"]).ok(), "");
    let images = dir.path("state/ringfence/images");
    for left in ["trees", "trash", "staging"] {
        assert_eq!(fs::read_dir(images.join(left)).unwrap().count(), 0, "{left}");
    }
    dir.run(["image", "rm", "test/root:1"])
        .refused(125, "there is no image");
}

#[test]
fn what_is_no_image_is_refused() {
    let dir = Dir::new();
    let text = dir.write("text", "no archive");
    let path = text.to_str().unwrap();
    dir.run(["image", "import", path, "--name", "a"])
        .refused(125, "the archive cannot be used");
    dir.run(["image", "import", "missing", "--name", "a"])
        .refused(125, "cannot read missing");
    let wrong = dir.run(["image", "import", path, "--name", "A/../b"]);
    assert_eq!(wrong.status, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("expected a reference such as"), "{wrong:?}");
    assert_eq!(dir.run(["image", "ls"]).ok(), "");
}

const GUIDE: &str = include_str!("../../../../../docs/guide/images.md");

#[test]
fn every_command_of_the_guide_prints_what_it_says() {
    let dir = Dir::new();
    let archive = root_archive(&dir);
    fs::rename(archive, dir.path("work/rootfs.tar")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ringfence"), dir.path("ringfence")).unwrap();
    let commands = commands(GUIDE);
    assert!(commands.len() >= 7);
    for (command, expected) in commands {
        let output = bash(&dir)
            .args(["-uc", &format!("{{ {command}}} 2>&1")])
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(expected), "{command}: {printed}");
    }
}
