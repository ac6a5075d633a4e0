//! Usage and quotas of keys.

use serde_json::{Value, json};

use super::keys::Holder;
use super::{BEARER, KEY, Surface, networked, world};
use crate::network::Server;
use crate::support::eventually;
use crate::world::World;

impl Holder {
    /// Returns the usage that the server shows to the key, which is its own alone.
    #[track_caller]
    pub(super) fn usage(&self) -> Value {
        let report = self.ok("GET /v1/usage", &json!({}));
        let keys = report["keys"].as_array().unwrap();
        assert!(keys.len() == 1 && keys[0]["id"] == self.id, "{report}");
        assert!(
            report["resets_at"].as_str().unwrap().ends_with("T00:00:00.000Z"),
            "{report}"
        );
        keys[0].clone()
    }

    /// Checks that work is refused until the day ends.
    #[track_caller]
    fn assert_used_up(&self, line: &str, body: &Value, what: &str) {
        let reply = self.ask(line, body);
        reply.refused(429, "limit_exceeded");
        assert!(
            reply.body.contains(what) && reply.body.contains("T00:00:00"),
            "{line}: {reply:?}"
        );
        let wait = reply
            .head
            .lines()
            .find_map(|line| line.strip_prefix("retry-after: "));
        let wait: u64 = wait.unwrap().parse().unwrap();
        assert!((1..=86_400).contains(&wait), "{wait}");
    }
}

fn run(code: &str) -> Value {
    json!({ "code": code })
}

fn code(text: &str) -> Value {
    json!({"code": text, "language": "python"})
}

/// Uses a processor for a while.
const BUSY: &str = "import time\nwhile time.process_time() < 0.3: pass";

#[track_caller]
fn figure(usage: &Value, pointer: &str) -> f64 {
    usage.pointer(pointer).and_then(Value::as_f64).unwrap()
}

/// Runs programs, and checks that they are counted.
fn use_runs(client: &Holder) {
    client.ok("POST /v1/run", &run(BUSY));
    let used = client.usage();
    assert_eq!(used["today"]["runs"], 1);
    assert!(
        (0.3..5.0).contains(&figure(&used, "/today/cpu_seconds")),
        "{used}"
    );
    assert!(figure(&used, "/total/memory_gib_seconds") > 0.0, "{used}");
    client.ok("POST /v1/tools/run_code", &code("print(1)"));
    client.ok(
        "POST /v1/batch",
        &json!({"runs": [run("print(1)"), run("print(2)")]}),
    );
    assert_eq!(client.usage()["today"]["runs"], 4);
    // What has not begun does not count.
    client
        .ask("POST /v1/run", &json!({"code": 1}))
        .refused(422, "invalid_arguments");
    client
        .ask("POST /v1/sandboxes/none/exec", &json!({"command": "true"}))
        .refused(404, "not_found");
    assert_eq!(client.usage()["today"]["runs"], 4);
}

/// Uses a sandbox, and checks that it is counted.
fn use_sandbox(client: &Holder) {
    let before = figure(&client.usage(), "/total/cpu_seconds");
    client.ok("POST /v1/sandboxes", &json!({"name": "own"}));
    let exec = json!({"command": ["python3", "-c", BUSY]});
    client.ok("POST /v1/sandboxes/own/exec", &exec);
    client.ok("POST /v1/sandboxes/own/run", &run("1"));
    let alive = client.usage();
    assert_eq!(alive["today"]["runs"], 6);
    // Where no control group counts, nothing of a sandbox is measured.
    let info = client.ok("GET /v1/sandboxes/own", &json!({}));
    if info["resources"]["cpu_seconds"].is_number() {
        let cpu = || figure(&client.usage(), "/total/cpu_seconds");
        eventually("its processor time is counted", || cpu() > before + 0.3);
        let memory = |usage: &Value| figure(usage, "/total/memory_gib_seconds");
        eventually("its memory is counted", || {
            memory(&client.usage()) > memory(&alive)
        });
    }
    client.ok("DELETE /v1/sandboxes/own", &json!({}));
}

/// Prints the usage of all keys.
fn shown(world: &World, options: &[&str]) -> String {
    let output = world.dir.run([&["keys", "usage"], options].concat());
    output.ok().to_owned()
}

