//! Threat: a workspace whose content, or the project around it, leads tools and code to other paths of the
//! host.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use crate::mcp::{Client, text};
use crate::support::entries;
use crate::tools::Tools;
use crate::world::World;

const EACH_USER: &str = "[permissions.filesystem]\nuser_scope = 'user'\nuser_root = 'files/{user_id}/x/.ssh'";

/// Returns a checked-out project with users' files in `.ssh`, of a user with a key there.
fn project() -> Tools {
    let tools = Tools::new("");
    fs::create_dir_all(tools.dir.path("work/files/local")).unwrap();
    tools.dir.write("work/ringfence.toml", EACH_USER);
    fs::create_dir(tools.dir.path("home/.ssh")).unwrap();
    tools.dir.write("home/.ssh/key", "private");
    tools
}

#[test]
fn a_project_chooses_directories_for_users_within_itself_alone() {
    let tools = project();
    let own = tools.dir.path("work/files/local/x");
    fs::create_dir_all(own.join(".ssh")).unwrap();
    tools.dir.write("work/files/local/x/.ssh/key", "public");
    assert_eq!(tools.ask("file_read", json!({"path": "key"}))["text"], "public");
    fs::rename(&own, tools.dir.path("work/aside")).unwrap();
    symlink(tools.dir.path("home"), &own).unwrap();
    assert_eq!(fs::read(own.join(".ssh/key")).unwrap(), b"private");
    for (tool, arguments) in [
        ("file_read", json!({"path": "key"})),
        ("file_list", json!({})),
        (
            "file_write",
            json!({"path": "authorized_keys", "content": "mallory"}),
        ),
        ("file_delete", json!({"path": "key"})),
        ("run_code", json!({"code": "print(open('key').read())"})),
        ("shell", json!({"command": "cat", "args": ["key"]})),
    ] {
        let refused = tools.refused(tool, arguments);
        assert!(refused.message.contains("is a link"), "{tool}: {refused:?}");
    }
    assert_eq!(entries(&tools.dir.path("home/.ssh")), ["key"]);
}

#[test]
fn a_project_makes_directories_within_itself_alone() {
    let tools = project();
    symlink(tools.dir.path("home"), tools.dir.path("work/files/local/x")).unwrap();
    tools.dir.write(
        "work/ringfence.toml",
        EACH_USER.replace(".ssh", ".config/autostart"),
    );
    let refused = tools.refused("file_write", json!({"path": "a.desktop", "content": ""}));
    assert!(refused.message.contains("is a link"), "{refused:?}");
    assert_eq!(entries(&tools.dir.path("home")), [".ssh"]);
}

/// A user's directory that a link replaces during a call of its owner.
#[test]
fn code_is_not_led_elsewhere_by_what_takes_the_place_of_its_workspace() {
    let world = World::here();
    world.dir.write(
        "config/ringfence/ringfence.toml",
        "[permissions.filesystem]\nuser_scope = 'user'\nuser_root = 'users/{user_id}'",
    );
    fs::create_dir(world.dir.path("secret")).unwrap();
    world.dir.write("secret/name", "secret");
    let list = json!({"code": "import os; print(os.listdir())"});
    let mut client = Client::greeted(&world, &[]);
    client.call("file_write", &json!({"path": "own", "content": ""}));
    let root = world.dir.path("work/users/local");
    fs::rename(&root, world.dir.path("work/users/aside")).unwrap();
    symlink(world.dir.path("secret"), &root).unwrap();
    let refused = client.call("run_code", &list);
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(
        text(&refused).contains("Too many levels of symbolic links"),
        "{refused}"
    );
    // File tools stay in the original directory, and so does code once that is restored.
    let read = client.call("file_list", &json!({}));
    assert!(text(&read).contains("own"), "{read}");
    fs::remove_file(&root).unwrap();
    fs::rename(world.dir.path("work/users/aside"), &root).unwrap();
    assert_eq!(client.python("import os; print(os.listdir())"), "['own']\n");
    client.leave().well();
    world.close();
}

