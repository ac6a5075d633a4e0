//! What the person at the command line is told while they wait: which call needs their answer, and which one was made.

use ringfence_runtime::approval::Asked;
use tokio::sync::mpsc;

use crate::ui::Ui;

/// How much is told before it is printed.
const IN_FLIGHT: usize = 16;

/// How much of a question is shown, in characters.
const MAX_SHOWN: usize = 300;

/// Where it goes what a person shall know.
#[derive(Debug)]
pub(crate) struct Ears {
    pub(crate) questions: mpsc::Sender<Asked>,
    pub(crate) notices: mpsc::Sender<String>,
}

/// The person, who is told what their ears hear.
#[derive(Debug)]
pub(crate) struct Person {
    questions: mpsc::Receiver<Asked>,
    notices: mpsc::Receiver<String>,
}

impl Person {
    pub(crate) fn new() -> (Ears, Self) {
        let (questions, asked) = mpsc::channel(IN_FLIGHT);
        let (notices, told) = mpsc::channel(IN_FLIGHT);
        let person = Self {
            questions: asked,
            notices: told,
        };
        (Ears { questions, notices }, person)
    }

    async fn attend<T>(mut self, ui: Ui, doing: impl Future<Output = T>) -> T {
        tokio::pin!(doing);
        loop {
            tokio::select! {
                biased;
                Some(asked) = self.questions.recv() => ui.note(&question(&asked)),
                Some(notice) = self.notices.recv() => ui.note(&notice),
                done = &mut doing => {
                    // What came up last.
                    while let Ok(notice) = self.notices.try_recv() {
                        ui.note(&notice);
                    }
                    return done;
                }
            }
        }
    }
}

/// Does something, and tells the person, if there is one, what comes up meanwhile.
pub(crate) async fn attended<T>(person: Option<Person>, ui: Ui, doing: impl Future<Output = T>) -> T {
    match person {
        Some(person) => person.attend(ui, doing).await,
        None => doing.await,
    }
}

fn question(asked: &Asked) -> String {
    let request = asked.request();
    let words: Vec<&str> = request.text.split_whitespace().collect();
    let mut text = words.join(" ");
    if let Some((end, _)) = text.char_indices().nth(MAX_SHOWN) {
        text.truncate(end);
        text.push('…');
    }
    let id = &request.id;
    format!(
        "{text} waits for your answer: `ringfence approvals approve {id}`, or `ringfence approvals deny {id}`"
    )
}
