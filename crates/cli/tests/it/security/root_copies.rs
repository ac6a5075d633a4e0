//! Threat: root in a sandbox with the fence `box`, whose files become a snapshot and other sandboxes. A copy has what its programs
//! could have made there, and nothing of it counts outside.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::fence::Fence;
use super::images::with_image;
use super::probe::{Probe, deny_all_in_sandbox, probe};
use crate::support::{Output, finish};

/// Changes of a root on an image.
const CHANGE: &str = "import os
open('/etc/os-release', 'w').write('changed\\n')
os.unlink('/app/data'); os.rmdir('/app'); os.mkdir('/app')
os.rmdir('/opt/empty'); open('/opt/empty', 'w').close()
os.rename('/etc/passwd', '/moved'); os.link('/moved', '/second')
os.mkdir('/mnt/own'); open('/mnt/own/set', 'w').close(); os.symlink('/etc', '/mnt/own/link')
os.chown('/mnt/own', 33, 34); os.chown('/mnt/own/set', 33, 34); os.lchown('/mnt/own/link', 5, 6)
os.chmod('/mnt/own', 0o3750); os.chmod('/mnt/own/set', 0o4755)
os.mkfifo('/mnt/fifo')
open('/workspace/w', 'w').close(); os.chown('/workspace/w', 34, 35); os.chown('/workspace', 33, 33)";

const SEE: &str = "import os
print(open('/etc/os-release').read(), os.listdir('/app'), os.path.exists('/etc/passwd'), open('/second').read())
print(os.stat('/moved').st_ino == os.stat('/second').st_ino, os.path.isfile('/opt/empty'), os.path.exists('/mnt/fifo'))
for path in '/mnt/own', '/mnt/own/set', '/mnt/own/link', '/workspace', '/workspace/w', '/tmp':
    found = os.lstat(path)
    print(path, found.st_uid, found.st_gid, oct(found.st_mode))";

const SEEN: &str = "changed\n [] False root:x:0:0::/root:/bin/sh\n
True True False
/mnt/own 33 34 0o43750
/mnt/own/set 33 34 0o104755
/mnt/own/link 5 6 0o120777
/workspace 33 33 0o40755
/workspace/w 34 35 0o100644
/tmp 0 0 0o41777
";

/// Acts by which a root could forge what an overlay keeps in its upper directory.
const FORGERIES: &[Probe] = &[
    probe(
        "a device that stands for a removed file",
        "EPERM",
        "os.mknod('whiteout', 0o600 | stat.S_IFCHR, os.makedev(0, 0))\nos.unlink('whiteout')",
    ),
    probe(
        "the attribute of a directory that hides another",
        "ENOTSUP",
        "os.mkdir('d')\ntry: os.setxattr('d', 'user.overlay.opaque', b'y')\nfinally: os.rmdir('d')",
    ),
];

fn product(fence: &Fence, args: &[&str]) -> Output {
    finish(&mut fence.product("A=b", args), b"")
}

fn create(fence: &Fence, name: &str, options: &[&str]) -> Output {
    let create = ["sandbox", "create", "--name", name];
    product(fence, &[&create, options].concat())
}

fn snapshot(fence: &Fence, name: &str) -> Output {
    product(
        fence,
        &["sandbox", "snapshot", "create", "box", "--name", name, "--json"],
    )
}

