//! The path of a question from asking to acting.

mod remembered;
mod store;

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

    /// Asks, and answers the request.
    async fn answered(&self, question: Question, answer: impl FnOnce(&Request) -> Answer) -> Decision {
        let asking = self.ask(question);
        self.answers.answer(answer(&self.only().await)).await.unwrap();
        decided(asking).await
    }

    /// Asks, and approves for more than this request.
    async fn granted(&self, question: Question, remember: Remember) {
        let answer = |request: &Request| Answer {
            remember,
            ..yes(request)
        };
        assert_eq!(self.answered(question, answer).await, approved("ann"));
    }

    /// Waits for the only pending request.
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
            place: CommandContext::default(),
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

fn approved(by: &str) -> Decision {
    Decision::Approved { by: by.to_owned() }
}

fn rejected() -> Decision {
    Decision::Rejected { by: "ann".to_owned() }
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
        (yes as fn(&Request) -> Answer, approved("ann"), State::Consumed),
        (no, rejected(), State::Rejected),
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
    // A replay changes nothing, with the same verdict or the opposite one.
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
    assert_eq!(decided(asking).await, approved("ann"));
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
