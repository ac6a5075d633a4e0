//! Detection of every change of a named file, without activating anything.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Mode, mknodat};

use ringfence_policy::cascade::{Rules, decide};

use super::*;
use crate::host::runs_code;

fn examined(line: &str, directory: &Path, home: Option<&Path>) -> Result<PathIdentity, TooMuch> {
    let place = LineDirectory {
        directory: directory.to_path_buf(),
        home: home.map(Path::to_path_buf),
        own: Vec::new(),
    };
    PathIdentity::by(line, runs_code(&decide(line, &Rules::default())), &place)
}

/// Returns the first path whose identity differs after `act`, of those that a line names in a directory.
fn change(place: &Path, line: &str, act: impl FnOnce()) -> Option<PathBuf> {
    let look = || examined(line, place, Some(place)).unwrap();
    let before = look();
    assert_eq!(look().changed_since(&before), None, "{line}");
    act();
    let after = look();
    let changed = after.changed_since(&before);
    // Symmetric: both added and removed paths are detected.
    assert_eq!(changed.is_some(), before.changed_since(&after).is_some());
    changed
}

fn write(place: &Path, name: &str, text: &str) {
    let path = place.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Somebody chooses the content of a FIFO as it is read.
#[test]
fn a_fifo_is_never_approved_for_longer() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let is_partial = |line| examined(line, place, None).unwrap().is_partial();
    write(place, "a.sh", ". ./h.sh");
    write(place, "h.sh", "true");
    assert!(!is_partial("bash a.sh") && !is_partial("cat h.sh"));
    fs::remove_file(place.join("h.sh")).unwrap();
    mknodat(rustix::fs::CWD, place.join("h.sh"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert!(is_partial("bash a.sh") && is_partial("cat h.sh"));
}

#[test]
fn a_script_that_is_edited_replaced_made_or_removed_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let script = place.join("job.sh");
    for line in [
        "bash job.sh",
        "bash ./job.sh | cat",
        "cat <job.sh",
        "bash jo\\b.sh",
        "bash ~/job.sh",
    ] {
        let written = |text: &str| fs::write(&script, text).unwrap();
        written("echo safe");
        assert!(change(place, line, || written("echo evil")).is_some(), "{line}");
        let replace = || {
            fs::write(place.join("new"), "echo evil").unwrap();
            fs::rename(place.join("new"), &script).unwrap();
        };
        assert!(change(place, line, replace).is_some(), "{line}");
        assert!(
            change(place, line, || fs::remove_file(&script).unwrap()).is_some(),
            "{line}"
        );
        assert!(change(place, line, || written("x")).is_some(), "{line}");
        let other = change(place, line, || fs::write(place.join("other"), "x").unwrap());
        assert_eq!(other.is_some(), !line.starts_with("cat"), "{line}");
        fs::remove_file(place.join("other")).unwrap();
    }
}

#[test]
fn a_time_that_is_set_back_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    for length in [1_000, 6 << 20] {
        fs::write(&path, vec![b'a'; length]).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let set_back = || {
            fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(long_ago)
                .unwrap()
        };
        set_back();
        let changed = change(dir.path(), "x data", || {
            fs::write(&path, vec![b'b'; length]).unwrap();
            set_back();
        });
        assert_eq!(changed, Some(path.clone()), "{length}");
    }
}

#[test]
fn what_a_link_leads_to_and_what_a_directory_is_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("place");
    let sub = place.join("sub");
    fs::create_dir_all(&sub).unwrap();
    for name in ["one", "two", "sub/job.sh"] {
        fs::write(place.join(name), name).unwrap();
    }
    let link = place.join("link");
    symlink("one", &link).unwrap();
    let retarget = || {
        fs::remove_file(&link).unwrap();
        symlink("two", &link).unwrap();
    };
    assert_eq!(change(&place, "bash link", retarget), Some(link.clone()));
    // A directory on the way to the script, and one that the line enters first.
    for line in ["bash sub/job.sh", "cd sub && bash job.sh", "make -C sub job.sh"] {
        let swap = || {
            fs::rename(&sub, place.join("old")).unwrap();
            fs::create_dir(&sub).unwrap();
            fs::write(sub.join("job.sh"), "sub/job.sh").unwrap();
            fs::remove_dir_all(place.join("old")).unwrap();
        };
        assert!(change(&place, line, swap).is_some(), "{line}");
        let edit = || fs::write(sub.join("job.sh"), "evil").unwrap();
        assert_eq!(change(&place, line, edit), Some(sub.join("job.sh")), "{line}");
    }
    // The working directory.
    let swap = || {
        fs::rename(&place, dir.path().join("away")).unwrap();
        fs::create_dir(&place).unwrap();
    };
    assert_eq!(change(&place, "ls", swap), Some(place.clone()));
}

