//! `/metrics`, parsed as strictly as Prometheus does.

use std::collections::BTreeMap;

use serde_json::json;

use super::keys::create;
use super::{BEARER, Surface, world};

/// The samples of a text, by name and labels as they stand there.
struct Samples(BTreeMap<String, f64>);

impl Samples {
    /// Parses the format: each family has its help, its type, then its samples, in one place and once each.
    fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n') && !text.contains("\n\n"), "{text}");
        let mut samples = BTreeMap::new();
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        let mut family = "";
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap();
                let kind = lines.next().unwrap().strip_prefix("# TYPE ").unwrap();
                let (of, kind) = kind.split_once(' ').unwrap();
                assert!(of == name && !help.is_empty(), "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(kinds.insert(name, kind).is_none(), "{line}");
                family = name;
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            check_series(series, family, kinds[family]);
            let value: f64 = value.parse().unwrap();
            assert!(value >= 0.0, "{line}");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{line}");
        }
        Self(samples)
    }

    #[track_caller]
    fn get(&self, series: &str) -> f64 {
        assert!(self.0.contains_key(series), "no {series} in {:#?}", self.0);
        self.0[series]
    }
}

/// Checks a sample's name and labels.
fn check_series(series: &str, family: &str, kind: &str) {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let suffixes: &[&str] = match kind {
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => &[""],
    };
    let is_of_family = suffixes.iter().any(|suffix| format!("{family}{suffix}") == name);
    assert!(is_of_family, "{series} in {family}");
    let labels = labels.strip_suffix('}').unwrap();
    for label in labels.split(',').filter(|label| !label.is_empty()) {
        let (name, value) = label.split_once('=').unwrap();
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        assert!(name.bytes().all(is_word), "{series}");
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        // No label of ours needs an escape.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
        assert!(value.is_some_and(|value| value.bytes().all(is_plain)), "{series}");
    }
}

/// The growth of figures by the requests of the test.
const GROWTH: &[(&str, f64)] = &[
    (
        r#"ringfence_runs_total{runtime="local",language="python",outcome="exited"}"#,
        2.0,
    ),
    (
        r#"ringfence_runs_total{runtime="local",language="bash",outcome="exited"}"#,
        1.0,
    ),
    (
        r#"ringfence_runs_total{runtime="local",language="python",outcome="timed_out"}"#,
        1.0,
    ),
    (r#"ringfence_run_duration_seconds_count{runtime="local"}"#, 4.0),
    (
        r#"ringfence_run_duration_seconds_bucket{runtime="local",le="+Inf"}"#,
        4.0,
    ),
    (
        r#"ringfence_http_errors_total{status="401",type="unauthenticated"}"#,
        1.0,
    ),
    (
        r#"ringfence_http_errors_total{status="403",type="permission_denied"}"#,
        1.0,
    ),
    (
        r#"ringfence_http_errors_total{status="404",type="not_found"}"#,
        1.0,
    ),
    (
        r#"ringfence_http_errors_total{status="422",type="invalid_arguments"}"#,
        1.0,
    ),
    (r#"ringfence_sandboxes{state="running"}"#, 1.0),
    (r#"ringfence_sandboxes{state="paused"}"#, 0.0),
    (r#"ringfence_key_runs_total{key="RINGFENCE_API_KEY"}"#, 3.0),
    ("ringfence_mcp_sessions", 0.0),
    ("ringfence_approvals_waiting", 0.0),
    ("ringfence_runs_under_way", 0.0),
];

#[test]
fn every_figure_is_true_and_no_label_is_a_clients() {
    let world = world();
    let surface = Surface::loopback(&world);
    let (admin, _) = create(&world, &["--rights", "admin"]);
    let admin = format!("Authorization: Bearer {admin}");
    // The test's own wait for the server is a run, too.
    let before = Samples::parse(&surface.ask("GET /metrics", &[&admin], "").body);
    surface
        .ask("GET /metrics", &[], "")
        .refused(401, "unauthenticated");
    surface
        .ask("GET /metrics", &[BEARER], "")
        .refused(403, "permission_denied");
    let run = |body: serde_json::Value| surface.ask("POST /v1/run", &[BEARER], &body.to_string());
    assert_eq!(run(json!({"code": "print(1)"})).status, 200);
    assert_eq!(run(json!({"code": "exit 3", "language": "bash"})).status, 200);
    assert_eq!(
        run(json!({"code": "while True: pass", "timeout": 0.2})).status,
        200
    );
    // Over the frames of the socket, too: by the same door.
    assert_eq!(world.json(["-c", "print(2)"]).stdout(), "2\n");
    run(json!({"code": "", "language": "chosen_by_a_client"})).refused(422, "invalid_arguments");
    surface
        .ask("GET /v1/chosen_by_a_client", &[BEARER], "")
        .refused(404, "not_found");
    let made = surface.ask(
        "POST /v1/sandboxes",
        &[BEARER],
        r#"{"name": "chosen-by-a-client"}"#,
    );
    assert_eq!(made.status, 200, "{made:?}");
    let reply = surface.ask("GET /metrics", &[&admin], "");
    assert!(
        reply.head.contains("content-type: text/plain; version=0.0.4"),
        "{reply:?}"
    );
    assert!(
        !reply.body.contains("chosen") && !reply.body.contains("a name"),
        "{reply:?}"
    );
    let samples = Samples::parse(&reply.body);
    for (series, expected) in GROWTH {
        let earlier = before.0.get(*series).copied().unwrap_or(0.0);
        let more = samples.get(series) - earlier;
        assert!((more - *expected).abs() < 0.5, "{series}: {more}");
    }
    // The program that timed out took longer than 0.1 s.
    let all = samples.get(r#"ringfence_run_duration_seconds_count{runtime="local"}"#);
    let fast = samples.get(r#"ringfence_run_duration_seconds_bucket{runtime="local",le="0.1"}"#);
    assert!(fast < all, "{fast} of {all}");
    assert!(samples.get("process_resident_memory_bytes") > 1e6);
    assert!(samples.get("process_open_fds") > 5.0);
    assert!(samples.get("process_max_fds") >= samples.get("process_open_fds"));
    // The socket's peer is the operator.
    let over_socket = Surface::socket(&world).ask("GET /metrics", &[], "");
    assert_eq!(over_socket.status, 200);
    Samples::parse(&over_socket.body);
    world.close();
}
