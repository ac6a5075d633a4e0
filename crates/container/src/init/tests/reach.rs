//! Tests egress from real containers, with lying names and hostile hosts.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence_exec::filter::STANDARD_TCP;
use ringfence_network::egress::proxy::Injection;
use ringfence_network::egress::{NetworkSettings, Outlet, Resolver};
use ringfence_network::fetch::Trust;
use ringfence_network::secret::Secret;
use ringfence_policy::{EgressFacts, EgressPolicy, EngineKind, Pids};
use ringfence_testing::authority::{Authority, leaf};
use ringfence_testing::server::{Reply, Server};

use super::*;
use crate::spec::{Filter, OciRuntime, Spec};
use crate::testing::{engines, owned, spec};
use crate::warm::{self, Warm};
use crate::{ContainerRuntime, ContainerSupervisor, NewContainer};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
const PRIVATE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// A container of a real engine, whose init leads to the proxy.
struct Reaching {
    warm: Warm,
    supervisor: ContainerSupervisor,
    _place: tempfile::TempDir,
}

impl Reaching {
    async fn new(engine: &ContainerRuntime, oci_runtime: OciRuntime) -> Self {
        let supervisor = ContainerSupervisor::new(engine.clone(), owned(), engine.info().await.unwrap());
        let place = tempfile::tempdir().unwrap();
        let program = file(&place.path().join("init")).unwrap();
        let mut spec = Spec {
            owner: supervisor.owner().clone(),
            filter: Filter::named(STANDARD_TCP).unwrap(),
            oci_runtime,
            ..spec(&["replaced"])
        };
        // gVisor's own threads count.
        spec.resources.pids = Pids::try_from(500).unwrap();
        let new_container = NewContainer {
            spec: warm::with_init(spec, &program, 1, Interpreter::Warm).unwrap(),
            max_duration: Duration::from_secs(300),
            attach: true,
            belongings: None,
        };
        Self {
            warm: warm::start(&supervisor, new_container, Interpreter::Warm)
                .await
                .unwrap(),
            supervisor,
            _place: place,
        }
    }

    /// Runs a Python program; returns its standard output and the recorded egress attempts.
    async fn python(&self, outlet: &Outlet, code: &str, args: &[&str]) -> (String, EgressFacts) {
        let request = Request {
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            ..python(code)
        };
        let start = start(&request, "/tmp", false).unwrap();
        let init = self.warm.init();
        let running = init.run_through(start, Bytes::mib(1), Connection::none(), Some(outlet));
        let finished = running.await.unwrap();
        assert_eq!(finished.exit_code, 0, "{finished:?}");
        (finished.stdout.text, outlet.facts())
    }

    async fn close(self) {
        drop(self.warm);
        self.supervisor.close().await;
    }
}

/// Starts a container in every available engine, with every OCI runtime it has.
async fn containers() -> Vec<Reaching> {
    let mut all = Vec::new();
    for engine in engines().await {
        all.push(Reaching::new(&engine, OciRuntime::Default).await);
        // Podman ignores the OCI runtime of a request.
        let runtimes = engine.info().await.unwrap().runtimes;
        if engine.kind() == EngineKind::Docker && runtimes.iter().any(|name| name == "runsc") {
            all.push(Reaching::new(&engine, OciRuntime::Runsc).await);
        }
    }
    all
}

/// Builds an outlet that allows `*.ok.test` and 127.0.0.1 at this port, both only if they resolve to
/// 127.0.0.1.
fn outlet(port: u16, resolver: Resolver, trust: Trust, injections: Vec<Injection>) -> Outlet {
    let allowed = [format!("*.ok.test:{port}"), format!("127.0.0.1:{port}")];
    let policy = EgressPolicy {
        allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
        private_networks: vec!["127.0.0.1".parse().unwrap()],
    };
    let settings = NetworkSettings {
        resolver,
        trust: Arc::new(trust),
        injections,
    };
    Outlet::new(&policy, &settings)
}

/// A program that requests each address through the proxy and prints the status.
const ASK: &str = r#"
import sys, urllib.request as r, urllib.error as e
for url in sys.argv[1:]:
    try: print(r.urlopen(url).status)
    except e.HTTPError as error: print(error.code)
"#;

