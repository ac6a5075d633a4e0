//! The workspace of a connection's tools.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Client, text};
use crate::support::{entries, eventually};
use crate::world::{Mode, Place, World, play};

/// Writes a file by a tool, and reads it by code.
fn shared(client: &mut Client) {
    let written = client.call("file_write", &json!({"path": "a.txt", "content": "shared"}));
    assert_eq!(written["isError"], false, "{written}");
    assert_eq!(
        client.python("print(open('/workspace/a.txt').read())"),
        "shared\n"
    );
}

/// Answers the server's next request for roots.
fn offer(client: &mut Client, roots: &[&Path]) {
    let question = client.until(|message| message["method"] == "roots/list");
    let roots: Vec<Value> = roots
        .iter()
        .map(|path| json!({"uri": format!("file://{}", path.display())}))
        .collect();
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": roots}}));
}

/// Connects a client with roots, and waits until the server has adopted one.
fn with_root(world: &World, args: &[&str], root: &Path) -> Client {
    let mut client = Client::start(world, args);
    client.greet(&json!({"roots": {"listChanged": true}}));
    offer(&mut client, &[root]);
    client
}

fn directory(world: &World, name: &str) -> PathBuf {
    let path = world.dir.path(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Returns the existing private workspaces.
fn private(world: &World) -> Vec<String> {
    entries(&world.dir.path("state/ringfence/workspaces"))
}

#[test]
fn a_private_one_goes_with_its_connection() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let mut other = Client::greeted(&world, &[]);
    shared(&mut client);
    assert_eq!(private(&world).len(), 2);
    let seen = other.python("import os; print(os.listdir('.'))");
    assert_eq!(seen, "[]\n", "one connection sees the files of another");
    client.leave().well();
    assert_eq!(private(&world).len(), 1);
    other.leave().well();
    assert_eq!(private(&world), [""; 0]);
    world.close();
}

fn a_private_one_works(world: &World) {
    let mut client = Client::greeted(world, &[]);
    let written = client.call("file_write", &json!({"path": "a.txt", "content": "shared"}));
    assert_eq!(written["isError"], false, "{written}");
    // A warning about a missing layer may follow.
    let read = client.python("print(open('a.txt').read())");
    assert!(read.starts_with("shared\n"), "{read}");
    client.python("open('b.txt', 'w').write('from code')");
    let read = client.call("file_read", &json!({"path": "b.txt"}));
    assert!(text(&read).contains("from code"), "{read}");
    let left = client.leave();
    assert_eq!((left.status, left.stderr.as_str()), (0, ""), "{left:?}");
    assert_eq!(private(world), [""; 0]);
}

#[test]
fn a_private_one_works_for_a_user_without_rights() {
    play(World::new(Mode::OneShot, Place::User), a_private_one_works);
}

#[test]
fn a_private_one_works_where_namespaces_are_forbidden() {
    play(World::new(Mode::OneShot, Place::Container), a_private_one_works);
    play(
        World::new(Mode::OneShot, Place::ContainerUser),
        a_private_one_works,
    );
}

#[test]
fn a_private_one_of_a_killed_server_is_removed_by_the_next() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    shared(&mut client);
    client.python("import os; os.makedirs('shut/in'); os.chmod('shut', 0)");
    let before = private(&world);
    world.signal(&client.child, "KILL");
    client.end();
    assert_eq!(private(&world), before);
    let mut next = Client::greeted(&world, &[]);
    assert_eq!(next.python("import os; print(os.listdir('.'))"), "[]\n");
    assert!(private(&world).iter().all(|name| !before.contains(name)));
    next.leave().well();
    world.close();
}

#[test]
fn a_private_one_is_kept_where_that_is_wanted() {
    let world = World::here();
    let mut client = Client::greeted(&world, &["--keep-workspace"]);
    shared(&mut client);
    let left = client.leave();
    assert_eq!(left.status, 0, "{left:?}");
    let told = left.stderr.strip_prefix("the workspace is kept in ").unwrap();
    let kept = Path::new(told.trim_end());
    assert_eq!(fs::read_to_string(kept.join("a.txt")).unwrap(), "shared");
    // The next server does not remove it.
    Client::greeted(&world, &[]).leave().well();
    assert!(kept.exists());
    fs::remove_dir_all(kept).unwrap();
    world.close();
}

#[test]
fn one_that_a_person_names_is_used_whatever_the_client_offers() {
    let world = World::here();
    let named = directory(&world, "named");
    let offered = directory(&world, "offered");
    let mut client = Client::start(&world, &["--workspace", named.to_str().unwrap()]);
    client.greet(&json!({"roots": {}}));
    shared(&mut client);
    assert_eq!(fs::read_to_string(named.join("a.txt")).unwrap(), "shared");
    assert_eq!(entries(&offered), [""; 0]);
    // The server requested no roots.
    client.leave().well();
    assert!(named.join("a.txt").exists());
    world.close();
}