#[test]
fn what_a_key_uses_is_counted_and_outlives_the_server() {
    let world = world();
    let client = Holder::new(&world, &["--rights", "run,sandboxes,tools"]);
    let idle = Holder::new(&world, &[]);
    let admin = Holder::new(&world, &["--rights", "admin"]);
    let none = json!({"runs": 0, "cpu_seconds": 0.0, "memory_gib_seconds": 0.0, "egress_bytes": 0});
    assert_eq!(client.usage()["total"], none);
    use_runs(&client);
    use_sandbox(&client);

    assert_eq!(idle.usage()["total"], none);
    let fixed = idle.surface.ask("POST /v1/run", &[BEARER], &run("1").to_string());
    assert_eq!(fixed.status, 200);
    let all = admin.ok("GET /v1/usage", &json!({}));
    let keys = all["keys"].as_array().unwrap().iter();
    let mut ids: Vec<&str> = keys.map(|key| key["id"].as_str().unwrap()).collect();
    let mut expected = [&client.id, &idle.id, &admin.id, "RINGFENCE_API_KEY"];
    ids.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    let metrics = admin.ask("GET /metrics", &json!({})).body;
    let series = format!("ringfence_key_runs_total{{key=\"{}\"}} 6\n", client.id);
    assert!(metrics.contains(&series), "{metrics}");
    assert!(!metrics.contains("a name") && !metrics.contains(KEY), "{metrics}");

    let last = figure(&client.usage(), "/total/cpu_seconds");
    world.stop_engine("TERM");
    let own = || {
        let report: Value = serde_json::from_str(&shown(&world, &["--json"])).unwrap();
        let mut keys = report["keys"].as_array().unwrap().iter();
        keys.find(|key| key["id"] == client.id).unwrap().clone()
    };
    let stored = own();
    assert_eq!(stored["total"]["runs"], 6);
    assert!(figure(&stored, "/total/cpu_seconds") >= last, "{last} {stored}");
    assert!(shown(&world, &[]).contains("6 runs"));
    world.start_engine();
    assert_eq!(own()["total"], stored["total"]);
    world.close();
}

#[test]
fn beyond_its_quota_a_key_begins_nothing() {
    let world = world();
    let key = Holder::new(&world, &["--rights", "run,sandboxes,tools", "--quota-runs", "3"]);
    key.ok("POST /v1/sandboxes", &json!({"name": "own"}));
    key.ok("POST /v1/run", &run("print(1)"));
    let cat = json!({"command": "cat", "stdin": true});
    let cat = key.ok("POST /v1/sandboxes/own/processes", &cat);
    // The programs of a batch count one by one.
    let two = json!({"runs": [run("print(1)"), run("print(2)")]});
    let lines = key.ask("POST /v1/batch", &two).body;
    assert_eq!(lines.matches("\"result\"").count(), 1, "{lines}");
    assert!(lines.contains("\"limit_exceeded\""), "{lines}");
    let command = json!({"command": "true"});
    for (line, body) in [
        ("POST /v1/run", run("print(1)")),
        ("POST /v1/batch", two),
        ("POST /v1/tools/run_code", code("print(1)")),
        ("POST /v1/sandboxes", json!({})),
        ("POST /v1/sandboxes/own/fork", json!({})),
        ("POST /v1/sandboxes/own/exec", command.clone()),
        ("POST /v1/sandboxes/own/processes", command),
        ("POST /v1/sandboxes/own/contexts", json!({"language": "python"})),
        ("POST /v1/sandboxes/own/run", run("1")),
    ] {
        key.assert_used_up(line, &body, "3 runs today");
    }
    // What runs goes on, and what it has made can be fetched.
    let process = format!("GET /v1/sandboxes/own/processes/{}", cat["pid"]);
    assert!(key.ok(&process, &json!({})).get("end").is_none());
    key.ok("GET /v1/sandboxes/own/files/list?path=/workspace", &json!({}));
    key.ok("DELETE /v1/sandboxes/own", &json!({}));
    assert_eq!(key.usage()["today"]["runs"], 3);
    world.close();
}

#[test]
fn a_program_that_ran_counts_however_its_answer_ends() {
    let world = world();
    let key = Holder::new(&world, &["--rights", "run,sandboxes"]);
    let none = json!({});
    // What is refused does not count.
    key.ask("POST /v1/sandboxes/none/run", &run("1"))
        .refused(404, "not_found");
    assert_eq!(key.usage()["today"]["runs"], 0);
    // Its result is read, and then its sandbox is removed, so that its answer is an error.
    let work = "open('result', 'w').write('1')\nimport time; time.sleep(60)";
    key.ok("POST /v1/sandboxes", &json!({"name": "own"}));
    let of_libre_chat = json!({"code": work, "lang": "py"});
    for (line, body, result) in [
        ("POST /v1/sandboxes/own/run", run(work), "/workspace/result"),
        ("POST /librechat/v1/exec", of_libre_chat, "/mnt/data/result"),
    ] {
        let before = figure(&key.usage(), "/today/runs");
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| key.ask(line, &body));
            let mut id = String::new();
            eventually("the program has worked", || {
                let all = key.ok("GET /v1/sandboxes", &none);
                let first = all["sandboxes"][0]["id"].as_str();
                id = first.unwrap_or_default().to_owned();
                let read = format!("GET /v1/sandboxes/{id}/files?path={result}");
                !id.is_empty() && key.ask(&read, &none).status == 200
            });
            key.ok(&format!("DELETE /v1/sandboxes/{id}"), &none);
            let answer = asking.join().unwrap();
            let is_told = answer.status >= 500 || answer.body.contains("the sandbox has ended");
            assert!(is_told, "{line}: {answer:?}");
        });
        assert_eq!(figure(&key.usage(), "/today/runs"), before + 1.0, "{line}");
    }
    world.close();
}

