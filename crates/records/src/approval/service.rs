//! One process's handle of the approval store.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_policy::Scope;
use tokio::sync::{mpsc, oneshot, watch};

use super::store::Store;
use super::{
    Answer, Approved, Audience, Chat, Error, Event, Id, Listener, Notice, PendingApproval, Question,
    Remember, Request, State, Unanswerable, Verdict, grants,
};
use crate::audit::{AnswerLog, Answered};

/// Polling interval for other processes' changes.
const INTERVAL: Duration = Duration::from_millis(100);

/// Number of polls after which [`Changes::next`] returns although the store's version is unchanged: no waiter
/// depends on the version alone.
const LOOKS: usize = 10;

/// A handle of a directory's approval requests. Clones share one connection.
#[derive(Debug, Clone)]
pub struct Service(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// Log of answers; `None` only for processes that keep their own records.
    log: Option<AnswerLog>,
    /// Opened on first use: most invocations ask nothing.
    store: Mutex<Option<Store>>,
    /// Signals our own changes, which the database's version does not show.
    changed: watch::Sender<u64>,
}

/// The outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The asker may act, once.
    Approved {
        /// Person who approved.
        by: String,
    },
    Rejected {
        /// Person who rejected.
        by: String,
    },
    /// Nobody answered in time.
    Expired,
    /// The caller's person did not answer, and no gateway was connected.
    Dismissed {
        /// Person who dismissed it.
        by: String,
    },
}

/// Watches the store for changes.
#[derive(Debug)]
pub struct Changes {
    service: Service,
    seen: Option<i64>,
    own: watch::Receiver<u64>,
}

impl Service {
    /// Returns the service of a private directory, without an answer log; nothing is opened yet.
    pub fn at(directory: &Path) -> Self {
        Self::recorded(directory, None)
    }

    /// Returns the service of a private directory that accepts no approval which `log` fails to record.
    pub fn recorded(directory: &Path, log: Option<AnswerLog>) -> Self {
        Self(Arc::new(Shared {
            directory: directory.to_path_buf(),
            log,
            store: Mutex::new(None),
            changed: watch::Sender::new(0),
        }))
    }

    /// Returns the file of persistent approvals.
    pub fn approved(&self) -> Approved {
        Approved::at(&self.0.directory)
    }

    /// Asks, and waits for the answer until the question expires. Dropping the future withdraws the question.
    /// This call consumes the approval, so that no other call can.
    ///
    /// # Errors
    /// If the question cannot be asked. It is then not approved.
    pub async fn ask(&self, question: Question) -> Result<Decision, Error> {
        self.ask_with(question, None).await
    }

    /// Like [`Service::ask`], and also sends the question to the caller, so that its own person may answer.
    ///
    /// # Errors
    /// If the question cannot be asked. It is then not approved.
    pub async fn ask_with(
        &self,
        question: Question,
        caller: Option<&mpsc::Sender<PendingApproval>>,
    ) -> Result<Decision, Error> {
        if let Some(decision) = self.known(question.clone()).await? {
            return Ok(decision);
        }
        let deadline = Instant::now() + question.patience.as_duration();
        let mut waiting = PendingQuestion {
            service: self.clone(),
            id: Id::random()?,
            over: Arc::default(),
        };
        let (id, over) = (waiting.id.clone(), Arc::clone(&waiting.over));
        self.with(move |store| {
            // The asker may have been dropped before this closure got the store.
            if over.load(Ordering::SeqCst) {
                return Err(Unanswerable::Late(State::Abandoned).into());
            }
            store.insert(&id, &question)
        })
        .await?;
        // Dropped with this call, however it ends.
        let (_waits, over) = oneshot::channel();
        if let Some(caller) = caller
            && let Some(request) = self.request(&waiting.id).await?
        {
            // A caller that does not receive is not asked; the question still waits for gateways.
            let _ = caller.try_send(PendingApproval::new(self.clone(), request, over));
        }
        waiting.wait(deadline).await
    }

