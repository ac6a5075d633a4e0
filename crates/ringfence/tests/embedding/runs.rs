//! Tests of a runner's requests.

use std::fs;
use std::time::Duration;

use ringfence::{Configuration, Fence, Limits, Outcome, Request, Runner, RuntimeKind, Stream, Timeout};

use crate::{Test, block_on, builder};

pub(crate) const TESTS: &[Test] = &[
    ("every_layer_holds_by_default", every_layer_holds_by_default),
    ("a_request_wins_over_its_runner", a_request_wins_over_its_runner),
    ("files_come_in_and_go_out", files_come_in_and_go_out),
    (
        "output_streams_while_input_comes",
        output_streams_while_input_comes,
    ),
    ("a_session_keeps_its_variables", a_session_keeps_its_variables),
    ("each_run_has_a_record", each_run_has_a_record),
    ("a_dropped_run_leaves_no_process", a_dropped_run_leaves_no_process),
    (
        "unusable_paths_are_errors_with_a_hint",
        unusable_paths_are_errors_with_a_hint,
    ),
    (
        "packages_come_from_the_configured_index",
        packages_come_from_the_configured_index,
    ),
];

/// Calls `test` with a runner and its directory, and ends the runner.
fn with_runner(
    build: impl FnOnce(ringfence::Builder) -> ringfence::Builder,
    test: impl AsyncFnOnce(&Runner, &std::path::Path),
) {
    let place = tempfile::tempdir().unwrap();
    block_on(async {
        let runner = build(builder(place.path())).build().unwrap();
        test(&runner, place.path()).await;
        runner.close().await;
    });
}

fn every_layer_holds_by_default() {
    with_runner(
        |builder| builder,
        async |runner, _| {
            let result = runner
                .run(Request::python(
                    "import os; print(os.getuid(), len(os.listdir('/proc/self/fd')))",
                ))
                .await
                .unwrap();
            assert_eq!(result.meta.outcome, Outcome::Exited, "{}", result.stderr);
            let isolation = &result.meta.isolation.unwrap();
            assert!(
                isolation.user_ns && isolation.pid_ns && isolation.net_ns,
                "{isolation:?}"
            );
            assert_eq!(isolation.seccomp.as_deref(), Some("fence"));
            assert!(isolation.cgroup.is_some(), "{isolation:?}");
            let held = &result.meta.resource_limits;
            assert_eq!(held.memory_bytes, Some(Limits::DEFAULT.memory.0));
            let javascript = runner
                .run(Request::javascript("console.log(1 + 1)"))
                .await
                .unwrap();
            assert_eq!(javascript.stdout, "2\n");
        },
    );
}

fn a_request_wins_over_its_runner() {
    let limits = Limits {
        timeout: Timeout::seconds(20),
        ..Limits::DEFAULT
    };
    with_runner(
        |builder| {
            let builder = builder.limits(limits).env("MODE".parse().unwrap(), "slow");
            builder.env("KEPT".parse().unwrap(), "yes")
        },
        async |runner, _| {
            let request = Request::bash("echo $MODE $KEPT $1; while :; do :; done")
                .arg("first")
                .env("MODE".parse().unwrap(), "fast")
                .timeout("100ms".parse().unwrap());
            let result = runner.run(request).await.unwrap();
            assert_eq!(
                (result.stdout.as_str(), result.meta.outcome),
                ("fast yes first\n", Outcome::TimedOut)
            );
        },
    );
}