#[test]
fn a_quota_of_processor_time_holds_after_a_restart_and_goes_with_its_key() {
    let world = world();
    let key = Holder::new(&world, &["--quota-cpu", "1s"]);
    let other = Holder::new(&world, &[]);
    assert_eq!(key.usage()["quota"], json!({"cpu_seconds": 1}));
    let used_up = |key: &Holder| {
        for (line, body) in [("POST /v1/run", run("1")), ("POST /v1/sandboxes", json!({}))] {
            key.assert_used_up(line, &body, "seconds of processor time today");
        }
    };
    // A program that has begun is not killed.
    key.ok("POST /v1/run", &run(&BUSY.replace("0.3", "1.1")));
    used_up(&key);
    other.ok("POST /v1/run", &run("print(1)"));
    world.stop_engine("TERM");
    world.start_engine();
    let key = Holder {
        surface: Surface::loopback(&world),
        ..key
    };
    used_up(&key);
    world.dir.run(["keys", "revoke", &key.id]).ok();
    world.dir.run(["keys", "rm", &key.id]).ok();
    let stored = std::fs::read_to_string(world.dir.path("state/ringfence/usage.json")).unwrap();
    assert!(
        stored.contains(&other.id) && !stored.contains(&key.id),
        "{stored}"
    );
    world.close();
}

/// Prints once it uses 256 MiB of memory, and holds it.
const HOLDS: &str = "
import time
held = bytearray(b'1') * (256 << 20)
print('held', flush=True)
while True: time.sleep(60)
";

#[test]
fn a_quota_of_memory_holds_for_what_sandboxes_keep() {
    let world = world();
    let key = Holder::new(&world, &["--quota-memory", "1"]);
    assert_eq!(key.usage()["quota"], json!({"memory_gib_seconds": 1}));
    key.ok(
        "POST /v1/sandboxes",
        &json!({"name": "keeps", "memory": "512MiB"}),
    );
    let command = json!({"command": ["python3", "-c", HOLDS]});
    key.ok("POST /v1/sandboxes/keeps/processes", &command);
    eventually("four seconds of a quarter are counted", || {
        figure(&key.usage(), "/today/memory_gib_seconds") >= 1.0
    });
    for (line, body) in [
        ("POST /v1/run", run("1")),
        ("POST /v1/sandboxes", json!({})),
        ("POST /v1/sandboxes/keeps/processes", json!({"command": "true"})),
    ] {
        key.assert_used_up(line, &body, "GiB-seconds of memory today");
    }
    // It can still put an end to it.
    key.ok("DELETE /v1/sandboxes/keeps", &json!({}));
    world.close();
}

