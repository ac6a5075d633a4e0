//! `--network allowlist`: programs of every language reach the allowed hosts, and nothing else in any way.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::world::{Mode, Place, Run, World, play};

/// A server with one response for all, which records the first bytes of each connection.
pub(crate) struct Server {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = vec![0; 4096];
                let count = stream.read(&mut bytes).unwrap_or(0);
                bytes.truncate(count);
                kept.lock().unwrap().push(bytes);
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
            }
        });
        Self { port, heard }
    }

    pub(crate) fn visits(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    /// Returns all recorded bytes as text.
    pub(crate) fn text(&self) -> String {
        let heard = self.heard.lock().unwrap();
        heard
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/page", self.port)
    }
}

/// Private addresses are allowed here, so that only the allowlist of hosts denies.
pub(crate) const OPEN: &str = "[egress]\nprivate_networks = ['127.0.0.0/8', '::1']\n";

fn in_both_modes(scenario: impl Fn(&World)) {
    for mode in [Mode::OneShot, Mode::Engine] {
        play(World::new(mode, Place::Here), |world: &World| {
            world.dir.write("config/ringfence/ringfence.toml", OPEN);
            scenario(world);
        });
    }
}

#[track_caller]
fn run(world: &World, allowed: &str, args: &[&str]) -> Run {
    world.json([&["--network", "allowlist", "--allow-host", allowed], args].concat())
}

#[track_caller]
pub(crate) fn prints(run: &Run, expected: &str) {
    assert_eq!(run.get("stdout"), expected, "{run:?}");
}

#[test]
fn clients_of_every_language_reach_an_allowed_host() {
    in_both_modes(|world| {
        let server = Server::new();
        let allowed = format!("127.0.0.1:{}", server.port);
        let url = server.url();
        let python = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode(), end='')";
        let curl = "curl --silent --show-error \"$1\"";
        let node = "const u = new URL(process.env.HTTP_PROXY); require('http').get({host: u.hostname, port: u.port, \
                    path: process.argv[2], headers: {host: new URL(process.argv[2]).host}}, r => r.pipe(process.stdout))";
        for (language, code) in [("python", python), ("bash", curl), ("javascript", node)] {
            let before = server.visits();
            let ran = run(world, &allowed, &["-l", language, "-c", code, "--", &url]);
            prints(&ran, "hello");
            assert_eq!(server.visits(), before + 1, "{language}");
            let attempt = json!({"target": allowed, "verdict": "connected"});
            assert_eq!(ran.get("meta.egress.attempts"), &json!([attempt]));
            assert_eq!(ran.get("meta.egress.left_off"), 0);
            assert!(ran.get("meta.egress.bytes").as_u64() > Some(50), "{language}");
            let isolation = ran.get("meta.isolation");
            assert_eq!(
                (&isolation["seccomp"], &isolation["net_ns"]),
                (&json!("fence-network"), &json!(true)),
                "{language}"
            );
        }
        // By default there is no network.
        let ran = world.json([
            "-c",
            "import socket\ntry: socket.socket()\nexcept OSError as e: print(e.errno)",
        ]);
        prints(&ran, "13\n");
        assert!(ran.get("meta.egress").is_null(), "{ran:?}");
        assert_eq!(ran.get("meta.isolation.seccomp"), "fence");
    });
}

/// Requests each target from the proxy, and prints the status.
pub(crate) const ASK: &str = r#"
import os, socket, sys
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["http_proxy"])
def ask(line, host):
    s = socket.create_connection((proxy.hostname, proxy.port))
    s.sendall(f"{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1"))
    answer = b""
    while part := s.recv(4096): answer += part
    return answer.split(b" ")[1].decode() if b" " in answer else "closed"
"#;

/// A program with a network: its allowed hosts, then its arguments.
type Guest<'a> = &'a dyn Fn(&str, &[&str]) -> Run;

#[test]
fn the_proxy_refuses_every_other_spelling_of_a_host() {
    in_both_modes(|world| spellings(&|allowed, args| run(world, allowed, args)));
}