fn files_come_in_and_go_out() {
    with_runner(
        |builder| builder,
        async |runner, place| {
            let (data, out) = (place.join("data"), place.join("out"));
            fs::create_dir(&data).unwrap();
            fs::write(data.join("a"), "1").unwrap();
            let mount = format!("{}:/data:ro", data.display());
            let request = Request::bash("cat - /data/a /workspace/sub/b > /output/all")
                .stdin("0")
                .mount(mount.parse().unwrap())
                .file("sub/b", "2")
                .output_directory(&out);
            let result = runner.run(request).await.unwrap();
            assert_eq!((result.stderr.as_str(), result.exit_code), ("", 0));
            assert_eq!(fs::read_to_string(out.join("all")).unwrap(), "012");
            assert_eq!(result.meta.output_files[0].path, "all");
            // With a workspace the files are its own, and stay.
            let request = Request::bash("cat b; echo 3 > c").workspace(&data).file("b", "2");
            let result = runner.run(request).await.unwrap();
            assert_eq!((result.stderr.as_str(), result.stdout.as_str()), ("", "2"));
            assert_eq!(fs::read_to_string(data.join("c")).unwrap(), "3\n");
            assert_eq!(fs::read_to_string(data.join("b")).unwrap(), "2");
        },
    );
}

fn output_streams_while_input_comes() {
    with_runner(
        |builder| builder,
        async |runner, _| {
            let request =
                Request::bash("read a; echo got $a; echo oops >&2; read b; echo got $b").piped_stdin();
            let mut run = runner.start(request).await.unwrap();
            let stdin = run.stdin.take().unwrap();
            stdin.write("1\n").await.unwrap();
            let mut texts = [String::new(), String::new()];
            // The program waits for its second line, so this came while it ran.
            while texts != ["got 1\n", "oops\n"] {
                let chunk = run.output().await.unwrap();
                let index = usize::from(chunk.stream == Stream::Stderr);
                texts[index].push_str(&String::from_utf8(chunk.bytes).unwrap());
            }
            stdin.write("2\n").await.unwrap();
            drop(stdin);
            let result = run.result().await.unwrap();
            assert_eq!(result.stdout, "got 1\ngot 2\n");

            let run = runner.start(Request::bash("while :; do :; done")).await.unwrap();
            let cancellation = run.cancellation();
            let (result, ()) = tokio::join!(run.result(), async { cancellation.cancel() });
            assert_eq!(result.unwrap().meta.outcome, Outcome::Cancelled);

            let error = runner.run(Request::bash("cat").piped_stdin()).await.unwrap_err();
            assert!(error.hint().contains("use `start`"), "{error}");
        },
    );
}

fn a_session_keeps_its_variables() {
    with_runner(
        |builder| builder,
        async |runner, _| {
            let ask = async |code: &str| {
                let request = Request::python(code).session("work".parse().unwrap());
                runner.run(request).await.unwrap()
            };
            assert_eq!(ask("x = 41").await.exit_code, 0);
            assert_eq!(ask("print(x + 1)").await.stdout, "42\n");
            let other = Request::python("print(x)").session("other".parse().unwrap());
            assert!(runner.run(other).await.unwrap().stderr.contains("NameError"));
        },
    );
}

fn each_run_has_a_record() {
    with_runner(
        |builder| builder,
        async |runner, place| {
            let result = runner.run(Request::bash("exit 3")).await.unwrap();
            assert_eq!(
                (result.exit_code, result.meta.warnings),
                (3, Vec::<String>::new())
            );
            let files = fs::read_dir(place.join("state/audit")).unwrap().flatten();
            let files = files.filter_map(|file| fs::read_to_string(file.path()).ok());
            let log = files.collect::<String>();
            assert!(
                log.contains(r#""surface":"library""#) && log.contains("exit 3"),
                "{log}"
            );
        },
    );
}

fn a_dropped_run_leaves_no_process() {
    // Unique to this process, since other tests look for theirs.
    let marker = format!("86{}", std::process::id());
    let running = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines
            .filter(|line| {
                line.split(|byte| *byte == 0)
                    .any(|word| word == marker.as_bytes())
            })
            .count()
    };
    with_runner(
        |builder| builder,
        async |runner, _| {
            let sleeper = Request::bash(format!("echo here; exec sleep {marker}"));
            let mut run = runner.start(sleeper).await.unwrap();
            assert_eq!(run.output().await.unwrap().bytes, b"here\n");
            let waited = tokio::time::timeout(Duration::from_millis(300), run.output()).await;
            assert!(waited.is_err() && running() > 0, "it ended by itself");
            // Somebody who could cancel it is nobody who waits for it.
            let _cancellation = run.cancellation();
            drop(run);
            runner.close().await;
            assert_eq!(running(), 0);
        },
    );
}

