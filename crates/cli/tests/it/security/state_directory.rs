//! Another user of the machine who can replace an ancestor of the state directory, whose files are believed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use crate::support::{Output, finish};
use crate::world::{Mode, Place, World, own_uid, play, skip};

/// A user that runs no program here.
const OTHER: u32 = 4343;

/// Runs `ringfence` with its state below this directory.
fn with_state(world: &World, state: &Path, args: &[&str]) -> Output {
    let env = [("XDG_STATE_HOME".into(), state.into())];
    finish(&mut world.command(&env, args), b"")
}

fn directory(world: &World, name: &str, mode: u32) -> PathBuf {
    let path = world.dir.path(name);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn a_state_directory_that_others_can_replace_is_refused() {
    if own_uid() != 0 {
        return skip("files get another owner by root alone").unwrap_or(());
    }
    play(World::new(Mode::OneShot, Place::User), |world| {
        let mine = world.dir.path("home").join("mine");
        let run = ["run", "--no-engine", "-c", "print(1)"];
        assert_eq!(with_state(world, &mine, &run).ok(), "1\n");
        assert!(mine.join("ringfence/audit").is_dir());

        let theirs = directory(world, "theirs", 0o777);
        chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
        let open = directory(world, "open", 0o777);
        let shared = directory(world, "shared", 0o1777);
        let planted = directory(world, "planted", 0o777);
        symlink(&planted, shared.join("ringfence")).unwrap();
        std::os::unix::fs::lchown(shared.join("ringfence"), Some(OTHER), None).unwrap();
        for (state, why) in [
            (&theirs, "belongs to user 4343"),
            (&open, "others may write to"),
            (&shared, "belongs to user 4343"),
        ] {
            for args in [
                &run[..],
                &["tool", "run_code", r#"{"code": "print(1)"}"#, "--no-engine"],
                &["artifacts", "ls"],
                &["audit", "verify"],
            ] {
                let refused = with_state(world, state, args);
                refused.refused(125, why);
                assert!(refused.stderr.contains("XDG_STATE_HOME"), "{refused:?}");
            }
        }
        for untouched in [&theirs, &open, &planted] {
            assert_eq!(fs::read_dir(untouched).unwrap().count(), 0, "{untouched:?}");
        }
        // A home that others can replace is not used; state lies beside the sockets.
        let env = [("HOME".into(), theirs.clone().into_os_string())];
        let mut command = world.command(&env, run);
        let elsewhere = finish(command.env_remove("XDG_STATE_HOME"), b"");
        assert_eq!(elsewhere.ok(), "1\n");
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
        // In a directory as /tmp only the owner of a file replaces it.
        let sticky = directory(world, "sticky", 0o1777);
        assert_eq!(with_state(world, &sticky, &run).ok(), "1\n");
    });
}
