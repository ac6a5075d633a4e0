//! The store: quotas, listeners, undelivered notices, its file.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

#[tokio::test]
async fn texts_and_questions_are_bounded_and_a_thousand_requests_leave_their_history() {
    let pair = Pair::new();
    for text in [String::new(), "x".repeat(MAX_TEXT + 1)] {
        assert!(matches!(pair.asks.ask(command(&text)).await, Err(Error::Text(_))));
    }
    let mut store = pair.store();
    let mut sessions = 0_usize;
    let mut insert = |store: &mut Store, scope: &str| {
        let id = Id::random().unwrap();
        sessions += 1;
        let question = Question {
            scope: scope.parse().unwrap(),
            session: Some(
                format!("s{}", sessions / MAX_PENDING_PER_SESSION)
                    .parse()
                    .unwrap(),
            ),
            ..command("x")
        };
        store.insert(&id, &question).map(|()| id)
    };
    let mut own = Vec::new();
    for _ in 0..MAX_PENDING_PER_SCOPE {
        own.push(insert(&mut store, "ann").unwrap());
    }
    assert!(matches!(
        insert(&mut store, "ann"),
        Err(Error::TooMany(MAX_PENDING_PER_SCOPE))
    ));
    for number in MAX_PENDING_PER_SCOPE..MAX_PENDING {
        insert(&mut store, &format!("u{}", number / MAX_PENDING_PER_SCOPE)).unwrap();
    }
    assert!(matches!(
        insert(&mut store, "last"),
        Err(Error::TooMany(MAX_PENDING))
    ));
    // Each answer frees a place.
    for _ in 0..MAX_HISTORY {
        assert!(store.happen(&own.pop().unwrap(), Event::Reject).unwrap());
        own.push(insert(&mut store, "ann").unwrap());
    }
    let kept: usize = store
        .connection
        .query_row("SELECT count(*) FROM requests", [], |row| row.get(0))
        .unwrap();
    assert!(kept <= MAX_HISTORY + MAX_PENDING, "{kept}");
    assert_eq!(store.waiting().unwrap().len(), MAX_PENDING);
}

/// Inserts finished requests.
fn fill(store: &Store, count: usize, state: State) {
    let sql = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
        INSERT INTO requests (id, kind, text, scope, chat, asker, created, expires, state, ended)
        SELECT 'apr_' || lower(hex(randomblob(16))), kind, text, scope, chat, asker, created, expires, ?2, created
        FROM n, (SELECT * FROM requests LIMIT 1)";
    let values = rusqlite::params![count, state.as_str()];
    store.connection.execute(sql, values).unwrap();
}

#[tokio::test]
async fn what_nobody_answers_pushes_out_no_answer() {
    let pair = Pair::new();
    let mut store = pair.store();
    let over = |store: &mut Store, events: &[Event]| {
        let id = Id::random().unwrap();
        store.insert(&id, &command("rm x")).unwrap();
        for event in events {
            assert!(store.happen(&id, *event).unwrap());
        }
        if events.first() == Some(&Event::Approve) {
            let sql = "UPDATE requests SET by = 'ann' WHERE id = ?";
            store.connection.execute(sql, [id.as_str()]).unwrap();
        }
        id
    };
    let decided = [
        over(&mut store, &[Event::Approve, Event::Consume]),
        over(&mut store, &[Event::Approve, Event::Abandon]),
        over(&mut store, &[Event::Reject]),
    ];
    let first = over(&mut store, &[Event::Abandon]);
    fill(&store, MAX_HISTORY / 2, State::Expired);
    fill(&store, MAX_HISTORY / 2, State::Abandoned);
    over(&mut store, &[Event::Abandon]);
    let kept = pair.asks.history().await.unwrap();
    let ids: Vec<&Id> = kept.iter().map(|request| &request.id).collect();
    assert_eq!(ids[..3], decided.iter().collect::<Vec<_>>());
    assert!(!ids.contains(&&first));
    assert_eq!(kept.len(), decided.len() + MAX_HISTORY + 1);
    // Undecided requests do not hide decided ones in a short list.
    let newest = pair.asks.newest(100).await.unwrap();
    let ids: Vec<&Id> = newest.iter().map(|request| &request.id).collect();
    assert_eq!(ids[..3], decided.iter().collect::<Vec<_>>());
    assert_eq!(newest.len(), 103);
    // Rejected requests push out only rejected ones.
    fill(&store, MAX_HISTORY, State::Rejected);
    over(&mut store, &[Event::Reject]);
    let kept = pair.asks.history().await.unwrap();
    let is_kept = |id: &Id| kept.iter().any(|request| request.id == *id);
    assert_eq!(decided.map(|id| is_kept(&id)), [true, true, false]);
}

