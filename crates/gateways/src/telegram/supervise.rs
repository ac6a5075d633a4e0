//! Runs the gateway: one call that polls for presses, one that posts, and short ones that respond to presses.

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::api::{Api, CallError, Query};
use super::contact::{BREATH, Pace, introduce, name_of};
use super::methods::{AnswerCallbackQuery, EditMessageText, LinkPreview, SendMessage};
use super::page::{self, Page};
use super::{Error, Settings, chat_name};
use crate::card::Card;
use crate::desk::{Desk, Due, Ignored, Press};
use ringfence_gateway_protocol::{FromGateway, Link, decidable};

/// Maximum number of responses to presses in progress; a further press counts, but gets no response.
const MAX_REPLIES: usize = 16;
/// Maximum number of consecutive conflicts attributed to an earlier call of this gateway that Telegram still
/// holds.
const MAX_CONFLICTS: u32 = 3;

impl Settings {
    /// Runs until a permanent failure. Sends log lines to `log`.
    ///
    /// # Errors
    /// The permanent failure.
    pub(crate) async fn supervise(self, server: &Path, log: impl Fn(&str)) -> Result<Infallible, Error> {
        let api = Api::open(self.base.as_str(), self.token.clone(), self.patience).await?;
        introduce(&api, &log).await?;
        let chats = self.chat_names();
        let link = Link::new(server.to_path_buf(), &chats, "telegram");
        let desk = Desk::new(chats, page::ROOM).map_err(|error| Error::Setup(error.to_string()))?;
        let gateway = Gateway {
            settings: self,
            api,
            link,
            desk,
            log,
            calls: JoinSet::new(),
            posts: Pace::new(),
            polls: Pace::new(),
            posting: false,
            conflicts: 0,
            replies: 0,
            next: 0,
        };
        gateway.work().await
    }
}

/// Result of a call.
enum Done {
    Polled(Result<(Vec<Query>, i64), CallError>),
    Posted(Post, Result<Option<u64>, CallError>),
    Replied,
}

/// Purpose of a call that posts.
#[derive(Debug, Clone, Copy)]
enum Post {
    Ask { number: u64, last: bool },
    Settle(u64),
    Tell,
}

struct Gateway<L> {
    settings: Settings,
    api: Api,
    link: Link,
    desk: Desk,
    log: L,
    calls: JoinSet<Done>,
    posts: Pace,
    polls: Pace,
    /// Set while a post is in progress.
    posting: bool,
    conflicts: u32,
    replies: usize,
    /// Offset of the next updates.
    next: i64,
}

impl<L: Fn(&str)> Gateway<L> {
    async fn work(mut self) -> Result<Infallible, Error> {
        let mut looks = tokio::time::interval(Duration::from_secs(1));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.poll(Duration::ZERO);
        loop {
            self.post();
            tokio::select! {
                news = self.link.next() => {
                    if let Some(line) = self.desk.receive(news, Instant::now()) {
                        (self.log)(&line);
                    }
                }
                done = self.calls.join_next() => match done {
                    Some(Ok(done)) => self.take(done).await?,
                    Some(Err(_)) | None => return Err(Error::Broken),
                },
                () = tokio::time::sleep_until(self.posts.due.into()), if self.is_held_up() => {}
                _ = looks.tick() => self.desk.look(Instant::now()),
            }
        }
    }

    fn is_held_up(&self) -> bool {
        !self.posting && self.posts.due > Instant::now()
    }

    fn poll(&mut self, pause: Duration) {
        let (api, next) = (self.api.clone(), self.next);
        self.calls.spawn(async move {
            tokio::time::sleep(pause).await;
            Done::Polled(api.get_updates(next).await)
        });
    }

    /// Starts the next due post, one at a time.
    fn post(&mut self) {
        if self.posting || self.posts.due > Instant::now() {
            return;
        }
        let Some(due) = self.desk.due() else { return };
        let (post, call) = match due {
            Due::Ask(card) => ask(card),
            Due::Settle(card) => settle(card),
            Due::Tell(notice) => {
                let page = page::notice(&decidable(&notice.text).join("\n"));
                (
                    Post::Tell,
                    chat_id(&notice.chat).map(|chat| Call::send(chat, page)),
                )
            }
        };
        let Some(call) = call else {
            return self.drop_post(post);
        };
        self.posting = true;
        let api = self.api.clone();
        self.calls
            .spawn(async move { Done::Posted(post, call.make(&api).await) });
    }

    async fn take(&mut self, done: Done) -> Result<(), Error> {
        match done {
            Done::Polled(polled) => return self.polled(polled).await,
            Done::Posted(post, result) => {
                self.posting = false;
                self.posted(post, result)?;
            }
            Done::Replied => self.replies -= 1,
        }
        Ok(())
    }

    fn posted(&mut self, post: Post, result: Result<Option<u64>, CallError>) -> Result<(), Error> {
        match result {
            Ok(message) => {
                self.posts.went_well();
                match post {
                    Post::Ask { number, last } => {
                        self.desk.posted(number, message.filter(|_| last), Instant::now());
                    }
                    Post::Settle(number) => self.desk.settled(number),
                    Post::Tell => self.desk.notice_posted(),
                }
            }
            Err(CallError::Token) => return Err(Error::Token),
            Err(fault @ (CallError::Refused(_) | CallError::Conflict(_))) => {
                (self.log)(&format!("a message is not posted: {fault}"));
                self.drop_post(post);
            }
            Err(fault @ (CallError::Unreachable(_) | CallError::Busy(_))) => {
                (self.log)(&format!("a message is not posted yet: {fault}"));
                self.posts.after(&fault);
            }
        }
        Ok(())
    }

