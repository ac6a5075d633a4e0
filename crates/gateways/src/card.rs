//! State and rendering of one approval request in a chat.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringfence_records::approval::{BATCH, Remember};

use ringfence_gateway_protocol::{FromGateway, RequestWords, foreign, lines, remaining, visible};

const TOO_LONG: &str = "The text is too long to be shown in full here, so it cannot be approved here. \
                        `ringfence approvals ls` on the machine shows all of it.";

/// An approval request in a chat.
#[derive(Debug)]
pub(crate) struct Card {
    number: u64,
    words: RequestWords,
    token: String,
    standing: Standing,
    /// Time at which the server last sent it.
    heard: Instant,
    expires: Instant,
    /// The same moment, for people.
    expires_at: SystemTime,
    /// Number of posted messages.
    parts: usize,
    /// Id of the message with the buttons, and the time at which it was posted.
    message: Option<(u64, Instant)>,
    /// Cleared if the card cannot be posted.
    postable: bool,
    /// Maximum length of the card's text, in UTF-16 units.
    room: usize,
    whole: bool,
}

/// State of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not answered here.
    Waiting,
    /// Answered here, but not yet confirmed by the server.
    Answered,
    /// No longer pending.
    Over(Ending),
}

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// Reported by the server.
    Told {
        /// `approved`, `rejected`, `expired` or `abandoned`.
        outcome: String,
        /// Name of the answerer.
        by: Option<String>,
    },
    /// The request expired without a report from the server.
    TimeUp,
    /// The request ended while the server was unavailable.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Approve this request.
    Approve,
    /// Approve the same for the session.
    Session,
    /// Approve further calls of the same function.
    More,
    /// Always approve the same text.
    Always,
    Deny,
}

impl Choice {
    const ALL: [Self; 5] = [Self::Approve, Self::Deny, Self::Session, Self::More, Self::Always];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Approve => "Approve",
            Self::Session => "Approve for the session",
            Self::More => "Approve this and 10 more calls",
            Self::Always => "Always approve this text",
            Self::Deny => "Reject",
        }
    }

    const fn code(self) -> char {
        match self {
            Self::Approve => 'a',
            Self::Session => 's',
            Self::More => 'm',
            Self::Always => 'w',
            Self::Deny => 'd',
        }
    }

    const fn remember(self) -> Remember {
        match self {
            Self::Approve | Self::Deny => Remember::Once,
            Self::Session => Remember::Session,
            Self::More => Remember::Uses(BATCH),
            Self::Always => Remember::Always,
        }
    }

    /// Parses a button's data into the choice and the request's token.
    pub(super) fn split(data: &str) -> Option<(Self, &str)> {
        let mut rest = data.chars();
        let code = rest.next()?;
        let choice = Self::ALL.into_iter().find(|choice| choice.code() == code)?;
        Some((choice, rest.as_str()))
    }
}

impl Card {
    pub(super) fn new(number: u64, token: String, words: RequestWords, room: usize, now: Instant) -> Self {
        let left = Duration::from_secs(words.timeout);
        let units: usize = lines(&words.command).iter().map(|line| 1 + utf16_len(line)).sum();
        Self {
            room,
            whole: units <= room + 1,
            number,
            words,
            token,
            standing: Standing::Waiting,
            heard: now,
            expires: now + left,
            expires_at: SystemTime::now() + left,
            parts: 0,
            message: None,
            postable: true,
        }
    }

    /// Returns the card's number at the [desk](super::Desk).
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the request as sent by the server.
    pub(crate) fn words(&self) -> &RequestWords {
        &self.words
    }

    /// Returns the number of posted messages.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Returns the id of the message with the buttons.
    pub(crate) fn message(&self) -> Option<u64> {
        self.message.map(|(message, _)| message)
    }

    /// Renders the first line: kind and risk.
    pub(crate) fn headline(&self) -> String {
        let kind = match self.words.kind.as_str() {
            "command" => "A command asks to run on the host".to_owned(),
            "soft_timeout" => "A tool has reached its time limit".to_owned(),
            "skill" => "A program asks to call a function of a skill".to_owned(),
            other => visible(other),
        };
        match self.words.risk_score {
            Some(risk) => format!("{kind} (risk {risk} of 10)"),
            None => kind,
        }
    }

    /// Renders the requested text with invisible characters escaped, truncated if too long.
    pub(crate) fn body(&self) -> String {
        let mut body = lines(&self.words.command).join("\n");
        let mut units = 0;
        let fits = |(_, c): &(usize, char)| {
            units += c.len_utf16();
            units <= self.room
        };
        let end = body.char_indices().take_while(fits).last();
        body.truncate(end.map_or(0, |(at, c)| at + c.len_utf8()));
        body
    }

