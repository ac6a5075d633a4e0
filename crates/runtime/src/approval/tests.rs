//! Questions from asking to acting.

use std::collections::BTreeSet;
use std::path::Path;

use ringfence_policy::{Scope, Timeout};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::store::Store;
use super::*;
use crate::audit::Digest;

/// Two processes' views of one store, as far as the store can tell.
struct Pair {
    dir: TempDir,
    asks: Service,
    answers: Service,
}

impl Pair {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [asks, answers] = [(); 2].map(|()| Service::at(dir.path()));
        Self { dir, asks, answers }
    }

    fn ask(&self, question: Question) -> JoinSet<Result<Decision, Error>> {
        let (service, mut asking) = (self.asks.clone(), JoinSet::new());
        asking.spawn(async move { service.ask(question).await });
        asking
    }

    /// The only request that waits, once there is one.
    async fn only(&self) -> Request {
        let mut changes = self.answers.changes();
        loop {
            changes.next().await.unwrap();
            let waiting = self.answers.waiting().await.unwrap();
            if let [request] = &waiting[..] {
                return request.clone();
            }
        }
    }

    fn store(&self) -> Store {
        Store::open(&self.dir.path().join("approvals.db")).unwrap()
    }

    async fn state(&self, id: &Id) -> State {
        self.answers.request(id).await.unwrap().unwrap().state
    }
}

fn command(text: &str) -> Question {
    Question {
        kind: Kind::Command {
            reasons: vec!["installs packages".to_owned()],
            risk: Some(8),
            lasting: Lasting::Offered,
            place: Place::default(),
        },
        text: text.to_owned(),
        scope: Scope::local(),
        session: Some("talk".parse().unwrap()),
        chat: "telegram_1".parse().unwrap(),
        patience: Timeout::seconds(300),
    }
}

fn yes(request: &Request) -> Answer {
    Answer {
        id: request.id.clone(),
        verdict: Verdict::Approve,
        remember: Remember::Once,
        chat: request.chat.clone(),
        digest: request.digest(),
        by: "ann".to_owned(),
    }
}

fn no(request: &Request) -> Answer {
    Answer {
        verdict: Verdict::Reject,
        ..yes(request)
    }
}

fn refused(result: Result<Request, Error>) -> Unanswerable {
    match result {
        Err(Error::Unanswerable(why)) => why,
        other => panic!("taken: {other:?}"),
    }
}

async fn decided(mut asking: JoinSet<Result<Decision, Error>>) -> Decision {
    asking.join_next().await.unwrap().unwrap().unwrap()
}

#[tokio::test]
async fn a_yes_and_a_no_reach_the_asker_and_a_yes_is_taken_once() {
    let pair = Pair::new();
    for (answer, decision, state) in [
        (
            yes as fn(&Request) -> Answer,
            Decision::Approved { by: "ann".to_owned() },
            State::Consumed,
        ),
        (no, Decision::Rejected { by: "ann".to_owned() }, State::Rejected),
    ] {
        let asking = pair.ask(command("apt upgrade -y"));
        let request = pair.only().await;
        assert_eq!(
            (request.text.as_str(), request.state),
            ("apt upgrade -y", State::Pending)
        );
        pair.answers.answer(answer(&request)).await.unwrap();
        assert_eq!(decided(asking).await, decision);
        assert_eq!(pair.state(&request.id).await, state);
        assert!(!pair.store().happen(&request.id, Event::Consume).unwrap());
    }
}

#[tokio::test]
async fn nobody_answers_and_a_late_answer_changes_nothing() {
    let pair = Pair::new();
    let mut question = command("x");
    question.patience = "50ms".parse().unwrap();
    let decision = pair.asks.ask(question).await.unwrap();
    assert_eq!(decision, Decision::Expired);
    let over = pair.answers.history().await.unwrap().remove(0);
    assert_eq!(
        refused(pair.answers.answer(yes(&over)).await),
        Unanswerable::Late(State::Expired)
    );
    assert_eq!(pair.state(&over.id).await, State::Expired);
}

#[tokio::test]
async fn a_request_whose_time_is_up_cannot_be_approved_though_its_asker_sleeps() {
    let pair = Pair::new();
    let asking = pair.ask(command("x"));
    let request = pair.only().await;
    let store = pair.store();
    store
        .connection
        .execute("UPDATE requests SET expires = 1", [])
        .unwrap();
    assert_eq!(
        refused(pair.answers.answer(yes(&request)).await),
        Unanswerable::Late(State::Expired)
    );
    assert!(pair.answers.waiting().await.unwrap().is_empty());
    assert_eq!(decided(asking).await, Decision::Expired);
}

