//! The list of pending questions on a terminal, with the parser of the person's commands.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{FromGateway, FromServer, RequestWords, decidable, framed, remaining, visible};
use ringfence_records::approval::{BATCH, Remember};

/// Minimum display time of a question before a command without its number approves it: input typed while a
/// question appears was not meant for it.
const LOOK_FIRST: Duration = Duration::from_secs(2);

/// Reminder times, in seconds before expiry.
const REMINDERS: [u64; 4] = [60, 30, 10, 5];

/// The displayed questions by number.
#[derive(Debug, Default)]
pub struct Board {
    open: BTreeMap<u32, Open>,
    /// The last assigned number. Numbers are never reused, so that no command can refer to another question.
    last: u32,
}

#[derive(Debug)]
struct Open {
    words: RequestWords,
    since: Instant,
    expires: Instant,
    /// Number of pending reminders.
    reminders: usize,
}

/// A parsed input line.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// An answer for the server.
    Answer(FromGateway),
    /// Invalid input, with the reason.
    Invalid(String),
}

impl Board {
    /// Updates the board with a message from the server, and renders it for the person.
    pub fn take(&mut self, message: FromServer, now: Instant) -> String {
        match message {
            FromServer::ApprovalRequest(words) => self.open(words, now),
            FromServer::ApprovalClosed { id, outcome, by } => self.close(&id, &outcome, by.as_deref()),
            FromServer::Message { chat_id, text, time } => {
                let time = time.map_or_else(String::new, |time| format!("{}  ", visible(&time)));
                let text = decidable(&text).join("\n    ");
                format!("{time}[{}] {text}\n", visible(&chat_id))
            }
            FromServer::Error { id, message, .. } => {
                let id = id.map(|id| format!("{}: ", visible(&id))).unwrap_or_default();
                format!("not taken: {id}{}\n", visible(&message))
            }
            FromServer::Hello { .. } => String::new(),
        }
    }

    fn open(&mut self, words: RequestWords, now: Instant) -> String {
        let known = self.open.iter().find(|(_, open)| open.words.id == words.id);
        // A question that is sent again after a reconnect keeps its number.
        let number = known.map_or(self.last + 1, |(number, _)| *number);
        self.last = self.last.max(number);
        let text = shown(number, &words);
        let open = Open {
            since: now,
            expires: now + Duration::from_secs(words.timeout.min(MAX_TIMEOUT)),
            reminders: REMINDERS.iter().filter(|at| **at < words.timeout).count(),
            words,
        };
        self.open.insert(number, open);
        text
    }

    fn close(&mut self, id: &str, outcome: &str, by: Option<&str>) -> String {
        let by = by.map(|by| format!(" by {}", visible(by))).unwrap_or_default();
        let number = self
            .open
            .iter()
            .find(|(_, open)| open.words.id == id)
            .map(|(number, _)| *number);
        match number {
            Some(number) => {
                self.open.remove(&number);
                format!("[{number}] {}{by}\n", visible(outcome))
            }
            None => format!("{} {}{by}\n", visible(id), visible(outcome)),
        }
    }

    /// Removes questions displayed before the connection broke and not sent again since.
    pub fn forget_before(&mut self, moment: Instant) {
        self.open.retain(|_, open| open.since >= moment);
    }

    /// Renders the due reminders of questions about to expire.
    pub fn reminders(&mut self, now: Instant) -> String {
        let mut text = String::new();
        for (number, open) in &mut self.open {
            let left = open.expires.saturating_duration_since(now).as_secs();
            let due = REMINDERS.iter().filter(|at| **at < left).count();
            if due < open.reminders {
                open.reminders = due;
                text.push_str(&format!("[{number}] expires in {}\n", remaining(left)));
            }
        }
        text
    }

