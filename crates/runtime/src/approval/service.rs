//! Asking and answering, as one process sees the store.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};

use super::store::Store;
use super::{
    Answer, Approved, Asked, Chat, Error, Event, Id, Listener, Notice, Question, Remember, Request, State,
    Unanswerable, Verdict, grants,
};
use crate::audit::{AnswerLog, Answered};

/// How often another process's changes are looked for, while something is awaited.
const INTERVAL: Duration = Duration::from_millis(100);

/// After so many looks the store may have changed, whatever its version says: nobody waits on that alone.
const LOOKS: usize = 10;

/// A directory's questions and answers. Clones are the same service.
#[derive(Debug, Clone)]
pub struct Service(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// Where answers are recorded; `None` only for those who keep records themselves.
    log: Option<AnswerLog>,
    /// Opened at the first use: most invocations ask nothing.
    store: Mutex<Option<Store>>,
    /// Told of changes of our own, which the store does not show us as another's.
    changed: watch::Sender<u64>,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes; the asker may act, once.
    Approved {
        /// Who said so.
        by: String,
    },
    /// No.
    Rejected {
        /// Who said so.
        by: String,
    },
    /// Nobody answered in time.
    Expired,
    /// The only one who was there gave no answer.
    Dismissed {
        /// Who.
        by: String,
    },
}

/// Looks out for changes of the store.
#[derive(Debug)]
pub struct Changes {
    service: Service,
    seen: Option<i64>,
    own: watch::Receiver<u64>,
}

impl Service {
    /// The service of a directory of ours alone; nothing is opened yet.
    pub fn at(directory: &Path) -> Self {
        Self::recorded(directory, None)
    }

    /// The same, which takes no approval that `log` does not record.
    pub fn recorded(directory: &Path, log: Option<AnswerLog>) -> Self {
        Self(Arc::new(Shared {
            directory: directory.to_path_buf(),
            log,
            store: Mutex::new(None),
            changed: watch::Sender::new(0),
        }))
    }

    /// Commands that are allowed for good.
    pub fn approved(&self) -> Approved {
        Approved::at(&self.0.directory)
    }

    /// Asks, and waits for the answer until the question's patience is at its end. To drop the call takes the
    /// question back. An approval is taken by this call, and nobody can take it again.
    ///
    /// # Errors
    /// If the question cannot be asked. Then nobody has said yes.
    pub async fn ask(&self, question: Question) -> Result<Decision, Error> {
        self.ask_with(question, None).await
    }

    /// Asks as [`Service::ask`] does, and tells the caller of the question, so that its own person may answer it.
    ///
    /// # Errors
    /// If the question cannot be asked. Then nobody has said yes.
    pub async fn ask_with(
        &self,
        question: Question,
        caller: Option<&mpsc::Sender<Asked>>,
    ) -> Result<Decision, Error> {
        if let Some(decision) = self.known(question.clone()).await? {
            return Ok(decision);
        }
        let deadline = Instant::now() + question.patience.as_duration();
        let mut waiting = Waiting {
            service: self.clone(),
            id: Id::random()?,
            over: Arc::default(),
        };
        let (id, over) = (waiting.id.clone(), Arc::clone(&waiting.over));
        self.with(move |store| {
            // Whoever asked may have gone before it was this question's turn.
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
            // One who does not listen is not asked; the question waits for the others.
            let _ = caller.try_send(Asked::new(self.clone(), request, over));
        }
        waiting.wait(deadline).await
    }

    /// What was answered to such a question before, and meant to hold. A no counts before a yes.
    async fn known(&self, question: Question) -> Result<Option<Decision>, Error> {
        let approved = self.approved();
        self.with(move |store| {
            let by = |by: &str| by.to_owned();
            if store.is_refused(&question, grants::uptime())? {
                let by = by("a denial for the session");
                return Ok(Some(Decision::Rejected { by }));
            }
            // A file that cannot be used allows nothing: the person is asked, as without it.
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

    /// Takes a person's answer, if it is the first one and in time. Gives the request as it was.
    ///
    /// # Errors
    /// If it is not taken; it then changes nothing.
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

    /// Notes that one who was asked gives no answer; the question ends if no gateway is connected that would ask.
    pub(super) async fn dismiss(&self, request: &Request, by: &str) -> Result<(), Error> {
        let (id, chat, by) = (request.id.clone(), request.chat.clone(), by.to_owned());
        self.with(move |store| match store.is_heard(&chat)? {
            true => Ok(()),
            false => store.dismiss(&id, &by),
        })
        .await
    }

    /// The requests that wait, oldest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn waiting(&self) -> Result<Vec<Request>, Error> {
        self.with(|store| store.waiting()).await
    }

    /// All requests that are kept, whatever became of them, oldest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn history(&self) -> Result<Vec<Request>, Error> {
        self.with(|store| store.history()).await
    }

    /// So many of the newest requests, whatever became of them, oldest first; of those that were approved, rejected or
    /// never answered, a quarter as many each even if they are older.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn newest(&self, count: usize) -> Result<Vec<Request>, Error> {
        self.with(move |store| store.newest(count)).await
    }

    /// One request.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn request(&self, id: &Id) -> Result<Option<Request>, Error> {
        let id = id.clone();
        self.with(move |store| store.get(&id)).await
    }