#[tokio::test]
async fn exactly_one_answer_counts_whoever_gives_it() {
    let pair = Pair::new();
    let asking = pair.ask(command("x"));
    let request = pair.only().await;
    let mut people = JoinSet::new();
    for number in 0..16 {
        let service = Service::at(pair.dir.path());
        let answer = if number % 2 == 0 {
            yes(&request)
        } else {
            no(&request)
        };
        people.spawn(async move { service.answer(answer).await.is_ok() });
    }
    let taken = people.join_all().await;
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
    let state = match decided(asking).await {
        Decision::Approved { .. } => State::Consumed,
        Decision::Rejected { .. } => State::Rejected,
        Decision::Expired | Decision::Dismissed { .. } => panic!("answered"),
    };
    assert_eq!(pair.state(&request.id).await, state);
    // Again, and again the other way: a replay changes nothing.
    for answer in [yes(&request), no(&request)] {
        assert_eq!(
            refused(pair.answers.answer(answer).await),
            Unanswerable::Late(state)
        );
    }
}

#[tokio::test]
async fn guessed_ids_other_chats_and_other_texts_are_refused() {
    let pair = Pair::new();
    let asking = pair.ask(command("apt upgrade -y"));
    let request = pair.only().await;
    let guessed = Answer {
        id: format!("apr_{}", "0".repeat(32)).parse().unwrap(),
        ..yes(&request)
    };
    assert_eq!(refused(pair.answers.answer(guessed).await), Unanswerable::Unknown);
    let elsewhere = Answer {
        chat: "telegram_2".parse().unwrap(),
        ..yes(&request)
    };
    assert_eq!(
        refused(pair.answers.answer(elsewhere).await),
        Unanswerable::Unknown
    );
    let other = Answer {
        digest: Digest::of(b"apt update"),
        ..yes(&request)
    };
    assert_eq!(refused(pair.answers.answer(other).await), Unanswerable::OtherText);
    assert_eq!(pair.state(&request.id).await, State::Pending);
    pair.answers.answer(yes(&request)).await.unwrap();
    assert_eq!(decided(asking).await, Decision::Approved { by: "ann".to_owned() });
}

#[tokio::test]
async fn an_asker_that_gives_up_or_dies_takes_its_question_back() {
    let pair = Pair::new();
    let asking = pair.ask(command("x"));
    let request = pair.only().await;
    drop(asking);
    let mut changes = pair.answers.changes();
    while pair.state(&request.id).await == State::Pending {
        changes.next().await.unwrap();
    }
    assert_eq!(
        refused(pair.answers.answer(yes(&request)).await),
        Unanswerable::Late(State::Abandoned)
    );

    let asking = pair.ask(command("y"));
    let request = pair.only().await;
    // No process has this start time.
    let set = "UPDATE requests SET asker = 'ringfence-1-1' WHERE id = ?";
    pair.store()
        .connection
        .execute(set, [request.id.as_str()])
        .unwrap();
    assert!(pair.answers.waiting().await.unwrap().is_empty());
    assert_eq!(pair.state(&request.id).await, State::Abandoned);
    drop(asking);
}

#[tokio::test]
async fn an_approval_whose_asker_died_before_acting_is_told_as_abandoned() {
    let pair = Pair::new();
    let asking = pair.ask(command("x"));
    let request = pair.only().await;
    let store = pair.store();
    let set = "UPDATE requests SET state = 'approved', asker = 'ringfence-1-1' WHERE id = ?";
    drop(asking);
    store.connection.execute(set, [request.id.as_str()]).unwrap();
    pair.answers.history().await.unwrap();
    assert_eq!(pair.state(&request.id).await, State::Abandoned);
    assert!(!pair.store().happen(&request.id, Event::Consume).unwrap());
}

#[tokio::test]
async fn an_answer_for_the_session_holds_there_and_nowhere_else() {
    let pair = Pair::new();
    let asking = pair.ask(command("x"));
    let request = pair.only().await;
    let session = Answer {
        remember: Remember::Session,
        ..yes(&request)
    };
    pair.answers.answer(session).await.unwrap();
    decided(asking).await;
    for _ in 0..3 {
        let again = pair.asks.ask(command("x")).await.unwrap();
        assert_eq!(
            again,
            Decision::Approved {
                by: "an approval for the session".to_owned()
            }
        );
    }
    let other_text = command("x ");
    let other_session = Question {
        session: Some("other".parse().unwrap()),
        ..command("x")
    };
    let no_session = Question {
        session: None,
        ..command("x")
    };
    let other_scope = Question {
        scope: "bob".parse().unwrap(),
        ..command("x")
    };
    for question in [other_text, other_session, no_session, other_scope] {
        let asking = pair.ask(question);
        let request = pair.only().await;
        pair.answers.answer(no(&request)).await.unwrap();
        assert_eq!(decided(asking).await, Decision::Rejected { by: "ann".to_owned() });
    }
}

