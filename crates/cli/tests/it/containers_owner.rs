//! Workspaces of root in containers, whose programs are another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::containers::{Engine, engines};

/// Acts that would make a program of the workspace's owner; each prints its error.
const SET_USER_ID: &str = "
chmod u+s made
chmod 4755 made
chmod g+s made
python3 - <<'END'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for act in (
    lambda: libc.open(b'opened', os.O_CREAT | os.O_WRONLY, 0o4755),
    lambda: libc.mknod(b'node', 0o104755, 0),
    lambda: libc.syscall(452, -100, b'made', 0o4755, 0),
):
    print('done' if act() >= 0 else os.strerror(ctypes.get_errno()))
END";

fn workspace(engine: &Engine) -> std::path::PathBuf {
    let path = engine.dir.path("roots");
    fs::create_dir_all(path.join(".git")).unwrap();
    fs::write(path.join("secret"), "readable\n").unwrap();
    fs::set_permissions(path.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(path.join(".git/config"), "kept\n").unwrap();
    path
}

/// Returns the mounts that are left on the host for containers.
fn mounts() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let ours = mounts
        .lines()
        .filter(|line| line.contains("/run/ringfence/mounts/"));
    ours.map(str::to_owned).collect()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn a_program_has_the_rights_of_the_owner() {
    for engine in engines() {
        let path = workspace(&engine);
        let mine = fs::metadata(&path).unwrap();
        let code = "cat secret; echo 1 > made; mkdir deep; mv secret deep; rm deep/secret
            cat .git/config; echo 2 > .git/config; mv .git other; stat -c '%u %n' made";
        let ran = engine.run(&["--workspace", path.to_str().unwrap(), "-l", "bash", "-c", code]);
        let user = if is_root() { 65_534 } else { mine.uid() };
        assert_eq!(ran.ok(), format!("readable\nkept\n{user} made\n"), "{ran:?}");
        for refused in [".git/config: Read-only file system", "Device or resource busy"] {
            assert!(ran.stderr.contains(refused), "{refused}: {ran:?}");
        }
        assert!(!ran.stderr.contains("may not write"), "{ran:?}");
        for made in ["made", "deep"] {
            let found = fs::metadata(path.join(made)).unwrap();
            assert_eq!((found.uid(), found.gid()), (mine.uid(), mine.gid()), "{made}");
        }
        assert_eq!(fs::read_to_string(path.join(".git/config")).unwrap(), "kept\n");
        let name = engine.dir.path("").display().to_string();
        assert!(
            !mounts().iter().any(|mount| mount.contains(&name)),
            "{:?}",
            mounts()
        );
    }
}

#[test]
fn a_program_makes_none_that_runs_as_the_owner() {
    for engine in engines() {
        let path = workspace(&engine);
        fs::write(path.join("made"), "").unwrap();
        // Outside, the same acts work.
        let mut outside = engine.dir.program("bash");
        let outside = outside
            .args(["-c", SET_USER_ID])
            .current_dir(&path)
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&outside.stdout),
            "done\ndone\ndone\n",
            "{outside:?}"
        );
        for made in ["made", "opened", "node"] {
            let mode = fs::metadata(path.join(made)).unwrap().mode();
            assert_eq!(mode & 0o4000, 0o4000, "{made}");
            fs::remove_file(path.join(made)).unwrap();
        }
        fs::write(path.join("made"), "").unwrap();
        let ran = engine.run(&[
            "--workspace",
            path.to_str().unwrap(),
            "-l",
            "bash",
            "-c",
            SET_USER_ID,
        ]);
        let refused = "Operation not permitted";
        assert_eq!(
            ran.stdout,
            format!("{refused}\n{refused}\n{refused}\n"),
            "{ran:?}"
        );
        assert_eq!(ran.stderr.matches(refused).count(), 3, "{ran:?}");
        let mode = fs::metadata(path.join("made")).unwrap().mode();
        assert_eq!(mode & 0o7000, 0);
        assert!(!path.join("opened").exists() && !path.join("node").exists());
    }
}

#[test]
fn mounts_of_others_have_the_rights_of_their_owner() {
    if !is_root() {
        return;
    }
    for engine in engines() {
        let path = workspace(&engine);
        for each in [path.clone(), path.join("secret")] {
            chown(each, Some(12_345), Some(12_345)).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let mount = format!("{}:/data:rw", path.display());
        let code = "cat /data/secret; echo 1 > /data/made";
        let ran = engine.run(&["--mount", &mount, "-l", "bash", "-c", code]);
        assert_eq!(ran.ok(), "readable\n", "{ran:?}");
        assert_eq!(fs::metadata(path.join("made")).unwrap().uid(), 12_345);
    }
}
