//! Routes the messages of a session over HTTP to the streams that its requests opened.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rmcp::RoleServer;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    GetExtensions, JsonRpcMessage, ProgressToken, RequestId, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::watch;

use crate::log::About;

/// Maximum number of buffered messages of a stream. A slow reader holds up its own call only.
const UNREAD: usize = 16;

/// The open streams of a session.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// By the number that the library knows the request by. A client may use its own id again while the end of a cancelled
    /// request is under way, whose late answer must not be taken for the new one's.
    requests: HashMap<i64, Waiting>,
    /// The stream of messages that belong to no request. The newest replaces an older one, whose client may be gone
    /// without a sign.
    standing: Option<mpsc::Sender<Outgoing>>,
    /// Number of the newest request.
    count: i64,
    has_ended: bool,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Waiting {
    /// Id of the request for the client.
    id: RequestId,
    progress: Option<ProgressToken>,
    stream: mpsc::Sender<Outgoing>,
}

/// A message for the client, as JSON.
#[derive(Debug)]
pub enum Outgoing {
    /// The answer to the request of the stream, which ends it.
    Answer(Bytes),
    Notice(Bytes),
}

/// A request under way: its messages. Dropping it cancels the request.
#[derive(Debug)]
pub struct Exchange {
    number: i64,
    streams: Arc<Streams>,
    messages: mpsc::Receiver<Outgoing>,
    /// Place in the session's queue for the cancellation.
    cancel: Option<OwnedPermit<ClientJsonRpcMessage>>,
}

/// A request that a stream is opened for.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) id: RequestId,
    pub(super) progress: Option<ProgressToken>,
    pub(super) cancel: OwnedPermit<ClientJsonRpcMessage>,
}

impl Streams {
    /// Opens the stream of a request. `None` if one of the same id is under way, or the session has ended.
    pub(super) fn open(self: &Arc<Self>, asking: Asking) -> Option<Exchange> {
        let Asking { id, progress, cancel } = asking;
        let mut open = self.lock();
        if open.has_ended || open.requests.values().any(|waiting| waiting.id == id) {
            return None;
        }
        open.count += 1;
        let number = open.count;
        let (stream, messages) = mpsc::channel(UNREAD);
        let waiting = Waiting { id, progress, stream };
        open.requests.insert(number, waiting);
        Some(Exchange {
            number,
            streams: Arc::clone(self),
            messages,
            cancel: Some(cancel),
        })
    }

    /// Opens the stream of messages that belong to no request.
    pub(super) fn open_standing(&self) -> mpsc::Receiver<Outgoing> {
        let (stream, messages) = mpsc::channel(UNREAD);
        let mut open = self.lock();
        if !open.has_ended {
            open.standing = Some(stream);
        }
        messages
    }

    /// Ends the stream of a request that its client cancels: it gets no answer. Returns the library's id of it; `None` if it
    /// is not under way.
    pub(super) fn cancel(&self, id: &RequestId) -> Option<RequestId> {
        let mut open = self.lock();
        let known = open.requests.iter().find(|(_, waiting)| waiting.id == *id);
        let number = *known?.0;
        open.requests.remove(&number);
        Some(RequestId::Number(number))
    }

    /// Ends all streams.
    pub(super) fn end(&self) {
        let mut open = self.lock();
        open.has_ended = true;
        open.requests.clear();
        open.standing = None;
    }

    /// Returns the stream of a message, with the message. `None` if the stream has no reader.
    fn route(&self, mut message: TxJsonRpcMessage<RoleServer>) -> Option<(mpsc::Sender<Outgoing>, Outgoing)> {
        let answered = match &mut message {
            JsonRpcMessage::Response(response) => Some(&mut response.id),
            JsonRpcMessage::Error(error) => Some(error.id.as_mut()?),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if let Some(id) = answered {
            let waiting = self.lock().requests.remove(&number(id)?)?;
            *id = waiting.id;
            return Some((waiting.stream, Outgoing::Answer(json(&message)?)));
        }
        let stream = match &message {
            JsonRpcMessage::Notification(notice) => self.lock().of_notice(&notice.notification),
            _ => self.lock().standing.clone(),
        };
        Some((stream?, Outgoing::Notice(json(&message)?)))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of a request from its id for the library.
fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(_) => None,
    }
}

fn json(message: &TxJsonRpcMessage<RoleServer>) -> Option<Bytes> {
    serde_json::to_vec(message).ok().map(Bytes::from)
}

impl Open {
    /// Returns the stream of the request that a notification is about. About none, it is the standing one.
    fn of_notice(&self, notification: &ServerNotification) -> Option<mpsc::Sender<Outgoing>> {
        if let ServerNotification::ProgressNotification(progress) = notification {
            let token = &progress.params.progress_token;
            let mut waiting = self.requests.values();
            let waiting = waiting.find(|waiting| waiting.progress.as_ref() == Some(token));
            return waiting.map(|waiting| waiting.stream.clone());
        }
        match notification.extensions().get::<About>() {
            Some(About(id)) => {
                let waiting = self.requests.get(&number(id)?);
                waiting.map(|waiting| waiting.stream.clone())
            }
            None => self.standing.clone(),
        }
    }
}

impl Exchange {
    /// Returns the library's id of the request.
    pub(super) const fn id(&self) -> RequestId {
        RequestId::Number(self.number)
    }

    /// Returns the next message; `None` at the end. There is no answer before the end if the request was
    /// cancelled or the session has ended.
    pub async fn next(&mut self) -> Option<Outgoing> {
        self.messages.recv().await
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let waiting = self.streams.lock().requests.remove(&self.number);
        if let (Some(_), Some(cancel)) = (waiting, self.cancel.take()) {
            let why = Some("the stream of the request was closed".to_owned());
            let params = CancelledNotificationParam::new(Some(self.id()), why);
            let cancelled = ClientNotification::CancelledNotification(CancelledNotification::new(params));
            cancel.send(JsonRpcMessage::notification(cancelled));
        }
    }
}

/// The transport of a session, for the library's loop.
#[derive(Debug)]
pub(super) struct Posts {
    pub(super) incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    pub(super) streams: Arc<Streams>,
    pub(super) gone: watch::Sender<bool>,
}

impl Transport<RoleServer> for Posts {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let routed = self.streams.route(message);
        async move {
            if let Some((stream, message)) = routed {
                // A client that closed its stream has cancelled its request.
                let _ = stream.send(message).await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.incoming.recv().await;
        if message.is_none() {
            self.gone.send_replace(true);
        }
        message
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.streams.end();
        Ok(())
    }
}