#[tokio::test]
async fn a_name_leads_to_no_closed_address_now_or_later() {
    for container in containers().await {
        let server = Server::start(|_| Reply::text("200 OK", "hello")).await;
        let (asked, changes) = (Arc::new(Mutex::new(Vec::new())), AtomicUsize::new(0));
        let noted = Arc::clone(&asked);
        let resolver = Resolver::fixed(move |name| {
            noted.lock().unwrap().push(name.as_str().to_owned());
            match name.as_str() {
                "inner.ok.test" => vec![PRIVATE],
                "metadata.ok.test" => vec![METADATA],
                "mixed.ok.test" => vec![HERE, PRIVATE],
                "nowhere.ok.test" => Vec::new(),
                "change.ok.test" if changes.fetch_add(1, Ordering::Relaxed) > 0 => vec![METADATA],
                _ => vec![HERE],
            }
        });
        let outlet = outlet(server.port, resolver, Trust::default(), Vec::new());
        let names = [
            "good", "inner", "metadata", "mixed", "nowhere", "change", "change",
        ];
        let urls = names.map(|name| format!("http://{name}.ok.test:{}/", server.port));
        let mut urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        // Hosts that no pattern allows are not even resolved: a DNS query would exfiltrate data in the name.
        urls.extend([
            "http://secret.evil.test/",
            "http://ok.test.evil.test/",
            "http://ok.test/",
        ]);
        let (statuses, facts) = container.python(&outlet, ASK, &urls).await;
        let expected = "200\n403\n403\n403\n502\n200\n403\n403\n403\n403\n";
        assert_eq!(statuses, expected, "{facts:?}");
        let allowed = names.map(|name| format!("{name}.ok.test"));
        assert_eq!(*asked.lock().unwrap(), allowed);
        assert_eq!(server.requests().len(), 2);
        assert_eq!(facts.attempts.len(), 10);
        container.close().await;
    }
}

#[tokio::test]
async fn a_redirect_leads_to_no_closed_place() {
    for container in containers().await {
        let other = Server::start(|_| Reply::text("200 OK", "other")).await;
        let closed = other.port;
        let server = Server::start(move |request| match request.split(' ').nth(1) {
            Some("/good") => Reply::redirect("/page"),
            Some("/other") => Reply::redirect(&format!("http://127.0.0.1:{closed}/")),
            Some("/metadata") => Reply::redirect("http://169.254.169.254/"),
            Some("/decimal") => Reply::redirect("http://2130706433/"),
            _ => Reply::text("200 OK", "page"),
        })
        .await;
        let resolver = Resolver::fixed(|_| vec![HERE]);
        let outlet = outlet(server.port, resolver, Trust::default(), Vec::new());
        let paths = ["good", "other", "metadata", "decimal"];
        let urls = paths.map(|path| format!("http://a.ok.test:{}/{path}", server.port));
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let (statuses, facts) = container.python(&outlet, ASK, &urls).await;
        assert_eq!(statuses, "200\n403\n403\n400\n", "{facts:?}");
        assert_eq!(other.requests(), Vec::<String>::new());
        container.close().await;
    }
}

/// A program that sends a credential of its own and prints every place that could hold the injected one.
const LOOK: &str = r#"
import glob, os, re, sys, urllib.request as r
request = r.Request(sys.argv[1], headers={"Authorization": "mine"})
answer = r.urlopen(request)
print(answer.status, answer.headers, answer.read())
print(os.environ)
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/.ringfence/*"):
    try: print(path, open(path, "rb").read(65536))
    except OSError: pass
# Patterns that are not what they look for.
secret, ours = (re.compile(text) for text in (b"s3cr3t[-]value", b"RINGFENCE[_]PROXY"))
found = [0, 0]
for line in open("/proc/self/maps"):
    place = line.split()
    if "r" not in place[1] or "[v" in line: continue
    start, end = (int(part, 16) for part in place[0].split("-"))
    with open("/proc/self/mem", "rb") as memory:
        try: memory.seek(start); bytes = memory.read(end - start)
        except OSError: continue
        found[0] += len(secret.findall(bytes)); found[1] += len(ours.findall(bytes))
print("in memory:", found[0], found[1] > 0)
"#;

#[tokio::test]
async fn a_credential_is_used_and_never_seen() {
    for container in containers().await {
        let authority = Authority::new("known");
        let acceptor = authority.acceptor(&leaf(&["api.ok.test"]));
        let server = Server::secure(acceptor, |request| {
            let seen = request.lines().find(|line| line.starts_with("authorization"));
            Reply::text(&format!("200 OK\r\nX-Echo: {}", seen.unwrap_or_default()), "body")
        })
        .await;
        let port = server.port;
        let value = Secret::new("s3cr3t-value").ok();
        let host = "api.ok.test".parse().unwrap();
        let injection = Injection::new(host, Some(port), "Authorization", "Bearer ", value).unwrap();
        let resolver = Resolver::fixed(|_| vec![HERE]);
        let trust = Trust::new(Some(authority.file()));
        let outlet = outlet(port, resolver, trust, vec![injection]);
        let url = format!("http://api.ok.test:{port}/x");
        let (text, _) = container.python(&outlet, LOOK, &[&url]).await;
        assert!(text.starts_with("200 ") && text.contains("b'body'"), "{text}");
        assert!(
            text.contains("[REDACTED]") && text.contains("RINGFENCE_PROXY"),
            "{text}"
        );
        assert!(
            !text.contains("s3cr3t") && text.contains("in memory: 0 True\n"),
            "{text}"
        );
        let heard = server.requests().remove(0);
        assert!(
            heard.contains("\r\nauthorization: Bearer s3cr3t-value\r\n"),
            "{heard}"
        );
        assert!(!heard.contains("mine"), "{heard}");
        container.close().await;
    }
}