#[test]
fn one_that_must_not_be_shown_is_refused() {
    let world = World::here();
    let state = world.dir.path("state/ringfence");
    fs::create_dir_all(&state).unwrap();
    for path in ["/proc", "/", "/dev", "/run", state.to_str().unwrap()] {
        let refused = world.dir.run(["mcp", "--workspace", path]);
        refused.refused(2, "refusing to show");
    }
    let refused = world.dir.run(["mcp", "--workspace", "nowhere"]);
    refused.refused(2, "cannot use");
    world.close();
}

#[test]
fn a_root_counts_for_calls_that_come_later() {
    let world = World::here();
    let (one, two) = (directory(&world, "one"), directory(&world, "two"));
    let mut client = with_root(&world, &[], &one);
    shared(&mut client);
    // This program writes on a signal, in the directory that it started in.
    let code = "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n\
                open('late', 'w').close()";
    let lasting = client.begin("run_python_code", &json!({"code": code}));
    eventually("the program has begun", || one.join("begun").exists());
    client.tell("notifications/roots/list_changed", &json!({}));
    let write = client.begin("file_write", &json!({"path": "b.txt", "content": "new"}));
    offer(&mut client, &[&two]);
    let written = client.answer(write);
    assert_eq!(written["result"]["isError"], false, "{written}");
    fs::write(one.join("go"), "").unwrap();
    client.answer(lasting);
    assert_eq!(entries(&one), ["a.txt", "begun", "go", "late"]);
    assert_eq!(entries(&two), ["b.txt"]);
    client.leave().well();
    world.close();
}

#[test]
fn a_root_that_is_withdrawn_or_refused_is_used_no_more() {
    let world = World::here();
    let one = directory(&world, "one");
    let mut client = with_root(&world, &[], &one);
    shared(&mut client);
    for offered in [&[][..], &[Path::new("/proc")], &[Path::new("/no/such/place")]] {
        client.tell("notifications/roots/list_changed", &json!({}));
        offer(&mut client, offered);
        assert_eq!(
            client.python("import os; print(os.listdir('.'))"),
            "[]\n",
            "{offered:?}"
        );
    }
    let told: Vec<&str> = client
        .early
        .iter()
        .map(|message| message["params"]["data"].as_str().unwrap())
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.iter().all(|told| told.contains("not the workspace")),
        "{told:?}"
    );
    client.early.clear();
    client.leave().well();
    world.close();
}

#[test]
fn a_client_that_does_not_name_its_roots_is_not_waited_for_for_ever() {
    let world = World::here();
    let mut client = Client::start(&world, &[]);
    client.greet(&json!({"roots": {}}));
    let call = client.begin("run_python_code", &json!({"code": "print('gone on')"}));
    client.until(|message| message["method"] == "roots/list");
    assert_eq!(client.ask("ping", &json!({}))["result"], json!({}));
    assert_eq!(text(&client.answer(call)["result"]), "gone on\n");
    let left = client.leave();
    assert_eq!((left.status, left.stderr.as_str()), (0, ""), "{left:?}");
    world.close();
}

#[test]
fn a_client_hears_as_much_as_it_wants() {
    let world = World::here();
    let one = directory(&world, "one");
    let heard = |level: &str, root: &Path| {
        let mut client = with_root(&world, &[], &one);
        assert_eq!(client.python("print(1)"), "1\n");
        let set = client.ask("logging/setLevel", &json!({"level": level}));
        assert_eq!(set["result"], json!({}));
        client.tell("notifications/roots/list_changed", &json!({}));
        offer(&mut client, &[root]);
        assert_eq!(client.python("print(2)"), "2\n");
        let messages = client.leave().messages;
        let levels = messages.iter().map(|message| {
            assert_eq!(message["method"], "notifications/message");
            message["params"]["level"].as_str().unwrap().to_owned()
        });
        levels.collect::<Vec<_>>()
    };
    assert_eq!(heard("info", &one), ["info"]);
    assert_eq!(heard("warning", &one), [""; 0]);
    assert_eq!(heard("warning", Path::new("/proc")), ["warning"]);
    assert_eq!(heard("error", Path::new("/proc")), [""; 0]);
    world.close();
}

#[test]
fn users_have_their_own_where_the_configuration_says_so() {
    let world = World::here();
    let config = "[permissions.filesystem]\nuser_scope = \"user\"\nuser_root = \"data/{user_id}\"\n";
    world.dir.write("config/ringfence/ringfence.toml", config);
    let offered = directory(&world, "offered");
    for user in ["ann", "bob"] {
        let mut client = Client::start(&world, &["--user", user]);
        client.greet(&json!({"roots": {}}));
        let before = client.call("file_list", &json!({"path": "."}));
        assert!(!text(&before).contains("a.txt"), "{before}");
        shared(&mut client);
        client.leave().well();
        assert_eq!(entries(&world.dir.path(&format!("work/data/{user}"))), ["a.txt"]);
    }
    assert_eq!(entries(&offered), [""; 0]);
    world.close();
}
