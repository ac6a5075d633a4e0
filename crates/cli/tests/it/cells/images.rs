//! Sandboxes on images of the store.

use std::fs;

use serde_json::{Value, json};

use super::Lab;
use super::ports::{Forwarded, UPPER};
use crate::api::{self, BEARER, Surface};
use crate::local_images::root_archive;
use crate::support::{Output, finish};

const NAME: &str = "test/root:1";
const REFERENCE: &str = "docker.io/test/root:1";

/// A server whose user has an image, and no sandbox.
fn with_image() -> Lab {
    let lab = Lab::here();
    let archive = root_archive(&lab.world.dir);
    let import = ["import", archive.to_str().unwrap(), "--name", NAME];
    image(&lab, &import).ok();
    lab
}

/// Creates `lab` on the image.
fn with_sandbox(options: &[&str]) -> Lab {
    let lab = with_image();
    let create = ["create", "--name", "lab", "--image", NAME];
    lab.sandbox(&[&create, options].concat()).ok();
    lab
}

/// Runs `ringfence image ARGS…`.
fn image(lab: &Lab, args: &[&str]) -> Output {
    let all = ["image"].iter().chain(args);
    finish(&mut lab.world.command(&[], all), b"")
}

/// Stops the server; nothing but the images is left.
fn close(lab: Lab) {
    lab.world.stop_engine("TERM");
    fs::remove_dir_all(lab.world.dir.path("state/ringfence/images")).unwrap();
    lab.close();
}

fn sh(lab: &Lab, name: &str, line: &str) -> Output {
    lab.sandbox(&["exec", name, "--", "sh", "-c", line])
}

/// Prints what can be read.
const READ: &str = "read -r line < /app/data; echo $line; read -r line < /workspace/own; echo $line";

#[test]
fn its_commands_and_code_see_the_image() {
    let lab = with_sandbox(&["--env", "OWN=1"]);
    let about = lab.json(&["get", "lab"]);
    assert_eq!(about["image"], REFERENCE);
    let digest = about["image_digest"].as_str().unwrap();
    let listed = image(&lab, &["ls", "--json"]);
    let listed: Value = serde_json::from_str(listed.ok()).unwrap();
    assert_eq!(listed[0]["digest"], digest);
    let line = lab.sandbox(&["ls"]).ok().to_owned();
    assert!(line.contains(&format!("  {REFERENCE} sha256:")), "{line}");
    // Outside, the machine's own are there.
    for path in ["/usr/bin/env", "/etc/hostname"] {
        assert!(fs::exists(path).unwrap(), "{path}");
    }
    let line = "read -r a < /etc/os-release; echo $a; pwd; echo $OWN $PATH; test -e /usr/bin/env || echo none; \
                echo x > /workspace/own; (echo x > /app/data) 2> /tmp/x || echo read-only";
    let expected = "NAME=image\n/workspace\n1 /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nnone\nread-only\n";
    assert_eq!(sh(&lab, "lab", line).ok(), expected);
    // Its interpreters, its files, its shell.
    lab.sandbox(&["run", "lab", "-c", "x = open('/app/data').read()"])
        .ok();
    assert_eq!(
        lab.sandbox(&["run", "lab", "-c", "x"]).ok(),
        "'of the image\\n'\n"
    );
    for (language, program) in [("bash", "bash"), ("javascript", "node")] {
        let missing = lab.sandbox(&["run", "lab", "-l", language, "-c", "1"]);
        missing.refused(125, &format!("there is no program `{program}` in the sandbox"));
    }
    lab.sandbox_with(&["cp", "-", "lab:/workspace/in"], b"copied")
        .ok();
    assert_eq!(lab.sandbox(&["cp", "lab:/app/data", "-"]).ok(), "of the image\n");
    assert!(lab.sandbox(&["files", "lab"]).ok().contains("/workspace/in"));
    let shell = lab.sandbox_with(&["shell", "lab"], b"read -r a < /etc/os-release; echo $a\n");
    assert_eq!(shell.ok(), "NAME=image\n");
    close(lab);
}

#[test]
fn its_ports_are_reached() {
    let lab = with_sandbox(&["--ports"]);
    let mut serving = lab.start(&["exec", "lab", "--", "python3", "-c", UPPER]);
    let ready = "import socket\nwhile True:\n    try: socket.create_connection(('127.0.0.1', 8001)); break\n    \
                 except ConnectionRefusedError: pass";
    lab.sandbox(&["exec", "--timeout", "30s", "lab", "--", "python3", "-c", ready])
        .ok();
    assert_eq!(Forwarded::new(&lab, "8001").ask(b"upper"), "UPPER");
    lab.sandbox(&["rm", "lab"]).ok();
    serving.wait().unwrap();
    close(lab);
}

