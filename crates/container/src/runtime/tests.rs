//! Tests the API calls on real engines.

use std::time::Duration;

use ringfence_exec::local::Stream as Side;
use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_policy::{Access, Bytes};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep_until};

use super::*;
use crate::spec::{Bind, Binds, Stdin};
use crate::streams::Happening;
use crate::testing::{engines, removed, spec, volume, writable};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Creates and starts a container.
async fn started(engine: &ContainerRuntime, spec: &Spec) -> Id {
    let id = engine.create(spec).await.unwrap();
    engine.start(&id).await.unwrap();
    id
}

/// Returns the log and exit status of a command in a fresh container.
async fn output(engine: &ContainerRuntime, spec: &Spec) -> (String, i64) {
    let id = started(engine, spec).await;
    let status = engine.wait(&id).await.unwrap();
    let mut text = String::new();
    let mut logs = engine.logs(&id, true);
    while let Some(chunk) = logs.next().await.unwrap() {
        text.push_str(&String::from_utf8_lossy(&chunk.bytes));
    }
    removed(engine, &spec.name).await;
    (text, status)
}

#[tokio::test]
async fn an_engine_tells_what_it_is() {
    for engine in engines().await {
        engine.ping().await.unwrap();
        let version = engine.version().await.unwrap();
        assert!(!version.engine.is_empty(), "{version:?}");
        let info = engine.info().await.unwrap();
        assert!(info.runtimes.iter().any(|name| name == "runc"), "{info:?}");
    }
}

