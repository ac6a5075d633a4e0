//! Threat: a mounted directory as a way to the rest of the host.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};

use super::fence::{Fence, USER};
use super::probe::{deny, probe, program, verdict};

/// Returns a fence with `work/data` to mount, and a secret beside it.
fn with_data() -> Option<Fence> {
    let fence = Fence::root()?;
    fs::create_dir(fence.dir.path("work/data")).unwrap();
    fence.dir.write("work/data/file", "data");
    fence.dir.write("work/secret", "secret");
    Some(fence)
}

#[test]
fn links_and_dots_lead_nowhere() {
    let Some(fence) = with_data() else { return };
    symlink("../secret", fence.dir.path("work/data/up")).unwrap();
    symlink(
        fence.dir.path("work/secret"),
        fence.dir.path("work/data/absolute"),
    )
    .unwrap();
    symlink("..", fence.dir.path("work/data/parent")).unwrap();
    symlink("/proc/self/root", fence.dir.path("work/data/root")).unwrap();
    let secret = fence.dir.path("work/secret");
    for access in ["ro", "rw"] {
        let mount = format!("data:/data:{access}");
        for (outside, inside) in [
            ("data/up", "/data/up"),
            ("data/absolute", "/data/absolute"),
            ("data/parent/secret", "/data/parent/secret"),
            ("data/../secret", "/data/../secret"),
            (
                &format!("data/root{}", secret.display()),
                &format!("/data/root{}", secret.display()),
            ),
        ] {
            let act = probe("a way out", "ENOENT", "os.open(ARGS[INSIDE], os.O_RDONLY)");
            deny(&fence, &["--mount", &mount], &act, &[outside, inside]);
        }
        // The mount itself exists, so that the denial above is meaningful.
        assert_eq!(
            fence.printed(&["--mount", &mount], "print(open('/data/file').read())"),
            "data\n"
        );
    }
}

#[test]
fn a_link_that_a_guest_plants_is_followed_by_nobody() {
    let Some(fence) = with_data() else { return };
    let plant = "import os\nos.symlink('/etc/shadow', '/data/planted')";
    fence.printed(&["--mount", "data:/data:rw"], plant);
    assert_eq!(
        fs::read_link(fence.dir.path("work/data/planted"))
            .unwrap()
            .to_str(),
        Some("/etc/shadow")
    );
    let read = program("os.open('/again', os.O_RDONLY)");
    // A link as the mount's source stands for its target on the host, as the caller was told; the link itself
    // is not in the mount.
    let output = fence.inside(&["--mount", "data:/data:rw"], &read, &[]);
    assert_eq!(verdict(&output), "errno ENOENT");
    let through = program("os.open('/data/planted', os.O_RDONLY)");
    let output = fence.inside(&["--mount", "data:/data:rw"], &through, &[]);
    assert_eq!(verdict(&output), "errno ENOENT");
}

#[test]
fn a_read_only_mount_is_only_read() {
    let Some(fence) = with_data() else { return };
    let place = fence.dir.path("work/data");
    for (name, errno, act) in [
        (
            "a new file",
            "EROFS",
            "open(ARGS[INSIDE] + '/new', 'x').close()\nos.unlink(ARGS[INSIDE] + '/new')",
        ),
        (
            "a file that is there",
            "EROFS",
            "os.open(ARGS[INSIDE] + '/file', os.O_WRONLY)",
        ),
        (
            "the rights of a file",
            "EROFS",
            "os.chmod(ARGS[INSIDE] + '/file', 0o600)",
        ),
        (
            "a new name",
            "EROFS",
            "os.rename(ARGS[INSIDE] + '/file', ARGS[INSIDE] + '/other')\nos.rename(ARGS[INSIDE] + '/other', ARGS[INSIDE] + '/file')",
        ),
        ("the end of a file", "EROFS", "os.unlink(ARGS[INSIDE] + '/new')"),
        (
            "a link",
            "EROFS",
            "os.symlink('x', ARGS[INSIDE] + '/link')\nos.unlink(ARGS[INSIDE] + '/link')",
        ),
    ] {
        let act = probe(name, errno, act);
        let mount = "data:/data";
        if name == "the end of a file" {
            fence.dir.write("work/data/new", "");
        }
        deny(
            &fence,
            &["--mount", mount],
            &act,
            &[place.to_str().unwrap(), "/data"],
        );
    }
    assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "data");
}

