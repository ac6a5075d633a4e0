//! Prints skill calls to the user at the command line while they wait: calls that need approval, and calls
//! that notify.

use ringfence_gateway_protocol::waiting;
use ringfence_records::approval::PendingApproval;
use tokio::sync::mpsc;

use crate::ui::Ui;

/// Capacity of the queues of unprinted messages.
const IN_FLIGHT: usize = 16;

/// The sending side of messages to the user.
#[derive(Debug)]
pub(crate) struct Notifier {
    pub(crate) questions: mpsc::Sender<PendingApproval>,
    pub(crate) notices: mpsc::Sender<String>,
}

/// The receiving side of messages to the user, which prints them.
#[derive(Debug)]
pub(crate) struct Person {
    questions: mpsc::Receiver<PendingApproval>,
    notices: mpsc::Receiver<String>,
}

impl Person {
    pub(crate) fn new() -> (Notifier, Self) {
        let (questions, asked) = mpsc::channel(IN_FLIGHT);
        let (notices, told) = mpsc::channel(IN_FLIGHT);
        let person = Self {
            questions: asked,
            notices: told,
        };
        (Notifier { questions, notices }, person)
    }

    async fn supervise<T>(mut self, ui: Ui, doing: impl Future<Output = T>) -> T {
        tokio::pin!(doing);
        loop {
            tokio::select! {
                biased;
                Some(asked) = self.questions.recv() => ui.note(&waiting(asked.request())),
                Some(notice) = self.notices.recv() => ui.note(&notice),
                done = &mut doing => {
                    // Notices that arrived with the result.
                    while let Ok(notice) = self.notices.try_recv() {
                        ui.note(&notice);
                    }
                    return done;
                }
            }
        }
    }
}

/// Runs a future, and prints the messages that arrive meanwhile.
pub(crate) async fn attended<T>(person: Option<Person>, ui: Ui, doing: impl Future<Output = T>) -> T {
    match person {
        Some(person) => person.supervise(ui, doing).await,
        None => doing.await,
    }
}