/// Mount points are created while the host's root is visible: a link among a guest's files would lead there.
#[test]
fn no_mount_point_is_made_through_a_link_that_a_guest_has_planted() {
    let world = World::here();
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    for dir in ["work/data/sub/x", "work/more"] {
        fs::create_dir_all(world.dir.path(dir)).unwrap();
    }
    world.dir.write("work/more/file", "more");
    let args = ["--mount", "data:/data:rw", "--mount", "more:/data/sub/x"];
    let read = "print(open('/data/sub/x/file').read())";
    let run = |code: &str| world.run([&args[..], &["-c", code]].concat());
    assert_eq!(run(read).ok(), "more\n");
    let sub = world.dir.path("work/data/sub");
    fs::remove_dir_all(&sub).unwrap();
    plant(&world, outside.path());
    assert_eq!(fs::read_link(&sub).unwrap(), outside.path());
    run(read).refused(125, "Too many levels of symbolic links");
    assert_eq!(entries(outside.path()), [""; 0]);
    world.close();
}

fn plant(world: &World, target: &Path) {
    let code = format!(
        "import os\nos.symlink({:?}, '/data/sub')",
        target.display().to_string()
    );
    world.run(["--mount", "data:/data:rw", "-c", &code]).ok();
}

const FILL: &str = "print('begun', flush=True)\nfor name in 'abcdefgh':\n    open(name, 'wb').write(bytes(1 << 20))\nwhile True: pass";

#[test]
fn files_that_come_along_open_no_disk_without_an_end() {
    let tools = Tools::new("[sandbox]\ndisk = '4MiB'");
    let fill = json!({"code": FILL, "files": {"own": ""}});
    let ended = tools.ask("run_code", fill.clone());
    assert_eq!(
        (&ended["exit_code"], &ended["stdout"]),
        (&json!(1), &json!("begun\n")),
        "{ended}"
    );
    assert!(
        ended["stderr"]
            .as_str()
            .unwrap()
            .contains("No space left on device"),
        "{ended}"
    );
    assert_eq!(entries(&tools.dir.path("tmp")), [""; 0]);
    let little = json!({"code": "open('a', 'wb').write(bytes(1 << 20))", "files": {"own": ""}});
    assert_eq!(tools.ask("run_code", little)["exit_code"], 0);
    // The user accepts that programs may fill a directory named on the command line.
    fs::create_dir(tools.dir.path("work/named")).unwrap();
    let tools = tools.with(&["--workspace", "named"]);
    let mut stopped = fill;
    stopped["timeout"] = json!(2);
    assert_eq!(tools.ask("run_code", stopped)["meta"]["timed_out"], true);
    assert_eq!(entries(&tools.dir.path("work/named")).len(), 9);
}

#[test]
fn the_private_workspace_of_a_client_is_no_disk_without_an_end() {
    let world = World::here();
    world
        .dir
        .write("config/ringfence/ringfence.toml", "[sandbox]\ndisk = '4MiB'");
    let mut client = Client::greeted(&world, &[]);
    let full = client.call("run_code", &json!({"code": FILL}));
    for words in ["more than the 4MiB", "begun"] {
        assert!(text(&full).contains(words), "{full}");
    }
    // The excess may stay, and does not grow.
    let listed = client.call("shell", &json!({"command": "ls", "args": ["a"]}));
    assert!(text(&listed).contains("a"), "{listed}");
    let more = |name: &str| format!("open('{name}', 'wb').write(bytes(4 << 20))\nwhile True: pass");
    for arguments in [
        json!({"code": more("more")}),
        json!({"code": more("still-more"), "session": "s"}),
    ] {
        let ended = client.call("run_code", &arguments);
        assert!(text(&ended).contains("more than the 4MiB"), "{ended}");
    }
    let delete = "import os\nfor name in os.listdir(): os.remove(name)\nprint(os.listdir())";
    assert_eq!(client.python(delete), "[]\n");
    client.call("file_write", &json!({"path": "again", "content": "x"}));
    client.leave().well();
    world.close();
}