#[test]
fn whatever_runs_a_script_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let interpreter = place.join("interpreter");
    let script = place.join("job");
    fs::write(&interpreter, "x").unwrap();
    for first in [
        format!("#!{}", interpreter.display()),
        format!("#! /usr/bin/env -S {} -x", interpreter.display()),
    ] {
        fs::write(&script, format!("{first}\necho\n")).unwrap();
        let edit = || fs::write(&interpreter, format!("evil {first}")).unwrap();
        assert_eq!(change(place, "./job", edit), Some(interpreter.clone()), "{first}");
    }
    // An interpreter found on the search path, though the line does not name it.
    fs::write(&script, "#!/usr/bin/env python3\n").unwrap();
    let named = examined("./job", place, None).unwrap();
    assert!(
        named.found.keys().any(|path| path.ends_with("bin/python3"))
            && named.found.contains_key(Path::new("/usr/bin/env"))
    );
    // A cycle of scripts that are each other's interpreter.
    for number in 0..5_000 {
        let next = place.join(format!("s{}", (number + 1) % 5_000));
        fs::write(
            place.join(format!("s{number}")),
            format!("#!{}\n", next.display()),
        )
        .unwrap();
    }
    assert_eq!(
        examined("./s0", place, None)
            .unwrap()
            .found
            .keys()
            .filter(|path| path.starts_with(place))
            .count(),
        5_001
    );
}

#[test]
fn pipes_and_devices_are_not_opened_and_a_directory_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    mknodat(
        rustix::fs::CWD,
        place.join("pipe"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    std::os::unix::net::UnixListener::bind(place.join("socket")).unwrap();
    fs::create_dir(place.join("many")).unwrap();
    for number in 0..3_000 {
        fs::write(place.join("many").join(number.to_string()), "").unwrap();
    }
    fs::write(place.join("secret"), "x").unwrap();
    fs::set_permissions(place.join("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    let line = "cat pipe socket /dev/zero /dev/tty /dev/stdin many secret /proc/kmsg /proc/self/stat /sys/kernel/mm/ksm/run";
    assert_eq!(
        change(place, line, || fs::write(place.join("many/new"), "").unwrap()),
        None
    );
    assert!(examined(line, place, None).unwrap().found.len() < 20);
    // A FIFO that replaces a file.
    fs::write(place.join("plain"), "x").unwrap();
    let swap = || {
        fs::remove_file(place.join("plain")).unwrap();
        fs::rename(place.join("pipe"), place.join("plain")).unwrap();
    };
    assert_eq!(change(place, "cat plain", swap), Some(place.join("plain")));
}

#[test]
fn no_word_is_beyond_looking_at_and_what_is_too_much_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let padding: Vec<String> = (0..1_500).map(|number| format!("w{number}")).collect();
    let line = format!("echo {}; bash job.sh", padding.join(" "));
    assert!(line.len() < 10_000);
    let write = || fs::write(place.join("job.sh"), "evil").unwrap();
    assert_eq!(change(place, &line, write), Some(place.join("job.sh")));
    let directories: Vec<String> = (0..=MAX_DIRECTORIES).map(|number| format!("d{number}")).collect();
    for directory in &directories {
        fs::create_dir(place.join(directory)).unwrap();
    }
    let names = |count| format!("rm -r {}", directories[..count].join(" "));
    assert!(examined(&names(MAX_DIRECTORIES), place, None).is_ok());
    assert_eq!(examined(&names(MAX_DIRECTORIES + 1), place, None), Err(TooMuch));
    let more = padding.join(" ").replace('w', "v");
    assert_eq!(
        examined(&format!("{line} {more} {}", names(MAX_DIRECTORIES)), place, None),
        Err(TooMuch)
    );
}

#[test]
fn settings_and_what_they_name_are_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    let write = |name: &str, text: &str| write(place, name, text);
    write("compose.yaml", "services: {web: {env_file: [web.env]}}\n");
    write("web.env", "A=1\n");
    write("job1.sh", "x\n");
    write("a.yaml", "x\n");
    write("scripts/x", "x\n");
    for (line, name) in [
        ("docker compose stop", "compose.yaml"),
        ("docker compose stop", "web.env"),
        ("cat job*.sh", "job1.sh"),
        ("cat job[0-9].sh", "job1.sh"),
        ("cat {job1,x}.sh", "job1.sh"),
        ("n=1; cat job$n.sh", "job1.sh"),
        ("kubectl apply -f .", "a.yaml"),
        ("kubectl apply -f a.yaml", "a.yaml"),
        ("git apply < a.yaml", "a.yaml"),
        ("docker load -ia.yaml", "a.yaml"),
    ] {
        let text = fs::read_to_string(place.join(name)).unwrap();
        let edit = || write(name, &format!("{text}# evil\n"));
        let before = examined(line, place, None).unwrap();
        assert_eq!(change(place, line, edit), Some(place.join(name)), "{line} {name}");
        let after = examined(line, place, None).unwrap();
        assert_ne!(before.contents(), after.contents(), "{line} {name}");
        write(name, &text);
        // Rewriting the same bytes gives the same contents, though another file.
        let again = examined(line, place, None).unwrap();
        assert_eq!(again.contents(), before.contents());
    }
    let restart = examined("docker restart web", &place.join("scripts"), None);
    assert_eq!(restart.unwrap().contents(), None);
}

mod loaded;
