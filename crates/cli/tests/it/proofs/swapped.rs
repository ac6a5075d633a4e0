//! Exactly the approved command runs: any change to the files that it names prevents it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::{Asker, ON, Through, answer, asked, world};
use crate::world::World;

/// Approves a line, after a change to the files that it names.
fn approved_after(world: &World, line: &str, act: impl FnOnce(&Path)) -> Value {
    let asker = Asker::start(world, Through::Tool, line);
    let id = asked(world, line);
    act(&world.dir.path("work"));
    answer(world, "approve", &id);
    asker.end()
}

/// Asserts that it runs without the change, and does not with it.
#[track_caller]
fn check(prepare: impl Fn(&Path), line: &str, act: impl FnOnce(&Path)) {
    let world = world(ON, false);
    let work = world.dir.path("work");
    prepare(&work);
    approved_after(&world, line, |_| {});
    let evil = work.join("evil");
    let good = work.join("good");
    assert!(good.exists() && !evil.exists(), "{line}");
    fs::remove_file(&good).unwrap();
    let said = approved_after(&world, line, act);
    assert_eq!(said["error"]["type"], "permission_denied", "{line}: {said}");
    assert!(
        said["error"]["message"]
            .as_str()
            .unwrap()
            .contains(" changed while "),
        "{line}: {said}"
    );
    assert!(!good.exists() && !evil.exists(), "{line}");
    world.close();
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

const GOOD: &str = "#!/bin/sh\ntouch good\n";
const EVIL: &str = "#!/bin/sh\ntouch evil\n";

#[test]
fn a_script_that_is_edited_or_replaced() {
    for line in [
        "sh job.sh",
        "./job.sh",
        "sh jo\\b.sh",
        "sh -c 'sh \"jo\"b.sh'",
        "cd . && sh job.sh",
    ] {
        let prepare = |work: &Path| script(&work.join("job.sh"), GOOD);
        check(prepare, line, |work| script(&work.join("job.sh"), EVIL));
        check(prepare, line, |work| {
            script(&work.join("new"), EVIL);
            fs::rename(work.join("new"), work.join("job.sh")).unwrap();
        });
    }
}

#[test]
fn a_script_in_a_directory_that_the_line_goes_to() {
    let prepare = |work: &Path| script(&work.join("sub/job.sh"), "touch ../good");
    for line in ["cd sub && sh job.sh", "env -C sub sh job.sh"] {
        check(prepare, line, |work| {
            script(&work.join("sub/job.sh"), "touch ../evil")
        });
    }
    check(prepare, "cd sub; sh job.sh", |work| {
        fs::rename(work.join("sub"), work.join("old")).unwrap();
        script(&work.join("sub/job.sh"), "touch ../evil");
    });
}

#[test]
fn a_link_that_leads_elsewhere() {
    let prepare = |work: &Path| {
        script(&work.join("a.sh"), GOOD);
        script(&work.join("b.sh"), EVIL);
        symlink("a.sh", work.join("link")).unwrap();
    };
    check(prepare, "sh link", |work| {
        fs::remove_file(work.join("link")).unwrap();
        symlink("b.sh", work.join("link")).unwrap();
    });
}

#[test]
fn what_runs_a_script() {
    let prepare = |work: &Path| {
        script(&work.join("run"), GOOD);
        script(&work.join("job"), &format!("#!{}\n", work.join("run").display()));
    };
    check(prepare, "./job", |work| script(&work.join("run"), EVIL));
}

#[test]
fn the_directory_where_it_starts() {
    let world = world(ON, false);
    let project = world.dir.path("work/project");
    script(&project.join("job.sh"), "touch good");
    let options = ["--workspace", "project"];
    let asker = Asker::with(&world, Through::Tool, &options, "touch x");
    let id = asked(&world, "touch x");
    fs::rename(&project, world.dir.path("work/old")).unwrap();
    fs::create_dir(&project).unwrap();
    answer(&world, "approve", &id);
    let said = asker.end();
    assert_eq!(said["error"]["type"], "permission_denied", "{said}");
    assert!(!project.join("x").exists() && !world.dir.path("work/old/x").exists());
    world.close();
}

#[test]
fn a_name_beyond_any_number_of_others() {
    let padding: Vec<String> = (0..1_000).map(|number| format!("w{number}")).collect();
    let line = format!(": {}; sh job.sh", padding.join(" "));
    let prepare = |work: &Path| script(&work.join("job.sh"), GOOD);
    check(prepare, &line, |work| script(&work.join("job.sh"), EVIL));
}

#[test]
fn pipes_devices_and_what_the_kernel_makes_up_hold_nothing_up() {
    let world = world(ON, false);
    let pipe = world.dir.path("work/pipe");
    crate::support::finish(world.dir.program("mkfifo").arg(&pipe), b"").ok();
    let line = "touch good pipe /dev/null; echo /proc/kmsg /dev/zero /dev/tty /proc/self/stat /usr/bin";
    let said = approved_after(&world, line, |_| {});
    assert!(
        said.as_str().is_some_and(|said| said.contains("/proc/kmsg")),
        "{said}"
    );
    world.close();
}

#[test]
fn more_than_can_be_looked_at_is_refused_and_not_asked() {
    let world = world(ON, false);
    let names: Vec<String> = (0..100).map(|number| format!("d{number}")).collect();
    for name in &names {
        fs::create_dir(world.dir.path("work").join(name)).unwrap();
    }
    let line = format!("rmdir {}", names.join(" "));
    let said = Asker::start(&world, Through::Tool, &line).end();
    assert_eq!(said["error"]["type"], "invalid_arguments", "{said}");
    assert!(
        said["error"]["hint"].as_str().unwrap().contains("script"),
        "{said}"
    );
    assert!(world.dir.path("work/d0").exists() && super::requests(&world).is_empty());
    assert_eq!(approved_after(&world, "rmdir d0 d1", |_| {}), json!(""));
    world.close();
}
