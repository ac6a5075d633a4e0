//! Threat: the author of an image, and programs in it. The fence is that of other runs, around other files.

use std::fs;

use super::fence::Fence;
use super::ordinary_user;
use super::probe::{Probe, deny, deny_all_in_sandbox, deny_all_with, probe};
use super::{namespaces, privileges, sockets};
use crate::local_images::{import_of, root_archive};
use crate::support::finish;

const ON_IMAGE: &[&str] = &["--image", "test/root:1"];

/// All of these exist outside, and none is in the image.
const UNSEEN: &[Probe] = &[
    probe("the host's name", "ENOENT", "os.stat('/etc/hostname')"),
    probe("a program of the host", "ENOENT", "os.stat('/usr/bin/env')"),
    probe("variable data", "ENOENT", "os.stat('/var/lib')"),
    probe("home directories", "ENOENT", "os.stat('/home')"),
    probe("the kernel's devices", "ENOENT", "os.stat('/sys/kernel')"),
    probe("passwords", "ENOENT", "os.stat('/etc/shadow')"),
    probe(
        "a way above the root",
        "ENOENT",
        "os.stat('/../../../../etc/hostname')",
    ),
];

/// The tree is the store's, and serves later runs.
const UNWRITABLE: &[Probe] = &[
    probe(
        "a new file",
        "EROFS",
        "open('/etc/ringfence-test', 'x').close()\nos.unlink('/etc/ringfence-test')",
    ),
    probe(
        "a new file at the root",
        "EROFS",
        "open('/ringfence-test', 'x').close()\nos.unlink('/ringfence-test')",
    ),
    probe("the rights of a file", "EROFS", "os.chmod('/etc/passwd', 0o644)"),
    probe(
        "the owner of a file",
        "EROFS",
        "os.chown('/etc/passwd', os.getuid(), os.getgid())",
    ),
];

/// Imports the root file system as the user of the fence.
pub(super) fn with_image(fence: Option<Fence>) -> Option<Fence> {
    let fence = fence?;
    let archive = root_archive(&fence.dir);
    finish(&mut fence.product("A=b", &import_of(&archive)), b"").ok();
    Some(fence)
}

fn check(fence: &Fence, expected_status: &str) {
    deny_all_with(fence, ON_IMAGE, UNSEEN);
    assert_eq!(fence.printed(ON_IMAGE, privileges::STATUS), expected_status);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    deny(fence, ON_IMAGE, &sockets::CONNECT, &[&port]);
    let canary = fence.dir.path("tmp/canary");
    fs::write(&canary, "canary").unwrap();
    let see = probe("a file of the host", "ENOENT", "os.stat(ARGS[0])");
    deny(fence, ON_IMAGE, &see, &[canary.to_str().unwrap()]);
}

const STATUS: &str =
    "CapInh 0\nCapPrm 0\nCapEff 0\nCapBnd 0\nCapAmb 0\nNoNewPrivs 1\nSeccomp 2\ncore (0, 0)\n";

#[test]
fn as_root_it_is_denied_what_other_runs_are() {
    let Some(fence) = with_image(Fence::root()) else {
        return;
    };
    check(&fence, STATUS);
    deny_all_with(&fence, ON_IMAGE, UNWRITABLE);
    for surface in [namespaces::SURFACE, sockets::SURFACE] {
        deny_all_with(&fence, ON_IMAGE, surface);
    }
    let required = fence.result(
        &["--image", "test/root:1", "--isolation", "required"],
        "print('held')",
    );
    let host = fence.result(&["--isolation", "required"], "print('held')");
    assert_eq!(
        required["meta"]["isolation"], host["meta"]["isolation"],
        "{required:#}"
    );
}

/// Creates the sandbox `box` on the image, in a server of the fence.
fn with_sandbox(fence: Option<Fence>) -> Option<Fence> {
    let fence = with_image(fence)?.with_engine();
    let create = ["sandbox", "create", "--name", "box", "--image", "test/root:1"];
    assert_eq!(finish(&mut fence.product("A=b", &create), b"").ok(), "box\n");
    Some(fence)
}

fn check_sandbox(fence: &Fence) {
    deny_all_in_sandbox(fence, "box", UNSEEN, &[]);
    let status = fence.inside_sandbox("box", privileges::STATUS, &[]);
    assert_eq!(status.ok(), STATUS);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    deny_all_in_sandbox(fence, "box", &[sockets::CONNECT], &[&port]);
    let canary = fence.dir.path("tmp/canary");
    fs::write(&canary, "canary").unwrap();
    let see = probe("a file of the host", "ENOENT", "os.stat(ARGS[0])");
    deny_all_in_sandbox(fence, "box", &[see], &[canary.to_str().unwrap()]);
}

#[test]
fn as_root_a_sandbox_is_denied_what_runs_are() {
    let Some(fence) = with_sandbox(Fence::root()) else {
        return;
    };
    check_sandbox(&fence);
    deny_all_in_sandbox(&fence, "box", UNWRITABLE, &[]);
    deny_all_in_sandbox(&fence, "box", namespaces::SURFACE, &[]);
}

#[test]
fn as_an_ordinary_user_a_sandbox_is_denied_what_runs_are() {
    let Some(fence) = with_sandbox(ordinary_user::fence()) else {
        return;
    };
    check_sandbox(&fence);
    let write = "try: open('/etc/new', 'w')\nexcept OSError as error: print(error.errno)";
    assert_eq!(fence.inside_sandbox("box", write, &[]).ok(), "30\n");
}

#[test]
fn as_an_ordinary_user_it_is_denied_what_other_runs_are() {
    let Some(fence) = with_image(ordinary_user::fence()) else {
        return;
    };
    check(&fence, STATUS);
    let write = "try: open('/etc/new', 'w')\nexcept OSError as error: print(error.errno)";
    assert_eq!(fence.printed(ON_IMAGE, write), "30\n");
}

#[test]
fn without_namespaces_it_is_refused() {
    let Some(fence) = with_image(Fence::container(1234)) else {
        return;
    };
    let run = fence.inside(ON_IMAGE, "print('ran on the files of the host')", &[]);
    run.refused(125, "an image is not supported where namespaces are forbidden");
}
