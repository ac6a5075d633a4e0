//! The questions of a gateway with buttons: which are open, what is to be posted about them, what a press means.
//!
//! It says what is due, one thing at a time, until the chats show what the engine told; so nothing is lost or said
//! twice when a post fails or a connection breaks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use ringfence_runtime::audit::Digest;
use rustix::rand::{GetRandomFlags, getrandom};

use super::card::{Card, Choice, Ending, Standing};
use super::{FromEngine, FromGateway, News, RequestWords, visible};

/// Questions at once; an engine has fewer.
const MAX_CARDS: usize = 512;
/// Notices that wait to be posted; the oldest go first.
const MAX_NOTICES: usize = 64;
/// How long after connecting everything that waits has been sent again.
const CONFIRMED_AFTER: Duration = Duration::from_secs(2);
/// How long after a question's time the engine is given to tell what became of it.
const GRACE: Duration = Duration::from_secs(3);
/// How long a question must have been on show before it can be approved: a press as it appears was meant for another.
const LOOK_FIRST: Duration = Duration::from_secs(1);
/// Longer than any question waits.
const MAX_TIMEOUT: u64 = 24 * 60 * 60;

/// The questions of a gateway with buttons.
#[derive(Debug)]
pub struct Desk {
    /// The chats that it serves.
    chats: BTreeSet<String>,
    cards: BTreeMap<u64, Card>,
    notices: VecDeque<Notice>,
    /// The most of a question's text that a chat can show, in UTF-16 units.
    room: usize,
    /// The last number that a card was given.
    last: u64,
    /// What tokens are made from.
    key: Key,
    /// Since when there is an engine, if there is one.
    connected: Option<Instant>,
}

/// 256 bits that nobody can guess.
struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// Something to tell a chat, without a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Where.
    pub chat: String,
    /// What, as it came from the engine.
    pub text: String,
}

/// What is to be done next so that the chats show what holds.
#[derive(Debug)]
pub enum Due<'a> {
    /// Post the question, or its next part, and tell [`Desk::posted`].
    Ask(&'a Card),
    /// Show the question's [ending](Card::ending) in the place of its buttons, and tell [`Desk::settled`]. Without a
    /// message, parts of it were posted before it ended.
    Settle(&'a Card),
    /// Post the notice, and tell [`Desk::told`].
    Tell(&'a Notice),
}

/// What is known about a press of a button.
#[derive(Debug, Clone, Copy)]
pub struct Press<'a> {
    /// What the button carries.
    pub data: &'a str,
    /// The chat in which it was pressed.
    pub chat: &'a str,
    /// The message that carries the button.
    pub message: u64,
    /// Who pressed it, as others are told.
    pub by: &'a str,
}

/// Why a press has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Nobody could take the answer.
    #[error("the engine does not answer at the moment; try again")]
    NoEngine,
    /// It was not made by this gateway since its start.
    #[error("outdated: this button belongs to no open question")]
    Unknown,
    /// The token is known, but not from there.
    #[error("outdated: the question was asked in another message")]
    Elsewhere,
    /// It has only just appeared.
    #[error("look at it first, then press again")]
    TooSoon,
    /// It was pressed before.
    #[error("already answered")]
    Answered,
    /// It no longer waits.
    #[error("too late: the question no longer waits")]
    Over,
    /// No such button was offered.
    #[error("this answer was not offered")]
    NotOffered,
}

