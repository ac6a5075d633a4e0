//! Skills and MCP servers reach the hosts in their allowlist, and no other.

use super::put;
use crate::network::Server;
use crate::world::World;

const WEB: &str = "
import urllib.request

class Web:
    def get(self, url: str) -> str:
        return urllib.request.urlopen(url, timeout=20).read().decode()
";

/// Asserts a program's responses from two servers with these hosts in the manifest, and the number of
/// requests to each.
#[track_caller]
fn check(hosts: &dyn Fn(u16) -> String, expected: [&str; 2], visits: [usize; 2]) {
    let world = World::here();
    let (named, other) = (Server::new(), Server::new());
    put(&world.dir, "web.py", WEB);
    put(&world.dir, "web.toml", &hosts(named.port));
    let code = format!(
        "for url in ('{}', '{}'):\n    try:\n        print(device.Web.get(url))\n    \
         except RuntimeError as error:\n        print(error)\n",
        named.url(),
        other.url()
    );
    let run = world.json(["--skills", "skills", "--timeout", "120s", "-c", &code]);
    for (told, expected) in run.stdout().lines().zip(expected) {
        assert!(told.contains(expected), "{told}\n{run:#?}");
    }
    assert_eq!(run.stdout().lines().count(), 2, "{run:#?}");
    assert_eq!([named.visits(), other.visits()], visits);
    world.close();
}

#[test]
fn a_manifest_opens_the_hosts_that_it_names() {
    let refused = "403";
    check(
        &|port| format!("hosts = ['127.0.0.1:{port}']"),
        ["hello", refused],
        [1, 0],
    );
    // Both respond: only the allowlist denies one of them.
    check(
        &|_| "hosts = ['127.0.0.1:1']".to_owned(),
        [refused, refused],
        [0, 0],
    );
}

#[test]
fn without_hosts_there_is_no_network() {
    check(&|_| String::new(), ["URLError", "URLError"], [0, 0]);
}

#[test]
fn a_name_does_not_open_an_address_of_this_machine() {
    let world = World::here();
    let server = Server::new();
    put(&world.dir, "web.py", WEB);
    let port = server.port;
    put(&world.dir, "web.toml", &format!("hosts = ['localhost:{port}']"));
    let code = format!(
        "try:\n    print(device.Web.get('http://localhost:{port}/page'))\n\
         except RuntimeError as error:\n    print(error)\n"
    );
    let run = |expected: &str| {
        let run = world.json(["--skills", "skills", "--timeout", "120s", "-c", &code]);
        assert!(run.stdout().contains(expected), "{run:#?}");
    };
    run("403");
    assert_eq!(server.visits(), 0);
    // The user may allow it.
    world
        .dir
        .write("config/ringfence/ringfence.toml", crate::network::OPEN);
    run("hello");
    assert_eq!(server.visits(), 1);
    world.close();
}

#[test]
fn a_star_means_every_host_and_opens_no_address_that_is_not_public() {
    let world = World::here();
    let server = Server::new();
    put(&world.dir, "web.py", WEB);
    let code = format!(
        "try:\n    print(device.Web.get('{}'))\nexcept RuntimeError as error:\n    print(error)\n",
        server.url()
    );
    let check = |hosts: &str, expected: &str, visits: usize| {
        put(&world.dir, "web.toml", &format!("hosts = ['{hosts}']"));
        let run = world.json(["--skills", "skills", "--timeout", "120s", "-c", &code]);
        assert!(run.stdout().contains(expected), "{hosts}: {run:#?}");
        assert_eq!(server.visits(), visits, "{hosts}");
    };
    let star = format!("*:{}", server.port);
    check(&star, "403", 0);
    // The user may allow such addresses; the allowlist still restricts the ports.
    world
        .dir
        .write("config/ringfence/ringfence.toml", crate::network::OPEN);
    check("*", "403", 0);
    check(&star, "hello", 1);
    world.close();
}

#[test]
fn an_mcp_server_reaches_the_hosts_of_its_entry() {
    let world = World::here();
    let (named, other) = (Server::new(), Server::new());
    let hosts = format!("hosts = ['127.0.0.1:{}']", named.port);
    let entries = [
        super::servers::entry("s", "", &hosts),
        super::servers::entry("none", "", ""),
    ];
    world
        .dir
        .write("config/ringfence/ringfence.toml", entries.concat());
    let code = format!(
        "for get, url in ((device.s.get, '{a}'), (device.s.get, '{b}'), (device.none.get, '{a}')):\n    try:\n        \
         print(get(url))\n    except RuntimeError as error:\n        print(error)\n",
        a = named.url(),
        b = other.url(),
    );
    let run = world.json(["--servers", "--timeout", "120s", "-c", &code]);
    let told: Vec<&str> = run.stdout().lines().collect();
    let [reached, refused, nothing] = told[..] else {
        panic!("{run:#?}")
    };
    assert_eq!(reached, "hello", "{run:#?}");
    assert!(refused.contains("403"), "{run:#?}");
    assert!(nothing.contains("URLError"), "{run:#?}");
    assert_eq!([named.visits(), other.visits()], [1, 0]);
    world.close();
}