    /// Renders reasons, suspicious characters, scope and expiry, one line each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        if !self.whole {
            notes.push(TOO_LONG.to_owned());
        }
        notes.extend(foreign(&self.words.command));
        let reasons = self.words.reasons.iter();
        notes.extend(reasons.map(|reason| format!("\u{2022} {}", visible(reason))));
        let session = self.words.session.as_deref().map(visible);
        let session = session.map(|id| format!(", session {id}")).unwrap_or_default();
        notes.push(format!(
            "For {}{session} ({})",
            visible(&self.words.scope),
            visible(&self.words.id)
        ));
        notes.push(format!(
            "Open until {} ({})",
            clock(self.expires_at),
            remaining(self.words.timeout)
        ));
        notes
    }

    /// Returns the buttons in order.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        let offered = |name: &str| self.words.remember.iter().any(|remember| remember == name);
        // A person must not approve what is not shown in full.
        let fits = |choice: &Choice| match choice {
            Choice::Deny => true,
            Choice::Approve => self.whole,
            Choice::Session => self.whole && offered("session"),
            Choice::More => self.whole && offered("uses"),
            Choice::Always => self.whole && offered("always"),
        };
        Choice::ALL.into_iter().filter(fits).collect()
    }

    /// Returns a button's data: 33 ASCII characters that cannot be guessed.
    pub(crate) fn data(&self, choice: Choice) -> String {
        format!("{}{}", choice.code(), self.token)
    }

    /// Renders the outcome in one line. `None` while pending.
    pub(crate) fn ending(&self) -> Option<String> {
        match &self.standing {
            Standing::Waiting | Standing::Answered => None,
            Standing::Over(ending) => Some(ending.line()),
        }
    }

    /// Returns `true` if the text is shown in full.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(super) fn heard(&self) -> Instant {
        self.heard
    }

    pub(super) fn expires(&self) -> Instant {
        self.expires
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.standing, Standing::Over(_))
    }

    /// Returns `true` if any part has been posted.
    pub(super) fn is_on_show(&self) -> bool {
        self.parts > 0
    }

    pub(super) fn is_to_be_posted(&self) -> bool {
        self.postable && self.message.is_none() && !self.is_over()
    }

    pub(super) fn shown_for(&self, now: Instant) -> Duration {
        self.message
            .map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(since))
    }

    pub(super) fn sent_again(&mut self, now: Instant) {
        self.heard = now;
        self.ask_again();
    }

    pub(super) fn ask_again(&mut self) {
        if self.standing == Standing::Answered {
            self.standing = Standing::Waiting;
        }
    }

    /// Records the outcome. The first one counts.
    pub(super) fn end(&mut self, ending: Ending) {
        if !self.is_over() {
            self.standing = Standing::Over(ending);
        }
    }

    pub(super) fn posted(&mut self, with_buttons: Option<u64>, now: Instant) {
        self.parts += 1;
        self.message = with_buttons.map(|message| (message, now));
    }

    pub(super) fn withhold(&mut self) {
        self.whole = false;
    }

    pub(super) fn give_up(&mut self) {
        self.postable = false;
    }

    pub(super) fn answer(&mut self, choice: Choice, by: &str) -> FromGateway {
        self.standing = Standing::Answered;
        FromGateway::ApprovalResponse {
            id: self.words.id.clone(),
            approved: choice != Choice::Deny,
            chat_id: Some(self.words.chat_id.clone()),
            digest: Some(self.words.digest),
            remember: choice.remember(),
            by: Some(by.to_owned()),
        }
    }
}

impl Ending {
    fn line(&self) -> String {
        match self {
            Self::Told { outcome, by } => {
                let by = by
                    .as_deref()
                    .map(|by| format!(" by {}", visible(by)))
                    .unwrap_or_default();
                match outcome.as_str() {
                    "approved" => format!("Approved{by}"),
                    "rejected" => format!("Rejected{by}"),
                    "expired" => "Expired: nobody answered in time".to_owned(),
                    "abandoned" => "Withdrawn: whoever asked no longer waits".to_owned(),
                    other => format!("{}{by}", visible(other)),
                }
            }
            Self::TimeUp => "Its time is up".to_owned(),
            Self::Unknown => "It no longer waits; it ended while the server was away".to_owned(),
        }
    }
}

fn utf16_len(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Renders the time of day in UTC.
fn clock(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % (24 * 60 * 60);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}