    /// Returns a remembered answer to this question. Denials take precedence over approvals.
    async fn known(&self, question: Question) -> Result<Option<Decision>, Error> {
        let approved = self.approved();
        self.with(move |store| {
            let by = |by: &str| by.to_owned();
            if store.is_refused(&question, grants::uptime())? {
                let by = by("a denial for the session");
                return Ok(Some(Decision::Rejected { by }));
            }
            // An unusable file approves nothing: the person is asked, as without it.
            let lasting = question.kind.allows(Remember::Always)
                && approved
                    .holds(question.scope.as_str(), &question.text, &question.kind)
                    .unwrap_or(false);
            if lasting {
                let by = by("a lasting approval");
                return Ok(Some(Decision::Approved { by }));
            }
            Ok(store
                .spend(&question, grants::uptime())?
                .then(|| Decision::Approved {
                    by: by("an approval for the session"),
                }))
        })
        .await
    }

    /// Accepts a person's answer, if it is the first and in time. Returns the request as it was before.
    ///
    /// # Errors
    /// If the answer is rejected; it then changes nothing.
    pub async fn answer(&self, answer: Answer) -> Result<Request, Error> {
        let approved = self.approved();
        let shared = Arc::clone(&self.0);
        self.with(move |store| {
            let lasting = answer.verdict == Verdict::Approve && answer.remember == Remember::Always;
            let request = store.answer(&answer, |request| shared.record(&answer, request))?;
            if lasting {
                approved.add(&request.scope, &request.text, &request.kind, &answer.by)?;
            }
            Ok(request)
        })
        .await
    }

    /// Records that the caller's person declined to answer; expires the request if no gateway is connected
    /// for its chat.
    pub(super) async fn dismiss(&self, request: &Request, by: &str) -> Result<(), Error> {
        let (request, by) = (request.clone(), by.to_owned());
        self.with(
            move |store| match store.is_heard(&request.chat, &request.scope)? {
                true => Ok(()),
                false => store.dismiss(&request.id, &by),
            },
        )
        .await
    }

    /// Returns the pending requests, oldest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn waiting(&self) -> Result<Vec<Request>, Error> {
        self.with(|store| store.waiting()).await
    }

    /// Returns all stored requests in any state, oldest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn history(&self) -> Result<Vec<Request>, Error> {
        self.with(|store| store.history()).await
    }

    /// Returns the newest `count` requests in any state, oldest first; of the approved, rejected and
    /// unanswered ones a quarter of `count` each, even if they are older.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn newest(&self, count: usize) -> Result<Vec<Request>, Error> {
        self.with(move |store| store.newest(count, None)).await
    }

    /// Like [`Service::newest`], of one scope's requests.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn newest_of(&self, scope: &Scope, count: usize) -> Result<Vec<Request>, Error> {
        let scope = scope.clone();
        self.with(move |store| store.newest(count, Some(scope.as_str())))
            .await
    }

    /// Returns one request.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn request(&self, id: &Id) -> Result<Option<Request>, Error> {
        let id = id.clone();
        self.with(move |store| store.get(&id)).await
    }

    /// Stores a notice for a person, to be delivered by the next gateway of that chat.
    ///
    /// # Errors
    /// If the notice cannot be stored.
    pub async fn notify(&self, chat: &Chat, text: &str) -> Result<(), Error> {
        let (chat, text) = (chat.clone(), text.to_owned());
        self.with(move |store| store.notify(&chat, &text)).await
    }

    /// Returns the notices after `after`; without it, the undelivered ones.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn notices(&self, after: Option<u64>) -> Result<Vec<Notice>, Error> {
        self.with(move |store| store.notices(after)).await
    }

    /// Marks notices as delivered.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn delivered(&self, up_to: u64) -> Result<(), Error> {
        self.with(move |store| store.delivered(up_to)).await
    }

    /// Registers a connected gateway, or whoever else brings questions to people, until [`Service::leave`] or this process's
    /// end.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn listen(&self, listener: Option<Listener>, audience: Audience) -> Result<Listener, Error> {
        let listener = listener.unwrap_or_else(Listener::new);
        self.with(move |store| store.listen(&listener, &audience).map(|()| listener))
            .await
    }

    /// Deregisters a gateway.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn leave(&self, listener: Listener) -> Result<(), Error> {
        self.with(move |store| store.leave(&listener)).await
    }

    /// Returns `true` if a listener for this chat, or for this scope, is connected to any server of this directory.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn is_heard(&self, chat: &Chat, scope: &Scope) -> Result<bool, Error> {
        let (chat, scope) = (chat.clone(), scope.clone());
        self.with(move |store| store.is_heard(&chat, scope.as_str()))
            .await
    }

    /// Removes the ended requests of a scope, and the answers that are remembered for it. Blocks on the disk.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn forget(&self, scope: &Scope) -> Result<(), Error> {
        self.0.work(|store| store.forget(scope.as_str()))
    }

    /// Watches for changes from now on.
    pub fn changes(&self) -> Changes {
        Changes {
            service: self.clone(),
            seen: None,
            own: self.0.changed.subscribe(),
        }
    }

    /// Runs `work` on the store, on a thread that may block on the disk.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || shared.work(work))
            .await
            .map_err(|_| Error::Broken)?
    }
}

