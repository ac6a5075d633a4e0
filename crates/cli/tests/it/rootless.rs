//! Containers of a rootless Podman: an ordinary user's own, found at that user's socket.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::support::{Dir, Output, eventually, finish};
use crate::world::{Mode, Place, World, own_uid, skip};

const IMAGE: &str = "ringfence-sandbox:latest";

/// A user with a Podman.
struct Rootless {
    world: World,
    uid: u32,
    service: Child,
}

impl Rootless {
    fn new() -> Option<Self> {
        let archive = image()?;
        let world = World::new(Mode::OneShot, Place::User)?;
        let uid = fs::metadata(world.dir.path("home")).unwrap().uid();
        let rootless = Self {
            service: serve(&world.dir, uid),
            world,
            uid,
        };
        eventually("Podman's service answers", || {
            UnixStream::connect(rootless.world.dir.path("run/podman/podman.sock")).is_ok()
        });
        let archive = archive.path("image.tar").display().to_string();
        rootless.podman(&["load", "--quiet", "--input", &archive]).ok();
        Some(rootless)
    }

    /// Runs a command against the user's service.
    fn podman(&self, args: &[&str]) -> Output {
        let socket = self.world.dir.path("run/podman/podman.sock");
        let mut command = self.world.dir.program("podman");
        command
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("XDG_CONFIG_HOME")
            .args(["--remote", "--url"])
            .arg(format!("unix://{}", socket.display()));
        finish(command.args(args), b"")
    }
}

impl Drop for Rootless {
    fn drop(&mut self) {
        // All processes of the user: the service, and the process that holds the user's namespaces.
        let mut kill = as_user(&self.world.dir, self.uid);
        finish(kill.args(["kill", "-KILL", "-1"]), b"");
        let _ = self.service.wait();
    }
}

/// Returns the image of sandboxes, in an archive.
fn image() -> Option<Dir> {
    if own_uid() != 0 {
        return skip("not root, so no other user can be taken on");
    }
    let dir = Dir::new();
    let has_map = finish(dir.program("sh").args(["-c", "command -v newuidmap"]), b"");
    if has_map.status != 0 {
        return skip("no newuidmap (`cargo xtask setup` installs it)");
    }
    let archive = dir.path("image.tar").display().to_string();
    let mut save = dir.program("podman");
    save.env_remove("XDG_RUNTIME_DIR");
    let saved = finish(save.args(["save", "--quiet", "--output", &archive, IMAGE]), b"");
    match saved.status {
        0 => Some(dir),
        _ => skip(&format!(
            "no image {IMAGE} in podman (`cargo xtask setup` makes it)"
        )),
    }
}

fn as_user(dir: &Dir, uid: u32) -> Command {
    let mut command = dir.program("setpriv");
    let uid = uid.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
    command
}

/// Starts the user's Podman, with a user name and subordinate ids. The files that define these are visible to
/// this process alone.
fn serve(dir: &Dir, uid: u32) -> Child {
    let home = dir.path("home").display().to_string();
    let others = format!("{uid}:200000000:65536\n");
    for (name, more) in [
        ("passwd", format!("rootless:x:{uid}:{uid}::{home}:/bin/sh\n")),
        ("subuid", others.clone()),
        ("subgid", others),
    ] {
        let known = fs::read_to_string(format!("/etc/{name}")).unwrap();
        dir.write(name, known + &more);
    }
    fs::create_dir(dir.path("config/containers")).unwrap();
    dir.write(
        "config/containers/storage.conf",
        "[storage]\ndriver = 'overlay'\n",
    );
    let script = "for name in passwd subuid subgid; do mount --bind \"$0/$name\" \"/etc/$name\" || exit; done; exec \"$@\"";
    let user = as_user(dir, uid);
    let mut command = dir.program("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(dir.path(""))
        .arg(user.get_program())
        .args(user.get_args())
        // Debian's crun does not work if both versions of control groups are mounted; runc does.
        .args(["podman", "--runtime", "runc", "system", "service", "--time=0"])
        .env("TMPDIR", &home)
        .current_dir(&home);
    let log = fs::File::create(dir.path("podman.log")).unwrap();
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    quiet.stderr(log).spawn().unwrap()
}

#[test]
fn a_user_without_rights_has_containers_of_their_own_engine() {
    let Some(rootless) = Rootless::new() else {
        return;
    };
    let (world, uid) = (&rootless.world, rootless.uid);
    let code = "import os\nprint(os.getuid(), open('/proc/self/uid_map').read().split()[:2])\n\
                open('/workspace/x', 'w').write('y'); open('/output/x', 'w').write('y')\n\
                try: open('/etc/x', 'w')\nexcept OSError: print('read-only')";
    let workspace = world.dir.path("work").display().to_string();
    let run = world.json(["--runtime", "podman", "--workspace", &workspace, "-c", code]);
    run.ended("exited", 0, 0);
    // Its root inside is the user outside.
    assert_eq!(run.stdout(), format!("0 ['0', '{uid}']\nread-only\n"), "{run:?}");
    assert_eq!(
        fs::metadata(world.dir.path("work/x")).unwrap().uid(),
        uid,
        "{run:?}"
    );
    assert_eq!(run.get("meta.isolation.user_ns"), true, "{run:?}");
    assert_eq!(run.get("meta.output_files")[0]["path"], "x", "{run:?}");

    // Only if it cannot limit memory, it reports this.
    let eaten = world.json([
        "--runtime",
        "podman",
        "--memory",
        "64MiB",
        "-c",
        "x = bytearray(300 << 20)",
    ]);
    let held = eaten.get("meta.isolation.cgroup").is_string();
    assert_eq!(eaten.get("exit_code"), if held { -9 } else { 0 }, "{eaten:?}");
    let warned = eaten
        .get("meta.warnings")
        .to_string()
        .contains("cannot limit memory");
    assert_eq!(warned, !held, "{eaten:?}");
    let required = ["--runtime", "podman", "--isolation", "required", "-c", "print(1)"];
    let required = world.run(required);
    assert_eq!(required.status, if held { 0 } else { 125 }, "{required:?}");
    let refused = required.stderr.contains("cannot limit memory");
    assert_eq!(refused, !held, "{required:?}");

    let arguments = json!({"language": "bash", "code": "echo $((6 * 7))"});
    let mut call = world.command(&[], ["tool", "sandbox_exec", "-", "--json", "--no-engine"]);
    call.env("RINGFENCE_CODE_EXECUTION_CONTAINER_RUNTIME", "podman");
    let called = finish(&mut call, arguments.to_string().as_bytes());
    assert!(called.ok().contains("42\\n"), "{called:?}");

    let doctor = finish(&mut world.command(&[], ["doctor"]), b"");
    for words in [
        "run/podman/podman.sock, rootless, makes containers with runc",
        "the image ringfence-sandbox:latest is there",
    ] {
        assert!(doctor.ok().contains(words), "{words}: {doctor:?}");
    }

    assert_eq!(rootless.podman(&["ps", "--all", "--quiet"]).ok(), "");
}