pub(crate) fn spellings(run: Guest<'_>) {
    let server = Server::new();
    let port = server.port;
    let hosts = [
        ("ok.test\\0.evil.test", "400"),
        ("evil.test", "403"),
        ("evil.test.", "403"),
        ("xn--e1awd7f.test", "403"),
        ("\\xe4.test", "400"),
        ("localhost", "403"),
        ("[::1]", "403"),
        ("[::ffff:127.0.0.1]", "200"),
        ("[::ffff:127.0.0.2]", "403"),
        ("2130706433", "400"),
        ("0x7f.0.0.1", "400"),
        ("0177.0.0.1", "400"),
        ("127.1", "400"),
        ("user@127.0.0.1", "400"),
        ("127.0.0.1@evil.test", "400"),
        ("169.254.169.254", "403"),
        ("127.0.0.1", "200"),
    ];
    let mut code = ASK.to_owned();
    let mut expected = Vec::new();
    for (host, status) in hosts {
        code += &format!("print(ask('GET http://{host}:{port}/', '{host}:{port}'))\n");
        expected.push(status);
    }
    code += &format!(
        "print(ask('GET http://127.0.0.1:{port}/\\r\\nX: y', '127.0.0.1:{port}\\r\\nHost: evil.test'))\n"
    );
    expected.push("400");
    code += "print(ask('GET http://127.0.0.1:22/', '127.0.0.1:22'), ask('CONNECT 127.0.0.1:22', '127.0.0.1:22'))\n";
    expected.push("403 403");
    let ran = run(&format!("127.0.0.1:{port}"), &["-c", &code]);
    let said: Vec<&str> = ran.get("stdout").as_str().unwrap().lines().collect();
    assert_eq!(said, expected, "{ran:?}");
    assert_eq!(server.visits(), 2);
    let attempts = ran.get("meta.egress.attempts").as_array().unwrap();
    let refused = attempts.iter().filter(|one| one["verdict"] == "refused").count();
    assert_eq!(refused, 9, "{attempts:?}");
    assert!(
        attempts.iter().any(|one| one["verdict"] == "malformed"),
        "{attempts:?}"
    );
}

#[test]
fn a_tunnel_speaks_tls_to_its_host_alone() {
    in_both_modes(|world| tunnels(&|allowed, args| run(world, allowed, args)));
}