impl Shared {
    /// Records an answer before it takes effect. A denial takes effect even if it cannot be recorded.
    fn record(&self, answer: &Answer, request: &Request) -> Result<(), Error> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        let approved = answer.verdict == Verdict::Approve;
        let recorded = log.append(&Answered {
            id: answer.id.as_str(),
            kind: request.kind.name(),
            digest: request.digest(),
            text: &request.text,
            scope: &request.scope,
            session: request.session.as_deref(),
            chat: request.chat.as_str(),
            approved,
            remember: &answer.remember.to_string(),
            by: &answer.by,
        });
        match recorded {
            Err(error) if approved => Err(Error::Unrecorded(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn work<T>(&self, work: impl FnOnce(&mut Store) -> Result<T, Error>) -> Result<T, Error> {
        let mut guard = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let store = match &mut *guard {
            Some(store) => store,
            none => none.insert(Store::open(&self.directory.join("approvals.db"))?),
        };
        let before = store.connection.total_changes();
        let result = work(store);
        if store.connection.total_changes() != before {
            self.changed.send_modify(|count| *count += 1);
        }
        result
    }
}

impl Changes {
    /// Resolves when the store may have changed since the last call; the first call resolves at once.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn next(&mut self) -> Result<(), Error> {
        for _ in 0..LOOKS {
            self.own.mark_unchanged();
            let version = self.service.with(|store| store.data_version()).await?;
            if self.seen.replace(version) != Some(version) {
                return Ok(());
            }
            tokio::select! {
                // This value holds the service, so that the channel stays open.
                _ = self.own.changed() => return Ok(()),
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
        Ok(())
    }
}

/// A pending question. Dropping it before it is answered withdraws it.
struct PendingQuestion {
    service: Service,
    id: Id,
    /// Set once nobody waits any more. Accessed before the store, whose lock orders the accesses.
    over: Arc<AtomicBool>,
}

impl PendingQuestion {
    async fn wait(&mut self, deadline: Instant) -> Result<Decision, Error> {
        let mut changes = self.service.changes();
        let decision = loop {
            let in_time = tokio::time::timeout_at(deadline.into(), changes.next()).await;
            match in_time {
                Ok(changed) => changed?,
                // The monotonic clock decides: the wall clock may have been set back.
                Err(_) => drop(self.happen(Event::Expire).await?),
            }
            let request = self
                .service
                .request(&self.id)
                .await?
                .ok_or(Unanswerable::Unknown)?;
            let by = request.by.unwrap_or_default();
            match request.state {
                State::Pending => {}
                // Nothing but this step lies between the answer and the action.
                State::Approved if self.happen(Event::Consume).await? => break Decision::Approved { by },
                State::Rejected => break Decision::Rejected { by },
                State::Expired if !by.is_empty() => break Decision::Dismissed { by },
                State::Approved | State::Expired | State::Abandoned | State::Consumed => {
                    break Decision::Expired;
                }
            }
        };
        self.over.store(true, Ordering::SeqCst);
        Ok(decision)
    }

    async fn happen(&self, event: Event) -> Result<bool, Error> {
        let id = self.id.clone();
        self.service.with(move |store| store.happen(&id, event)).await
    }
}

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        // One short statement. If it fails, the request ends with this process or at its deadline.
        let _ = self
            .service
            .0
            .work(|store| store.happen(&self.id, Event::Abandon));
    }
}
