//! `ringfence gateway terminal`: questions on a terminal, answered by lines.
//!
//! Lines, and no single keys: a key that is pressed as a question appears must not approve it.

use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_runtime::approval::Chat;
use ringfence_server::gateway::{Client, FromEngine, FromGateway, VERSION};
use tokio::sync::mpsc;

use super::board::{Board, Said};
use crate::commands::run::interrupted;
use crate::context::Context;
use crate::ui::{Ui, visible};

/// The first pause before the engine is tried again, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// The longest line that is read from a person.
const MAX_WORDS: u64 = 4 * 1024;

/// Lines that are read and not yet acted on.
const IN_FLIGHT: usize = 16;

/// The terminal as a gateway.
struct Terminal {
    ui: Ui,
    chats: Vec<Chat>,
    board: Board,
    lines: mpsc::Receiver<String>,
    /// Whether standard input has ended.
    silent: bool,
    /// Answers whose end the engine has not told.
    unsettled: Vec<String>,
}

/// Why a connection to the engine ended.
enum Left {
    /// The engine has gone, or the connection broke.
    Engine,
    /// There is no more to say, and everything said has been settled.
    Done,
}

pub(crate) fn run(chats: &[Chat], context: &Context) -> anyhow::Result<ExitCode> {
    // It may be there before the first engine is.
    context.paths.make_runtime()?;
    let socket = context.paths.gateway_socket();
    let mut terminal = Terminal {
        ui: context.ui,
        chats: chats.to_vec(),
        board: Board::default(),
        lines: stdin_lines(),
        silent: false,
        unsettled: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = terminal.attend(&socket) => ended,
            () = interrupted() => Ok(()),
        }
    });
    // The thread that reads standard input may wait for ever.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

/// Lines of standard input, read by a thread of its own. A terminal's are those that come from now on.
fn stdin_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = std::io::Read::take(&mut stdin, MAX_WORDS).read_until(b'\n', &mut line);
            let line = String::from_utf8_lossy(&line).into_owned();
            if !matches!(read, Ok(1..)) || sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Terminal {
    /// Attends the engine, and the next one after it, until there is no more to say.
    async fn attend(&mut self, socket: &Path) -> anyhow::Result<()> {
        let [shortest, longest] = PAUSES;
        let (mut pause, mut told) = (shortest, false);
        loop {
            match Client::connect(socket).await {
                Ok(client) => {
                    (pause, told) = (shortest, false);
                    self.say("connected to the engine; questions will appear here\n")?;
                    if let Left::Done = self.converse(client).await? {
                        return Ok(());
                    }
                    self.say("the engine has gone; what waits is kept and will be shown again\n")?;
                    for id in std::mem::take(&mut self.unsettled) {
                        self.say(&format!(
                            "{}: the engine went before it told what became of the answer\n",
                            visible(&id)
                        ))?;
                    }
                }
                Err(_) if self.silent => return Ok(()),
                Err(error) if !told => {
                    told = true;
                    self.say(&format!(
                        "no engine answers ({error}); trying again until one does\n"
                    ))?;
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    async fn converse(&mut self, mut client: Client) -> anyhow::Result<Left> {
        let since = Instant::now();
        if client.say(&self.hello()).await.is_err() {
            return Ok(Left::Engine);
        }
        let mut looks = tokio::time::interval(Duration::from_secs(1));
        let mut fresh = true;
        loop {
            if self.silent && self.unsettled.is_empty() {
                return Ok(Left::Done);
            }
            tokio::select! {
                biased;
                message = client.next() => match message {
                    Ok(Some(message)) => self.show(message)?,
                    Ok(None) | Err(_) => return Ok(Left::Engine),
                },
                line = self.lines.recv(), if !self.silent => match line {
                    Some(line) => if self.pass_on(&line, &mut client).await?.is_none() {
                        return Ok(Left::Engine);
                    },
                    None => self.silent = true,
                },
                _ = looks.tick() => {
                    // What waits has been sent again by the time of the second look.
                    if !std::mem::take(&mut fresh) {
                        self.board.forget_before(since);
                    }
                    let reminders = self.board.reminders(Instant::now());
                    self.say(&reminders)?;
                }
            }
        }
    }

    fn hello(&self) -> FromGateway {
        let chats = self.chats.iter().map(|chat| chat.as_str().to_owned());
        FromGateway::Hello {
            version: VERSION,
            chats: (!self.chats.is_empty()).then(|| chats.collect()),
            name: Some("terminal".to_owned()),
        }
    }

    fn show(&mut self, message: FromEngine) -> anyhow::Result<()> {
        match &message {
            FromEngine::ApprovalClosed { id, .. } | FromEngine::Error { id: Some(id), .. } => {
                self.unsettled.retain(|other| other != id);
            }
            // It may have been sent before the engine knew which chats we serve.
            FromEngine::ApprovalRequest(words) if !self.serves(&words.chat_id) => return Ok(()),
            FromEngine::Message { chat_id, .. } if !self.serves(chat_id) => return Ok(()),
            FromEngine::ApprovalRequest(_)
            | FromEngine::Message { .. }
            | FromEngine::Error { .. }
            | FromEngine::Hello { .. } => {}
        }
        let text = self.board.take(message, Instant::now());
        self.say(&text)
    }

    fn serves(&self, chat: &str) -> bool {
        self.chats.is_empty() || self.chats.iter().any(|served| served.as_str() == chat)
    }

    /// Passes a line on, if it is an answer; `None` if the engine has gone.
    async fn pass_on(&mut self, line: &str, client: &mut Client) -> anyhow::Result<Option<()>> {
        match self.board.hear(line, Instant::now()) {
            None => {}
            Some(Said::Nothing(why)) => self.say(&format!("{why}\n"))?,
            Some(Said::Answer(answer)) => {
                if let FromGateway::ApprovalResponse { id, .. } = &answer {
                    self.unsettled.push(id.clone());
                }
                if client.say(&answer).await.is_err() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(()))
    }

    fn say(&self, text: &str) -> anyhow::Result<()> {
        if !text.is_empty() {
            self.ui.out(text)?;
        }
        Ok(())
    }
}
