//! A pending request as handed to the caller that caused it, so that the caller's own person may answer.

use tokio::sync::oneshot;

use super::{Answer, Error, Remember, Request, Service, Verdict};

/// A pending request, for the caller that caused it. Gateways see it too, and may answer first.
#[derive(Debug)]
pub struct PendingApproval {
    service: Service,
    request: Request,
    /// Closed once the request is no longer pending.
    over: oneshot::Receiver<()>,
}

impl PendingApproval {
    pub(super) const fn new(service: Service, request: Request, over: oneshot::Receiver<()>) -> Self {
        Self {
            service,
            request,
            over,
        }
    }

    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// Answers this request, if the answer is the first and in time.
    ///
    /// # Errors
    /// If the answer is rejected; it then changes nothing.
    pub async fn answer(&self, verdict: Verdict, remember: Remember, by: &str) -> Result<(), Error> {
        let answer = Answer {
            id: self.request.id.clone(),
            verdict,
            remember,
            chat: self.request.chat.clone(),
            digest: self.request.digest(),
            by: by.to_owned(),
        };
        self.service.answer(answer).await.map(drop)
    }

    /// Declines to answer. Ends the request if no gateway is connected for its chat.
    ///
    /// # Errors
    /// If the store cannot be used; the request then stays pending.
    pub async fn dismiss(&self, by: &str) -> Result<(), Error> {
        self.service.dismiss(&self.request, by).await
    }

    /// Returns `true` if the asker no longer waits for an answer.
    pub fn is_over(&mut self) -> bool {
        matches!(self.over.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    /// Resolves when the asker no longer waits for an answer.
    pub async fn over(&mut self) {
        // Nothing is ever sent: only the drop of the sender resolves it.
        let _ = (&mut self.over).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Audience, Chat, CommandContext, Decision, Kind, Lasting, Question, State};
    use super::*;
    use ringfence_policy::{Scope, Timeout};
    use tempfile::TempDir;
    use tokio::sync::mpsc;
    use tokio::task::JoinSet;

    struct Waiting {
        _dir: TempDir,
        service: Service,
        asking: JoinSet<Result<Decision, Error>>,
        pending: PendingApproval,
    }

    impl Waiting {
        async fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let service = Service::at(dir.path());
            let (caller, mut questions) = mpsc::channel(1);
            let mut asking = JoinSet::new();
            let asks = service.clone();
            asking.spawn(async move { asks.ask_with(question(), Some(&caller)).await });
            let pending = questions.recv().await.unwrap();
            Self {
                _dir: dir,
                service,
                asking,
                pending,
            }
        }

        async fn decided(&mut self) -> Decision {
            self.asking.join_next().await.unwrap().unwrap().unwrap()
        }

        async fn state(&self) -> State {
            let request = self.service.request(&self.pending.request.id).await.unwrap();
            request.unwrap().state
        }
    }

    fn question() -> Question {
        Question {
            kind: Kind::Command {
                reasons: Vec::new(),
                risk: None,
                lasting: Lasting::Never,
                place: CommandContext::default(),
            },
            text: "rm x".to_owned(),
            scope: Scope::local(),
            session: None,
            chat: Chat::local(),
            patience: Timeout::seconds(300),
        }
    }

    #[tokio::test]
    async fn the_caller_answers_the_question_that_everybody_sees() {
        let mut waiting = Waiting::new().await;
        let all = waiting.service.waiting().await.unwrap();
        assert_eq!(all, [waiting.pending.request().clone()]);
        assert!(!waiting.pending.is_over());
        let lasting = waiting
            .pending
            .answer(Verdict::Approve, Remember::Always, "client")
            .await;
        assert!(matches!(lasting, Err(Error::Unanswerable(_))), "{lasting:?}");
        assert_eq!(waiting.state().await, State::Pending);
        waiting
            .pending
            .answer(Verdict::Approve, Remember::Once, "client")
            .await
            .unwrap();
        let by = "client".to_owned();
        assert_eq!(waiting.decided().await, Decision::Approved { by });
        waiting.pending.over().await;
        assert!(waiting.pending.is_over());
        let again = waiting
            .pending
            .answer(Verdict::Approve, Remember::Once, "client")
            .await;
        assert!(matches!(again, Err(Error::Unanswerable(_))), "{again:?}");
        assert_eq!(waiting.state().await, State::Consumed);
    }

    #[tokio::test]
    async fn the_question_is_over_when_another_answers_or_it_is_cancelled() {
        let mut waiting = Waiting::new().await;
        let request = waiting.pending.request().clone();
        let other = Answer {
            id: request.id.clone(),
            verdict: Verdict::Reject,
            remember: Remember::Once,
            chat: request.chat.clone(),
            digest: request.digest(),
            by: "ann".to_owned(),
        };
        waiting.service.answer(other).await.unwrap();
        waiting.pending.over().await;
        let by = "ann".to_owned();
        assert_eq!(waiting.decided().await, Decision::Rejected { by });

        let mut waiting = Waiting::new().await;
        waiting.asking.shutdown().await;
        waiting.pending.over().await;
        assert_eq!(waiting.state().await, State::Abandoned);
    }

    #[tokio::test]
    async fn without_an_answer_it_waits_only_where_somebody_else_is() {
        let mut waiting = Waiting::new().await;
        let listener = waiting.service.listen(None, Audience::All).await.unwrap();
        waiting.pending.dismiss("client").await.unwrap();
        assert_eq!(waiting.state().await, State::Pending);
        waiting.service.leave(listener).await.unwrap();
        waiting.pending.dismiss("client").await.unwrap();
        let by = "client".to_owned();
        assert_eq!(waiting.decided().await, Decision::Dismissed { by });
        assert_eq!(waiting.state().await, State::Expired);
    }
}