#[test]
fn what_a_guest_writes_belongs_to_the_directorys_owner() {
    let Some(fence) = with_data() else { return };
    for owner in [0, USER] {
        let place = fence.dir.path("work/data");
        chown(&place, Some(owner), Some(owner)).unwrap();
        let write = "import os\nopen('/data/new', 'w').write('x')\nos.mkdir('/data/sub')\n\
                     print(os.stat('/data').st_uid, os.stat('/data/new').st_uid)";
        assert_eq!(fence.printed(&["--mount", "data:/data:rw"], write), "1000 1000\n");
        for name in ["new", "sub"] {
            let metadata = fs::metadata(place.join(name)).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (owner, owner), "{name}");
        }
        fs::remove_file(place.join("new")).unwrap();
        fs::remove_dir(place.join("sub")).unwrap();
    }
}

/// A guest cannot change files of other owners in a mounted directory: only the directory's owner is mapped.
#[test]
fn files_of_other_owners_stay_theirs() {
    let Some(fence) = with_data() else { return };
    let file = fence.dir.path("work/data/file");
    chown(fence.dir.path("work/data"), Some(USER), Some(USER)).unwrap();
    let act = probe("a file of root", "EACCES", "os.open(ARGS[INSIDE], os.O_RDWR)");
    let mount = "data:/data:rw";
    deny(
        &fence,
        &["--mount", mount],
        &act,
        &[file.to_str().unwrap(), "/data/file"],
    );
}

#[test]
fn no_hard_link_crosses_the_border() {
    let Some(fence) = with_data() else { return };
    let place = fence.dir.path("work/data");
    let mount = "data:/data:rw";
    let file = place.join("file");
    for (name, errno, act) in [
        (
            "out of the mount",
            "EXDEV",
            "os.link(ARGS[INSIDE], 'link')\nos.unlink('link')",
        ),
        (
            "into the mount",
            "EXDEV",
            "open('own', 'w').close()\nos.link('own', os.path.dirname(ARGS[INSIDE]) + '/link')\nos.unlink(os.path.dirname(ARGS[INSIDE]) + '/link')",
        ),
    ] {
        let act = probe(name, errno, act);
        deny(
            &fence,
            &["--mount", mount],
            &act,
            &[file.to_str().unwrap(), "/data/file"],
        );
    }
}

#[test]
fn no_device_or_setuid_file_is_made_in_a_mount() {
    let Some(fence) = with_data() else { return };
    let place = fence.dir.path("work/data");
    let mount = "data:/data:rw";
    let device = probe(
        "a device",
        "EPERM",
        "os.mknod(ARGS[INSIDE] + '/device', 0o666 | stat.S_IFCHR, os.makedev(1, 3))\nos.unlink(ARGS[INSIDE] + '/device')",
    );
    deny(
        &fence,
        &["--mount", mount],
        &device,
        &[place.to_str().unwrap(), "/data"],
    );
    // A device created by the host is unusable: the mount is nodev.
    let made = fence.outside("import os, stat, sys\nos.mknod(sys.argv[1], 0o666 | stat.S_IFCHR, os.makedev(1, 3))\nos.chmod(sys.argv[1], 0o666)",
        &[place.join("null").to_str().unwrap()]);
    made.ok();
    let open = probe(
        "a device of the host",
        "EACCES",
        "os.open(ARGS[INSIDE] + '/null', os.O_RDONLY)",
    );
    deny(
        &fence,
        &["--mount", mount],
        &open,
        &[place.to_str().unwrap(), "/data"],
    );
}

/// Every way to set a file's mode.
const SETUID: &[(&str, &str)] = &[
    ("chmod", "os.chmod(name, 0o6755)"),
    ("fchmod", "os.fchmod(os.open(name, os.O_RDONLY), 0o6755)"),
    ("fchmodat2", "call(452, -100, name.encode(), 0o6755, 0)"),
    (
        "open",
        "os.unlink(name)\nos.open(name, os.O_CREAT | os.O_WRONLY, 0o6755)",
    ),
    (
        "a file without a name",
        "os.unlink(name)\nfile = os.open(os.path.dirname(name), os.O_TMPFILE | os.O_WRONLY, 0o6755)\n\
         call(number(265, 37), -100, f'/proc/self/fd/{file}'.encode(), -100, name.encode(), 0x400)",
    ),
    (
        "creat",
        "os.unlink(name)\nif X86_64: call(85, name.encode(), 0o6755)\nelse: raise PermissionError",
    ),
    (
        "openat2",
        "os.unlink(name)\ncall(437, -100, name.encode(), struct.pack('=QQQ', os.O_CREAT | os.O_WRONLY, 0o6755, 0), 24)",
    ),
    ("mknod", "os.unlink(name)\nos.mknod(name, 0o6755 | stat.S_IFREG)"),
    ("mkdir", "os.unlink(name)\nos.mkdir(name, 0o6755)"),
    (
        "chmod of a directory",
        "os.unlink(name)\nos.mkdir(name)\nos.chmod(name, 0o2755)",
    ),
];

