//! Uses of keys, which end when their key is revoked or expires.
//!
//! A key is a file that another process removes. One task looks at the keys in use, however many connections use them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::error::{ApiError, Reason};
use super::keys::ApiKeys;
use super::rights::Right;
use super::stream;
use super::tenant::Account;
use ringfence_http::{ConnectionSlot, Connections, TooManyConnections};

/// Interval at which the keys in use are checked.
const CHECK: Duration = Duration::from_millis(250);

/// All uses of keys.
#[derive(Debug)]
pub(super) struct KeyUses {
    open: Arc<Open>,
    task: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Open {
    keys: Arc<ApiKeys>,
    table: Mutex<Table>,
    /// Wakes the task after the first use has begun.
    begun: Notify,
    /// Notified when a use is gone.
    gone: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    uses: HashMap<u64, Registered>,
}

#[derive(Debug)]
struct Registered {
    client: String,
    right: Right,
    ended: watch::Sender<bool>,
    /// Connection of an answer under way.
    connection: Option<Arc<ConnectionSlot>>,
}

/// A use of a key, until it is dropped.
#[derive(Debug)]
pub(super) struct KeyUse(Option<Watched>);

/// A use of a key that can be revoked or expire.
#[derive(Debug)]
struct Watched {
    id: u64,
    open: Arc<Open>,
    ended: watch::Receiver<bool>,
}

impl KeyUses {
    pub(super) fn new(keys: Arc<ApiKeys>) -> Self {
        Self {
            open: Arc::new(Open {
                keys,
                table: Mutex::default(),
                begun: Notify::new(),
                gone: Notify::new(),
            }),
            task: Mutex::default(),
        }
    }

    /// Begins a use of a client's key by one of its rights.
    pub(super) fn begin(&self, client: &str, right: Right) -> KeyUse {
        self.register(client, right, None)
    }

    /// Answers a request in the name of a client's key. Once the key ends, `answer` is dropped and an error returned; an
    /// answer that has begun is broken off with its connection, whether the client reads it or not.
    pub(super) async fn answer<F: Future<Output = Response>>(
        &self,
        client: &str,
        right: Right,
        connection: Option<(Arc<ConnectionSlot>, &Account)>,
        answer: impl FnOnce(Arc<KeyUse>) -> F,
    ) -> Result<Response, ApiError> {
        let (connections, connection) = match connection {
            // Keys of a tenant are made as easily as connections: they have one share.
            Some((slot, account)) => (slot.belong_to(account.as_str())?, Some(slot)),
            None => (Connections::Few, None),
        };
        let mut response = self.answer_anonymous(client, right, connection, answer).await?;
        if connections == Connections::Many && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(response)
    }

    /// Like [`KeyUses::answer`], for a request without a credential, which the client has permitted. Its connection is a stranger's: it
    /// makes room for others, and is no part of the client's share.
    pub(super) async fn answer_anonymous<F: Future<Output = Response>>(
        &self,
        client: &str,
        right: Right,
        connection: Option<Arc<ConnectionSlot>>,
        answer: impl FnOnce(Arc<KeyUse>) -> F,
    ) -> Result<Response, ApiError> {
        let using = Arc::new(self.begin(client, right));
        if using.0.is_some() && connection.is_none() {
            return Err(ApiError::new(
                Reason::Internal,
                "the connection cannot be closed when the key ends",
                "report this as a defect",
            ));
        }
        let response = tokio::select! {
            biased;
            () = using.ended() => return Err(ApiError::key_ended()),
            response = answer(Arc::clone(&using)) => response,
        };
        if using.0.is_none() || response.body().is_end_stream() {
            return Ok(response);
        }
        let using = self.register(client, right, connection);
        Ok(stream::holding(response, using))
    }

    fn register(&self, client: &str, right: Right, connection: Option<Arc<ConnectionSlot>>) -> KeyUse {
        if !ApiKeys::can_end(client) {
            return KeyUse(None);
        }
        let (sender, ended) = watch::channel(false);
        let mut table = self.open.lock();
        let id = table.next;
        table.next += 1;
        let registered = Registered {
            client: client.to_owned(),
            right,
            ended: sender,
            connection,
        };
        table.uses.insert(id, registered);
        if table.uses.len() == 1 {
            self.open.begun.notify_one();
        }
        drop(table);
        self.keep_watching();
        KeyUse(Some(Watched {
            id,
            open: Arc::clone(&self.open),
            ended,
        }))
    }

    /// Starts the task, if it does not run.
    fn keep_watching(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        while task.try_join_next().is_some() {}
        if task.is_empty() {
            task.spawn(Arc::clone(&self.open).watch());
        }
    }

    /// Ends the uses of a key that opens nothing any more, and waits until there are none.
    pub(super) async fn end(&self, client: &str) {
        loop {
            let gone = self.open.gone.notified();
            self.open.check();
            let is_used = self.open.lock().uses.values().any(|used| used.client == client);
            if !is_used {
                return;
            }
            gone.await;
        }
    }

    /// Ends the task. Nothing is used any more.
    pub(super) async fn close(&self) {
        let mut task = std::mem::take(&mut *self.task.lock().unwrap_or_else(PoisonError::into_inner));
        task.shutdown().await;
    }
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch(self: Arc<Self>) {
        loop {
            let is_idle = self.lock().uses.is_empty();
            if is_idle {
                self.begun.notified().await;
            }
            tokio::time::sleep(CHECK).await;
            self.check();
        }
    }

    /// Ends the uses of keys that have lost their right.
    fn check(&self) {
        let in_use: BTreeSet<(String, Right)> = {
            let table = self.lock();
            let uses = table.uses.values();
            uses.map(|used| (used.client.clone(), used.right)).collect()
        };
        let ended = in_use
            .into_iter()
            .filter(|(client, right)| self.keys.has_lost(client, *right));
        let ended: BTreeSet<(String, Right)> = ended.collect();
        if ended.is_empty() {
            return;
        }
        for used in self.lock().uses.values() {
            if ended.contains(&(used.client.clone(), used.right)) {
                used.ended.send_replace(true);
                if let Some(connection) = &used.connection {
                    connection.evict();
                }
            }
        }
    }
}

impl KeyUse {
    /// Resolves when the key is revoked, expires or loses the right. Never, if the credential cannot.
    pub(super) async fn ended(&self) {
        match &self.0 {
            // An error is no news: the table has the sender as long as this use.
            Some(watched) => drop(watched.ended.clone().wait_for(|ended| *ended).await),
            None => std::future::pending().await,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.open.lock().uses.remove(&self.id);
        self.open.gone.notify_waiters();
    }
}

impl From<TooManyConnections> for ApiError {
    fn from(error: TooManyConnections) -> Self {
        let (message, hint) = match error {
            TooManyConnections::OfClient(count) => (
                format!("the tenant of the key has {count} connections, as many as one may have"),
                "close some, or use them for one request after the other",
            ),
            TooManyConnections::OfAll(count) => (
                format!("all keys together have {count} connections, as many as they may have"),
                "send it again after `Retry-After`, and use connections for one request after the other",
            ),
        };
        Self::new(Reason::Busy, message, hint)
    }
}
