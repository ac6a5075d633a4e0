//! Debian's package manager in a sandbox with the fence `box`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::Lab;
use crate::local_images::root_archive_with;
use crate::support::finish;

/// The package manager of this machine, and what it starts.
const PROGRAMS: &[&str] = &[
    "/usr/bin/apt-get",
    "/usr/bin/cat",
    "/usr/bin/chown",
    "/usr/bin/diff",
    "/usr/bin/dpkg",
    "/usr/bin/dpkg-deb",
    "/usr/bin/dpkg-query",
    "/usr/bin/dpkg-split",
    "/usr/bin/mkdir",
    "/usr/bin/rm",
    "/usr/bin/stat",
    "/usr/bin/tar",
    "/usr/lib/apt/methods/copy",
    "/usr/lib/apt/methods/file",
    "/usr/lib/apt/methods/store",
    "/usr/sbin/ldconfig",
    "/usr/sbin/start-stop-daemon",
    "/usr/share/dpkg/cputable",
    "/usr/share/dpkg/ostable",
    "/usr/share/dpkg/tupletable",
];

/// Directories and settings that a Debian root has besides.
const DIRECTORIES: &str = "mkdir -p /etc/apt/apt.conf.d /etc/apt/preferences.d /etc/apt/trusted.gpg.d /tmp \
    /var/cache/apt/archives/partial /var/lib/apt/lists/partial /var/lib/dpkg/info /var/lib/dpkg/updates /var/log/apt && \
    : > /var/lib/dpkg/status && echo '_apt:x:100:65534::/:/bin/sh' >> /etc/passwd && \
    echo 'deb [trusted=yes] file:/app/mirror ./' > /etc/apt/sources.list";

const CONTROL: &str =
    "Package: greeter\nVersion: 1.0\nArchitecture: all\nMaintainer: T <t@example.org>\nDescription: greets\n";

/// Gives a file to a user of its own.
const POSTINST: &str = "#!/bin/sh\nset -e\nmkdir -p /var/greeter\nchown 1000:1000 /var/greeter\n";

/// Makes a repository with one package.
fn mirror(lab: &Lab) {
    let dir = &lab.world.dir;
    let package = dir.path("package");
    for name in ["DEBIAN", "usr/bin"] {
        fs::create_dir_all(package.join(name)).unwrap();
    }
    fs::write(package.join("DEBIAN/control"), CONTROL).unwrap();
    for (name, content) in [
        ("DEBIAN/postinst", POSTINST),
        ("usr/bin/greet", "#!/bin/sh\necho hello\n"),
    ] {
        fs::write(package.join(name), content).unwrap();
        fs::set_permissions(package.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mirror = dir.path("top/app/mirror");
    fs::create_dir_all(&mirror).unwrap();
    let archive = mirror.join("greeter.deb");
    let mut build = dir.program("dpkg-deb");
    build
        .args(["--root-owner-group", "--build"])
        .arg(&package)
        .arg(&archive);
    finish(&mut build, b"").ok();
    let sum = finish(dir.program("sha256sum").arg(&archive), b"");
    let sum = sum.ok().split_whitespace().next().unwrap().to_owned();
    let size = fs::metadata(&archive).unwrap().len();
    let index = format!("{CONTROL}Filename: ./greeter.deb\nSize: {size}\nSHA256: {sum}\n");
    fs::write(mirror.join("Packages"), index).unwrap();
}

#[test]
fn apt_get_installs_a_package_of_a_mirror() {
    let lab = Lab::here();
    mirror(&lab);
    let archive = root_archive_with(&lab.world.dir, PROGRAMS);
    let import = [
        "image",
        "import",
        archive.to_str().unwrap(),
        "--name",
        "test/debian:1",
    ];
    finish(&mut lab.world.command(&[], import), b"").ok();
    let create = [
        "create",
        "--name",
        "lab",
        "--fence",
        "box",
        "--image",
        "test/debian:1",
        "--pids",
        "128",
    ];
    lab.sandbox(&create).ok();
    let sh = |line: &str| lab.sandbox(&["exec", "lab", "--", "sh", "-c", line]);
    assert_eq!(sh("greet").status, 127);
    sh(DIRECTORIES).ok();
    sh("apt-get update").ok();
    let installed = sh("DEBIAN_FRONTEND=noninteractive apt-get install --yes greeter");
    assert!(installed.ok().contains("Setting up greeter"), "{installed:?}");
    let seen = sh(
        "greet; stat -c %u:%g /var/greeter /usr/bin/greet; dpkg -s greeter | { read -r line; read -r line; echo $line; }",
    );
    assert_eq!(seen.ok(), "hello\n1000:1000\n0:0\nStatus: install ok installed\n");
    sh("apt-get remove --yes greeter").ok();
    assert_eq!(sh("greet").status, 127);
    lab.world.stop_engine("TERM");
    fs::remove_dir_all(lab.world.dir.path("state/ringfence/images")).unwrap();
    lab.close();
}