/// A root shell for any user of the host, planted by a guest, if the directory belongs to root.
#[test]
fn no_setuid_bit_is_left_in_a_mount() {
    let Some(fence) = with_data() else { return };
    let mut left = Vec::new();
    for (way, act) in SETUID {
        let prepare =
            "import shutil\nos.umask(0)\nname = ARGS[INSIDE] + '/id'\nshutil.copy('/usr/bin/id', name)\n";
        let code = super::probe::program(&format!("{prepare}{act}"));
        let planted = fence.dir.path("work/data/id");
        let arguments = [
            fence.dir.path("work/data").display().to_string(),
            "/data".to_owned(),
        ];
        let arguments = arguments.each_ref().map(String::as_str);
        for inside in [false, true] {
            if inside {
                fence
                    .inside(&["--mount", "data:/data:rw"], &code, &arguments)
                    .ok();
            } else {
                fence.outside(&code, &arguments).ok();
            }
            let mode = fs::metadata(&planted).map_or(0, |metadata| metadata.mode());
            // The kernel itself removes these bits from a new directory.
            if inside == (mode & 0o6000 != 0) && (inside || *way != "mkdir") {
                left.push(format!("{way}, inside: {inside}, mode {mode:o}"));
            }
            let _ = fs::remove_dir(&planted);
            let _ = fs::remove_file(&planted);
        }
    }
    assert!(left.is_empty(), "{left:#?}");
}

/// The cell's own file systems would hide such a mount, or be hidden by it.
#[test]
fn a_mount_is_either_there_or_refused() {
    let Some(fence) = with_data() else { return };
    for guest in [
        "/data",
        "/a/b/c",
        "/tmp/data",
        "/workspace/data",
        "/output/data",
        "/code/data",
        "/cell/data",
        "/tmp",
        "/workspace",
        "/home/me",
        "/var/data",
        "/root",
    ] {
        let output = fence.inside(
            &["--mount", &format!("data:{guest}")],
            &format!("print(open('{guest}/file').read())"),
            &[],
        );
        let there = output.status == 0 && output.stdout == "data\n";
        let refused = (output.status, output.stdout.as_str()) == (2, "")
            && output.stderr.contains("cannot be mounted on");
        assert!(there || refused, "{guest}: {output:?}");
    }
}

#[test]
fn what_must_not_be_shown_is_refused() {
    let Some(fence) = with_data() else { return };
    fs::create_dir_all(fence.dir.path("state/ringfence/artifacts")).unwrap();
    symlink(fence.dir.path("state"), fence.dir.path("work/alias")).unwrap();
    let _service = std::os::unix::net::UnixListener::bind(fence.dir.path("work/service.sock")).unwrap();
    for host in [
        "../state",
        "../state/ringfence",
        "../state/ringfence/artifacts",
        "../run",
        "..",
        "alias",
        "/",
        "/proc",
        "/proc/self/root",
        "/sys",
        "/dev",
        "/run",
        "service.sock",
    ] {
        for access in ["ro", "rw"] {
            let mount = format!("{host}:/data:{access}");
            let output = fence.inside(&["--mount", &mount], "print('ran')", &[]);
            assert_eq!(
                (output.status, output.stdout.as_str()),
                (2, ""),
                "{mount}: {output:?}"
            );
            assert!(output.stderr.contains("refusing to show"), "{mount}: {output:?}");
        }
    }
}

#[test]
fn nothing_is_mounted_over_the_fence() {
    let Some(fence) = with_data() else { return };
    for guest in [
        "/",
        "/usr",
        "/etc",
        "/proc",
        "/dev",
        "/dev/shm",
        "/bin",
        "/lib64",
        "/run/x",
        "/x/../etc",
        "data",
    ] {
        let output = fence.inside(&["--mount", &format!("data:{guest}:rw")], "print('ran')", &[]);
        assert_eq!(
            (output.status, output.stdout.as_str()),
            (2, ""),
            "{guest}: {output:?}"
        );
    }
}