    /// Parses a line: `a`, `s`, `m` or `d`, alone or with a number; `approve`, `session`, `more`, `always` or
    /// `deny` with an id.
    pub fn receive(&self, line: &str, now: Instant) -> Option<Input> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(match words[..] {
            [] => return None,
            [word] => self.bare(word, now),
            [word, which] => self.named(word, which),
            _ => Input::Invalid(USAGE.to_owned()),
        })
    }

    fn bare(&self, word: &str, now: Instant) -> Input {
        let Some((approved, remember)) = meaning(word) else {
            return Input::Invalid(USAGE.to_owned());
        };
        let mut open = self.open.iter();
        let (Some((number, only)), None) = (open.next(), open.next()) else {
            return Input::Invalid(match self.open.len() {
                0 => "no question waits".to_owned(),
                _ => format!(
                    "{} questions wait: write the number too, such as `{word} {}`",
                    self.open.len(),
                    self.last
                ),
            });
        };
        if approved && now.saturating_duration_since(only.since) < LOOK_FIRST {
            return Input::Invalid(format!(
                "read the request first: write `{word} {number}` to answer it now"
            ));
        }
        answer(&only.words, approved, remember)
    }

    fn named(&self, word: &str, which: &str) -> Input {
        let Some((approved, remember)) = meaning(word) else {
            return Input::Invalid(USAGE.to_owned());
        };
        let by_number = which.parse().ok().and_then(|number: u32| self.open.get(&number));
        let found = by_number.or_else(|| self.open.values().find(|open| open.words.id == which));
        match found {
            Some(open) => answer(&open.words, approved, remember),
            // A script may name a question that was not displayed here yet; the server knows it.
            None if which.starts_with("apr_") => Input::Answer(FromGateway::ApprovalResponse {
                id: which.to_owned(),
                approved,
                chat_id: None,
                digest: None,
                remember,
                by: None,
            }),
            None => Input::Invalid(format!("no question `{}` waits", visible(which))),
        }
    }
}

/// Above the timeout of any question.
const MAX_TIMEOUT: u64 = 24 * 60 * 60;

const USAGE: &str =
    "write a, s or d and the question's number; `ringfence gateway terminal --help` lists the answers";

/// Parses the word of a command.
fn meaning(word: &str) -> Option<(bool, Remember)> {
    Some(match word {
        "a" | "approve" => (true, Remember::Once),
        "s" | "session" => (true, Remember::Session),
        "m" | "more" => (true, Remember::Uses(BATCH)),
        "always" => (true, Remember::Always),
        "d" | "deny" => (false, Remember::Once),
        "n" | "never" => (false, Remember::Session),
        _ => return None,
    })
}

fn answer(words: &RequestWords, approved: bool, remember: Remember) -> Input {
    Input::Answer(FromGateway::ApprovalResponse {
        id: words.id.clone(),
        approved,
        chat_id: Some(words.chat_id.clone()),
        digest: Some(words.digest),
        remember,
        by: None,
    })
}

