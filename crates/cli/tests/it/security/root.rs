//! Threat: root in a sandbox with the fence `box`, which may change owners, modes and users of what is its own, and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::fence::Fence;
use super::images::with_image;
use super::probe::{Probe, deny_all_in_sandbox, probe};
use super::{kernel, namespaces, ordinary_user, privileges, sockets};
use crate::support::{Output, finish};

/// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID and NET_BIND_SERVICE, over its own user namespace.
const STATUS: &str =
    "CapInh 0\nCapPrm 4fb\nCapEff 4fb\nCapBnd 4fb\nCapAmb 0\nNoNewPrivs 1\nSeccomp 2\ncore (0, 0)\n";

/// Allowed to root outside.
const DENIED: &[Probe] = &[
    probe(
        "making a device",
        "EPERM",
        "os.mknod('null', 0o600 | stat.S_IFCHR, os.makedev(1, 3))\nos.unlink('null')",
    ),
    probe("the times of the host's device", "EROFS", "os.utime('/dev/null')"),
    probe(
        "the core pattern",
        "EACCES",
        "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
    ),
    probe(
        "settings of its own network",
        "EACCES",
        "os.open('/proc/sys/net/ipv4/ip_forward', os.O_WRONLY)",
    ),
    probe(
        "its own place in the order of killing",
        "EROFS",
        "os.open('/proc/self/oom_score_adj', os.O_WRONLY)",
    ),
    probe(
        "memory of the first process, which is its parent",
        "EACCES",
        "os.open(f'/proc/{os.getppid() or 1}/mem', os.O_RDONLY)",
    ),
    probe(
        "the root of the first process",
        "EACCES",
        "os.listdir(f'/proc/{os.getppid() or 1}/root/')",
    ),
    probe(
        "PTRACE_SEIZE of a child",
        "EPERM",
        "pid = os.fork()\nif pid == 0:\n    signal.pause()\ntry: call(number(101, 117), 0x4206, pid, 0, 0)\n\
         finally: os.kill(pid, 9), os.waitpid(pid, 0)",
    ),
    probe(
        "a user outside its range",
        "EINVAL",
        "in_child(lambda: os.setresuid(5000, 5000, 5000))",
    ),
    probe(
        "capabilities of a file",
        "ENOTSUP",
        "open('f', 'w').close()\nos.setxattr('f', 'security.capability', \
         struct.pack('=IIIII', 0x02000001, 0x2000, 0, 0, 0))",
    ),
    probe(
        "a file of the host's programs",
        "EROFS",
        "open('/usr/ringfence-test', 'x').close()\nos.unlink('/usr/ringfence-test')",
    ),
    probe(
        "a file that only the host's root reads",
        "EACCES",
        "open(ARGS[0]).read()",
    ),
];

fn sh(fence: &Fence, name: &str, line: &str) -> Output {
    let exec = ["sandbox", "exec", name, "--", "sh", "-c", line];
    finish(&mut fence.product("A=b", &exec), b"")
}

/// Creates the sandbox `box`.
fn create(fence: &Fence, options: &[&str]) -> Output {
    let create = ["sandbox", "create", "--name", "box", "--fence", "box"];
    finish(&mut fence.product("A=b", &[&create, options].concat()), b"")
}

/// Returns the same act, with the error that programs with root expect of a kernel without audit.
fn as_in_a_box(probe: &Probe) -> Probe {
    match probe.name {
        "AF_NETLINK" => Probe {
            denied: "EAFNOSUPPORT",
            ..*probe
        },
        _ => Probe { ..*probe },
    }
}

/// A file below `/usr` that only root reads; removed with this.
struct Private(tempfile::NamedTempFile);