#[test]
fn bytes_to_and_from_hosts_are_counted_and_have_a_quota() {
    let page = Server::new();
    let world = networked(&page);
    let options = [
        "--rights",
        "run,tools",
        "--quota-egress",
        "1KiB",
        "--tenant",
        "team",
    ];
    let key = Holder::new(&world, &options);
    let other = Holder::new(&world, &["--rights", "run,tools", "--tenant", "team"]);
    let egress = || figure(&key.usage(), "/today/egress_bytes");

    key.ok("POST /v1/run", &run("print(1)"));
    assert_eq!(egress(), 0.0);
    let get = format!(
        "import urllib.request as r\nprint(r.urlopen('{}').read())",
        page.url()
    );
    let ran = key.ok("POST /v1/run", &run(&get));
    let program = egress();
    assert!(ran["stdout"].as_str().unwrap().contains("hello"), "{ran}");
    assert_eq!(ran["meta"]["egress"]["bytes"].as_f64(), Some(program));
    assert!((50.0..1000.0).contains(&program), "{program}");
    key.ok("POST /v1/tools/http_fetch", &json!({"url": page.url()}));
    let tool = egress() - program;
    assert!((50.0..1000.0).contains(&tool), "{tool}");

    // What a key of its tenant uses counts, too; that one has no quota.
    let many = format!(
        "import urllib.request as r\nfor _ in range(20): r.urlopen('{}').read()",
        page.url()
    );
    other.ok("POST /v1/run", &run(&many));
    let visits = page.visits();
    for (line, body) in [
        ("POST /v1/run", run(&get)),
        ("POST /v1/batch", json!({"runs": [run(&get)]})),
        ("POST /v1/tools/http_fetch", json!({"url": page.url()})),
    ] {
        if line == "POST /v1/batch" {
            let lines = key.ask(line, &body).body;
            assert!(
                lines.contains("\"limit_exceeded\"") && lines.contains("of 1KiB of egress"),
                "{lines}"
            );
        } else {
            key.assert_used_up(line, &body, "of 1KiB of egress today");
        }
    }
    assert_eq!(page.visits(), visits, "nothing was sent");
    other.ok("POST /v1/tools/http_fetch", &json!({"url": page.url()}));
    assert!(page.visits() > visits);

    assert!(
        shown(&world, &[]).contains("of 0.0 MiB of egress"),
        "{}",
        shown(&world, &[])
    );
    let listed = world.dir.run(["keys", "ls"]).ok().to_owned();
    assert!(
        listed.contains("team: ") && listed.contains("  1KiB of egress a day\n"),
        "{listed}"
    );
    let admin = Holder::new(&world, &["--rights", "admin"]);
    let metrics = admin.ask("GET /metrics", &json!({})).body;
    assert!(metrics.contains("ringfence_key_egress_bytes_total{"), "{metrics}");
    world.close();
}

#[test]
fn sandboxes_at_a_time_have_a_quota() {
    let world = world();
    let options = ["--tenant", "team", "--quota-sandboxes", "2"];
    let (limited, free) = (
        Holder::new(&world, &options),
        Holder::new(&world, &["--tenant", "team"]),
    );
    let made = free.ok("POST /v1/sandboxes", &json!({"name": "one"}));
    assert_eq!(limited.ask("POST /jupyter/api/kernels", &json!({})).status, 201);
    let doors = [
        ("POST /v1/sandboxes", json!({})),
        ("POST /v1/sandboxes/one/fork", json!({})),
        ("POST /jupyter/api/kernels", json!({})),
    ];
    for (line, body) in &doors {
        let refused = limited.ask(line, body);
        refused.refused(429, "limit_exceeded");
        assert!(
            refused.body.contains("2 of 2 sandboxes at a time"),
            "{line}: {refused:?}"
        );
    }
    // Both expire within an hour, at which a client may try again.
    let head = limited.ask("POST /v1/sandboxes", &json!({})).head.to_lowercase();
    let (_, after) = head.split_once("retry-after: ").unwrap();
    let after: u64 = after.lines().next().unwrap().trim().parse().unwrap();
    assert!((1..=3601).contains(&after), "{head}");
    assert_eq!(limited.usage()["sandboxes"], 2);
    assert!(shown(&world, &[]).contains("now: 2 of 2 sandboxes"));
    let listed = world.dir.run(["keys", "ls"]);
    assert!(listed.ok().contains("  2 sandboxes at a time"), "{listed:?}");
    let page = limited.ok("GET /v1/sandboxes?limit=1", &json!({}));
    assert_eq!(page["sandboxes"][0]["id"], made["id"]);
    let next = format!(
        "GET /v1/sandboxes?limit=1&after={}",
        page["next"].as_str().unwrap()
    );
    let id = made["id"].as_str().unwrap();
    limited.ok(&format!("DELETE /v1/sandboxes/{id}"), &json!({}));
    // Its place in the list is that of a sandbox which is gone.
    let last = limited.ok(&next, &json!({}));
    assert_eq!(
        (last["sandboxes"].as_array().unwrap().len(), &last["next"]),
        (1, &Value::Null)
    );
    limited
        .ask("GET /v1/sandboxes?after=x", &json!({}))
        .refused(422, "invalid_arguments");
    limited.ok("POST /v1/sandboxes", &json!({}));
    world.close();
}

#[test]
fn a_quota_that_is_none_is_refused() {
    let world = World::before_engine();
    for options in [
        ["--quota-cpu", "1d"],
        ["--quota-cpu", "-1"],
        ["--quota-runs", "many"],
        ["--quota-runs", "0"],
        ["--quota-cpu", "0s"],
        ["--quota-memory", "1GiB"],
        ["--quota-memory", "0"],
        ["--quota-egress", "much"],
        ["--quota-egress", "0"],
        ["--quota-sandboxes", "0"],
    ] {
        let output = world.dir.run([&["keys", "create", "x"], &options[..]].concat());
        assert_eq!(output.status, 2, "{options:?}: {output:?}");
    }
    world.close();
}