impl Desk {
    /// An empty desk for these chats, which can show `room` UTF-16 units of a question's text. A longer one is not
    /// offered for approval.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn new(chats: BTreeSet<String>, room: usize) -> io::Result<Self> {
        let mut key = [0; 32];
        if getrandom(&mut key, GetRandomFlags::empty())? != key.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self {
            chats,
            room,
            cards: BTreeMap::new(),
            notices: VecDeque::new(),
            last: 0,
            key: Key(key),
            connected: None,
        })
    }

    /// Takes note of what the engine says; a line for the log, if there is something to tell.
    pub fn hear(&mut self, news: News, now: Instant) -> Option<String> {
        match news {
            News::Connected => {
                self.connected = Some(now);
                Some("connected to the engine".to_owned())
            }
            News::Gone => {
                self.connected = None;
                Some("the engine has gone; what waits is kept".to_owned())
            }
            News::Unreachable(error) => Some(format!(
                "no engine answers ({error}); trying again until one does"
            )),
            News::Said(message) => self.take(*message, now),
        }
    }

    fn take(&mut self, message: FromEngine, now: Instant) -> Option<String> {
        match message {
            // It may have been sent before the engine knew which chats we serve.
            FromEngine::ApprovalRequest(words) => {
                self.chats.contains(&words.chat_id).then(|| self.open(words, now))
            }
            FromEngine::ApprovalClosed { id, outcome, by } => {
                self.close(&id, Ending::Told { outcome, by });
                None
            }
            FromEngine::Message { chat_id, text } => {
                if self.chats.contains(&chat_id) {
                    self.notices.push_back(Notice { chat: chat_id, text });
                }
                let dropped = self.notices.len() > MAX_NOTICES && self.notices.pop_front().is_some();
                dropped.then(|| "too many notices wait; the oldest is dropped".to_owned())
            }
            FromEngine::Error { id, error, message } => {
                // Of a question that is over, the end is told as well.
                if let Some(card) = id.and_then(|id| self.of_id(&id))
                    && error != "late"
                {
                    card.ask_again();
                }
                Some(format!("the engine does not take it: {}", visible(&message)))
            }
            FromEngine::Hello { .. } => None,
        }
    }

    fn open(&mut self, mut words: RequestWords, now: Instant) -> String {
        let id = visible(&words.id);
        words.timeout = words.timeout.min(MAX_TIMEOUT);
        if let Some(card) = self.of_id(&words.id) {
            // Whoever answered before the connection broke was not heard.
            card.sent_again(now);
            return format!("{id} still waits");
        }
        if self.cards.len() >= MAX_CARDS {
            return format!("{id} is not shown: too many questions are");
        }
        self.last += 1;
        let card = Card::new(self.last, self.token(self.last), words, self.room, now);
        self.cards.insert(self.last, card);
        format!("{id} waits")
    }

    fn token(&self, number: u64) -> String {
        let mut text = self.key.0.to_vec();
        text.extend(number.to_be_bytes());
        let digest = Digest::of(&text).to_string();
        digest.chars().take(32).collect()
    }

    fn close(&mut self, id: &str, ending: Ending) {
        if let Some(card) = self.of_id(id) {
            card.end(ending);
        }
    }

    fn of_id(&mut self, id: &str) -> Option<&mut Card> {
        self.cards.values_mut().find(|card| card.words().id == id)
    }

    /// Ends what can no longer be waiting, though no engine said so: to be called once a second.
    pub fn look(&mut self, now: Instant) {
        let connected = self.connected;
        let confirmed = connected.filter(|since| now.saturating_duration_since(*since) >= CONFIRMED_AFTER);
        for card in self.cards.values_mut() {
            if now.saturating_duration_since(card.expires()) >= GRACE {
                card.end(Ending::TimeUp);
            } else if confirmed.is_some_and(|since| card.heard() < since) {
                card.end(Ending::Unknown);
            }
        }
    }

    /// What is to be done next. Asked again before that is done, it says the same.
    pub fn due(&mut self) -> Option<Due<'_>> {
        self.cards.retain(|_, card| !card.is_over() || card.is_on_show());
        let over = self.cards.values().find(|card| card.is_over());
        if let Some(card) = over {
            return Some(Due::Settle(card));
        }
        if let Some(card) = self.cards.values().find(|card| card.is_to_be_posted()) {
            return Some(Due::Ask(card));
        }
        self.notices.front().map(Due::Tell)
    }

    /// One more part of a question is on show; the last one with its buttons, in the message that is given.
    pub fn posted(&mut self, number: u64, with_buttons: Option<u64>, now: Instant) {
        if let Some(card) = self.cards.get_mut(&number) {
            card.posted(with_buttons, now);
        }
    }

    /// A question can be posted, but not all of its text: nobody can approve it here.
    pub fn withhold(&mut self, number: u64) {
        if let Some(card) = self.cards.get_mut(&number) {
            card.withhold();
        }
    }

    /// A question cannot be posted, whatever is tried.
    pub fn unpostable(&mut self, number: u64) {
        if let Some(card) = self.cards.get_mut(&number) {
            card.give_up();
        }
    }

    /// A question's end is on show, or never will be.
    pub fn settled(&mut self, number: u64) {
        self.cards.remove(&number);
    }

    /// The notice that was due has been posted, or never will be.
    pub fn told(&mut self) {
        self.notices.pop_front();
    }

    /// The answer that a press is, for the engine. Whoever cannot deliver it tells [`Desk::undelivered`].
    ///
    /// # Errors
    /// If the press has no effect.
    pub fn press(&mut self, press: Press<'_>, now: Instant) -> Result<FromGateway, Ignored> {
        let (choice, token) = Choice::split(press.data).ok_or(Ignored::Unknown)?;
        let card = self.cards.values_mut().find(|card| card.token() == token);
        let card = card.ok_or(Ignored::Unknown)?;
        if card.words().chat_id != press.chat {
            return Err(Ignored::Elsewhere);
        }
        match card.message() {
            Some(message) if message == press.message => {}
            Some(_) => return Err(Ignored::Elsewhere),
            // It was posted, and we have not been told as which message.
            None => return Err(Ignored::TooSoon),
        }
        match card.standing() {
            Standing::Waiting => {}
            Standing::Answered => return Err(Ignored::Answered),
            Standing::Over(_) => return Err(Ignored::Over),
        }
        if now >= card.expires() {
            return Err(Ignored::Over);
        }
        if !card.choices().contains(&choice) {
            return Err(Ignored::NotOffered);
        }
        if self.connected.is_none() {
            return Err(Ignored::NoEngine);
        }
        if choice != Choice::Deny && card.shown_for(now) < LOOK_FIRST {
            return Err(Ignored::TooSoon);
        }
        Ok(card.answer(choice, press.by))
    }

    /// The answer to this question could not be said to the engine.
    pub fn undelivered(&mut self, id: &str) {
        if let Some(card) = self.of_id(id) {
            card.ask_again();
        }
    }
}

#[cfg(test)]
mod tests;