    fn drop_post(&mut self, post: Post) {
        match post {
            Post::Ask { number, .. } => self.desk.unpostable(number),
            Post::Settle(number) => self.desk.settled(number),
            Post::Tell => self.desk.notice_posted(),
        }
    }

    async fn polled(&mut self, polled: Result<(Vec<Query>, i64), CallError>) -> Result<(), Error> {
        let pause = match polled {
            Ok((queries, next)) => {
                self.polls.went_well();
                (self.conflicts, self.next) = (0, next);
                // Avoids a busy loop with a server that does not support long polling.
                let pause = if queries.is_empty() {
                    BREATH
                } else {
                    Duration::ZERO
                };
                for query in queries {
                    self.pressed(query).await;
                }
                pause
            }
            Err(CallError::Token) => return Err(Error::Token),
            Err(CallError::Conflict(words)) if self.conflicts >= MAX_CONFLICTS => {
                return Err(Error::Conflict(words));
            }
            Err(fault) => {
                self.conflicts += u32::from(matches!(fault, CallError::Conflict(_)));
                (self.log)(&format!("{fault}; trying again"));
                self.polls.after(&fault)
            }
        };
        self.poll(pause);
        Ok(())
    }

    async fn pressed(&mut self, query: Query) {
        let by = format!("telegram {}", name_of(&query.from));
        let Some((chat, message)) = self.place(&query) else {
            (self.log)(&format!(
                "a press of {by} is ignored: not a chat or a user of ours"
            ));
            return self.reply(query.id, "You may not answer here.");
        };
        let press = Press {
            data: &query.data,
            chat: &chat,
            message,
            by: &by,
        };
        let said = match self.desk.press(press, Instant::now()) {
            Ok(answer) => self.pass_on(&answer).await,
            Err(ignored) => Err(ignored),
        };
        match said {
            Ok(words) => self.reply(query.id, words),
            Err(ignored) => {
                (self.log)(&format!("a press of {by} in {chat} has no effect: {ignored}"));
                self.reply(query.id, &ignored.to_string());
            }
        }
    }

    /// Returns chat and message of a press, if chat and user are configured.
    fn place(&self, query: &Query) -> Option<(String, u64)> {
        let message = query.message.as_ref()?;
        let ours =
            self.settings.users.contains(&query.from.id) && self.settings.chats.contains(&message.chat.id);
        let number = u64::try_from(message.message_id).ok()?;
        ours.then(|| (chat_name(message.chat.id), number))
    }

    async fn pass_on(&mut self, answer: &FromGateway) -> Result<&'static str, Ignored> {
        let FromGateway::ApprovalResponse { id, approved, .. } = answer else {
            return Err(Ignored::Unknown);
        };
        if !self.link.say(answer).await {
            self.desk.undelivered(id);
            return Err(Ignored::NoServer);
        }
        Ok(if *approved { "Approving" } else { "Rejecting" })
    }

    /// Responds to a press, if there is capacity; the press counts in any case.
    fn reply(&mut self, query: String, words: &str) {
        if self.replies >= MAX_REPLIES {
            return;
        }
        self.replies += 1;
        let params = AnswerCallbackQuery {
            callback_query_id: query,
            text: words.to_owned(),
        };
        let api = self.api.clone();
        self.calls.spawn(async move {
            // The press may be too old for a response.
            let _ = api.answer(&params).await;
            Done::Replied
        });
    }
}

/// A call that posts or edits.
enum Call {
    Send(SendMessage),
    Edit(EditMessageText),
}

impl Call {
    fn send(chat: i64, page: Page) -> Self {
        Self::Send(SendMessage {
            chat_id: chat,
            text: page.text,
            entities: page.entities,
            link_preview_options: LinkPreview::DISABLED,
            reply_markup: None,
        })
    }

    async fn make(self, api: &Api) -> Result<Option<u64>, CallError> {
        match self {
            Self::Send(params) => Ok(u64::try_from(api.send(&params).await?).ok()),
            Self::Edit(params) => match api.edit(&params).await {
                // An earlier attempt succeeded, but its response was lost.
                Err(CallError::Refused(words)) if words.contains("not modified") => Ok(None),
                done => done.map(|()| None),
            },
        }
    }
}

/// Creates the post of the next part of a request; the last one has the buttons.
fn ask(card: &Card) -> (Post, Option<Call>) {
    let pages = page::pages(card);
    let last = card.parts() + 1 >= pages.len();
    let post = Post::Ask {
        number: card.number(),
        last,
    };
    let page = pages.into_iter().nth(card.parts());
    let call = chat_id(&card.words().chat_id).zip(page).map(|(chat, page)| {
        let mut call = Call::send(chat, page);
        if let (true, Call::Send(params)) = (last, &mut call) {
            params.reply_markup = Some(page::keyboard(card));
        }
        call
    });
    (post, call)
}

/// Creates the edit that replaces a request's buttons by its outcome.
fn settle(card: &Card) -> (Post, Option<Call>) {
    let ending = card.ending().unwrap_or_default();
    let page = page::pages(card).pop().map(|page| page::ended(&page, &ending));
    let call = chat_id(&card.words().chat_id).zip(page).map(|(chat, page)| {
        let Some(message) = card.message().and_then(|message| i32::try_from(message).ok()) else {
            return Call::send(chat, page);
        };
        Call::Edit(EditMessageText {
            chat_id: chat,
            message_id: message,
            text: page.text,
            entities: page.entities,
            link_preview_options: LinkPreview::DISABLED,
        })
    });
    (Post::Settle(card.number()), call)
}

/// Parses the Telegram chat id from a chat name.
fn chat_id(name: &str) -> Option<i64> {
    name.strip_prefix("telegram_")?.parse().ok()
}
