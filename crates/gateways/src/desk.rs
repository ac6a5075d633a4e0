//! Tracks the approval requests of a gateway with buttons: open requests, messages to post, and presses.
//!
//! It returns one due action at a time until the chats show the server's state, so that nothing is lost or
//! repeated when a post fails or a connection breaks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use ringfence_records::audit::Digest;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::card::{Card, Choice, Ending, Standing};
use ringfence_gateway_protocol::{FromGateway, FromServer, LinkEvent, RequestWords, visible};

/// Maximum number of requests; a server has fewer.
const MAX_CARDS: usize = 512;
/// Maximum number of queued notices; the oldest are dropped.
const MAX_NOTICES: usize = 64;
/// Time after connecting in which the server has sent all pending requests again.
const CONFIRMED_AFTER: Duration = Duration::from_secs(2);
/// Grace period for the server to report the outcome of an expired request.
const GRACE: Duration = Duration::from_secs(3);
/// Minimum time that a request must be visible before it can be approved: an earlier press was meant for
/// something else.
const LOOK_FIRST: Duration = Duration::from_secs(1);
/// Upper bound of a request's timeout in seconds.
const MAX_TIMEOUT: u64 = 24 * 60 * 60;

/// Approval requests of a gateway with buttons.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Chats that the gateway serves.
    chats: BTreeSet<String>,
    cards: BTreeMap<u64, Card>,
    notices: VecDeque<Notice>,
    /// Maximum length of a text that a chat can show, in UTF-16 units.
    room: usize,
    /// Number of the last card.
    last: u64,
    /// Secret from which tokens are derived.
    key: Key,
    /// Time of the connection to the server, if connected.
    connected: Option<Instant>,
}

/// 256 random bits.
struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Chat to post to.
    pub(crate) chat: String,
    /// Text as sent by the server.
    pub(crate) text: String,
}