#[tokio::test]
async fn a_gateway_is_known_by_the_chats_it_serves_until_it_or_its_engine_goes() {
    let pair = Pair::new();
    let local = Scope::local();
    let (one, two): (Chat, Chat) = ("telegram_1".parse().unwrap(), "telegram_2".parse().unwrap());
    assert!(!pair.asks.is_heard(&one, &local).await.unwrap());
    let listener = pair.answers.listen(None, Audience::All).await.unwrap();
    assert!(
        pair.asks.is_heard(&one, &local).await.unwrap() && pair.asks.is_heard(&two, &local).await.unwrap()
    );
    let chats = Audience::Chats(BTreeSet::from([two.clone()]));
    let listener = pair.answers.listen(Some(listener), chats).await.unwrap();
    assert!(
        !pair.asks.is_heard(&one, &local).await.unwrap() && pair.asks.is_heard(&two, &local).await.unwrap()
    );
    pair.store()
        .connection
        .execute("UPDATE listeners SET owner = 'ringfence-1-1'", [])
        .unwrap();
    assert!(!pair.asks.is_heard(&two, &local).await.unwrap());
    let listener = pair.answers.listen(Some(listener), Audience::All).await.unwrap();
    pair.answers.leave(listener).await.unwrap();
    assert!(!pair.asks.is_heard(&two, &local).await.unwrap());
}

#[tokio::test]
async fn who_listens_for_a_scope_hears_its_questions_alone() {
    let pair = Pair::new();
    let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    // No chat is called like a scope.
    let chat: Chat = "bob".parse().unwrap();
    let listener = pair
        .answers
        .listen(None, Audience::Of(ann.clone()))
        .await
        .unwrap();
    let heard = async |scope: &Scope| pair.asks.is_heard(&chat, scope).await.unwrap();
    assert_eq!((heard(&ann).await, heard(&bob).await), (true, false));
    let chats = Audience::Chats(BTreeSet::from([chat.clone()]));
    pair.answers.listen(Some(listener), chats).await.unwrap();
    assert_eq!((heard(&ann).await, heard(&bob).await), (true, true));
    assert!(!pair.asks.is_heard(&Chat::local(), &bob).await.unwrap());
}

#[tokio::test]
async fn a_notice_waits_for_whoever_passes_it_on() {
    let pair = Pair::new();
    pair.asks.notify(&Chat::local(), "ran").await.unwrap();
    pair.asks
        .notify(&Chat::local(), &"ü".repeat(10_000))
        .await
        .unwrap();
    let notices = pair.answers.notices(None).await.unwrap();
    assert_eq!((notices.len(), notices[0].text.as_str()), (2, "ran"));
    assert!(notices[1].text.len() <= 4096);
    pair.answers.delivered(notices[1].number).await.unwrap();
    assert!(pair.answers.notices(None).await.unwrap().is_empty());
    assert_eq!(
        pair.answers.notices(Some(notices[0].number)).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn a_flood_of_notices_pushes_out_none_that_waits() {
    let pair = Pair::new();
    let other: Chat = "telegram_7".parse().unwrap();
    pair.asks.notify(&Chat::local(), "first").await.unwrap();
    pair.asks.notify(&other, "elsewhere").await.unwrap();
    for number in 0..300 {
        pair.asks
            .notify(&Chat::local(), &number.to_string())
            .await
            .unwrap();
    }
    let texts = async || {
        let notices = pair.answers.notices(None).await.unwrap();
        notices.into_iter().map(|notice| notice.text).collect::<Vec<_>>()
    };
    let waiting = texts().await;
    assert_eq!(
        (waiting.len(), &*waiting[0], &*waiting[1]),
        (101, "first", "elsewhere")
    );
    assert!(
        waiting[99] == "97" && waiting[100].contains("audit tail"),
        "{waiting:?}"
    );
    // Delivered notices make room for others.
    pair.answers.delivered(1_000).await.unwrap();
    pair.asks.notify(&Chat::local(), "last").await.unwrap();
    assert_eq!(texts().await, ["last"]);
    assert!(pair.answers.notices(Some(0)).await.unwrap().len() <= 102);
}

#[test]
fn the_store_is_ours_alone_and_one_of_another_version_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("approvals.db");
    let store = Store::open(&path).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for name in ["approvals.db", "approvals.db-wal", "approvals.db-shm"] {
        assert_eq!(mode(&dir.path().join(name)), 0o600, "{name}");
    }
    store.connection.pragma_update(None, "user_version", 2).unwrap();
    drop(store);
    assert!(matches!(Store::open(&path), Err(Error::Foreign(_))));
}

#[test]
fn a_store_that_another_makes_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("approvals.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // SQLite refuses at once: it does not wait for a change of the journal mode.
    let refused = rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_update(None, "journal_mode", "wal");
    assert!(refused.is_err());
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| Store::open(&path).map(drop));
        // By then it has most likely tried.
        std::thread::park_timeout(std::time::Duration::from_millis(50));
        other.execute_batch("COMMIT").unwrap();
        opening.join().unwrap().unwrap();
    });
}

#[tokio::test]
async fn one_session_does_not_take_the_places_of_the_others() {
    let pair = Pair::new();
    let mut store = pair.store();
    let insert = |store: &mut Store, scope: &str, session: Option<&str>| {
        let question = Question {
            scope: scope.parse().unwrap(),
            session: session.map(|session| session.parse().unwrap()),
            ..command("x")
        };
        store.insert(&Id::random().unwrap(), &question)
    };
    for (scope, session) in [("ann", Some("runaway")), ("bob", None)] {
        for _ in 0..MAX_PENDING_PER_SESSION {
            insert(&mut store, scope, session).unwrap();
        }
        let full = insert(&mut store, scope, session);
        assert!(
            matches!(full, Err(Error::TooMany(MAX_PENDING_PER_SESSION))),
            "{full:?}"
        );
        insert(&mut store, scope, Some("another")).unwrap();
    }
}