fn unusable_paths_are_errors_with_a_hint() {
    with_runner(
        |builder| builder,
        async |runner, place| {
            let missing = Request::bash("true").mount("/no/such/place:/data".parse().unwrap());
            let error = runner.run(missing).await.unwrap_err();
            assert!(error.to_string().contains("cannot use /no/such/place"), "{error}");
            assert!(error.hint().contains("exists"), "{}", error.hint());
            let state = format!("{}:/data", place.join("state").display());
            let exposing = Request::bash("true").mount(state.parse().unwrap());
            let error = runner.run(exposing).await.unwrap_err();
            assert!(error.to_string().contains("refusing to show"), "{error}");
        },
    );
    with_runner(
        |builder| builder,
        async |runner, place| {
            let refuse = async |request: Request, feature: &str| {
                let error = runner
                    .run(request.runtime(RuntimeKind::Pyodide))
                    .await
                    .unwrap_err();
                assert!(error.to_string().contains(feature), "{error}");
                assert!(error.hint().contains("`local`"), "{}", error.hint());
            };
            refuse(Request::bash("true"), "languages other than Python").await;
            refuse(Request::python("1").workspace(place), "a workspace").await;
            refuse(
                Request::python("1").fence(Fence::Unfenced),
                "runs without a fence",
            )
            .await;
        },
    );
    let place = tempfile::tempdir().unwrap();
    let error = builder(place.path())
        .python("/no/such/python")
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("no interpreter"), "{error}");
    let file = place.path().join("c.toml");
    fs::write(&file, "[sandbox]\ntimeout = 0\nmemroy = 1\n").unwrap();
    let configured = builder(place.path()).configuration(Configuration::File(file.clone()));
    let error = configured.build().unwrap_err().to_string();
    assert!(error.contains("timeout") && error.contains("memroy"), "{error}");
    fs::write(&file, "[sandbox]\nisolation = \"best-effort\"\n").unwrap();
    let configured = builder(place.path()).configuration(Configuration::File(file));
    assert!(configured.fence(Fence::Required).build().is_ok());
}

fn packages_come_from_the_configured_index() {
    // Nobody listens there any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("ringfence.toml");
    let index = format!("[packages]\nindex = 'http://127.0.0.1:{port}/simple'\n");
    let egress = "[egress]\nprivate_networks = ['127.0.0.0/8']\n";
    fs::write(&file, format!("{index}{egress}")).unwrap();
    block_on(async {
        let configured = || builder(place.path()).configuration(Configuration::File(file.clone()));
        let runner = configured().build().unwrap();
        let request = |request: Request| request.package("demo".parse().unwrap());
        let error = runner.run(request(Request::python("1"))).await.unwrap_err();
        let expected = format!("the index could not be reached: 127.0.0.1:{port} unreachable");
        assert!(error.to_string().starts_with(&expected), "{error}");
        let error = runner.run(request(Request::bash("true"))).await.unwrap_err();
        assert!(error.to_string().contains("packages are for Python"), "{error}");
        assert_eq!(
            runner.run(Request::python("print(1)")).await.unwrap().stdout,
            "1\n"
        );
        runner.close().await;
        // Those of the configuration are for runs and sessions alike.
        fs::write(&file, format!("{index}default = ['demo']\n{egress}")).unwrap();
        let runner = configured().build().unwrap();
        let plain = Request::python("1");
        for request in [plain.clone(), plain.session("work".parse().unwrap())] {
            let error = runner.run(request).await.unwrap_err();
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        runner.close().await;
    });
}
