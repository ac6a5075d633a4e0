//! The scope of an answer: a number of uses, a session, an exact text, and never a command that runs other
//! code tomorrow.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use super::{Asker, ON, Through, answer, asked, question, requests, ringfence, world};
use crate::support::eventually;
use crate::world::World;

/// Asks in a session, and denies pending questions; returns `true` if the command ran.
fn runs(world: &World, options: &[&str], line: &str) -> bool {
    let mut asker = Asker::with(world, Through::Tool, options, line);
    eventually("it has ended, or waits", || {
        asker.child.try_wait().unwrap().is_some() || !pending(world).is_empty()
    });
    deny_all(world);
    asker.end().get("error").is_none()
}

fn pending(world: &World) -> Vec<Value> {
    let mut all = requests(world);
    all.retain(|request| request["state"] == "pending");
    all
}

fn deny_all(world: &World) {
    for request in pending(world) {
        answer(world, "deny", request["id"].as_str().unwrap());
    }
}

#[test]
fn so_many_uses_are_so_many_for_this_command_in_this_session() {
    let world = world(ON, false);
    // Commands whose effects do not change those of the others.
    fs::create_dir(world.dir.path("work/made")).unwrap();
    let (talk, line) = (["--session", "talk"], "chmod 700 made");
    let asker = Asker::with(&world, Through::Tool, &talk, line);
    let id = asked(&world, line);
    ringfence(&world, &["approvals", "approve", &id, "--uses", "3"]).ok();
    assert_eq!(asker.end(), json!(""));
    for (options, line) in [
        (&talk[..], "chmod  700 made"),
        (&talk, "chmod 700 made made"),
        (&["--session", "other"], line),
        (&[], line),
        (&["--session", "talk", "--user", "bob"], line),
    ] {
        assert!(!runs(&world, options, line), "{options:?} {line}");
    }
    // Sixteen concurrent askers share three uses.
    let mut askers: Vec<_> = (0..16)
        .map(|_| Asker::with(&world, Through::Tool, &talk, line))
        .collect();
    eventually("three have run and the others wait", || {
        let ended = askers
            .iter_mut()
            .filter_map(|asker| asker.child.try_wait().unwrap())
            .count();
        assert!(ended <= 3, "{ended} have run");
        ended == 3 && pending(&world).len() == 13
    });
    deny_all(&world);
    let answers: Vec<Value> = askers.into_iter().map(Asker::end).collect();
    assert_eq!(
        answers.iter().filter(|answer| **answer == json!("")).count(),
        3,
        "{answers:?}"
    );
    assert!(!runs(&world, &talk, line));
    world.close();
}