impl Private {
    fn new() -> Self {
        let file = tempfile::NamedTempFile::with_prefix_in("ringfence-test", "/usr/local/share").unwrap();
        let mode = file.as_file().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

#[test]
fn root_is_denied_what_reaches_beyond_its_sandbox() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    if fence.is_contained() {
        return;
    }
    assert_eq!(create(&fence, &[]).ok(), "box\n");
    assert_eq!(fence.inside_sandbox("box", privileges::STATUS, &[]).ok(), STATUS);
    for surface in [
        namespaces::SURFACE,
        namespaces::PRIVILEGED,
        kernel::SURFACE,
        kernel::PRIVILEGED,
        privileges::PRIVILEGED,
        sockets::SURFACE,
        sockets::PRIVILEGED,
    ] {
        let surface: Vec<Probe> = surface.iter().map(as_in_a_box).collect();
        deny_all_in_sandbox(&fence, "box", &surface, &[]);
    }
    let private = Private::new();
    deny_all_in_sandbox(&fence, "box", DENIED, &[private.path()]);
    let canary = fence.dir.path("tmp/canary");
    fs::write(&canary, "canary").unwrap();
    let see = probe("a file of the host", "ENOENT", "os.stat(ARGS[0])");
    deny_all_in_sandbox(&fence, "box", &[see], &[canary.to_str().unwrap()]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    deny_all_in_sandbox(&fence, "box", &[sockets::CONNECT], &[&port]);
    // Its users share one limit of what the kernel counts for each user.
    let take = "import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def take(call):
    taken = 0
    for user in range(1, 128):
        os.setresuid(user, 0, 0)
        while call() >= 0: taken += 1
    return taken
timer = ctypes.c_void_p()
print(0 < take(lambda: libc.timer_create(1, None, ctypes.byref(timer))) <= 256)
print(take(libc.inotify_init))
count = 0
try:
    while True: count += len(os.openpty()) // 2
except OSError: print(count)";
    assert_eq!(fence.inside_sandbox("box", take, &[]).ok(), "True\n3\n64\n");
    let described = finish(
        &mut fence.product("A=b", &["sandbox", "get", "--json", "box"]),
        b"",
    );
    assert!(described.ok().contains("\"seccomp\": \"box\""), "{described:?}");
    // Whoever kills everybody does not end it.
    sh(&fence, "box", "kill -9 -1; kill -9 1");
    assert_eq!(sh(&fence, "box", "id -u").ok(), "0\n");
}

/// Users of a sandbox, of whom some lead to ids that it lacks, with files of theirs and of root.
const USERS: &str = "set -e; echo ada:x:1000:1001::/home/ada:/bin/sh >> /etc/passwd; echo wild:x:4294967295:0::/: >> /etc/passwd
echo far:x:5000:5000::/: >> /etc/passwd; echo both:x:1002:1002::/: >> /etc/passwd
printf 'root:x:0:root\\nada:x:1001:\\nvideo:x:44:ada\\nwheel:x:10:root\\nfar:x:5000:both\\n' > /etc/group
mkdir -p /home/ada; chown 1000:1001 /home/ada; echo secret > /secret; chmod 600 /secret; cp /usr/bin/id /tmp/set; chmod 6755 /tmp/set";

#[test]
fn a_program_of_another_user_has_nothing_of_roots() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    create(&fence, &[]).ok();
    let exec = |user: &str, line: &str| {
        let exec = ["sandbox", "exec", "-u", user, "box", "--", "sh", "-c", line];
        finish(&mut fence.product("A=b", &exec), b"")
    };
    sh(&fence, "box", USERS).ok();
    let who =
        "id -u; id -g; id -G; echo $HOME $USER; echo to > /dev/stdout; touch ~/own; stat -c %u:%g ~/own";
    for ada in ["ada", "1000"] {
        assert_eq!(
            exec(ada, who).ok(),
            "1000\n1001\n1001 44\n/home/ada ada\nto\n1000:1001\n",
            "{ada}"
        );
    }
    assert_eq!(exec("7", "id -u; id -G; echo $HOME $USER").ok(), "7\n7\n/\n");
    assert_eq!(exec("root", "id -u; id -G").ok(), "0\n0 10\n");
    // No capability, no way back, no file of root's, and none that grants more.
    let denied = "import os, subprocess
print(os.getgroups(), [line.split()[1] for line in open('/proc/self/status') if line[:6] in ('CapPrm', 'CapEff')])
for act in (lambda: open('/secret'), lambda: os.setuid(0), lambda: os.setgroups([10]), lambda: open('/etc/passwd', 'a'),
            lambda: os.kill(os.getppid(), 0), lambda: os.chown('/home/ada/own', 0, 0)):
    try: act()
    except OSError as error: print(error.errno)
print(subprocess.run(['/tmp/set', '-u'], capture_output=True, text=True).stdout, end='')";
    let python = |user: &str| {
        let exec = [
            "sandbox", "exec", "-u", user, "box", "--", "python3", "-c", denied,
        ];
        finish(&mut fence.product("A=b", &exec), b"")
    };
    assert_eq!(
        python("ada").ok(),
        "[44] ['0000000000000000', '0000000000000000']\n13\n1\n1\n13\n1\n1\n1000\n"
    );
    // Root may all of that.
    assert_eq!(
        python("root").ok(),
        "[0, 10] ['00000000000004fb', '00000000000004fb']\n0\n"
    );
    // Elsewhere there is one user.
    let plain = ["sandbox", "create", "--name", "plain"];
    finish(&mut fence.product("A=b", &plain), b"").ok();
    let plain = |user: &str| {
        let exec = ["sandbox", "exec", "-u", user, "plain", "--", "echo", "ran"];
        finish(&mut fence.product("A=b", &exec), b"")
    };
    assert_eq!(plain("sandbox").ok(), "ran\n");
    let refused = plain("root");
    assert!(refused.stderr.contains("has one user, `sandbox`"), "{refused:?}");
    assert!(refused.stderr.contains("fence `box`"), "{refused:?}");
}

#[test]
fn an_interpreter_is_one_users() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    create(&fence, &[]).ok();
    sh(&fence, "box", USERS).ok();
    let run = |user: &[&str], code: &str| {
        let run = [&["sandbox", "run", "box", "-c", code], user].concat();
        finish(&mut fence.product("A=b", &run), b"")
    };
    let ada = &["-u", "ada"][..];
    assert_eq!(
        run(&[], "import os; kept = 1; os.getuid(), os.getgroups()").ok(),
        "(0, [])\n"
    );
    assert_eq!(
        run(ada, "import os; own = 7; os.getuid(), os.getgroups()").ok(),
        "(1000, [44])\n"
    );
    assert_eq!(run(ada, "own, 'kept' in globals()").ok(), "(7, False)\n");
    assert_eq!(
        run(&["--as=root"], "kept, 'own' in globals()").ok(),
        "(1, False)\n"
    );
    assert_eq!(run(&[], "open('/secret').read()").ok(), "'secret\\n'\n");
    let denied = run(ada, "open('/secret')");
    assert_eq!(denied.status, 1, "{denied:?}");
    assert!(
        denied
            .stderr
            .ends_with("[Errno 13] Permission denied: '/secret'\n"),
        "{denied:?}"
    );
    let shell = run(&["-u", "ada", "-l", "bash"], "id -u; cat /secret");
    assert_eq!((shell.status, shell.stdout.as_str()), (1, "1000\n"), "{shell:?}");
    run(&["-u", "bob"], "1").refused(125, "no user `bob`");
    let named = |user: &str| {
        fence.ask(
            "POST /v1/sandboxes/box/run",
            &format!(r#"{{"code": "1", "context": "python", "user": "{user}"}}"#),
        )
    };
    assert!(named("root").contains(r#""value":"1""#), "{}", named("root"));
    let refused = named("ada");
    assert!(refused.starts_with("HTTP/1.1 422 "), "{refused}");
    assert!(
        refused.contains("belongs to the user `root`, and not to `ada`"),
        "{refused}"
    );
}

#[test]
fn a_user_that_is_none_starts_nothing() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    create(&fence, &[]).ok();
    sh(&fence, "box", USERS).ok();
    for (user, why) in [
        ("bob", "no user `bob`"),
        ("wild", "no user `wild`"),
        ("4294967295", "no user `4294967295`"),
        ("-1", "no user `-1`"),
        ("", "no user ``"),
        ("far", "no process can become the user `far`"),
        ("both", "no process can become the user `both`"),
        ("5000", "no process can become the user `5000`"),
    ] {
        let user = format!("--as={user}");
        let refused = ["sandbox", "exec", &user, "box", "--", "id", "-u"];
        let refused = finish(&mut fence.product("A=b", &refused), b"");
        assert_eq!(
            (refused.status, refused.stdout.as_str()),
            (125, ""),
            "{refused:?}"
        );
        assert!(
            refused.stderr.contains(why) && refused.stderr.contains("hint: "),
            "{refused:?}"
        );
    }
    let exec = |user: &str| {
        let exec = ["sandbox", "exec", "-u", user, "box", "--", "id", "-u"];
        finish(&mut fence.product("A=b", &exec), b"")
    };
    // A file that never ends, or never begins, holds nobody up but its own sandbox's program.
    sh(&fence, "box", "rm /etc/passwd; mkfifo /etc/passwd").ok();
    assert!(exec("ada").stderr.contains("no user `ada`"));
    assert_eq!(exec("1000").ok(), "1000\n");
}

#[test]
fn root_changes_its_files_and_users_and_no_other_sandbox() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    create(&fence, &[]).ok();
    let own = "set -e; echo own > /etc/motd; mkdir /new; chown 33:33 /new; stat -c %u:%g /new; chmod 4755 /new; stat -c %a /new; \
               rm /etc/hostname; rmdir /srv; mkdir /srv; ls -A /srv; echo \"$HOME $USER\"; pwd";
    assert_eq!(
        sh(&fence, "box", own).ok(),
        "33:33\n4755\n/root root\n/workspace\n"
    );
    let second = [
        "sandbox", "create", "--name", "second", "--fence", "box", "--ports", "--json",
    ];
    let second = finish(&mut fence.product("A=b", &second), b"");
    assert!(second.ok().contains("\"box-network\""), "{second:?}");
    let unseen = "test -e /new || test -e /etc/motd || cat /etc/hostname";
    assert_eq!(sh(&fence, "second", unseen).ok(), "sandbox\n");
    // Another user has no capability, and no way back.
    let user = "import os, subprocess
open('/workspace/secret', 'w').write('x'); os.chmod('/workspace/secret', 0o600)
open('/workspace/set', 'wb').write(open('/usr/bin/id', 'rb').read()); os.chmod('/workspace/set', 0o4755)
os.setgroups([]); os.setresgid(33, 33, 33); os.setresuid(33, 33, 33)
print([line.split()[1] for line in open('/proc/self/status') if line.startswith('CapPrm')])
for act in (lambda: open('/workspace/secret'), lambda: os.setuid(0), lambda: open('/etc/motd', 'w')):
    try: act()
    except OSError as error: print(error.errno)
print(subprocess.run(['/workspace/set', '-u'], capture_output=True, text=True).stdout)";
    let told = fence.inside_sandbox("box", user, &[]);
    assert_eq!(told.ok(), "['0000000000000000']\n13\n1\n13\n33\n\n");
    // The two are different users of the host.
    let owner = |name: &str| {
        sh(&fence, name, "grep -o 'uid=[0-9]*' /proc/self/mounts | sort -u")
            .ok()
            .to_owned()
    };
    assert_ne!(owner("box"), owner("second"));
}

#[test]
fn on_an_image_root_changes_every_file_and_the_image_stays() {
    let Some(fence) = with_image(Fence::root()).map(Fence::with_engine) else {
        return;
    };
    create(&fence, &["--image", "test/root:1"]).ok();
    let change = "import os
open('/etc/os-release', 'w').write('changed\\n')
os.unlink('/app/data'); os.rmdir('/app'); os.mkdir('/app')
os.rename('/etc/passwd', '/moved'); os.chown('/mnt', 7, 7)
open('/usr/bin/new', 'w').close()
print(os.listdir('/app'), open('/moved').read(), os.stat('/mnt').st_uid, os.stat('/usr').st_uid)";
    assert_eq!(
        fence.inside_sandbox("box", change, &[]).ok(),
        "[] root:x:0:0::/root:/bin/sh\n 7 0\n"
    );
    assert_eq!(fence.inside_sandbox("box", privileges::STATUS, &[]).ok(), STATUS);
    deny_all_in_sandbox(&fence, "box", namespaces::PRIVILEGED, &[]);
    let other = [
        "sandbox",
        "create",
        "--name",
        "other",
        "--fence",
        "box",
        "--image",
        "test/root:1",
    ];
    finish(&mut fence.product("A=b", &other), b"").ok();
    let unchanged =
        "print(open('/etc/os-release').read(), open('/app/data').read(), __import__('os').listdir('/opt'))";
    assert_eq!(
        fence.inside_sandbox("other", unchanged, &[]).ok(),
        "NAME=image\n of the image\n ['empty']\n"
    );
}

#[test]
fn an_ordinary_user_has_no_ids_for_root() {
    let Some(fence) = ordinary_user::fence().map(Fence::with_engine) else {
        return;
    };
    let refused = create(&fence, &[]);
    assert_eq!(refused.status, 125, "{refused:?}");
    assert!(
        refused.stderr.contains("needs a server that runs as root"),
        "{refused:?}"
    );
}
