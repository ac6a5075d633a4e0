//! Serves one gateway: sends it pending requests, and forwards its answers.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_policy::timestamp::rfc3339;
use ringfence_records::approval::{
    Answer, Audience, Changes, Chat, Error, Id, Listener, Remember, Request, Service, Unanswerable, Verdict,
};
use ringfence_records::audit::Digest;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::time::{Interval, MissedTickBehavior};

use super::messages::{FromGateway, FromServer, RequestWords, VERSION, parse_from_gateway};
use super::{MAX_LINE, ReadTimeout};
use crate::line_reader::{LineRead, Lines};

/// Polling interval for requests that expired or whose asker has died.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum length of an answerer's name, in characters.
const MAX_NAME: usize = 64;

/// Reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
enum ConnectionEnd {
    #[error(transparent)]
    Stream(#[from] io::Error),
    #[error("the gateway stopped reading")]
    Slow,
    #[error("the gateway broke the protocol")]
    Protocol,
    #[error(transparent)]
    Store(#[from] Error),
}

struct Connection {
    service: Service,
    sender: OwnedWriteHalf,
    patience: ReadTimeout,
    /// Requests sent to this gateway and not ended: only these can be answered through it.
    sent: HashMap<Id, (Chat, Digest)>,
    /// Chats that the gateway serves. `None`: all.
    chats: Option<BTreeSet<Chat>>,
    name: String,
    listener: Listener,
    /// Number of the last notice sent.
    noticed: Option<u64>,
}

/// Serves a gateway until it disconnects or violates the protocol.
pub(super) async fn supervise(stream: UnixStream, service: Service, patience: ReadTimeout) {
    // Before the greeting: a gateway that has read it can be asked.
    let Ok(listener) = service.listen(None, Audience::All).await else {
        return;
    };
    let (reader, sender) = stream.into_split();
    let mut connection = Connection {
        service: service.clone(),
        sender,
        patience,
        sent: HashMap::new(),
        chats: None,
        name: "gateway".to_owned(),
        listener: listener.clone(),
        noticed: None,
    };
    // Errors are ignored: there is no one to report them to.
    let _ = connection.talk(Lines::new(reader, MAX_LINE)).await;
    // If this fails, or the task is aborted, the end of the server removes the listener.
    let _ = service.leave(listener).await;
}

impl Connection {
    async fn talk(
        &mut self,
        mut lines: Lines<impl tokio::io::AsyncRead + Unpin>,
    ) -> Result<(), ConnectionEnd> {
        self.say(&FromServer::Hello { version: VERSION }).await?;
        let mut changes = self.service.changes();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Sends pending requests before it reads, so that an answer in the first line finds its request.
        changes.next().await?;
        loop {
            self.show().await?;
            let line = tokio::select! {
                changed = changed(&mut changes, &mut looks) => { changed?; continue }
                line = lines.next() => line?,
            };
            match line {
                LineRead::Line(line) => self.receive(&line).await?,
                LineRead::TooLong => {
                    let message = format!("a line is longer than {MAX_LINE} bytes");
                    self.say(&FromServer::error(None, "malformed", &message)).await?;
                    return Err(ConnectionEnd::Protocol);
                }
                LineRead::End => return Ok(()),
            }
        }
    }

    /// Sends new requests, outcomes and notices.
    async fn show(&mut self) -> Result<(), ConnectionEnd> {
        let waiting = self.service.waiting().await?;
        let ended: Vec<Id> = self
            .sent
            .keys()
            .filter(|id| !waiting.iter().any(|request| request.id == **id))
            .cloned()
            .collect();
        for id in ended {
            self.close(&id).await?;
        }
        for request in waiting {
            if self.serves(&request.chat) && !self.sent.contains_key(&request.id) {
                self.open(request).await?;
            }
        }
        self.pass_notices_on().await
    }

    async fn open(&mut self, request: Request) -> Result<(), ConnectionEnd> {
        let words = RequestWords::of(&request, now());
        self.sent
            .insert(request.id.clone(), (request.chat.clone(), words.digest));
        self.say(&FromServer::ApprovalRequest(words)).await
    }

    async fn close(&mut self, id: &Id) -> Result<(), ConnectionEnd> {
        self.sent.remove(id);
        match self.service.request(id).await? {
            Some(request) => self.say(&FromServer::closed(&request)).await,
            None => Ok(()),
        }
    }

    async fn pass_notices_on(&mut self) -> Result<(), ConnectionEnd> {
        let notices = self.service.notices(self.noticed).await?;
        let Some(last) = notices.last().map(|notice| notice.number) else {
            self.noticed.get_or_insert(0);
            return Ok(());
        };
        let mut passed = false;
        for notice in notices {
            if self.serves(&notice.chat) {
                passed = true;
                let chat_id = notice.chat.as_str().to_owned();
                let time = UNIX_EPOCH + Duration::from_millis(notice.created);
                self.say(&FromServer::Message {
                    chat_id,
                    text: notice.text,
                    time: Some(rfc3339(time)),
                })
                .await?;
            }
        }
        self.noticed = Some(last);
        if passed {
            self.service.delivered(last).await?;
        }
        Ok(())
    }

    async fn receive(&mut self, line: &[u8]) -> Result<(), ConnectionEnd> {
        match parse_from_gateway(line) {
            Ok(FromGateway::Hello { version, chats, name }) => self.introduced(version, chats, name).await,
            Ok(FromGateway::ApprovalResponse {
                id,
                approved,
                chat_id,
                digest,
                remember,
                by,
            }) => {
                let said = AnswerFields {
                    chat: chat_id,
                    digest,
                    by,
                };
                let verdict = if approved {
                    Verdict::Approve
                } else {
                    Verdict::Reject
                };
                match self.answer(&id, said, verdict, remember).await {
                    Ok(()) => Ok(()),
                    Err(Error::Unanswerable(why)) => {
                        self.say(&FromServer::error(Some(id), why.as_str(), &why.to_string()))
                            .await
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Err(refusal) => {
                self.say(&FromServer::refusal(&refusal)).await?;
                match refusal {
                    super::Refusal::UnknownType => Ok(()),
                    super::Refusal::Malformed(_) => Err(ConnectionEnd::Protocol),
                }
            }
        }
    }

    async fn introduced(
        &mut self,
        version: u32,
        chats: Option<BTreeSet<String>>,
        name: Option<String>,
    ) -> Result<(), ConnectionEnd> {
        let chats = chats.map(|chats| {
            chats
                .iter()
                .map(|chat| chat.parse())
                .collect::<Result<BTreeSet<Chat>, _>>()
        });
        let (VERSION, Ok(chats)) = (version, chats.transpose()) else {
            let what = format!(
                "this server speaks version {VERSION}, and a chat's name is up to 128 plain characters"
            );
            self.say(&FromServer::error(None, "malformed", &what)).await?;
            return Err(ConnectionEnd::Protocol);
        };
        if let Some(name) = name {
            self.name = short(&name);
        }
        self.service
            .listen(
                Some(self.listener.clone()),
                chats.clone().map_or(Audience::All, Audience::Chats),
            )
            .await?;
        if let Some(chats) = &chats {
            self.sent.retain(|_, (chat, _)| chats.contains(chat));
        }
        self.chats = chats;
        Ok(())
    }

    /// Forwards an answer, if the gateway was sent the request.
    async fn answer(
        &self,
        id: &str,
        said: AnswerFields,
        verdict: Verdict,
        remember: Remember,
    ) -> Result<(), Error> {
        let id: Id = id.parse().map_err(|_| Unanswerable::Unknown)?;
        let Some((chat, digest)) = self.sent.get(&id) else {
            return Err(self.gone(&id).await?.into());
        };
        let given_in = match said.chat {
            Some(text) => text.parse().map_err(|_| Unanswerable::Unknown)?,
            None => chat.clone(),
        };
        let answer = Answer {
            id,
            verdict,
            remember,
            chat: given_in,
            digest: said.digest.unwrap_or(*digest),
            by: said.by.map_or_else(|| self.name.clone(), |by| short(&by)),
        };
        self.service.answer(answer).await.map(drop)
    }

    /// Returns the error for a request that is not pending: one that ended is distinguished from one that is
    /// unknown or of another chat.
    async fn gone(&self, id: &Id) -> Result<Unanswerable, Error> {
        let found = self.service.request(id).await?;
        Ok(found
            .filter(|request| self.serves(&request.chat))
            .map_or(Unanswerable::Unknown, |request| Unanswerable::Late(request.state)))
    }

    fn serves(&self, chat: &Chat) -> bool {
        self.chats.as_ref().is_none_or(|chats| chats.contains(chat))
    }

    async fn say(&mut self, message: &FromServer) -> Result<(), ConnectionEnd> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::from)?;
        line.push(b'\n');
        tokio::time::timeout(self.patience.0, self.sender.write_all(&line))
            .await
            .map_err(|_| ConnectionEnd::Slow)?
            .map_err(ConnectionEnd::Stream)
    }
}

/// An answer's fields other than the verdict.
struct AnswerFields {
    chat: Option<String>,
    digest: Option<Digest>,
    by: Option<String>,
}

/// Resolves when there may be something to send.
async fn changed(changes: &mut Changes, looks: &mut Interval) -> Result<(), Error> {
    tokio::select! {
        changed = changes.next() => changed,
        _ = looks.tick() => Ok(()),
    }
}

/// Sanitizes and truncates a name.
fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