#[test]
fn a_copy_has_the_changes_of_the_root() {
    let Some(fence) = with_image(Fence::root()).map(Fence::with_engine) else {
        return;
    };
    create(&fence, "box", &["--fence", "box", "--image", "test/root:1"]).ok();
    fence.inside_sandbox("box", CHANGE, &[]).ok();
    let kept: serde_json::Value = serde_json::from_str(snapshot(&fence, "kept").ok()).unwrap();
    assert_eq!(
        (&kept["fence"], &kept["skipped"]),
        (&"box".into(), &1.into()),
        "{kept:#}"
    );
    create(&fence, "copy", &["--snapshot", "kept"]).ok();
    let forked = product(&fence, &["sandbox", "fork", "box"]);
    let fork = forked.ok().trim();
    for name in ["copy", fork] {
        assert_eq!(fence.inside_sandbox(name, SEE, &[]).ok(), SEEN, "{name}");
    }
    // A copy of a copy.
    product(&fence, &["sandbox", "rm", "box"]).ok();
    product(&fence, &["sandbox", "rm", fork]).ok();
    let again = ["sandbox", "snapshot", "create", "copy", "--name", "again"];
    product(&fence, &again).ok();
    create(&fence, "second", &["--snapshot", "again"]).ok();
    assert_eq!(fence.inside_sandbox("second", SEE, &[]).ok(), SEEN);
    // Nobody else has it, and it is put on no other root.
    let refused = |options: &[&str], why: &str| {
        let refused = create(&fence, "refused", &[options, &["--snapshot", "kept"]].concat());
        assert!(refused.status != 0 && refused.stderr.contains(why), "{refused:?}");
    };
    refused(&["--user", "other"], "there is no snapshot `kept`");
    create(&fence, "of-other", &["--user", "other", "--fence", "box"]).ok();
    let many = ["sandbox", "fork", "of-other", "--user", "other", "--count", "8"];
    let many = product(&fence, &many);
    assert!(many.stderr.contains("the limit of 8 sandboxes"), "{many:?}");
    product(&fence, &["sandbox", "rm", "of-other", "--user", "other"]).ok();
    refused(&["--fence", "run"], "only another one can be made of it");
    for name in ["copy", "second"] {
        product(&fence, &["sandbox", "rm", name]).ok();
    }
    product(&fence, &["image", "rm", "test/root:1"]).ok();
    refused(&[], "cannot use the image");
}

#[test]
fn a_hostile_root_gains_nothing_by_a_copy() {
    let Some(fence) = with_image(Fence::root()).map(Fence::with_engine) else {
        return;
    };
    create(&fence, "box", &["--fence", "box", "--disk", "64MiB"]).ok();
    deny_all_in_sandbox(&fence, "box", FORGERIES, &[]);
    // Names that change while they are read, programs that wait to be opened, and a file of another user's with its id set.
    let hostile = "import os, sys
os.mkdir('/race'); os.mkdir('/race/a'); os.symlink('/etc', '/race/b')
for number in range(50): os.mkfifo(f'/race/fifo{number}')
open('/workspace/set', 'wb').write(open('/usr/bin/id', 'rb').read())
os.chown('/workspace/set', 33, 33); os.chmod('/workspace/set', 0o6755)
if os.fork() == 0:
    for number in range(3): os.close(number)
    while True:
        for old, new in ('a', 'c'), ('b', 'a'), ('c', 'b'): os.rename(f'/race/{old}', f'/race/{new}')";
    fence.inside_sandbox("box", hostile, &[]).ok();
    snapshot(&fence, "hostile").ok();
    let archive = fs::read_dir(fence.dir.path("state/ringfence/snapshots"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for path in archive {
        let found = fs::metadata(&path).unwrap();
        assert_eq!(
            (found.uid(), found.permissions().mode()),
            (0, 0o100_600),
            "{path:?}"
        );
    }
    create(&fence, "copy", &["--snapshot", "hostile"]).ok();
    let user = "import os, subprocess
print(os.stat('/workspace/set').st_uid, oct(os.stat('/workspace/set').st_mode))
os.setgroups([]); os.setresgid(34, 34, 34); os.setresuid(34, 34, 34)
print(subprocess.run(['/workspace/set', '-u'], capture_output=True, text=True).stdout)";
    assert_eq!(
        fence.inside_sandbox("copy", user, &[]).ok(),
        "33 0o106755\n34\n\n"
    );
    let elsewhere = create(
        &fence,
        "elsewhere",
        &["--snapshot", "hostile", "--image", "test/root:1"],
    );
    assert!(
        elsewhere.stderr.contains("cannot be put on another image"),
        "{elsewhere:?}"
    );
    // Holes become zeros, and those are bounded.
    let giant = "import os
for name in 'ab': os.truncate(os.open(f'/etc/{name}', os.O_CREAT | os.O_RDWR), 50 << 20)";
    fence.inside_sandbox("box", giant, &[]).ok();
    let large = snapshot(&fence, "large");
    assert!(large.stderr.contains("too large to copy"), "{large:?}");
    assert_eq!(fence.inside_sandbox("box", "print(1)", &[]).ok(), "1\n");
}
