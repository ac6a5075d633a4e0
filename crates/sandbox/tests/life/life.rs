//! Sandboxes as a whole: owners, names, expiry, ends, leftovers.

use std::collections::BTreeMap;

use ringfence_policy::{Scope, Timeout};
use ringfence_sandbox::{Error, NewCopies, NewSandbox, Runtime, Unclaimed};

use crate::support::{Test, everywhere, line, run, say, with_server};

pub(crate) const TESTS: &[Test] = &[
    ("a_scope_sees_its_own_alone", a_scope_sees_its_own_alone),
    (
        "a_quota_of_sandboxes_holds_at_once_and_is_given_back",
        a_quota_of_sandboxes_holds_at_once_and_is_given_back,
    ),
    (
        "a_creation_that_is_broken_off_leaves_nothing",
        a_creation_that_is_broken_off_leaves_nothing,
    ),
    ("a_sandbox_expires_and_says_so", a_sandbox_expires_and_says_so),
    ("two_sandboxes_share_nothing", two_sandboxes_share_nothing),
    ("an_end_ends_everything", an_end_ends_everything),
    ("many_live_at_once", many_live_at_once),
];

fn named(name: &str) -> NewSandbox {
    NewSandbox {
        name: Some(name.parse().unwrap()),
        ..NewSandbox::default()
    }
}

fn a_scope_sees_its_own_alone() {
    with_server(async |server| {
        let ann: Scope = "ann".parse().unwrap();
        let made = server.sandboxes.create(&ann, named("lab")).await.unwrap();
        let taken = server.sandboxes.create(&ann, named("lab")).await.unwrap_err();
        assert!(matches!(taken, Error::Taken(_)), "{taken}");
        server
            .sandboxes
            .create(&server.scope, named("lab"))
            .await
            .unwrap();
        let id = made.id().as_str();
        for foreign in [id, "nobody-has-this-one"] {
            let error = server.sandboxes.get(&server.scope, foreign).unwrap_err();
            assert_eq!(error.to_string(), format!("there is no sandbox `{foreign}`"));
        }
        assert!(server.sandboxes.remove(&server.scope, id).await.is_err());
        assert_eq!(server.sandboxes.get(&ann, "lab").unwrap().id(), made.id());
        let labelled = NewSandbox {
            metadata: [("team".to_owned(), "a".to_owned())].into(),
            ..NewSandbox::default()
        };
        server.sandboxes.create(&ann, labelled).await.unwrap();
        assert_eq!(server.sandboxes.list(&ann, &BTreeMap::new()).len(), 2);
        let of_team = [("team".to_owned(), "a".to_owned())].into();
        assert_eq!(server.sandboxes.list(&ann, &of_team).len(), 1);
        let container = NewSandbox {
            runtime: Runtime::Docker,
            ..NewSandbox::default()
        };
        let refused = server.sandboxes.create(&ann, container).await.unwrap_err();
        assert!(matches!(refused, Error::NotSupported { .. }), "{refused}");
    });
}

fn a_quota_of_sandboxes_holds_at_once_and_is_given_back() {
    with_server(async |server| {
        let (sandboxes, scope) = (&server.sandboxes, &server.scope);
        let new = || NewSandbox {
            most: Some(2),
            ..NewSandbox::default()
        };
        let exceeded = |error: &Error| matches!(error, Error::Quota { most: 2, .. });
        let (one, two, three) = tokio::join!(
            sandboxes.create(scope, new()),
            sandboxes.create(scope, new()),
            sandboxes.create(scope, new())
        );
        let (made, refused): (Vec<_>, Vec<_>) = [one, two, three].into_iter().partition(Result::is_ok);
        assert_eq!((made.len(), refused.len()), (2, 1));
        assert!(
            refused
                .iter()
                .flat_map(|refused| refused.as_ref().err())
                .all(exceeded)
        );
        // Another owner has a quota of its own.
        sandboxes.create(&"ann".parse().unwrap(), new()).await.unwrap();
        let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
        let (gone, kept) = (made[0].id().as_str(), made[1].id().as_str());
        sandboxes.remove(scope, gone).await.unwrap();
        let copies = |count| NewCopies {
            most: Some(2),
            ..NewCopies::of(count)
        };
        let forked = sandboxes.fork(scope, kept, copies(2)).await.unwrap_err();
        assert!(exceeded(&forked), "{forked}");
        // The other one expires within an hour.
        assert!(
            matches!(forked, Error::Quota { ends_in: Some(left), .. } if left.as_secs() < 3600),
            "{forked}"
        );
        let last = sandboxes.get(scope, kept).unwrap();
        while sandboxes.count(scope) > 1 {
            tokio::task::yield_now().await;
        }
        sandboxes.fork(scope, kept, copies(1)).await.unwrap();
        // The expiry of one gives its place back, too.
        let waiting = last.start(line("sleep 1000")).await.unwrap();
        let soon = Timeout::try_from(0.1).unwrap();
        sandboxes.set_timeout(scope, kept, soon).unwrap();
        waiting.output.wait().await;
        sandboxes.create(scope, new()).await.unwrap();
        // A quota is that of whoever asks.
        sandboxes.create(scope, NewSandbox::default()).await.unwrap();
        let page = sandboxes.page(Some(scope), &BTreeMap::new(), None, 2);
        let next = page.next.unwrap();
        let ids = |page: Vec<(Scope, ringfence_sandbox::SandboxInfo)>| -> Vec<String> {
            page.into_iter().map(|(_, info)| info.id.to_string()).collect()
        };
        let first = ids(page.sandboxes);
        // A sandbox that is gone is a place all the same.
        sandboxes.remove(scope, &first[1]).await.unwrap();
        let rest = sandboxes.page(Some(scope), &BTreeMap::new(), Some(&next), 2);
        assert!(rest.next.is_none() && rest.sandboxes.len() == 1);
        assert!(!first.contains(&ids(rest.sandboxes)[0]));
    });
}