#[tokio::test]
async fn so_many_uses_are_so_many() {
    let pair = Pair::new();
    let asking = pair.ask(command("x"));
    let request = pair.only().await;
    let thrice = Answer {
        remember: Remember::Uses(3),
        ..yes(&request)
    };
    pair.answers.answer(thrice).await.unwrap();
    decided(asking).await;
    let question = command("x");
    let mut spent = 0;
    while pair.store().spend(&question).unwrap() {
        spent += 1;
    }
    assert_eq!(spent, 3);
}

#[tokio::test]
async fn uses_are_neither_spent_twice_nor_by_a_namesake_nor_after_the_machine_has_started_anew() {
    let pair = Pair::new();
    let asking = pair.ask(command("x"));
    let request = pair.only().await;
    let many = Answer {
        remember: Remember::Uses(100),
        ..yes(&request)
    };
    pair.answers.answer(many).await.unwrap();
    decided(asking).await;
    let path = pair.dir.path().join("approvals.db");
    let spent: usize = std::thread::scope(|scope| {
        let spenders: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let mut store = Store::open(&path).unwrap();
                    (0..20).filter(|_| store.spend(&command("x")).unwrap()).count()
                })
            })
            .collect();
        spenders.into_iter().map(|spender| spender.join().unwrap()).sum()
    });
    assert_eq!(spent, 100);

    // What a process may do without a session, a session of that name may not.
    let namesake = Question {
        session: Some(crate::owner::owner_name().parse().unwrap()),
        ..command("y")
    };
    let process = Question {
        session: None,
        ..command("y")
    };
    let asking = pair.ask(process.clone());
    let request = pair.only().await;
    let session = Answer {
        remember: Remember::Session,
        ..yes(&request)
    };
    pair.answers.answer(session).await.unwrap();
    decided(asking).await;
    let mut store = pair.store();
    assert!(store.spend(&process).unwrap() && !store.spend(&namesake).unwrap());
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let set = "UPDATE grants SET session = replace(session, ?, 'before')";
    assert_eq!(store.connection.execute(set, [boot.trim()]).unwrap(), 1);
    assert!(!store.spend(&process).unwrap());
}

#[tokio::test]
async fn a_lasting_approval_is_a_line_that_a_person_can_revoke() {
    let pair = Pair::new();
    let asking = pair.ask(command("echo \"a\"\nb"));
    let request = pair.only().await;
    pair.answers
        .answer(Answer {
            remember: Remember::Always,
            ..yes(&request)
        })
        .await
        .unwrap();
    decided(asking).await;
    let again = pair
        .asks
        .ask(Question {
            session: None,
            ..command("echo \"a\"\nb")
        })
        .await
        .unwrap();
    assert_eq!(
        again,
        Decision::Approved {
            by: "a lasting approval".to_owned()
        }
    );
    let file = pair.answers.approved();
    let holds = |scope, text| file.holds(scope, text, "").unwrap();
    assert!(
        holds("local", "echo \"a\"\nb") && !holds("bob", "echo \"a\"\nb") && !holds("local", "echo \"a\"")
    );
    // What the person wrote stays, and what the person takes out is gone.
    let text = std::fs::read_to_string(file.path()).unwrap();
    std::fs::write(file.path(), format!("# mine\n{text}")).unwrap();
    file.add("local", "ls", "", "ann").unwrap();
    file.add("local", "ls", "", "ann").unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(
        text.starts_with("# mine\n") && file.entries().unwrap().len() == 2,
        "{text}"
    );
    std::fs::write(file.path(), "# mine\n").unwrap();
    assert!(!holds("local", "ls"));
}