    /// Tells a person something, once a gateway is there for it.
    ///
    /// # Errors
    /// If it cannot be kept.
    pub async fn notify(&self, chat: &Chat, text: &str) -> Result<(), Error> {
        let (chat, text) = (chat.clone(), text.to_owned());
        self.with(move |store| store.notify(&chat, &text)).await
    }

    /// Notices behind `after`; without it, those that no gateway has passed on.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn notices(&self, after: Option<u64>) -> Result<Vec<Notice>, Error> {
        self.with(move |store| store.notices(after)).await
    }

    /// Notes that a gateway has passed notices on.
    ///
    /// # Errors
    /// If that cannot be kept.
    pub async fn delivered(&self, up_to: u64) -> Result<(), Error> {
        self.with(move |store| store.delivered(up_to)).await
    }

    /// Notes that a gateway is connected, until [`Service::leave`] or this process's end.
    ///
    /// # Errors
    /// If that cannot be kept.
    pub async fn listen(
        &self,
        listener: Option<Listener>,
        chats: Option<BTreeSet<Chat>>,
    ) -> Result<Listener, Error> {
        let listener = listener.unwrap_or_else(Listener::new);
        self.with(move |store| store.listen(&listener, chats.as_ref()).map(|()| listener))
            .await
    }

    /// Notes that a gateway has gone.
    ///
    /// # Errors
    /// If that cannot be kept.
    pub async fn leave(&self, listener: Listener) -> Result<(), Error> {
        self.with(move |store| store.leave(&listener)).await
    }

    /// Whether a gateway is connected, to any engine of this directory, that would ask in a chat.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn is_heard(&self, chat: &Chat) -> Result<bool, Error> {
        let chat = chat.clone();
        self.with(move |store| store.is_heard(&chat)).await
    }

    /// Looks out for changes from here on.
    pub fn changes(&self) -> Changes {
        Changes {
            service: self.clone(),
            seen: None,
            own: self.0.changed.subscribe(),
        }
    }

    /// Works on the store, on a thread that may wait for a disk.
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
    /// Records an answer before it counts. A no counts all the same.
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
    /// Ends when the store may have changed since the last call; the first call ends at once.
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
                // The service is held by this value, so that the channel stays open.
                _ = self.own.changed() => return Ok(()),
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
        Ok(())
    }
}

/// A question that was asked. If it is dropped before it is answered, it is taken back.
struct Waiting {
    service: Service,
    id: Id,
    /// Whether nobody waits any more. Read and written before the store is used, which one may use at a time.
    over: Arc<AtomicBool>,
}

impl Waiting {
    async fn wait(&mut self, deadline: Instant) -> Result<Decision, Error> {
        let mut changes = self.service.changes();
        let decision = loop {
            let in_time = tokio::time::timeout_at(deadline.into(), changes.next()).await;
            match in_time {
                Ok(changed) => changed?,
                // Our own clock decides: the wall's may have been set back.
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
                // Between the answer and the deed there is nothing but this step.
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

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        // One short statement. Where it fails, the request ends with this process or its time.
        let _ = self
            .service
            .0
            .work(|store| store.happen(&self.id, Event::Abandon));
    }
}