#[test]
fn an_answer_for_the_session_reaches_no_other_and_without_one_no_other_process() {
    let world = world(ON, false);
    let line = "touch made";
    for options in [&["--session", "talk"][..], &[]] {
        let asker = Asker::with(&world, Through::Tool, options, line);
        let id = asked(&world, line);
        ringfence(&world, &["approvals", "approve", &id, "--session"]).ok();
        asker.end();
    }
    assert!(runs(&world, &["--session", "talk"], line));
    assert!(!runs(&world, &["--session", "other"], line));
    assert!(!runs(&world, &[], line));
    // The name of a process is not a session id.
    let asker = requests(&world).last().unwrap()["asker"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(!runs(&world, &["--session", &asker], line));
    world.close();
}

#[test]
fn nothing_that_runs_code_is_allowed_for_good_however_it_is_spelled() {
    let world = world(ON, false);
    let mut offered = Vec::new();
    for line in [
        "/bin/sh job.sh",
        "sh -c 'touch x'",
        "'bash' job.sh",
        "b\\ash job.sh",
        "./job.sh",
        "/tmp/anything",
        ". ./job.sh",
        "eval 'touch x'",
        "env python3 -c 'print(1)'",
        "env -S 'python3 -c 1'",
        "python3.11 job.py",
        "busybox sh job.sh",
        "perl -e 1",
        "awk 'BEGIN { system(\"id\") }'",
        "find . -exec touch x {} +",
        "make",
        "git -c core.pager=./x log",
        "ssh host touch x",
        "xargs touch",
        "sudo touch x",
        "nohup sh job.sh",
        "timeout 5 bash job.sh",
        "nice -n 5 node job.js",
        "tar --checkpoint-action=exec=./x -cf a b",
        "touch x; sh job.sh",
        "touch x | sh",
        "touch $(sh job.sh)",
        "frobnicate",
        "vim -c ':!sh' x",
        "docker run image sh",
        "npm run build",
        "pip install x",
        "crontab jobs",
        "at now -f job.sh",
    ] {
        let asker = Asker::start(&world, Through::Tool, line);
        let question = question(&world, line);
        let id = question["id"].as_str().unwrap();
        let is_offered = question["lasting"] == "offered";
        if is_offered {
            offered.push(line);
        }
        let always = ringfence(&world, &["approvals", "approve", id, "--always"]);
        if !is_offered {
            always.refused(125, "cannot be remembered for that long");
            answer(&world, "deny", id);
        }
        asker.end();
    }
    assert_eq!(offered, [""; 0]);
    assert!(!world.dir.path("state/ringfence/approved.toml").exists());
    world.close();
}

#[test]
fn an_answer_for_the_session_holds_for_the_same_script_in_the_same_directory() {
    let world = world(ON, false);
    let (talk, line) = (["--session", "talk"], "sh job.sh");
    let script = |path: &str, text: &str| world.dir.write(path, text);
    script("work/job.sh", "true");
    let asker = Asker::with(&world, Through::Tool, &talk, line);
    let question = question(&world, line);
    let place = world.dir.path("work").display().to_string();
    assert_eq!(question["directory"], place);
    assert!(
        question["reasons"]
            .to_string()
            .contains(&format!("it starts in {place}"))
    );
    let id = question["id"].as_str().unwrap();
    ringfence(&world, &["approvals", "approve", id, "--session"]).ok();
    asker.end();
    assert!(runs(&world, &talk, line));
    fs::create_dir(world.dir.path("other")).unwrap();
    script("other/job.sh", "true");
    let other = world.dir.path("other").display().to_string();
    assert!(!runs(&world, &["--session", "talk", "--workspace", &other], line));
    assert!(runs(&world, &talk, line));
    script("work/job.sh", "id");
    assert!(!runs(&world, &talk, line));
    world.close();
}

#[test]
fn the_file_of_lasting_approvals_is_believed_only_as_a_whole_and_only_if_it_is_ours() {
    let world = world(ON, false);
    let line = "touch made";
    let asker = Asker::start(&world, Through::Tool, line);
    let id = asked(&world, line);
    ringfence(&world, &["approvals", "approve", &id, "--always"]).ok();
    asker.end();
    let file = world.dir.path("state/ringfence/approved.toml");
    let good = fs::read_to_string(&file).unwrap();
    let runs = |line: &str| runs(&world, &[], line);
    assert!(runs(line) && !runs("touch other"));
    assert!(!self::runs(&world, &["--user", "bob"], line));
    // A person may add entries, but none that runs code.
    let work = world.dir.path("work").display().to_string();
    let below = |directory: &str, text: &str| {
        format!("{good}\n[[command]]\ntext = '{text}'\nscope = 'local'\ndirectory = '{directory}'\n")
    };
    let entry = |text: &str| below(&work, text);
    for elsewhere in ["", "/", "work"] {
        fs::write(&file, below(elsewhere, "touch other")).unwrap();
        assert!(!runs("touch other"), "{elsewhere}");
    }
    fs::write(&file, entry("touch other")).unwrap();
    assert!(runs("touch other") && runs(line));
    fs::write(&file, entry("bash job.sh")).unwrap();
    assert!(runs(line) && !runs("bash job.sh"));
    // A file with an error has no effect at all.
    for wrong in [
        format!("{good}\nx"),
        entry(""),
        format!("{good}\n[other]\n"),
        format!("{good}\0"),
    ] {
        fs::write(&file, wrong).unwrap();
        assert!(!runs(line));
    }
    fs::write(&file, &good).unwrap();
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        assert!(!runs(line), "{mode:o}");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(runs(line));
    // Links to a file that others may write to, to something that is no file, and to nothing.
    let elsewhere = world.dir.write("work/theirs.toml", &good);
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o666)).unwrap();
    let pipe = world.dir.path("work/pipe");
    crate::support::finish(world.dir.program("mkfifo").arg(&pipe), b"").ok();
    for target in [
        elsewhere.as_path(),
        "/dev/zero".as_ref(),
        &pipe,
        "/nowhere".as_ref(),
        world.dir.path("work").as_ref(),
    ] {
        fs::remove_file(&file).unwrap();
        symlink(target, &file).unwrap();
        assert!(!runs(line), "{}", target.display());
    }
    // Revoked.
    fs::remove_file(&file).unwrap();
    assert!(!runs(line));
    world.close();
}
