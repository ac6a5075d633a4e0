//! The bot: posts approval requests to channels, and forwards presses of buttons.

use std::convert::Infallible;
use std::future::Future;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::rand::{GetRandomFlags, getrandom};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::id::{ChannelId, MessageId};
use super::page::{self, Edit, Form, Post, Response};
use super::press::{Button, Press};
use super::rest::Rest;
use super::session::Event;
use super::socket::Socket;
use super::{Error, Setup};
use crate::card::Card;
use crate::desk::{self, Desk, Due, Ignored};
use ringfence_gateway_protocol::{FromGateway, Link, visible};

/// Prefix of chat names, before the channel id.
const CHAT: &str = "discord_";
/// Maximum length of a request's text, in UTF-16 units: a file holds the longest with each character escaped.
const ROOM: usize = 128 * 1024;
/// Deadline of one post or edit, before others get a turn.
const TURN: Duration = Duration::from_secs(60);
/// Initial and maximum delay between attempts to reach Discord at startup.
const BACKOFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Delay after a failed turn.
const PAUSE: Duration = Duration::from_secs(1);
/// Discord's deadline for the response to a press.
const PRESS: Duration = Duration::from_secs(3);
/// Maximum number of responses to presses in progress; further presses get none.
const MAX_ANSWERS: usize = 32;

/// A Discord bot that serves as a gateway.
#[derive(Debug)]
pub(crate) struct Bot {
    setup: Setup,
    rest: Arc<Rest>,
    socket: Socket,
    link: Link,
    desk: Desk,
    /// Random prefix of the nonces of this bot's posts.
    name: String,
    /// Number of posted notices.
    notices: u64,
    /// Post or edit in progress: one at a time, in order.
    work: JoinSet<Done>,
    not_before: Instant,
    answers: JoinSet<Result<(), Error>>,
}

/// Result of a post or edit.
#[derive(Debug)]
enum Done {
    Asked(u64, Form, Result<MessageId, Error>),
    Settled(u64, Result<(), Error>),
    Told(Result<(), Error>),
}

impl Bot {
    /// Creates a bot for the server with this socket.
    ///
    /// # Errors
    /// If no channel or user is configured, this machine has no root certificates, or the kernel returns no
    /// random bytes.
    pub(crate) async fn open(setup: Setup, server: PathBuf) -> Result<Self, Error> {
        if setup.channels.is_empty() {
            return Err(Error::NoChannels);
        }
        // Without users, each member of a channel could approve.
        if setup.users.is_empty() {
            return Err(Error::NoUsers);
        }
        let chats = setup
            .channels
            .iter()
            .map(|channel| format!("{CHAT}{channel}"))
            .collect();
        Ok(Self {
            rest: Arc::new(Rest::open(setup.rest.as_str(), &setup.token).await?),
            socket: Socket::open(&setup.token, &setup.gateway).await?,
            link: Link::new(server, &chats, "discord"),
            desk: Desk::new(chats, ROOM).map_err(Error::Random)?,
            name: random_name()?,
            notices: 0,
            work: JoinSet::new(),
            not_before: Instant::now(),
            answers: JoinSet::new(),
            setup,
        })
    }

    /// Runs until Discord refuses permanently. Sends log lines to `log`.
    ///
    /// # Errors
    /// If the token, a channel or a request is refused.
    pub(crate) async fn supervise(&mut self, log: &mut dyn FnMut(&str)) -> Result<Infallible, Error> {
        self.introduce(log).await?;
        let mut looks = tokio::time::interval(Duration::from_secs(1));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Buttons are posted only once presses are received.
        let mut listening = false;
        loop {
            tokio::select! {
                said = self.socket.next() => match said? {
                    Event::Ready => {
                        listening = true;
                        log("connected to Discord");
                    }
                    Event::Trouble(what) => log(&what),
                    Event::Press(press) => self.pressed(&press, log).await,
                },
                news = self.link.next() => {
                    if let Some(line) = self.desk.receive(news, Instant::now()) {
                        log(&line);
                    }
                }
                Some(done) = self.work.join_next(), if !self.work.is_empty() => {
                    if let Ok(done) = done {
                        self.done(done, log)?;
                    }
                }
                Some(answered) = self.answers.join_next(), if !self.answers.is_empty() => {
                    if let Ok(Err(error)) = answered {
                        log(&format!("a press was not answered: {error}"));
                    }
                }
                _ = looks.tick() => self.desk.look(Instant::now()),
            }
            if listening && self.work.is_empty() && Instant::now() >= self.not_before {
                self.work_on();
            }
        }
    }

    /// Verifies the token and the channels, once Discord can be reached.
    async fn introduce(&self, log: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let address = self.setup.rest.as_str();
        let me = patiently(address, log, || self.rest.me(soon())).await?;
        for channel in &self.setup.channels {
            patiently(address, log, || self.rest.channel(*channel, soon()))
                .await
                .map_err(|error| match error {
                    Error::Refused { .. } => Error::Channel(*channel),
                    other => other,
                })?;
        }
        log(&format!("Discord knows this bot as {}", visible(&me.username)));
        Ok(())
    }

