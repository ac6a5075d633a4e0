//! Directories that are exchanged for links after Ringfence checked them and before the engine mounts them.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::containers::{Engine, engines};
use crate::support::{Output, finish};
use crate::world::own_uid;

/// The uid of programs in root's containers.
const NOBODY: u32 = 65_534;

type Act = Box<dyn FnOnce() + Send>;

/// A proxy of the engine's socket that acts once, after the engine created a container and before it makes the
/// mounts.
struct Proxy {
    address: String,
    act: Arc<Mutex<Option<Act>>>,
}

impl Proxy {
    fn before(engine: &Engine, act: Act) -> Self {
        let socket = match engine.name {
            "docker" => "/run/docker.sock",
            _ => "/run/podman/podman.sock",
        };
        let path = engine.dir.path("run/proxy.sock");
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let act = Arc::new(Mutex::new(Some(act)));
        let acts = Arc::clone(&act);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, engine) = (client.unwrap(), UnixStream::connect(socket).unwrap());
                let acts = Arc::clone(&acts);
                std::thread::spawn(move || pass(&client, &engine, &acts));
            }
        });
        Self {
            address: format!("unix://{}", path.display()),
            act,
        }
    }

    /// Makes a command reach the engine through this proxy.
    fn lead(&self, command: &mut Command) {
        for variable in ["DOCKER_HOST", "CONTAINER_HOST"] {
            command.env(variable, &self.address);
        }
    }

    /// Returns `true` if the act was done.
    fn acted(&self) -> bool {
        self.act.lock().unwrap().is_none()
    }
}

/// Passes bytes on in both directions, until both ends have closed.
fn pass(client: &UnixStream, engine: &UnixStream, act: &Mutex<Option<Act>>) {
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _ = io::copy(&mut { engine }, &mut { client });
            let _ = client.shutdown(std::net::Shutdown::Write);
        });
        let mut piece = vec![0; 64 << 10];
        while let Ok(count @ 1..) = { client }.read(&mut piece) {
            let text = String::from_utf8_lossy(&piece[..count]);
            // Podman mounts when it is attached to.
            let mounts = text.contains("/start HTTP/1.1\r\n") || text.contains("/attach?");
            if text.starts_with("POST") && mounts {
                act.lock().unwrap().take().into_iter().for_each(|act| act());
            }
            if { engine }.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = engine.shutdown(std::net::Shutdown::Write);
    });
}

/// A workspace that another program may write, with directories in it, and a directory that is mounted nowhere.
struct Tree {
    root: PathBuf,
    secret: PathBuf,
}

const BOTH: &str = "cat /data/word; echo 1 > /data/made";

impl Tree {
    fn new(engine: &Engine, owner: u32, names: &[&str]) -> Self {
        let tree = Self {
            root: engine.dir.path("tree"),
            secret: engine.dir.path("secret"),
        };
        fs::set_permissions(engine.dir.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        for path in [&tree.root, &tree.secret] {
            let _ = fs::remove_dir_all(path);
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        fs::write(tree.secret.join("word"), "secret\n").unwrap();
        for name in names {
            let path = tree.root.join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("word"), "harmless\n").unwrap();
            own(&path, owner);
        }
        own(&tree.root, owner);
        tree
    }

    /// Returns the act of another run's program: it exchanges a directory for a link to the secret one.
    fn exchange(&self, name: &str) -> Act {
        let (place, secret) = (self.root.join(name), self.secret.clone());
        let old = self.root.join("old");
        Box::new(move || {
            fs::rename(&place, old).unwrap();
            symlink(secret, &place).unwrap();
        })
    }

    /// Asserts that no program read or wrote in the secret directory.
    #[track_caller]
    fn keeps_its_secret(&self, ran: &Output) {
        assert!(!ran.stdout.contains("secret"), "{ran:?}");
        let names: Vec<_> = fs::read_dir(&self.secret).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?} {ran:?}");
    }
}

/// Only root can give a file away.
fn own(path: &Path, owner: u32) {
    if own_uid() == 0 {
        chown(path, Some(owner), Some(owner)).unwrap();
    }
}

fn run(engine: &Engine, proxy: &Proxy, args: &[&str]) -> Output {
    let first = ["run", "--runtime", engine.name];
    let mut command = engine.dir.command(first.iter().chain(args));
    proxy.lead(&mut command);
    finish(&mut command, b"")
}

/// Runs a program, once as it is and once with an exchange.
#[track_caller]
fn refuses(engine: &Engine, tree: impl Fn() -> Tree, name: &str, point: &str, args: &[&str]) {
    let nothing = Proxy::before(engine, Box::new(|| {}));
    let before = tree();
    let works = run(engine, &nothing, args);
    assert_eq!(works.ok(), "harmless\n", "{args:?} {works:?}");
    before.keeps_its_secret(&works);
    let tree = tree();
    let proxy = Proxy::before(engine, tree.exchange(name));
    let ran = run(engine, &proxy, args);
    assert!(proxy.acted());
    tree.keeps_its_secret(&ran);
    let place = tree.root.join(name);
    let expected = format!(
        "expected {} at {point}, found another file or directory",
        place.display()
    );
    ran.refused(125, &expected);
    assert_eq!(engine.left_by(ran.pid), Vec::<String>::new());
}