/// The next action that brings the chats up to date.
#[derive(Debug)]
pub(crate) enum Due<'a> {
    /// Post the request, or its next part, and call [`Desk::posted`].
    Ask(&'a Card),
    /// Replace the request's buttons by its [outcome](Card::ending), and call [`Desk::settled`]. Without a
    /// message, it ended after only parts of it were posted.
    Settle(&'a Card),
    /// Post the notice, and call [`Desk::told`].
    Tell(&'a Notice),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Press<'a> {
    pub(crate) data: &'a str,
    pub(crate) chat: &'a str,
    /// Message with the button.
    pub(crate) message: u64,
    /// Name of the presser, as shown elsewhere.
    pub(crate) by: &'a str,
}

/// Reason to ignore a press.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ignored {
    /// No server is connected.
    #[error("the server does not answer at the moment; try again")]
    NoServer,
    /// This gateway has not created the button since its start.
    #[error("outdated: this button belongs to no pending question")]
    Unknown,
    /// The token is valid, but for another message.
    #[error("outdated: the question was asked in another message")]
    Elsewhere,
    /// The request has just appeared.
    #[error("read the request first, then press again")]
    TooSoon,
    /// The question was answered before.
    #[error("already answered")]
    Answered,
    /// The question is no longer pending.
    #[error("too late: the question is no longer pending")]
    Over,
    #[error("this answer was not offered")]
    NotOffered,
}

impl Desk {
    /// Creates an empty desk for these chats, which can show `room` UTF-16 units of a request's text. A
    /// longer one cannot be approved.
    ///
    /// # Errors
    /// If the kernel returns no random bytes.
    pub(crate) fn new(chats: BTreeSet<String>, room: usize) -> io::Result<Self> {
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

    /// Processes an event of the link. Returns a line for the log, if any.
    pub(crate) fn receive(&mut self, news: LinkEvent, now: Instant) -> Option<String> {
        match news {
            LinkEvent::Connected => {
                self.connected = Some(now);
                Some("connected to the server".to_owned())
            }
            LinkEvent::Gone => {
                self.connected = None;
                Some("the server has gone; what waits is kept".to_owned())
            }
            LinkEvent::Unreachable(error) => Some(format!(
                "no server answers ({error}); trying again until one does"
            )),
            LinkEvent::Said(message) => self.take(*message, now),
        }
    }

    fn take(&mut self, message: FromServer, now: Instant) -> Option<String> {
        match message {
            // The server may have sent it before it knew our chats.
            FromServer::ApprovalRequest(words) => {
                self.chats.contains(&words.chat_id).then(|| self.open(words, now))
            }
            FromServer::ApprovalClosed { id, outcome, by } => {
                self.close(&id, Ending::Told { outcome, by });
                None
            }
            FromServer::Message { chat_id, text, .. } => {
                if self.chats.contains(&chat_id) {
                    self.notices.push_back(Notice { chat: chat_id, text });
                }
                let dropped = self.notices.len() > MAX_NOTICES && self.notices.pop_front().is_some();
                dropped.then(|| "too many notices wait; the oldest is dropped".to_owned())
            }
            FromServer::Error { id, error, message } => {
                // If the request has ended, the server reports that as well.
                if let Some(card) = id.and_then(|id| self.of_id(&id))
                    && error != "late"
                {
                    card.ask_again();
                }
                Some(format!("the server does not take it: {}", visible(&message)))
            }
            FromServer::Hello { .. } => None,
        }
    }

    fn open(&mut self, mut words: RequestWords, now: Instant) -> String {
        let id = visible(&words.id);
        words.timeout = words.timeout.min(MAX_TIMEOUT);
        if let Some(card) = self.of_id(&words.id) {
            // An answer sent before the connection broke was lost.
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

    /// Ends requests that cannot be pending any more, though no server reported it. Must be called once a
    /// second.
    pub(crate) fn look(&mut self, now: Instant) {
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

    /// Returns the next action. Returns the same one until it is done.
    pub(crate) fn due(&mut self) -> Option<Due<'_>> {
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

    /// Records that another part of a request was posted; for the last one, with the message that has the
    /// buttons.
    pub(crate) fn posted(&mut self, number: u64, with_buttons: Option<u64>, now: Instant) {
        if let Some(card) = self.cards.get_mut(&number) {
            card.posted(with_buttons, now);
        }
    }

    /// Records that a request cannot be posted in full, so that it cannot be approved here.
    pub(crate) fn withhold(&mut self, number: u64) {
        if let Some(card) = self.cards.get_mut(&number) {
            card.withhold();
        }
    }

    /// Records that a request cannot be posted at all.
    pub(crate) fn unpostable(&mut self, number: u64) {
        if let Some(card) = self.cards.get_mut(&number) {
            card.give_up();
        }
    }

    /// Records that a request's outcome is shown, or never can be.
    pub(crate) fn settled(&mut self, number: u64) {
        self.cards.remove(&number);
    }

    /// Records that the due notice was posted, or never can be.
    pub(crate) fn notice_posted(&mut self) {
        self.notices.pop_front();
    }

    /// Converts a press to an answer for the server. If it cannot be sent, call [`Desk::undelivered`].
    ///
    /// # Errors
    /// If the press is ignored.
    pub(crate) fn press(&mut self, press: Press<'_>, now: Instant) -> Result<FromGateway, Ignored> {
        let (choice, token) = Choice::split(press.data).ok_or(Ignored::Unknown)?;
        let card = self.cards.values_mut().find(|card| card.token() == token);
        let card = card.ok_or(Ignored::Unknown)?;
        if card.words().chat_id != press.chat {
            return Err(Ignored::Elsewhere);
        }
        match card.message() {
            Some(message) if message == press.message => {}
            Some(_) => return Err(Ignored::Elsewhere),
            // It was posted, but its message id is not known yet.
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
            return Err(Ignored::NoServer);
        }
        if choice != Choice::Deny && card.shown_for(now) < LOOK_FIRST {
            return Err(Ignored::TooSoon);
        }
        Ok(card.answer(choice, press.by))
    }

    /// Records that the answer to this request could not be sent.
    pub(crate) fn undelivered(&mut self, id: &str) {
        if let Some(card) = self.of_id(id) {
            card.ask_again();
        }
    }
}

#[cfg(test)]
mod tests;
