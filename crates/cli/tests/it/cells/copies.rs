//! Files: copies into and out of a sandbox, and lists.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::json;

use super::{Lab, Venue, everywhere};
use crate::support::{entries, eventually, finish};

#[test]
fn files_are_copied_both_ways() {
    everywhere(|lab| {
        let large: Vec<u8> = (0..9_000_000_u32).map(|n| (n % 253) as u8).collect();
        lab.world.dir.write("work/large", &large);
        lab.world.dir.write("work/empty", "");
        lab.sandbox(&["cp", "large", "lab:/workspace/"]).ok();
        lab.sandbox(&["cp", "empty", "lab:/tmp/new/parents/e"]).ok();
        assert_eq!(
            lab.bash("wc -c < large; wc -c < /tmp/new/parents/e").ok(),
            "9000000\n0\n"
        );
        lab.sandbox(&["cp", "lab:/workspace/large", "back"]).ok();
        assert_eq!(fs::read(lab.world.dir.path("work/back")).unwrap(), large);
        // Into a directory, with its slash and without.
        fs::create_dir(lab.world.dir.path("work/in")).unwrap();
        lab.bash("echo a > /output/a; echo b > /output/b").ok();
        lab.sandbox(&["cp", "lab:/output/a", "in"]).ok();
        lab.sandbox(&["cp", "lab:/output/b", "in/"]).ok();
        assert_eq!(entries(&lab.world.dir.path("work/in")), ["a", "b"]);
        // Streams.
        lab.sandbox_with(&["cp", "-", "lab:/tmp/s"], &large).ok();
        assert_eq!(lab.bash("wc -c < /tmp/s").ok(), "9000000\n");
        assert_eq!(lab.sandbox(&["cp", "lab:/output/a", "-"]).ok(), "a\n");
        // A file that does not know its length.
        lab.sandbox(&["cp", "/proc/version", "lab:/tmp/v"]).ok();
        assert!(lab.bash("cat /tmp/v").ok().starts_with("Linux"));
        // What is there is replaced.
        lab.sandbox(&["cp", "-", "lab:/output/a"]).ok();
        assert_eq!(lab.bash("cat /output/a").ok(), "");
        // Parents are made here, too, and executable files stay so.
        lab.bash(r"printf '#!/bin/sh\necho ran\n' > /output/s; chmod 755 /output/s")
            .ok();
        lab.sandbox(&["cp", "lab:/output/s", "new/parents/"]).ok();
        let script = lab.world.dir.path("work/new/parents/s");
        assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o111, 0o111);
        lab.sandbox(&["cp", "new/parents/s", "lab:/tmp/s2"]).ok();
        assert_eq!(lab.sandbox(&["exec", "lab", "--", "/tmp/s2"]).ok(), "ran\n");
        // A device stays one.
        lab.sandbox(&["cp", "lab:/output/s", "/dev/null"]).ok();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let told = lab.json(&["cp", "large", "lab:/workspace/large"]);
        assert_eq!(
            (&told["size"], &told["path"]),
            (&json!(9_000_000), &json!("/workspace/large")),
            "{told}"
        );
    });
}

#[test]
fn a_copy_that_fails_changes_nothing() {
    everywhere(|lab| {
        let file = lab.world.dir.write("work/mine", "mine");
        lab.bash("echo theirs > /workspace/theirs").ok();
        lab.sandbox(&["cp", "lab:/workspace/nosuch", "mine"])
            .refused(125, "nosuch");
        lab.sandbox(&["cp", "lab:/workspace", "mine"])
            .refused(125, "/workspace");
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
        lab.sandbox(&["cp", "lab:/workspace/nosuch", "new"])
            .refused(125, "nosuch");
        lab.sandbox(&["cp", "nosuch", "lab:/workspace/theirs"])
            .refused(2, "cannot read nosuch");
        let missing = lab.sandbox(&["cp", "nosuch", "lab:/workspace/theirs"]);
        assert!(missing.stderr.ends_with("hint: check the path\n"), "{missing:?}");
        let below = lab.sandbox(&["cp", "lab:/workspace/theirs", "mine/x"]);
        below.refused(2, "mine/x");
        assert!(!below.stderr.contains("make room"), "{below:?}");
        lab.sandbox(&["cp", "mine", "lab:/usr/bin/mine"])
            .refused(125, "/usr/bin/mine");
        lab.sandbox(&["cp", "mine", "new"])
            .refused(2, "one of the paths must be in a sandbox");
        lab.sandbox(&["cp", "mine", "nosuch:/x"])
            .refused(125, "there is no sandbox `nosuch`");
        // Opening one would wait for another program, or have no end.
        finish(lab.world.dir.program("mkfifo").arg("fifo"), b"").ok();
        for special in ["fifo", "/dev/zero"] {
            lab.sandbox(&["cp", special, "lab:/workspace/theirs"])
                .refused(2, &format!("{special} is a FIFO, a socket or a device"));
        }
        lab.sandbox(&["cp", "lab:/workspace/theirs", "fifo"])
            .refused(2, "found a FIFO or a socket");
        fs::remove_file(lab.world.dir.path("work/fifo")).unwrap();
        // A source that breaks off: a directory can be opened, not read.
        let directory = File::open(lab.world.dir.path("work")).unwrap();
        let mut broken = lab
            .world
            .command(&[], ["sandbox", "cp", "-", "lab:/workspace/theirs"]);
        let output = broken.stdin(Stdio::from(directory)).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert_eq!(lab.bash("cat theirs; ls").ok(), "theirs\ntheirs\n");
        assert_eq!(entries(&lab.world.dir.path("work")), ["mine"]);
        // Too large for the disk of the sandbox.
        File::create(lab.world.dir.path("work/huge"))
            .unwrap()
            .set_len(300 << 20)
            .unwrap();
        let full = lab.sandbox(&["cp", "huge", "lab:/workspace/theirs"]);
        full.refused(125, "");
        assert!(full.stderr.contains("`disk`"), "{full:?}");
        assert_eq!(lab.bash("cat theirs; ls").ok(), "theirs\ntheirs\n");
    });
}

