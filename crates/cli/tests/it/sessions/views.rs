//! Threat: a session keeps the mounts of its start, and writes to what became protected later.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;

use super::{engine, evaluate, session, value};
use crate::mcp::Client;
use crate::support::Output;
use crate::world::World;

/// The advice of a refusal.
const ADVICE: &str = "end it with `ringfence session rm ID`";

/// Starts the session `a`, with a variable, in the directory `work/shared`.
fn begin(world: &World) -> Shared<'_> {
    let path = world.dir.path("work/shared");
    if !path.exists() {
        fs::create_dir(&path).unwrap();
    }
    open(&path);
    let shared = Shared(world);
    let begun = shared.run("kept = 41; open('ordinary', 'w').write('x')");
    begun.ok();
    shared
}

#[derive(Clone, Copy)]
struct Shared<'a>(&'a World);

impl Shared<'_> {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.dir.path("work/shared").join(name)
    }

    /// Creates a file that everybody may write.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        open(&self.path(name));
    }

    fn run(&self, code: &str) -> Output {
        self.0
            .run(["--workspace", "shared", "--session", "a", "-c", code])
    }

    /// Asserts that no evaluation runs, with and without the workspace named, because of this path.
    #[track_caller]
    fn refuses(&self, name: &str) {
        let path = self.path(name).display().to_string();
        for options in [&["--workspace", "shared"][..], &[]] {
            let code = format!("open('/workspace/{name}', 'a').write('planted')");
            let session = ["--session", "a", "-c", &code];
            let run = self.0.run(options.iter().chain(&session));
            run.refused(125, &path);
            assert!(run.stderr.contains(ADVICE), "{run:?}");
        }
    }

    /// Asserts that the session goes on, with its variables.
    #[track_caller]
    fn goes_on(&self) {
        assert_eq!(value(self.0, "a", "kept"), "41");
    }
}

fn open(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn what_becomes_protected_later_is_refused_until_a_new_session() {
    engine(|world| {
        let shared = begin(world);
        session(world, &["fork", "a", "fork"]).ok();
        shared.write(".mcp.json", "mine");
        shared.refuses(".mcp.json");
        let fork = world.run(["--session", "fork", "-c", "1"]);
        fork.refused(125, "/.mcp.json");
        assert_eq!(fs::read_to_string(shared.path(".mcp.json")).unwrap(), "mine");
        fs::remove_file(shared.path(".mcp.json")).unwrap();
        shared.goes_on();
        fs::create_dir(shared.path(".vscode")).unwrap();
        shared.refuses(".vscode");
        session(world, &["rm", "a"]).ok();
        let attempt = "open('/workspace/.vscode/tasks.json', 'w')";
        let denied = shared.run(attempt);
        assert!(denied.stderr.contains("Read-only file system"), "{denied:?}");
    });
}

#[test]
fn all_that_leads_to_protection_is_seen() {
    engine(|world| {
        let shared = begin(world);
        type Act<'a> = &'a dyn Fn();
        let file = |name: &'static str| move || shared.write(name, "");
        let remove = |name: &'static str| {
            let path = shared.path(name);
            move || match path.is_symlink() || path.is_file() {
                true => fs::remove_file(&path).unwrap(),
                false => fs::remove_dir_all(&path).unwrap(),
            }
        };
        let repository = || {
            for name in ["objects", "refs"] {
                fs::create_dir(shared.path(name)).unwrap();
            }
            shared.write("HEAD", "ref: refs/heads/main\n");
        };
        let no_repository = || {
            fs::remove_file(shared.path("HEAD")).unwrap();
            for name in ["objects", "refs"] {
                fs::remove_dir(shared.path(name)).unwrap();
            }
        };
        let link = || symlink("ordinary", shared.path(".envrc")).unwrap();
        let cases: [(&str, Act<'_>, Act<'_>); 5] = [
            (
                "ringfence.toml",
                &file("ringfence.toml"),
                &remove("ringfence.toml"),
            ),
            (".ENVRC", &file(".ENVRC"), &remove(".ENVRC")),
            ("x.pth", &file("x.pth"), &remove("x.pth")),
            ("ordinary", &link, &remove(".envrc")),
            // Any part of it may be named.
            ("", &repository, &no_repository),
        ];
        for (name, make, undo) in cases {
            make();
            shared.refuses(name);
            undo();
            shared.goes_on();
        }
    });
}