#[tokio::test]
async fn a_container_lives_and_ends() {
    for engine in engines().await {
        let spec = spec(&["bash", "-c", "echo out; echo err >&2; exit 7"]);
        let id = engine.create(&spec).await.unwrap();
        assert_eq!(engine.inspect(&id).await.unwrap().status, Status::Created);
        engine.start(&id).await.unwrap();
        assert_eq!(engine.wait(&id).await.unwrap(), 7);
        let end = engine.inspect(&id).await.unwrap();
        assert_eq!(
            (end.status, end.exit_code, end.oom_killed),
            (Status::Exited, Some(7), false)
        );
        let mut logs = engine.logs(&id, false);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some(chunk) = logs.next().await.unwrap() {
            match chunk.stream {
                Side::Stdout => out.extend(chunk.bytes),
                Side::Stderr => err.extend(chunk.bytes),
            }
        }
        assert_eq!((out.as_slice(), err.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
        let named = |listed: Vec<Listed>| listed.into_iter().any(|found| found.name == spec.name.as_str());
        assert!(named(engine.list().await.unwrap()));
        engine.remove(&id).await.unwrap();
        engine.remove(&id).await.unwrap();
        assert!(!named(engine.list().await.unwrap()));
        let gone = engine.inspect(&id).await.unwrap_err();
        assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
    }
}

#[tokio::test]
async fn a_container_is_stopped_killed_paused_and_resumed() {
    for engine in engines().await {
        let spec = spec(&["sleep", "600"]);
        let id = started(&engine, &spec).await;
        engine.pause(&id).await.unwrap();
        assert_eq!(engine.inspect(&id).await.unwrap().status, Status::Paused);
        assert!(engine.pause(&id).await.is_err());
        engine.resume(&id).await.unwrap();
        assert_eq!(engine.inspect(&id).await.unwrap().status, Status::Running);
        engine.kill(&id).await.unwrap();
        assert_eq!(engine.wait(&id).await.unwrap(), 137);
        engine.kill(&id).await.unwrap();
        engine.stop(&id, Duration::from_secs(1)).await.unwrap();
        removed(&engine, &spec.name).await;

        let stubborn = self::spec(&["bash", "-c", "trap '' TERM; sleep 600 & wait; wait"]);
        let id = started(&engine, &stubborn).await;
        engine.stop(&id, Duration::from_secs(1)).await.unwrap();
        assert_eq!(engine.inspect(&id).await.unwrap().status, Status::Exited);
        removed(&engine, &stubborn.name).await;
    }
}

#[tokio::test]
async fn commands_run_in_a_container() {
    for engine in engines().await {
        let spec = spec(&["sleep", "600"]);
        let id = started(&engine, &spec).await;
        let keep = Bytes::kib(10);
        let command = words(&["bash", "-c", "echo out; echo err >&2; exit 3"]);
        let result = engine
            .run(&id, &command, sleep_until(soon()), keep)
            .await
            .unwrap();
        assert_eq!(result.status, Some(3));
        assert_eq!(
            (result.stdout.text.as_str(), result.stderr.text.as_str()),
            ("out\n", "err\n")
        );
        let flood = words(&["bash", "-c", "yes | head -c 5000000"]);
        let result = engine.run(&id, &flood, sleep_until(soon()), keep).await.unwrap();
        assert_eq!(
            (result.status, result.stdout.total_bytes, result.stdout.truncated),
            (Some(0), 5_000_000, true)
        );
        let silent = words(&["bash", "-c", "exec >&- 2>&-; sleep 0.5; exit 4"]);
        let result = engine.run(&id, &silent, sleep_until(soon()), keep).await.unwrap();
        assert_eq!(result.status, Some(4));
        let endless = words(&["sleep", "600"]);
        let late = sleep_until(Instant::now() + Duration::from_millis(300));
        let result = engine.run(&id, &endless, late, keep).await.unwrap();
        assert_eq!(result.status, None);
        removed(&engine, &spec.name).await;
        let gone = engine
            .run(&id, &endless, sleep_until(soon()), keep)
            .await
            .unwrap_err();
        assert!(matches!(gone, Error::Closing), "{gone}");
    }
}

#[tokio::test]
async fn an_attached_container_reads_and_writes() {
    for engine in engines().await {
        let mut spec = spec(&["cat"]);
        spec.stdin = Stdin::Attached;
        let id = engine.create(&spec).await.unwrap();
        let mut attached = engine.attach(&id).await.unwrap();
        engine.start(&id).await.unwrap();
        // A terminal client's detach keys, and bytes that look like the header of a chunk.
        let sent = b"a\x10\x11b\x01\0\0\0\0\0\0\x05\n\xff\0".repeat(1000);
        let mut writer = attached.input.writer();
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
        let mut heard = Vec::new();
        while let Some(chunk) = attached.output.next().await.unwrap() {
            heard.extend(chunk.bytes);
        }
        assert_eq!(heard, sent);
        assert_eq!(engine.wait(&id).await.unwrap(), 0);
        removed(&engine, &spec.name).await;
    }
}

#[tokio::test]
async fn what_happens_is_told() {
    for engine in engines().await {
        let spec = spec(&["true"]);
        let label = format!("{}={}", crate::spec::lower::OWNER_LABEL, spec.owner);
        let mut events = engine.events(&label);
        let id = started(&engine, &spec).await;
        engine.wait(&id).await.unwrap();
        removed(&engine, &spec.name).await;
        let mut seen = Vec::new();
        while !seen.contains(&Happening::Removed) {
            let event = tokio::time::timeout_at(soon(), events.next())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            if event.container == id {
                seen.push(event.what);
            }
        }
        assert!(
            seen.contains(&Happening::Started) && seen.contains(&Happening::Died),
            "{seen:?}"
        );
    }
}

#[tokio::test]
async fn what_a_container_uses_is_measured() {
    for engine in engines().await {
        let spec = spec(&["sleep", "600"]);
        let id = started(&engine, &spec).await;
        let mut stats = engine.stats(&id);
        let used = stats.next().await.unwrap().unwrap();
        assert!(used.memory_bytes.is_some_and(|bytes| bytes > 0), "{used:?}");
        assert!(
            used.pids.is_some_and(|count| (1..=4).contains(&count)),
            "{used:?}"
        );
        removed(&engine, &spec.name).await;
    }
}

#[tokio::test]
async fn volumes_come_and_go() {
    for engine in engines().await {
        let volume = volume();
        let name = volume.name.clone();
        let labels = HashMap::from([("a".to_owned(), "b".to_owned())]);
        engine.create_volume(&volume, labels.clone()).await.unwrap();
        let listed = engine.list_volumes().await.unwrap();
        let found = listed.iter().find(|volume| volume.name == name.as_str());
        assert_eq!(found.map(|volume| &volume.labels), Some(&labels));
        engine.remove_volume(&name).await.unwrap();
        engine.remove_volume(&name).await.unwrap();
    }
}

/// Limits both bytes and inodes.
#[tokio::test]
async fn a_volume_holds_no_more_than_its_size() {
    for engine in engines().await {
        let mut spec = spec(&["bash", "-c", FILL]);
        spec.volumes = vec![volume()];
        spec.volumes[0].places.push("/elsewhere/output".into());
        engine
            .create_volume(&spec.volumes[0], HashMap::new())
            .await
            .unwrap();
        let (text, status) = output(&engine, &spec).await;
        engine.remove_volume(&spec.volumes[0].name).await.unwrap();
        let expected = "No space left on device\n4194304\nsparse\n1023 No space left on device\ndeleted\n";
        assert_eq!((text.as_str(), status), (expected, 0));
    }
}

const FILL: &str = "cd /output; head -c 9M /dev/zero 2>&1 > big | grep -o 'No space.*'; stat -c %s /elsewhere/output/big\n\
    rm big; truncate -s 1T sparse && echo sparse; rm sparse\n\
    n=0; while : 2> /tmp/why > f$n; do n=$((n + 1)); done; echo $n $(grep -o 'No space.*' /tmp/why)\n\
    rm f*; echo x > again && echo deleted";

#[tokio::test]
async fn what_is_missing_or_taken_is_told() {
    for engine in engines().await {
        let mut missing = spec(&["true"]);
        missing.image = "no-such-image:1".parse().unwrap();
        let error = engine.create(&missing).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no image no-such-image:1");
        assert!(error.hint().person().contains("ringfence setup image"));
        let first = spec(&["true"]);
        engine.create(&first).await.unwrap();
        let error = engine.create(&first).await.unwrap_err();
        let name = first.name.to_string();
        let chosen = name.strip_prefix("fw-sandbox-").unwrap();
        assert_eq!(
            error.to_string(),
            format!("a container or volume named `{chosen}` already exists")
        );
        removed(&engine, &first.name).await;
        let error = engine.start(&Id::from(&first.name)).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_container_has_nothing_to_spare() {
    for engine in engines().await {
        // On the host, the first would be a capability, and the second writable.
        let look = "cat /proc/self/status; touch /x; echo $?; id -u; \
                    ls /sys/class/net; cat /proc/sys/kernel/pid_max > /dev/null; echo a > /proc/sys/kernel/pid_max; \
                    echo $?; uname -n; ulimit -n -i -q; touch /tmp/y; echo writes $?";
        let (text, status) = output(&engine, &spec(&["bash", "-c", look])).await;
        assert_eq!(status, 0, "{text}");
        for expected in [
            "CapEff:\t0000000000000000",
            "CapBnd:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
            "Read-only file system",
            "\n1000\n",
            "\nlo\n",
            "sandbox",
            "(-n) 512",
            "(-i) 256",
            "(bytes, -q) 0",
            "\nwrites 0\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("eth0"), "{text}");
    }
}

#[tokio::test]
async fn a_bind_is_seen_at_its_place_and_a_read_only_one_is_not_changed() {
    for engine in engines().await {
        let (shared, fixed) = (writable(), writable());
        std::fs::write(fixed.path().join("in"), "hello").unwrap();
        let bind = |dir: &tempfile::TempDir, guest: &str, access| {
            Bind::at(
                dir.path(),
                std::path::Path::new(guest),
                access,
                &DeniedPaths::default(),
            )
            .unwrap()
        };
        let mut spec = spec(&["bash", "-c", "cat /fixed/in > /workspace/out; echo x > /fixed/in"]);
        spec.binds = Binds::new(vec![
            bind(&shared, "/workspace", Access::ReadWrite),
            bind(&fixed, "/fixed", Access::ReadOnly),
        ])
        .unwrap();
        let (text, status) = output(&engine, &spec).await;
        assert!(
            text.contains("Read-only file system") && status != 0,
            "{status}: {text}"
        );
        assert_eq!(
            std::fs::read_to_string(shared.path().join("out")).unwrap(),
            "hello"
        );
        assert_eq!(std::fs::read_to_string(fixed.path().join("in")).unwrap(), "hello");
    }
}

#[tokio::test]
async fn memory_beyond_the_limit_ends_a_container() {
    for engine in engines().await {
        let eat = "python3 -c 'x = bytearray(200 << 20); print(len(x))'";
        let plenty = |memory| {
            let mut spec = spec(&["bash", "-c", eat]);
            spec.resources.memory = memory;
            spec
        };
        let (text, status) = output(&engine, &plenty(Bytes::mib(512))).await;
        assert_eq!((text.as_str(), status), ("209715200\n", 0));
        let spec = plenty(Bytes::mib(64));
        let id = started(&engine, &spec).await;
        assert_eq!(engine.wait(&id).await.unwrap(), 137);
        // Podman's monitor misses OOM kills on hosts with both versions of control groups mounted.
        let oom_killed = engine.inspect(&id).await.unwrap().oom_killed;
        assert!(oom_killed || engine.kind() == EngineKind::Podman);
        removed(&engine, &spec.name).await;
    }
}

#[test]
fn ids_cannot_change_the_meaning_of_a_path() {
    for good in ["0123abcd", "fw-sandbox-x", "a_b.c"] {
        assert!(Id::new(good).is_some(), "{good}");
    }
    for bad in [
        "",
        ".",
        "..",
        "a/b",
        "a?b",
        "a b",
        "a%2f",
        "a\n",
        &"a".repeat(129),
    ] {
        assert!(Id::new(bad).is_none(), "{bad:?}");
    }
}