/// Bytes of a file that no connection holds at once.
const LARGE: u64 = 200 << 20;

#[test]
fn a_download_that_breaks_off_leaves_the_old_file() {
    let lab = Lab::on(Venue::plain("local"), &["--memory", "1GiB", "--disk", "512MiB"]);
    let work = lab.world.dir.path("work");
    let mine = lab.world.dir.write("work/mine", "mine");
    fs::set_permissions(&mine, Permissions::from_mode(0o640)).unwrap();
    lab.bash(&format!("head -c {LARGE} /dev/zero > large")).ok();
    let temporary = || {
        let names = entries(&work);
        names.into_iter().find(|name| name.starts_with(".ringfence-"))
    };
    for signal in ["INT", "TERM", "HUP", "KILL"] {
        let mut copy = lab.start(&["cp", "lab:/workspace/large", "mine"]);
        eventually("it has begun", || temporary().is_some());
        lab.world.signal(&copy, signal);
        let status = copy.wait().unwrap();
        assert!(!status.success(), "{signal}: {status}");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine", "{signal}");
        match signal {
            // Nothing can clean up behind itself.
            "KILL" => fs::remove_file(work.join(temporary().unwrap())).unwrap(),
            _ => assert_eq!(
                (status.code(), entries(&work)),
                (Some(130), vec!["mine".to_owned()])
            ),
        }
    }
    let mut copy = lab.start(&["cp", "lab:/workspace/large", "mine"]);
    eventually("it has begun", || temporary().is_some());
    lab.sandbox(&["rm", "lab"]).ok();
    assert_eq!(copy.wait().unwrap().code(), Some(125));
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
    assert_eq!(fs::metadata(&mine).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(entries(&work), ["mine"]);
    lab.close();
}

#[test]
fn directories_are_listed() {
    everywhere(|lab| {
        assert_eq!(lab.sandbox(&["files", "lab"]).ok(), "");
        lab.bash("mkdir -p d/e; echo 12345 > d/e/f; ln -s d l; printf x > $'new\\nline'")
            .ok();
        let shown = lab.sandbox(&["files", "lab"]);
        assert!(
            shown.ok().contains("  /workspace/d/\n") && shown.stdout.contains("  /workspace/l@\n"),
            "{shown:?}"
        );
        assert_eq!(shown.stdout.lines().count(), 3, "{shown:?}");
        assert!(
            lab.sandbox(&["files", "--depth", "3", "lab", "/workspace/d"])
                .ok()
                .contains("6  /workspace/d/e/f\n")
        );
        let told = lab.json(&["files", "--depth", "9", "lab"]);
        let paths: Vec<_> = told["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["path"].as_str().unwrap())
            .collect();
        assert_eq!(
            paths,
            [
                "/workspace/d",
                "/workspace/d/e",
                "/workspace/d/e/f",
                "/workspace/l",
                "/workspace/new\nline"
            ]
        );
        assert_eq!(told["complete"], true);
        lab.sandbox(&["files", "lab", "/nosuch"]).refused(125, "/nosuch");
    });
}

#[test]
fn a_tree_is_copied_through_tar() {
    everywhere(|lab| {
        fs::create_dir_all(lab.world.dir.path("work/tree/deep")).unwrap();
        lab.world.dir.write("work/tree/deep/file", "content");
        let mut tar = lab.world.dir.program("tar");
        let packed = tar.args(["-c", "tree"]).output().unwrap();
        lab.sandbox_with(&["exec", "-i", "lab", "--", "tar", "-x"], &packed.stdout)
            .ok();
        assert_eq!(lab.bash("cat tree/deep/file").ok(), "content");
    });
}

#[test]
fn links_that_programs_made_lead_no_copy_elsewhere() {
    everywhere(|lab| {
        let secret = lab.world.dir.write("home/secret", "secret");
        let link = format!(
            "ln -s {0} read; ln -s {0} write; ln -s {0}2 dangling",
            secret.display()
        );
        lab.world.run(["-w", ".", "-l", "bash", "-c", &link]).ok();
        lab.sandbox(&["cp", "read", "lab:/workspace/x"])
            .refused(125, "read");
        lab.sandbox(&["run", "lab", "read"]).refused(125, "read");
        lab.bash("echo mine > x").ok();
        for name in ["write", "dangling"] {
            lab.sandbox(&["cp", "lab:/workspace/x", name]).refused(125, name);
        }
        lab.bash("echo mine > write").ok();
        lab.sandbox(&["cp", "lab:/workspace/write", "."])
            .refused(125, "write");
        assert_eq!(entries(&lab.world.dir.path("home")), ["secret"]);
        assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
    });
}
