//! `ringfence gateway terminal`: asks on a terminal and reads answers line by line.
//!
//! Lines, and no single keys: a key pressed as a question appears must not approve it.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_exec::lines::LineReader;
use ringfence_gateway_protocol::{Board, FromGateway, FromServer, Input, Link, LinkEvent, interrupted};
use ringfence_records::approval::Chat;
use tokio::sync::mpsc;

use crate::context::Context;
use crate::ui::{Ui, visible};

/// Maximum length of an input line.
const MAX_WORDS: usize = 4 * 1024;

/// Time after connecting by which the server has sent all pending questions again.
const CONFIRMED_AFTER: Duration = Duration::from_secs(2);

/// Capacity of the queue of input lines.
const IN_FLIGHT: usize = 16;

/// The terminal gateway.
struct Terminal {
    ui: Ui,
    chats: BTreeSet<String>,
    link: Link,
    /// The time of the connection; `None` while disconnected.
    connected: Option<Instant>,
    board: Board,
    lines: mpsc::Receiver<String>,
    /// Set at the end of standard input.
    silent: bool,
    /// Ids of answers that the server has not confirmed.
    unsettled: Vec<String>,
}

pub(crate) fn run(chats: &[Chat], context: &Context) -> anyhow::Result<ExitCode> {
    // The gateway may start before the first server.
    context.paths.make_runtime()?;
    let socket = context.paths.gateway_socket();
    let chats: BTreeSet<String> = chats.iter().map(|chat| chat.as_str().to_owned()).collect();
    let mut terminal = Terminal {
        ui: context.ui,
        link: Link::new(socket, &chats, "terminal"),
        chats,
        connected: None,
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
            ended = terminal.supervise() => ended,
            () = interrupted() => Ok(()),
        }
    });
    // The thread that reads standard input may block for ever.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

/// Reads lines of standard input in a thread.
fn stdin_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    std::thread::spawn(move || {
        let mut lines = LineReader::new(std::io::stdin().lock(), MAX_WORDS);
        while let Ok(Some(line)) = lines.next_line() {
            let line = String::from_utf8_lossy(line.bytes).into_owned();
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Terminal {
    /// Serves the server, and its successors after a restart, until standard input has ended and every answer
    /// is confirmed.
    async fn supervise(&mut self) -> anyhow::Result<()> {
        let mut looks = tokio::time::interval(Duration::from_secs(1));
        loop {
            if self.silent && self.unsettled.is_empty() && self.connected.is_some() {
                return Ok(());
            }
            tokio::select! {
                biased;
                news = self.link.next() => match news {
                    // Nobody is left to answer further questions.
                    LinkEvent::Unreachable(_) if self.silent => return Ok(()),
                    news => self.receive(news)?,
                },
                line = self.lines.recv(), if !self.silent && self.connected.is_some() => match line {
                    Some(line) => self.pass_on(&line).await?,
                    None => self.silent = true,
                },
                _ = looks.tick() => self.look()?,
            }
        }
    }

    fn receive(&mut self, news: LinkEvent) -> anyhow::Result<()> {
        match news {
            LinkEvent::Connected => {
                self.connected = Some(Instant::now());
                self.say("connected to the server; questions will appear here\n")
            }
            LinkEvent::Said(message) => self.show(*message),
            LinkEvent::Gone => {
                self.connected = None;
                self.say("the server has gone; what waits is kept and will be shown again\n")?;
                for id in std::mem::take(&mut self.unsettled) {
                    self.say(&format!(
                        "{}: the server stopped before it confirmed the answer\n",
                        visible(&id)
                    ))?;
                }
                Ok(())
            }
            LinkEvent::Unreachable(error) => self.say(&format!(
                "no server answers ({error}); trying again until one does\n"
            )),
        }
    }

    /// Removes closed questions, and prints reminders of those about to expire.
    fn look(&mut self) -> anyhow::Result<()> {
        let Some(since) = self.connected else {
            return Ok(());
        };
        if since.elapsed() >= CONFIRMED_AFTER {
            self.board.forget_before(since);
        }
        let reminders = self.board.reminders(Instant::now());
        self.say(&reminders)
    }

    fn show(&mut self, message: FromServer) -> anyhow::Result<()> {
        match &message {
            FromServer::ApprovalClosed { id, .. } | FromServer::Error { id: Some(id), .. } => {
                self.unsettled.retain(|other| other != id);
            }
            // It may have been sent before the server knew our chats.
            FromServer::ApprovalRequest(words) if !self.serves(&words.chat_id) => return Ok(()),
            FromServer::Message { chat_id, .. } if !self.serves(chat_id) => return Ok(()),
            FromServer::ApprovalRequest(_)
            | FromServer::Message { .. }
            | FromServer::Error { .. }
            | FromServer::Hello { .. } => {}
        }
        let text = self.board.take(message, Instant::now());
        self.say(&text)
    }

    fn serves(&self, chat: &str) -> bool {
        self.chats.is_empty() || self.chats.contains(chat)
    }

    /// Sends a line to the server, if it is an answer. A lost connection is detected by the next read.
    async fn pass_on(&mut self, line: &str) -> anyhow::Result<()> {
        match self.board.receive(line, Instant::now()) {
            None => {}
            Some(Input::Invalid(why)) => self.say(&format!("{why}\n"))?,
            Some(Input::Answer(answer)) => {
                if let FromGateway::ApprovalResponse { id, .. } = &answer {
                    self.unsettled.push(id.clone());
                }
                self.link.say(&answer).await;
            }
        }
        Ok(())
    }

    fn say(&self, text: &str) -> anyhow::Result<()> {
        if !text.is_empty() {
            self.ui.out(text)?;
        }
        Ok(())
    }
}