/// Renders a question in full, without control characters for the terminal.
fn shown(number: u32, words: &RequestWords) -> String {
    let kind = match words.kind.as_str() {
        "command" => "a command asks to run on this machine",
        "soft_timeout" => "a tool has reached its time limit",
        "skill" => "a program asks to call a function of a skill",
        other => &visible(other),
    };
    let risk = words
        .risk_score
        .map(|risk| format!(", risk {risk} of 10"))
        .unwrap_or_default();
    let left = remaining(words.timeout);
    let mut text = format!(
        "\n[{number}] {kind}{risk}  (for {} in {}, {})\n",
        visible(&words.scope),
        visible(&words.chat_id),
        visible(&words.id)
    );
    text.push_str(&framed(&words.command));
    for reason in &words.reasons {
        text.push_str(&format!("    - {}\n", decidable(reason).join(" ")));
    }
    let offered =
        |name: &str, words_of_it: String| match words.remember.iter().any(|remember| remember == name) {
            true => words_of_it,
            false => String::new(),
        };
    let session = offered("session", format!("s {number} for the session, "));
    let more = offered("uses", format!("m {number} for this and {BATCH} more calls, "));
    text.push_str(&format!(
        "    expires in {left}: a {number} to approve, {session}{more}d {number} to deny\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_records::audit::Digest;

    fn words(id: &str, command: &str) -> RequestWords {
        RequestWords {
            id: id.to_owned(),
            chat_id: "local".to_owned(),
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

    fn id_of(said: Option<Input>) -> (String, bool, Remember) {
        match said {
            Some(Input::Answer(FromGateway::ApprovalResponse {
                id,
                approved,
                remember,
                ..
            })) => (id, approved, remember),
            other => panic!("no answer: {other:?}"),
        }
    }

    #[test]
    fn a_question_is_shown_in_full_and_steers_nothing() {
        let mut board = Board::default();
        let text = board.take(
            FromServer::ApprovalRequest(words("apr_1", "apt\u{202e}\nrm \u{7}")),
            Instant::now(),
        );
        for part in [
            "[1]",
            "risk 8",
            "    | apt\\u{202e}\n    | rm \\u{7}\n",
            "installs\\u{1b}[2J",
            "expires in 5m 00s",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{text}");
    }

    #[test]
    fn a_word_means_one_question_or_none() {
        let (mut board, start) = (Board::default(), Instant::now());
        let later = start + Duration::from_secs(3);
        assert!(matches!(board.receive("a", later), Some(Input::Invalid(_))));
        board.take(FromServer::ApprovalRequest(words("apr_1", "x")), start);
        // Input typed as it appeared was not meant for it; a denial does no harm.
        assert!(matches!(board.receive("a", start), Some(Input::Invalid(_))));
        assert_eq!(
            id_of(board.receive("d", start)),
            ("apr_1".to_owned(), false, Remember::Once)
        );
        assert_eq!(
            id_of(board.receive("a 1", start)),
            ("apr_1".to_owned(), true, Remember::Once)
        );
        assert_eq!(
            id_of(board.receive("s", later)),
            ("apr_1".to_owned(), true, Remember::Session)
        );
        board.take(FromServer::ApprovalRequest(words("apr_2", "y")), start);
        assert!(matches!(board.receive("a", later), Some(Input::Invalid(_))));
        assert_eq!(
            id_of(board.receive("deny apr_2", later)),
            ("apr_2".to_owned(), false, Remember::Once)
        );
        assert_eq!(
            id_of(board.receive("always 2", later)),
            ("apr_2".to_owned(), true, Remember::Always)
        );
        let closed = FromServer::ApprovalClosed {
            id: "apr_1".to_owned(),
            outcome: "rejected".to_owned(),
            by: Some("ann".to_owned()),
        };
        assert_eq!(board.take(closed, later), "[1] rejected by ann\n");
        // A number is never reused.
        assert!(matches!(board.receive("a 1", later), Some(Input::Invalid(_))));
        let text = board.take(FromServer::ApprovalRequest(words("apr_3", "z")), later);
        assert!(text.contains("[3]"), "{text}");
        for line in ["yes", "a 9", "a 2 3", "approve 1", "b 2"] {
            assert!(
                matches!(board.receive(line, later), Some(Input::Invalid(_))),
                "{line}"
            );
        }
        let Some(Input::Invalid(usage)) = board.receive("yes", later) else {
            panic!("`yes` is an answer");
        };
        assert!(usage.contains("`ringfence gateway terminal --help`"), "{usage}");
        assert_eq!(board.receive("  ", later), None);
    }

    #[test]
    fn a_notification_has_its_time() {
        let message = FromServer::Message {
            chat_id: "local".to_owned(),
            text: "runs on the host: git pull".to_owned(),
            time: Some("2026-11-24T00:06:10.000Z".to_owned()),
        };
        assert_eq!(
            Board::default().take(message, Instant::now()),
            "2026-11-24T00:06:10.000Z  [local] runs on the host: git pull\n"
        );
    }

    #[test]
    fn a_person_is_reminded_once_at_each_mark() {
        let (mut board, start) = (Board::default(), Instant::now());
        board.take(FromServer::ApprovalRequest(words("apr_1", "x")), start);
        let mut check = |after: u64, expected: &str| {
            assert_eq!(
                board.reminders(start + Duration::from_secs(after)),
                expected,
                "{after}"
            );
        };
        check(100, "");
        check(240, "[1] expires in 1m 00s\n");
        check(241, "");
        check(293, "[1] expires in 7s\n");
        check(294, "");
    }
}