fn a_creation_that_is_broken_off_leaves_nothing() {
    with_server(async |server| {
        let (sandboxes, scope) = (&server.sandboxes, &server.scope);
        let creating = sandboxes.create(scope, named("half"));
        let broken_off = tokio::time::timeout(std::time::Duration::ZERO, creating).await;
        assert!(broken_off.is_err(), "it takes longer");
        let unclaimed = |sandbox| Unclaimed::new(sandboxes, scope, sandbox);
        let (left, kept) = (server.sandbox().await, server.sandbox().await);
        drop(unclaimed(&left));
        unclaimed(&kept).keep();
        while sandboxes.count(scope) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(sandboxes.get(scope, kept.id().as_str()).unwrap().id(), kept.id());
    });
}

fn a_sandbox_expires_and_says_so() {
    with_server(async |server| {
        let short = NewSandbox {
            timeout: Some(Timeout::seconds(60)),
            ..NewSandbox::default()
        };
        let sandbox = server.sandboxes.create(&server.scope, short).await.unwrap();
        let process = sandbox.start(line("sleep 1000")).await.unwrap();
        let soon = Timeout::try_from(0.2).unwrap();
        let id = sandbox.id().as_str();
        server.sandboxes.set_timeout(&server.scope, id, soon).unwrap();
        process.output.wait().await;
        let gone = server
            .sandboxes
            .get(&server.scope, sandbox.id().as_str())
            .unwrap_err();
        let id = sandbox.id();
        assert!(
            gone.to_string()
                .starts_with(&format!("the sandbox `{id}` expired at 20")),
            "{gone}"
        );
        let longer = server.sandbox().await;
        let id = longer.id().as_str();
        let info = server
            .sandboxes
            .set_timeout(&server.scope, id, Timeout::seconds(7200))
            .unwrap();
        assert!(info.expires_at > longer.info().created_at);
        let too_long = server
            .sandboxes
            .set_timeout(&server.scope, id, Timeout::seconds(90_000));
        assert!(matches!(too_long, Err(Error::Invalid(_))), "{too_long:?}");
    });
}

fn two_sandboxes_share_nothing() {
    with_server(async |server| {
        let (one, two) = (server.sandbox().await, server.sandbox().await);
        say(&one, "echo secret > /tmp/file; echo secret > ~/file").await;
        assert_ne!(run(&two, "cat /tmp/file ~/file").await.end.exit_code, 0);
        let process = one.start(line("exec sleep 1234")).await.unwrap();
        assert_eq!(say(&one, "pgrep -c -f 'sleep 123[4]' || true").await, "1\n");
        assert_eq!(say(&two, "pgrep -c -f 'sleep 123[4]' || true").await, "0\n");
        process.kill();
        // No way out either: no interface but the loopback, and no namespaces to make one in.
        assert_eq!(
            say(
                &two,
                "ls /sys/class/net 2>/dev/null | wc -l; cat /proc/net/dev | tail -n +3 | wc -l"
            )
            .await,
            "0\n1\n"
        );
        assert_ne!(run(&two, "unshare -U true").await.end.exit_code, 0);
        let isolation = two.info().isolation.unwrap();
        assert!(
            isolation.pid_ns && isolation.net_ns && isolation.no_new_privs && isolation.capabilities_dropped
        );
        assert_eq!(
            say(
                &two,
                "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\n\\t'"
            )
            .await,
            "CapEff:0000000000000000CapBnd:0000000000000000NoNewPrivs:1Seccomp:2"
        );
    });
}

fn an_end_ends_everything() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let marker = format!("{}", 100_000 + std::process::id());
        let process = sandbox
            .start(line(&format!("sleep {marker} & echo up; exec sleep {marker}")))
            .await
            .unwrap();
        assert!(process.output.read_from(0).next().await.is_some());
        assert!(everywhere(&marker) >= 1);
        server
            .sandboxes
            .remove(&server.scope, sandbox.id().as_str())
            .await
            .unwrap();
        assert_eq!(everywhere(&marker), 0);
        assert_eq!(
            process.output.wait().await.outcome,
            ringfence_policy::Outcome::Unknown
        );
        let error = sandbox.start(line("true")).await.unwrap_err();
        assert!(matches!(error, Error::Broken(_)), "{error}");
        let gone = server
            .sandboxes
            .get(&server.scope, sandbox.id().as_str())
            .unwrap_err();
        assert!(gone.to_string().contains("was removed at 20"), "{gone}");
    });
}

/// So many that their launcher has more open files than a program in one may have.
const MANY: usize = 200;

fn many_live_at_once() {
    with_server(async |server| {
        let mut all = Vec::new();
        for _ in 0..MANY {
            all.push(server.sandbox().await);
        }
        for (number, sandbox) in all.iter().enumerate() {
            assert_eq!(
                say(sandbox, &format!("echo {number} > me; cat me")).await,
                format!("{number}\n")
            );
        }
        assert_eq!(server.sandboxes.list(&server.scope, &BTreeMap::new()).len(), MANY);
        server.sandboxes.close().await;
        assert_eq!(server.sandboxes.list(&server.scope, &BTreeMap::new()).len(), 0);
    });
}
