//! A session of MCP over HTTP: each message is its own request, and answers are sent on streams.

use std::any::Any;
use std::sync::Arc;

use ringfence_policy::Scope;
use ringfence_tools::toolbox::Toolbox;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions, GetMeta, JsonRpcMessage,
    ProtocolVersion, RequestId,
};
use tokio::sync::{mpsc, watch};

use crate::handler::Handler;
use crate::lines::{self, CallGuard, Length};
use crate::streams::{Asking, Posts, Streams};
pub use crate::streams::{Exchange, Outgoing};
use crate::{Elicitation, Peer, Settings, converse};

/// Maximum size of a message: that of one over standard streams.
pub const MAX_MESSAGE: usize = lines::MAX_LINE;

/// Maximum number of queued messages. Each request under way keeps one place, for its cancellation.
const MAX_QUEUED: usize = 256;

/// Maximum size of a message that begins a session. The library keeps it for the session's lifetime.
pub const MAX_FIRST: usize = 16 * 1024;

/// Maximum length of an id or progress token: each is repeated in messages to the client.
const MAX_ID: usize = 256;

/// The client's side of a session.
#[derive(Debug)]
pub struct Session {
    incoming: mpsc::Sender<ClientJsonRpcMessage>,
    streams: Arc<Streams>,
}

/// The client of a session, with its tools.
#[derive(Debug)]
pub struct SessionOwner {
    pub toolbox: Arc<Toolbox>,
    pub scope: Scope,
    /// Name of the client's credential.
    pub credential: String,
}

/// A message of a client.
#[derive(Debug)]
pub struct Incoming(ClientJsonRpcMessage);

/// The kind of a message, by which its HTTP request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Begins a session.
    Initialize,
    /// A request that is answered at once.
    Question,
    /// A tool call, which may take long and send notifications.
    Call,
    /// A notification, or the response to a server's request. Gets no response.
    Notice,
}

/// An error returned when parsing a message for this transport.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    #[error("{0}")]
    Invalid(String),
    #[error("version 2026-07-28 of MCP is served over standard streams only")]
    Stateless,
    #[error("an id or progress token has at most {MAX_ID} bytes")]
    LongId,
}

/// A session takes no further message.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("too many messages of the session are under way")]
    Full,
    #[error("a request with the same id is under way")]
    SameId,
    #[error("the session has ended")]
    Ended,
}

impl Incoming {
    /// Parses a message. `None` for a notification that is not known.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, MessageError> {
        if bytes.trim_ascii().is_empty() {
            return Err(MessageError::Invalid("the body is empty".to_owned()));
        }
        let message = lines::parse(bytes).map_err(|refusal| MessageError::Invalid(refusal.what))?;
        let Some(mut message) = message else {
            return Ok(None);
        };
        if let JsonRpcMessage::Request(request) = &mut message {
            if let ClientRequest::CustomRequest(custom) = &request.request
                && custom.method == "initialize"
            {
                return Err(MessageError::Invalid(lines::incomplete(custom.params.as_ref())));
            }
            if lines::is_stateless(&request.request)
                || matches!(request.request, ClientRequest::DiscoverRequest(_))
            {
                return Err(MessageError::Stateless);
            }
            let progress = request.request.get_meta().get_progress_token();
            let progress = progress.as_ref().map(|token| &token.0);
            if !progress.into_iter().chain([&request.id]).all(is_short) {
                return Err(MessageError::LongId);
            }
            request.request.extensions_mut().insert(Length(bytes.len()));
        }
        Ok(Some(Self(message)))
    }

    /// Keeps a value until the call has ended, with all that it started. Messages that are not requests drop
    /// it.
    pub fn keep(&mut self, value: impl Any + Send + Sync) {
        if let JsonRpcMessage::Request(request) = &mut self.0 {
            request
                .request
                .extensions_mut()
                .insert(CallGuard(Arc::new(value)));
        }
    }

    pub fn kind(&self) -> Kind {
        match &self.0 {
            JsonRpcMessage::Request(request) => match request.request {
                ClientRequest::InitializeRequest(_) => Kind::Initialize,
                ClientRequest::CallToolRequest(_) => Kind::Call,
                _ => Kind::Question,
            },
            JsonRpcMessage::Notification(_) | JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                Kind::Notice
            }
        }
    }
}

impl Session {
    /// Creates a session, and the task that serves it until `stop` resolves.
    pub fn new(
        owner: SessionOwner,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (incoming, queued) = mpsc::channel(MAX_QUEUED);
        let (gone, left) = watch::channel(false);
        let streams = Arc::new(Streams::default());
        // Nobody at this machine reads them: a question is listed with all others.
        let (notes, _) = mpsc::channel(1);
        let handler = Handler::new(
            Settings {
                scope: owner.scope,
                session: None,
                toolbox: owner.toolbox,
                wishes: None,
                elicitation: Elicitation::Off,
                notes,
                peer: Peer::Credential(owner.credential),
            },
            left,
        );
        let posts = Posts {
            incoming: queued,
            streams: Arc::clone(&streams),
            gone: gone.clone(),
        };
        let session = Self {
            incoming,
            streams: Arc::clone(&streams),
        };
        let work = async move {
            converse(handler, posts, gone, stop).await;
            streams.end();
        };
        (session, work)
    }

    /// Sends a request, and returns its stream.
    pub fn ask(&self, mut incoming: Incoming) -> Result<Exchange, SendError> {
        let JsonRpcMessage::Request(request) = &mut incoming.0 else {
            return Err(SendError::Full);
        };
        let place = || self.incoming.clone().try_reserve_owned();
        let (send, cancel) = (place().map_err(refused)?, place().map_err(refused)?);
        let asking = Asking {
            id: request.id.clone(),
            progress: request.request.get_meta().get_progress_token(),
            cancel,
        };
        let exchange = self.streams.open(asking).ok_or(SendError::SameId)?;
        request.id = exchange.id();
        send.send(incoming.0);
        Ok(exchange)
    }

    /// Sends a message that gets no answer.
    pub fn tell(&self, mut incoming: Incoming) -> Result<(), SendError> {
        let place = self.incoming.try_reserve().map_err(refused)?;
        if let JsonRpcMessage::Notification(notification) = &mut incoming.0
            && let ClientNotification::CancelledNotification(cancelled) = &mut notification.notification
            && let Some(id) = &mut cancelled.params.request_id
        {
            let Some(known) = self.streams.cancel(id) else {
                return Ok(());
            };
            *id = known;
        }
        place.send(incoming.0);
        Ok(())
    }

    /// Opens the stream of messages that belong to no request.
    pub fn listen(&self) -> mpsc::Receiver<Outgoing> {
        self.streams.open_standing()
    }
}

fn is_short(id: &RequestId) -> bool {
    match id {
        RequestId::Number(_) => true,
        RequestId::String(text) => text.len() <= MAX_ID,
    }
}

fn refused<T>(error: mpsc::error::TrySendError<T>) -> SendError {
    match error {
        mpsc::error::TrySendError::Full(_) => SendError::Full,
        mpsc::error::TrySendError::Closed(_) => SendError::Ended,
    }
}

/// Returns `true` for a version that a client may name in a session.
pub fn is_version(text: &str) -> bool {
    versions().any(|version| version == text)
}

/// Returns the versions that are served in sessions.
pub fn versions() -> impl Iterator<Item = &'static str> {
    let versions = ProtocolVersion::known_up_to(&ProtocolVersion::LATEST_WITH_INITIALIZE);
    versions.iter().map(ProtocolVersion::as_str)
}