pub(crate) fn tunnels(run: Guest<'_>) {
    let server = Server::new();
    let target = format!("localhost:{}", server.port);
    let code = format!(
        r#"{ASK}
import ssl
def tunnel(name, hello=None):
    s = socket.create_connection((proxy.hostname, proxy.port))
    s.sendall(b"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
    said = s.recv(4096).split(b" ")[1].decode()
    if hello is None:
        context = ssl.create_default_context()
        context.check_hostname = bool(name)
        into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        try: context.wrap_bio(into, out, server_hostname=name).do_handshake()
        except ssl.SSLWantReadError: hello = out.read()
    try:
        for byte in (hello[:9], hello[9:]): s.sendall(byte)
        return said, s.recv(8).decode()
    except OSError: return said, ""
print(tunnel("localhost"), tunnel("evil.test"), tunnel(None), tunnel("", b"GET / HTTP/1.1\r\n\r\n"))
"#
    );
    let ran = run(&target, &["-c", &code]);
    prints(&ran, "('200', 'HTTP/1.1') ('200', '') ('200', '') ('200', '')\n");
    let heard = server.heard.lock().unwrap();
    let with_bytes: Vec<_> = heard.iter().filter(|bytes| !bytes.is_empty()).collect();
    assert_eq!(with_bytes.len(), 1);
    assert_eq!(with_bytes[0][0], 0x16);
    let reasons: Vec<&Value> = ran
        .get("meta.egress.attempts")
        .as_array()
        .unwrap()
        .iter()
        .collect();
    let closed = reasons.iter().filter(|one| one["verdict"] == "closed").count();
    assert_eq!(closed, 3, "{reasons:?}");
}

/// Each line tries one way out, and prints the error's name.
pub(crate) const WAYS: &str = r#"
import errno, socket, sys
def way(name, act):
    try: act(); print(name, "done")
    except socket.gaierror: print(name, "unknown")
    except OSError as error: print(name, errno.errorcode[error.errno])
port, abstract = int(sys.argv[1]), "\0" + sys.argv[2]
way("tcp", lambda: socket.create_connection(("127.0.0.1", port)))
way("tcp6", lambda: socket.socket(socket.AF_INET6).connect(("::ffff:127.0.0.1", port)))
way("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)))
way("udp6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
way("listen", lambda: socket.create_server(("127.0.0.1", 0)))
way("abstract", lambda: socket.socket(socket.AF_UNIX).connect(abstract))
way("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
way("ulp", lambda: socket.socket().setsockopt(6, 31, b"tls"))
"#;

#[test]
fn there_is_no_other_way_out() {
    in_both_modes(|world| {
        let server = Server::new();
        let name = format!("ringfence-test-{}", server.port);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let port = server.port.to_string();
        let code = format!("{WAYS}way('name', lambda: socket.getaddrinfo('secret.evil.test', 80))\n");
        let outside = world.run(["--unfenced", "-c", WAYS, "--", &port, &name]);
        let outside: Vec<&str> = outside.ok().lines().collect();
        // Stacking a protocol needs no connection: the error differs from the one inside.
        let expected = "tcp done,tcp6 done,udp done,udp6 done,listen done,abstract done,netlink done";
        assert_eq!(outside[..7].join(","), expected);
        assert_ne!(outside[7], "ulp EPERM");
        let visits = server.visits();

        let allowed = format!("127.0.0.1:{port}");
        let ran = run(world, &allowed, &["-c", &code, "--", &port, &name]);
        let said = ran.get("stdout").as_str().unwrap().replace('\n', ",");
        // If Landlock governs ports, it denies; without it nothing listens at the port.
        let (tcp, listen) = if ran.get("meta.isolation.landlock_abi").as_u64() >= Some(4) {
            ("EACCES", "EACCES")
        } else {
            ("ECONNREFUSED", "done")
        };
        let expected = format!(
            "tcp {tcp},tcp6 {tcp},udp EACCES,udp6 EACCES,listen {listen},abstract ECONNREFUSED,netlink EPERM,ulp EPERM,\
             name unknown,"
        );
        let abstract_refused = said.replace("abstract EPERM", "abstract ECONNREFUSED");
        assert_eq!(abstract_refused, expected, "{ran:?}");
        assert_eq!(server.visits(), visits, "nothing reached the host");
        assert_eq!(ran.get("meta.egress.attempts"), &json!([]));
    });
}

#[test]
fn private_addresses_are_closed_unless_a_person_opened_them() {
    play(World::new(Mode::OneShot, Place::Here), |world: &World| {
        let server = Server::new();
        let code = format!(
            "{ASK}print(ask('GET {0}', '127.0.0.1:{1}'))",
            server.url(),
            server.port
        );
        let allowed = format!("127.0.0.1:{}", server.port);
        prints(&run(world, &allowed, &["-c", &code]), "403\n");
        // Nor does a project's file allow them, or enable the network.
        world.dir.write("work/ringfence.toml", OPEN);
        prints(&run(world, &allowed, &["-c", &code]), "403\n");
        assert_eq!(server.visits(), 0);
        world
            .dir
            .write("work/ringfence.toml", "[sandbox]\nnetwork = 'allowlist'\n");
        world.run(["-c", "1"]).refused(2, "sandbox.network");
    });
}

#[test]
fn a_configured_network_serves_tools_and_is_recorded() {
    in_both_modes(|world| {
        let server = Server::new();
        let allowed = format!("127.0.0.1:{}", server.port);
        let config = format!("{OPEN}allowed_hosts = ['{allowed}']\n[sandbox]\nnetwork = 'allowlist'\n");
        world.dir.write("config/ringfence/ringfence.toml", config);
        let code = format!("{ASK}print(ask('GET {0}', '{allowed}'))", server.url());
        let answer = world.tool(&[], "run_code", &json!({"language": "python", "code": code}));
        assert_eq!(answer["stdout"], "200\n", "{answer}");
        assert_eq!(server.visits(), 1);
        let log = crate::support::finish(&mut world.command(&[], ["audit", "tail", "--json"]), b"");
        let attempts = format!("\"attempts\":[\"{allowed} connected\"]");
        assert!(log.ok().contains(&attempts), "{log:?}");
        let shell = json!({"command": "curl", "args": ["--silent", server.url()]});
        let answer = world.tool(&[], "shell", &shell);
        assert_eq!(answer["stdout"], "hello", "{answer}");
    });
}

#[test]
fn a_network_with_a_workspace_has_no_named_sockets() {
    in_both_modes(|world| {
        let server = Server::new();
        let allowed = format!("127.0.0.1:{}", server.port);
        let _host = UnixListener::bind(world.dir.path("work/host.sock")).unwrap();
        let code = format!(
            "{ASK}print(ask('GET {0}', '{allowed}'))\ntry: socket.socket(socket.AF_UNIX)\nexcept OSError as e: print(e.errno)",
            server.url()
        );
        prints(
            &run(world, &allowed, &["--workspace", ".", "-c", &code]),
            "200\n1\n",
        );
    });
}

#[test]
fn where_namespaces_are_forbidden_there_is_no_network() {
    play(World::new(Mode::OneShot, Place::Container), |world: &World| {
        world
            .run(["--network", "allowlist", "--allow-host", "a.test", "-c", "1"])
            .refused(125, "is not supported where namespaces are forbidden");
    });
}