#[test]
fn an_image_stays_while_sandboxes_are_on_it() {
    let lab = with_sandbox(&[]);
    sh(&lab, "lab", "echo mine > /workspace/own").ok();
    lab.sandbox(&["snapshot", "create", "lab", "--name", "base"]).ok();
    let fork = lab.sandbox(&["fork", "lab"]).ok().trim().to_owned();
    let digest = lab.json(&["get", "lab"])["image_digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let trees = lab.world.dir.path("state/ringfence/images/trees");
    let tree = trees.join(digest.strip_prefix("sha256:").unwrap());
    let removed = image(&lab, &["rm", NAME]);
    removed.ok();
    assert!(
        removed.stderr.contains("a run or sandbox uses the image"),
        "{removed:?}"
    );
    lab.sandbox(&["create", "--image", NAME])
        .refused(125, "there is no image");
    lab.sandbox(&["rm", "lab"]).ok();
    // The fork holds it, and so does what is made of the snapshot.
    let other = lab.world.dir.path("other.tar");
    let mut tar = lab.world.dir.program("tar");
    tar.arg("-cf")
        .arg(&other)
        .arg("-C")
        .arg(lab.world.dir.path("top"))
        .arg("app");
    finish(&mut tar, b"").ok();
    let import = |name: &str| image(&lab, &["import", other.to_str().unwrap(), "--name", name]);
    import("first").ok();
    assert_eq!(sh(&lab, &fork, READ).ok(), "of the image\nmine\n");
    lab.sandbox(&["create", "--name", "restored", "--snapshot", "base"])
        .ok();
    lab.sandbox(&["rm", &fork]).ok();
    import("second").ok();
    assert_eq!(sh(&lab, "restored", READ).ok(), "of the image\nmine\n");
    assert_eq!(lab.json(&["get", "restored"])["image"], REFERENCE);
    lab.sandbox(&["rm", "restored"]).ok();
    assert!(tree.exists());
    let listed = image(&lab, &["ls"]);
    assert!(!listed.ok().contains("removed, but in use"), "{listed:?}");
    assert!(!tree.exists());
    let gone = lab.sandbox(&["create", "--snapshot", "base"]);
    gone.refused(125, "there is no image");
    lab.sandbox(&["snapshot", "rm", "base"]).ok();
    close(lab);
}

#[test]
fn what_cannot_be_is_refused() {
    let lab = with_image();
    let create = |options: &[&str]| lab.sandbox(&[&["create"], options].concat());
    let missing = create(&["--image", "missing:1"]);
    missing.refused(125, "there is no image `docker.io/library/missing:1`");
    assert!(
        missing
            .stderr
            .contains("ringfence image pull docker.io/library/missing:1"),
        "{missing:?}"
    );
    create(&["--image", "A/../b"]).refused(2, "--image");
    create(&["--image", NAME, "--with", "pandas"]).refused(2, "not for an image's");
    create(&["--runtime", "local", "--template", "code-executor"]).refused(2, "--template");
    assert_eq!(lab.sandbox(&["ls"]).ok(), "");
    close(lab);
}

#[test]
fn only_the_servers_user_names_images() {
    let world = api::world();
    let archive = root_archive(&world.dir);
    let import = ["image", "import", archive.to_str().unwrap(), "--name", NAME];
    finish(&mut world.command(&[], import), b"").ok();
    let create = |surface: Surface, headers: &[&str], body: Value| {
        surface.ask("POST /v1/sandboxes", headers, &body.to_string())
    };
    let owner = create(Surface::socket(&world), &[], json!({"image": NAME}));
    assert_eq!(owner.status, 200, "{owner:?}");
    assert_eq!(owner.json()["image"], REFERENCE);
    let digest = owner.json()["image_digest"].clone();
    for image in [json!(NAME), digest, json!("missing:1")] {
        let denied = create(Surface::loopback(&world), &[BEARER], json!({"image": image}));
        denied.refused(403, "permission_denied");
    }
    let missing = create(Surface::socket(&world), &[], json!({"image": "missing:1"}));
    missing.refused(404, "not_found");
    let wrong = create(Surface::socket(&world), &[], json!({"image": "../x"}));
    wrong.refused(422, "invalid_arguments");
    world.stop_engine("TERM");
    fs::remove_dir_all(world.dir.path("state/ringfence/images")).unwrap();
    world.close();
}
