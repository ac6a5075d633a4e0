//! Tests of a desk with messages of a server and presses.

use std::time::{Duration, Instant};

use ringfence_records::approval::{BATCH, Remember};
use ringfence_records::audit::Digest;

use super::*;
use crate::card::Choice;
use ringfence_gateway_protocol::RequestWords;

const ROOM: usize = 100;
const ANN: &str = "user 7 (@ann)";

struct Chats {
    desk: Desk,
    start: Instant,
}

impl Chats {
    fn new() -> Self {
        let chats = ["chat_1", "chat_2"].map(str::to_owned).into();
        let (mut desk, start) = (Desk::new(chats, ROOM).unwrap(), Instant::now());
        desk.receive(LinkEvent::Connected, start);
        Self { desk, start }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn says(&mut self, message: FromServer, seconds: u64) {
        self.desk
            .receive(LinkEvent::Said(Box::new(message)), self.at(seconds));
    }

    /// Adds a request, and posts it as the message `message`.
    fn show(&mut self, id: &str, message: u64) {
        self.says(FromServer::ApprovalRequest(words(id, "rm x")), 0);
        let Some(Due::Ask(card)) = self.desk.due() else {
            panic!("nothing to ask");
        };
        let number = card.number();
        self.desk.posted(number, Some(message), self.start);
    }

    fn data(&self, id: &str, choice: Choice) -> String {
        let card = self.desk.cards.values().find(|card| card.words().id == id);
        card.unwrap().data(choice)
    }

    fn press(&mut self, data: &str, message: u64, seconds: u64) -> Result<FromGateway, Ignored> {
        let (now, chat) = (self.at(seconds), "chat_1");
        let press = Press {
            data,
            chat,
            message,
            by: ANN,
        };
        self.desk.press(press, now)
    }

    /// Returns the outcome to show, if one is due.
    fn ending(&mut self) -> Option<String> {
        match self.desk.due() {
            Some(Due::Settle(card)) => card.ending(),
            _ => None,
        }
    }
}

fn words(id: &str, command: &str) -> RequestWords {
    RequestWords {
        id: id.to_owned(),
        chat_id: "chat_1".to_owned(),
        command: command.to_owned(),
        risk_score: Some(8),
        timeout: 300,
        kind: "command".to_owned(),
        reasons: vec!["installs\u{1b}[2J packages".to_owned()],
        remember: vec!["once".to_owned(), "session".to_owned()],
        digest: Digest::of(command.as_bytes()),
        scope: "ann".to_owned(),
        session: None,
    }
}

fn closed(id: &str, outcome: &str, by: Option<&str>) -> FromServer {
    FromServer::ApprovalClosed {
        id: id.to_owned(),
        outcome: outcome.to_owned(),
        by: by.map(str::to_owned),
    }
}

#[test]
fn a_press_is_one_answer_and_its_end_is_shown() {
    let mut chats = Chats::new();
    chats.show("apr_1", 5);
    let data = chats.data("apr_1", Choice::Session);
    let answer = chats.press(&data, 5, 2).unwrap();
    let FromGateway::ApprovalResponse {
        id,
        approved,
        chat_id,
        digest,
        remember,
        by,
    } = answer
    else {
        panic!("no answer: {answer:?}");
    };
    assert_eq!(
        (id.as_str(), approved, remember),
        ("apr_1", true, Remember::Session)
    );
    assert_eq!((chat_id.as_deref(), by.as_deref()), (Some("chat_1"), Some(ANN)));
    assert_eq!(digest, Some(Digest::of(b"rm x")));
    assert_eq!(chats.press(&data, 5, 2), Err(Ignored::Answered));
    chats.says(closed("apr_1", "approved", Some(ANN)), 3);
    assert_eq!(chats.press(&data, 5, 3), Err(Ignored::Over));
    assert_eq!(chats.ending().as_deref(), Some("Approved by user 7 (@ann)"));
    let number = chats.desk.last;
    chats.desk.settled(number);
    assert!(chats.desk.due().is_none());
    assert_eq!(chats.press(&data, 5, 3), Err(Ignored::Unknown));
}

#[test]
fn a_press_that_is_not_the_questions_own_has_no_effect() {
    let mut chats = Chats::new();
    chats.show("apr_1", 5);
    let data = chats.data("apr_1", Choice::Approve);
    let forged = format!("a{}", "0".repeat(32));
    for (data, message, expected) in [
        ("", 5, Ignored::Unknown),
        ("aapr_1", 5, Ignored::Unknown),
        (forged.as_str(), 5, Ignored::Unknown),
        (data.as_str(), 6, Ignored::Elsewhere),
    ] {
        assert_eq!(chats.press(data, message, 2), Err(expected), "{data}");
    }
    let (now, chat) = (chats.at(2), "chat_2");
    let elsewhere = Press {
        data: &data,
        chat,
        message: 5,
        by: ANN,
    };
    assert_eq!(chats.desk.press(elsewhere, now), Err(Ignored::Elsewhere));
    let always = chats.data("apr_1", Choice::Always);
    assert_eq!(chats.press(&always, 5, 2), Err(Ignored::NotOffered));
    assert_eq!(chats.press(&data, 5, 0), Err(Ignored::TooSoon));
    assert_eq!(chats.press(&data, 5, 300), Err(Ignored::Over));
    chats.desk.receive(LinkEvent::Gone, now);
    assert_eq!(chats.press(&data, 5, 2), Err(Ignored::NoServer));
    // Another gateway has another token for the same request.
    let mut other = Chats::new();
    other.show("apr_1", 5);
    assert_eq!(
        chats.press(&other.data("apr_1", Choice::Deny), 5, 2),
        Err(Ignored::Unknown)
    );
}

#[test]
fn a_press_that_is_faster_than_the_word_that_its_message_is_there_is_no_answer() {
    let mut chats = Chats::new();
    chats.says(FromServer::ApprovalRequest(words("apr_1", "rm x")), 0);
    let data = chats.data("apr_1", Choice::Deny);
    assert_eq!(chats.press(&data, 5, 2), Err(Ignored::TooSoon));
    chats.desk.posted(1, Some(5), chats.start);
    assert!(chats.press(&data, 5, 2).is_ok());
}

#[test]
fn an_answer_that_did_not_arrive_can_be_given_again() {
    let mut chats = Chats::new();
    chats.show("apr_1", 5);
    let data = chats.data("apr_1", Choice::Deny);
    assert!(chats.press(&data, 5, 0).is_ok());
    chats.desk.undelivered("apr_1");
    assert!(chats.press(&data, 5, 1).is_ok());
    // The server went down with the answer, and the next one still has the request: it is not posted again.
    let (gone, back) = (chats.at(2), chats.at(3));
    chats.desk.receive(LinkEvent::Gone, gone);
    chats.desk.receive(LinkEvent::Connected, back);
    chats.says(FromServer::ApprovalRequest(words("apr_1", "rm x")), 3);
    assert!(chats.desk.due().is_none());
    chats.desk.look(chats.at(60));
    assert!(chats.press(&data, 5, 60).is_ok());
    let refused = FromServer::Error {
        id: Some("apr_1".to_owned()),
        error: "not_remembered".to_owned(),
        message: "no".to_owned(),
    };
    chats.says(refused, 61);
    assert!(chats.press(&data, 5, 62).is_ok());
}

#[test]
fn what_ended_while_the_server_was_away_is_ended_here() {
    let mut chats = Chats::new();
    chats.show("apr_1", 5);
    let (gone, back) = (chats.at(2), chats.at(3));
    chats.desk.receive(LinkEvent::Gone, gone);
    chats.desk.look(chats.at(299));
    assert_eq!(chats.ending(), None);
    chats.desk.receive(LinkEvent::Connected, back);
    chats.desk.look(chats.at(4));
    assert_eq!(chats.ending(), None);
    chats.desk.look(chats.at(5));
    assert!(chats.ending().unwrap().contains("while the server was away"));

    let mut chats = Chats::new();
    chats.show("apr_2", 5);
    chats.desk.look(chats.at(302));
    assert_eq!(chats.ending(), None);
    chats.desk.look(chats.at(303));
    assert_eq!(chats.ending().as_deref(), Some("Its time is up"));
}

#[test]
fn what_ends_before_it_was_posted_is_never_posted() {
    let mut chats = Chats::new();
    chats.says(FromServer::ApprovalRequest(words("apr_1", "rm x")), 0);
    chats.says(closed("apr_1", "expired", None), 1);
    assert!(chats.desk.due().is_none());
    // Unless a part of it was posted.
    chats.says(FromServer::ApprovalRequest(words("apr_2", "rm x")), 0);
    chats.desk.posted(2, None, chats.start);
    assert!(matches!(chats.desk.due(), Some(Due::Ask(card)) if card.parts() == 1));
    chats.says(closed("apr_2", "abandoned", None), 1);
    assert!(matches!(chats.desk.due(), Some(Due::Settle(card)) if card.message().is_none()));
}

#[test]
fn only_the_chats_that_are_served_are_told_anything() {
    let mut chats = Chats::new();
    let mut other = words("apr_1", "x");
    other.chat_id = "chat_3".to_owned();
    chats.says(FromServer::ApprovalRequest(other), 0);
    let message = |chat: &str, text: String| FromServer::Message {
        chat_id: chat.to_owned(),
        text,
        time: None,
    };
    chats.says(message("chat_3", "x".to_owned()), 0);
    assert!(chats.desk.due().is_none());
    for number in 0..=MAX_NOTICES {
        chats.says(message("chat_2", number.to_string()), 0);
    }
    let first = Notice {
        chat: "chat_2".to_owned(),
        text: "1".to_owned(),
    };
    assert!(matches!(chats.desk.due(), Some(Due::Tell(notice)) if *notice == first));
    // Requests come before notices.
    chats.says(FromServer::ApprovalRequest(words("apr_2", "x")), 0);
    assert!(matches!(chats.desk.due(), Some(Due::Ask(_))));
    chats.desk.unpostable(1);
    chats.desk.notice_posted();
    assert!(matches!(chats.desk.due(), Some(Due::Tell(notice)) if notice.text == "2"));
}

#[test]
fn a_question_is_shown_in_full_or_cannot_be_approved() {
    let mut chats = Chats::new();
    let shown = |chats: &mut Chats, id: &str, text: &str| {
        chats.says(FromServer::ApprovalRequest(words(id, text)), 0);
        let card = chats.desk.cards.values().last().unwrap();
        (
            card.headline(),
            card.body(),
            card.notes().join("\n"),
            card.choices(),
        )
    };
    let (headline, body, notes, choices) = shown(&mut chats, "apr_1", "apt\u{202e}\nrm \u{7}");
    assert_eq!(headline, "A command asks to run on the host (risk 8 of 10)");
    assert_eq!(body, "apt\\u{202e}\nrm \\u{7}");
    for part in [
        "installs\\u{1b}[2J",
        "U+202E",
        "For ann (apr_1)",
        "Open until ",
        "5m 00s",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    assert_eq!(choices, [Choice::Approve, Choice::Deny, Choice::Session]);
    // A clef takes two units.
    for (text, whole) in [("x".repeat(ROOM), true), ("\u{1d11e}".repeat(ROOM / 2), true)] {
        let (_, body, ..) = shown(&mut chats, &text, &text);
        assert_eq!(body == text, whole, "{text}");
    }
    for text in [
        "x".repeat(ROOM + 1),
        "\u{1d11e}".repeat(ROOM / 2 + 1),
        "\u{7}".repeat(ROOM),
    ] {
        let (_, body, notes, choices) = shown(&mut chats, &text, &text);
        assert!(
            body.encode_utf16().count() <= ROOM && notes.contains("too long"),
            "{body}"
        );
        assert_eq!(choices, [Choice::Deny], "{text}");
    }
}

#[test]
fn more_calls_of_a_function_are_allowed_at_once_where_that_is_offered() {
    let mut chats = Chats::new();
    let remember = ["once", "session", "uses"].map(str::to_owned).to_vec();
    let words = RequestWords {
        kind: "skill".to_owned(),
        remember,
        ..words("apr_1", "Notes.drop {}")
    };
    chats.says(FromServer::ApprovalRequest(words), 0);
    let card = chats.desk.cards.values().last().unwrap();
    let expected = [Choice::Approve, Choice::Deny, Choice::Session, Choice::More];
    assert_eq!(card.choices(), expected);
    let said = format!("and {BATCH} more calls");
    assert!(Choice::More.label().contains(&said));
}

#[test]
fn what_turns_out_not_to_be_shown_in_full_can_only_be_rejected() {
    let mut chats = Chats::new();
    chats.says(FromServer::ApprovalRequest(words("apr_1", "rm x")), 0);
    let Some(Due::Ask(card)) = chats.desk.due() else {
        panic!("nothing to ask");
    };
    let number = card.number();
    assert!(card.is_whole());
    chats.desk.withhold(number);
    let Some(Due::Ask(card)) = chats.desk.due() else {
        panic!("nothing to ask");
    };
    assert_eq!((card.is_whole(), card.choices()), (false, vec![Choice::Deny]));
    chats.desk.posted(number, Some(5), chats.start);
    let data = chats.data("apr_1", Choice::Approve);
    assert_eq!(chats.press(&data, 5, 2), Err(Ignored::NotOffered));
}