    /// Starts the next due action.
    fn work_on(&mut self) {
        let rest = Arc::clone(&self.rest);
        match self.desk.due() {
            Some(Due::Ask(card)) => {
                let number = card.number();
                let form = Form::of(card);
                let nonce = format!("{}-{number}-{}", self.name, u8::from(form == Form::Withheld));
                let post = Post::question(card, expires(card), nonce);
                let until = soon().min(card.expires().into());
                let channel = channel(&card.words().chat_id);
                self.work.spawn(async move {
                    let asked = match channel {
                        Some(channel) => rest.post(channel, &post, until).await,
                        None => Err(unknown_chat()),
                    };
                    Done::Asked(number, form, asked)
                });
            }
            Some(Due::Settle(card)) => {
                let number = card.number();
                let edit = Edit::settled(card, &card.ending().unwrap_or_default());
                let place = channel(&card.words().chat_id).zip(card.message().and_then(message_id));
                self.work.spawn(async move {
                    let settled = match place {
                        Some((channel, message)) => rest.edit(channel, message, &edit, soon()).await,
                        None => Ok(()),
                    };
                    Done::Settled(number, settled)
                });
            }
            Some(Due::Tell(notice)) => {
                let post = Post::notice(&notice.text, format!("{}-n-{}", self.name, self.notices));
                let channel = channel(&notice.chat);
                self.work.spawn(async move {
                    let told = match channel {
                        Some(channel) => rest.post(channel, &post, soon()).await.map(drop),
                        None => Err(unknown_chat()),
                    };
                    Done::Told(told)
                });
            }
            None => {}
        }
    }

    /// Records the result of an action.
    fn done(&mut self, done: Done, log: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let failed = match done {
            Done::Asked(number, _, Ok(message)) => {
                self.desk.posted(number, Some(message.get()), Instant::now());
                None
            }
            Done::Asked(number, form, Err(error)) => {
                match (&error, form) {
                    // Without the file it may be postable, but then it cannot be approved.
                    (Error::Refused { .. }, Form::File) => self.desk.withhold(number),
                    (error, _) if is_for_good(error) => self.desk.unpostable(number),
                    _ => {}
                }
                Some(error)
            }
            Done::Settled(number, settled) => {
                let failed = settled.err();
                if failed.as_ref().is_none_or(is_for_good) {
                    self.desk.settled(number);
                }
                failed
            }
            Done::Told(told) => {
                let failed = told.err();
                if failed.as_ref().is_none_or(is_for_good) {
                    self.desk.notice_posted();
                    self.notices += 1;
                }
                failed
            }
        };
        match failed {
            Some(Error::Token) => Err(Error::Token),
            Some(error) => {
                self.not_before = Instant::now() + PAUSE;
                log(&error.to_string());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Forwards a press to the server, or responds with the reason why it is ignored.
    async fn pressed(&mut self, press: &Press, log: &mut dyn FnMut(&str)) {
        let Some(button) = &press.button else {
            return self.answer(press, page::whisper("this bot knows no such thing"));
        };
        let response = match self.judge(button) {
            Ok(answer) => {
                let delivered = self.link.say(&answer).await;
                if delivered {
                    log(&format!("user {} answers", button.user.id));
                    page::taken()
                } else {
                    if let FromGateway::ApprovalResponse { id, .. } = &answer {
                        self.desk.undelivered(id);
                    }
                    page::whisper(&Ignored::NoServer.to_string())
                }
            }
            Err(why) => {
                log(&format!(
                    "a press of user {} counts for nothing: {why}",
                    button.user.id
                ));
                page::whisper(&why)
            }
        };
        self.answer(press, response);
    }

    /// Converts a press to an answer, or returns the reason why it is ignored.
    fn judge(&mut self, button: &Button) -> Result<FromGateway, String> {
        if !self.setup.channels.contains(&button.channel) {
            return Err("no approvals are requested in this channel".to_owned());
        }
        if !self.setup.users.contains(&button.user.id) {
            return Err("you are not one of the configured approvers".to_owned());
        }
        let by = format!("{} on Discord", visible(&button.user.username));
        let press = desk::Press {
            data: &button.data,
            chat: &format!("{CHAT}{}", button.channel),
            message: button.message.get(),
            by: &by,
        };
        self.desk
            .press(press, Instant::now())
            .map_err(|ignored| ignored.to_string())
    }

    fn answer(&mut self, press: &Press, response: Response) {
        if self.answers.len() >= MAX_ANSWERS {
            return;
        }
        let (rest, id, token) = (Arc::clone(&self.rest), press.id, press.token.0.clone());
        let until = tokio::time::Instant::now() + PRESS;
        self.answers
            .spawn(async move { rest.answer(id, &token, &response, until).await });
    }
}

/// Retries with growing delays until Discord can be reached; logs the outage once.
async fn patiently<T, F: Future<Output = Result<T, Error>>>(
    address: &str,
    log: &mut dyn FnMut(&str),
    mut attempt: impl FnMut() -> F,
) -> Result<T, Error> {
    let [mut pause, longest] = BACKOFF;
    let mut told = false;
    loop {
        match attempt().await {
            Err(error @ (Error::Unreachable(_) | Error::Limited)) => {
                if !std::mem::replace(&mut told, true) {
                    log(&format!("{error} ({address}); trying again"));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
            other => return other,
        }
    }
}

/// Returns `true` if a retry would fail again.
fn is_for_good(error: &Error) -> bool {
    !matches!(error, Error::Unreachable(_) | Error::Limited)
}

fn unknown_chat() -> Error {
    Error::Odd("the server names a chat that is not a channel".to_owned())
}

fn channel(chat: &str) -> Option<ChannelId> {
    chat.strip_prefix(CHAT)?.parse().ok()
}

fn message_id(number: u64) -> Option<MessageId> {
    NonZeroU64::new(number).map(MessageId::from)
}

fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + TURN
}

/// Returns the expiry of a card, in seconds since 1970.
fn expires(card: &Card) -> u64 {
    let left = card.expires().saturating_duration_since(Instant::now());
    let at = SystemTime::now() + left;
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn random_name() -> Result<String, Error> {
    let mut bytes = [0; 6];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(6) => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        Ok(_) => Err(Error::Random(std::io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(Error::Random(error.into())),
    }
}