#[test]
fn no_program_starts_with_another_mount_or_workspace() {
    for engine in engines() {
        let tree = || Tree::new(&engine, NOBODY, &["sub"]);
        let sub = tree().root.join("sub").display().to_string();
        for (access, code) in [("ro", "cat /data/word"), ("rw", BOTH)] {
            let mount = format!("{sub}:/data:{access}");
            let args = ["--mount", &mount, "-l", "bash", "-c", code];
            refuses(&engine, tree, "sub", "/data", &args);
        }
        let args = ["--workspace", &sub, "-l", "bash", "-c", "cat word; echo 1 > made"];
        refuses(&engine, tree, "sub", "/workspace", &args);
    }
}

#[test]
fn no_program_starts_with_another_protected_entry() {
    // As root, the workspace of another user is mounted by descriptor, and entries below it by path.
    for (engine, owner) in engines()
        .iter()
        .flat_map(|engine| [(engine, NOBODY), (engine, 0)])
    {
        let tree = || Tree::new(engine, owner, &[".git"]);
        let root = tree().root.display().to_string();
        let args = ["--workspace", &root, "-l", "bash", "-c", "cat .git/word"];
        refuses(engine, tree, ".git", "/workspace/.git", &args);
    }
}

/// A repository without a working tree is read-only but for its other entries.
#[test]
fn no_program_starts_with_another_entry_of_a_closed_workspace() {
    for engine in engines() {
        let tree = || {
            let tree = Tree::new(&engine, NOBODY, &["objects", "refs", "sub"]);
            fs::write(tree.root.join("HEAD"), "ref: refs/heads/main\n").unwrap();
            tree
        };
        let root = tree().root.display().to_string();
        let code = "cat sub/word; echo 1 > sub/made";
        let args = ["--workspace", &root, "-l", "bash", "-c", code];
        refuses(&engine, tree, "sub", "/workspace/sub", &args);
    }
}

#[test]
fn no_call_starts_in_a_kept_container_with_another_workspace() {
    for engine in engines() {
        let text = format!("[codeExecution]\ncontainerRuntime = '{}'\n", engine.name);
        engine.dir.write("config/ringfence/ringfence.toml", text);
        let call = |tree: &Tree, proxy: &Proxy| {
            let arguments = json!({"language": "bash", "code": "cat word; echo 1 > made"}).to_string();
            let sub = tree.root.join("sub").display().to_string();
            let mut command = engine
                .dir
                .command(["tool", "sandbox_exec", &arguments, "--workspace", &sub]);
            proxy.lead(&mut command);
            finish(&mut command, b"")
        };
        let tree = Tree::new(&engine, NOBODY, &["sub"]);
        let works = call(&tree, &Proxy::before(&engine, Box::new(|| {})));
        assert!(works.ok().contains("harmless"), "{works:?}");
        let tree = Tree::new(&engine, NOBODY, &["sub"]);
        let ran = call(&tree, &Proxy::before(&engine, tree.exchange("sub")));
        tree.keeps_its_secret(&ran);
        assert_ne!(ran.status, 0, "{ran:?}");
        let found = "at /workspace, found another file or directory";
        assert!(ran.stderr.contains(found), "{ran:?}");
        assert_eq!(engine.left_by(ran.pid), Vec::<String>::new());
    }
}

/// gVisor numbers files by itself. Root mounts by descriptor; others show nothing that a program could exchange.
#[test]
fn a_mount_under_gvisor_is_made_by_descriptor_or_not_at_all() {
    for engine in engines().iter().filter(|engine| engine.name == "docker") {
        let tree = Tree::new(engine, NOBODY, &["sub"]);
        let run = |proxy: &Proxy, args: &[&str]| {
            let mut command = engine
                .dir
                .command([&["run", "--runtime", "docker"], args].concat());
            command.env("RINGFENCE_SANDBOX_DOCKER_OCI_RUNTIME", "runsc");
            proxy.lead(&mut command);
            finish(&mut command, b"")
        };
        let nothing = || Proxy::before(engine, Box::new(|| {}));
        let root = tree.root.display().to_string();
        // From now on programs may have written there.
        run(&nothing(), &["--workspace", &root, "-l", "bash", "-c", "true"]).ok();
        let mount = format!("{}:/data:rw", tree.root.join("sub").display());
        let args = ["--mount", &mount, "-l", "bash", "-c", BOTH];
        let ran = run(&Proxy::before(engine, tree.exchange("sub")), &args);
        tree.keeps_its_secret(&ran);
        if own_uid() == 0 {
            assert_eq!(ran.ok(), "harmless\n", "{ran:?}");
            assert!(tree.root.join("old/made").exists());
        } else {
            ran.refused(125, &format!("programs may write in {root}"));
        }
        assert_eq!(engine.left_by(ran.pid), Vec::<String>::new());
    }
}