#[tokio::test]
async fn a_file_that_others_may_write_to_or_that_makes_no_sense_allows_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let pair = Pair::new();
    let file = pair.asks.approved();
    file.add("local", "x", "", "ann").unwrap();
    assert!(file.holds("local", "x", "").unwrap());
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o620)).unwrap();
    assert!(matches!(
        file.holds("local", "x", ""),
        Err(Error::Approved { .. })
    ));
    let asking = pair.ask(command("x"));
    pair.answers.answer(no(&pair.only().await)).await.unwrap();
    assert_eq!(decided(asking).await, Decision::Rejected { by: "ann".to_owned() });
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let good = std::fs::read_to_string(file.path()).unwrap();
    for bad in [
        "[[command]]\ntext = ''\nscope = 'local'\n",
        "[[command]]\ntext = 'y'\n",
        "x",
        "[[other]]\n",
    ] {
        std::fs::write(file.path(), format!("{good}\n{bad}")).unwrap();
        assert!(
            matches!(file.holds("local", "x", ""), Err(Error::Approved { .. })),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn a_remembered_answer_holds_in_its_directory_and_for_its_files_alone() {
    let pair = Pair::new();
    let at = |directory: &str, files: &str| {
        let mut question = command("./job");
        if let Kind::Command { place, .. } = &mut question.kind {
            place.directory = directory.to_owned();
            place.files = Some(Digest::of(files.as_bytes()));
        }
        question
    };
    for remember in [Remember::Session, Remember::Always] {
        let asking = pair.ask(at("/a", "1"));
        let request = pair.only().await;
        let answer = Answer {
            remember,
            ..yes(&request)
        };
        pair.answers.answer(answer).await.unwrap();
        decided(asking).await;
        // The same again is not asked.
        decided(pair.ask(at("/a", "1"))).await;
        let elsewhere = [at("/b", "1"), at("/a/", "1"), at("", "1")];
        let others = elsewhere
            .into_iter()
            .chain((remember == Remember::Session).then(|| at("/a", "2")));
        for other in others {
            let asking = pair.ask(other);
            let request = pair.only().await;
            pair.answers.answer(yes(&request)).await.unwrap();
            decided(asking).await;
        }
        let forgotten = pair.store();
        forgotten.connection.execute("DELETE FROM grants", []).unwrap();
    }
}

#[tokio::test]
async fn what_may_not_be_remembered_is_not_taken_at_all() {
    let pair = Pair::new();
    let kind = Kind::Command {
        reasons: Vec::new(),
        risk: None,
        lasting: Lasting::Never,
        place: Place::default(),
    };
    let asking = pair.ask(Question {
        kind,
        ..command("bash -c x")
    });
    let request = pair.only().await;
    let always = Answer {
        remember: Remember::Always,
        ..yes(&request)
    };
    assert_eq!(
        refused(pair.answers.answer(always).await),
        Unanswerable::NotRemembered
    );
    assert!(pair.answers.approved().entries().unwrap().is_empty());
    pair.answers.answer(yes(&request)).await.unwrap();
    decided(asking).await;
}

#[tokio::test]
async fn texts_and_questions_are_bounded_and_a_thousand_requests_leave_their_history() {
    let pair = Pair::new();
    for text in [String::new(), "x".repeat(MAX_TEXT + 1)] {
        assert!(matches!(pair.asks.ask(command(&text)).await, Err(Error::Text(_))));
    }
    let mut store = pair.store();
    let insert = |store: &mut Store, scope: &str| {
        let id = Id::random().unwrap();
        let question = Question {
            scope: scope.parse().unwrap(),
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
    // Once one is answered there is room again.
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

#[tokio::test]
async fn a_gateway_is_known_by_the_chats_it_serves_until_it_or_its_engine_goes() {
    let pair = Pair::new();
    let (one, two): (Chat, Chat) = ("telegram_1".parse().unwrap(), "telegram_2".parse().unwrap());
    assert!(!pair.asks.is_heard(&one).await.unwrap());
    let listener = pair.answers.listen(None, None).await.unwrap();
    assert!(pair.asks.is_heard(&one).await.unwrap() && pair.asks.is_heard(&two).await.unwrap());
    let chats = Some(BTreeSet::from([two.clone()]));
    let listener = pair.answers.listen(Some(listener), chats).await.unwrap();
    assert!(!pair.asks.is_heard(&one).await.unwrap() && pair.asks.is_heard(&two).await.unwrap());
    pair.store()
        .connection
        .execute("UPDATE listeners SET owner = 'ringfence-1-1'", [])
        .unwrap();
    assert!(!pair.asks.is_heard(&two).await.unwrap());
    let listener = pair.answers.listen(Some(listener), None).await.unwrap();
    pair.answers.leave(listener).await.unwrap();
    assert!(!pair.asks.is_heard(&two).await.unwrap());
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
    // SQLite refuses at once: it has no wait for a change of the journal.
    let refused = rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_update(None, "journal_mode", "wal");
    assert!(refused.is_err());
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| Store::open(&path).map(drop));
        // Most likely it has tried by then.
        std::thread::park_timeout(std::time::Duration::from_millis(50));
        other.execute_batch("COMMIT").unwrap();
        opening.join().unwrap().unwrap();
    });
}