/// Settings of git that were protected all along begin to name a file of the workspace.
#[test]
fn what_protected_settings_lead_to_later_is_refused() {
    engine(|world| {
        fs::create_dir_all(world.dir.path("work/shared/.git")).unwrap();
        let shared = begin(world);
        shared.write("included", "");
        shared.goes_on();
        shared.write(".git/config", "[include]\n\tpath = ../included\n");
        shared.refuses("included");
        shared.write(".git/config", "");
        shared.goes_on();
    });
}

/// The kernel removes the mount with the file: the new one is not protected, although its inode number may be
/// the same.
#[test]
fn a_protected_file_that_is_made_anew_is_refused() {
    engine(|world| {
        fs::create_dir(world.dir.path("work/shared")).unwrap();
        fs::write(world.dir.path("work/shared/.envrc"), "mine").unwrap();
        let shared = begin(world);
        let denied = shared.run("open('.envrc', 'w')");
        assert!(denied.stderr.contains("Read-only file system"), "{denied:?}");
        fs::remove_file(shared.path(".envrc")).unwrap();
        shared.write(".envrc", "mine");
        shared.refuses(".envrc");
    });
}

/// The same of the launchers that runs without a session share.
#[test]
fn a_shared_launcher_does_not_outlive_a_protected_file() {
    engine(|world| {
        let path = world.dir.path("work/.envrc");
        let attempt = || world.run(["--workspace", ".", "-c", "open('.envrc', 'w').write('planted')"]);
        open(&world.dir.path("work"));
        attempt().ok();
        for _ in 0..3 {
            let denied = attempt();
            assert!(denied.stderr.contains("Read-only file system"), "{denied:?}");
            fs::remove_file(&path).unwrap();
            fs::write(&path, "mine").unwrap();
            open(&path);
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        // Nor its directory.
        let work = world.dir.path("work");
        let shared = work.join("shared");
        let list = || world.run(["--workspace", "shared", "-c", "import os; print(os.listdir())"]);
        fs::create_dir(&shared).unwrap();
        open(&shared);
        assert_eq!(list().ok(), "[]\n");
        fs::rename(&shared, work.join("moved")).unwrap();
        fs::create_dir(&shared).unwrap();
        fs::write(shared.join("new"), "").unwrap();
        assert_eq!(list().ok(), "['new']\n");
    });
}

#[test]
fn a_workspace_that_was_moved_away_is_refused() {
    engine(|world| {
        let shared = begin(world);
        fs::rename(shared.path(""), world.dir.path("work/moved")).unwrap();
        fs::create_dir(shared.path("")).unwrap();
        let run = world.run(["--session", "a", "-c", "1"]);
        run.refused(125, &world.dir.path("work/shared").display().to_string());
    });
}

#[test]
fn a_server_on_the_host_that_is_configured_later_is_refused() {
    engine(|world| {
        let shared = begin(world);
        shared.write("server.py", "");
        shared.goes_on();
        let entry = format!(
            "[skills.servers.units]\ncommand = ['python3', '{}']\nfence = 'host'\n",
            shared.path("server.py").display()
        );
        world.dir.write("config/ringfence/ringfence.toml", entry);
        let plant = "open('/workspace/json.py', 'w')";
        for options in [&["--workspace", "shared"][..], &[]] {
            let run = world.run(options.iter().chain(&["--session", "a", "-c", plant]));
            run.refused(125, "the MCP server `units` runs on the host");
        }
        assert!(!shared.path("json.py").exists());
        world.dir.write("config/ringfence/ringfence.toml", "");
        shared.goes_on();
    });
}

#[test]
fn a_client_of_mcp_is_refused_likewise() {
    engine(|world| {
        let work = world.dir.path("work");
        open(&work);
        let mut client = Client::greeted(world, &["--workspace", "."]);
        let mut run = |code: &str| client.call("run_code", &json!({"code": code, "session": "a"}));
        run("open('ordinary', 'w').write('x')");
        assert!(work.join("ordinary").exists());
        fs::write(work.join(".mcp.json"), "mine").unwrap();
        open(&work.join(".mcp.json"));
        let told = run("open('.mcp.json', 'w').write('planted')").to_string();
        for part in ["invalid_arguments", "/.mcp.json", ADVICE] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(fs::read_to_string(work.join(".mcp.json")).unwrap(), "mine");
        client.leave().well();
    });
}

/// A session without a directory of the host has nothing to compare.
#[test]
fn a_session_without_a_workspace_goes_on() {
    engine(|world| {
        evaluate(world, "a", "x = 1");
        world.dir.write("work/.envrc", "mine");
        assert_eq!(value(world, "a", "x"), "1");
    });
}
