//! The process of a program: its command, its input and its output.

use ringfence_exec::local::{Chunk, Stream};
use ringfence_exec::output::{Captured, Captures};
use ringfence_policy::{Bytes, Language, Limits, Request};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::envd::{Envd, Event, NewProcess, Process, Stdin};
use crate::error::{Error, Said};

/// Directory that programs begin in.
pub(crate) const WORKSPACE: &str = "/workspace";
/// Path of the code.
const MAIN: &str = "/tmp/.ringfence/main";

/// Limit of input that is sent at once.
const MAX_INPUT: usize = 256 * 1024;

/// Output of a process, kept within bounds.
#[derive(Debug)]
pub(crate) struct OutputReader {
    captures: Captures,
    watcher: Option<mpsc::Sender<Chunk>>,
}

impl OutputReader {
    pub(crate) fn new(limits: &Limits, watcher: Option<mpsc::Sender<Chunk>>) -> Self {
        Self {
            captures: Captures::new(limits.max_output),
            watcher,
        }
    }

    /// Keeps a chunk, and passes it on. A slow caller blocks its own program.
    pub(crate) async fn take(&mut self, chunk: Chunk) {
        self.captures.push(chunk.stream, &chunk.bytes);
        if let Some(watcher) = &self.watcher
            && watcher.send(chunk).await.is_err()
        {
            self.watcher = None;
        }
    }

    pub(crate) fn finish(self) -> (Captured, Captured) {
        self.captures.finish()
    }
}

/// Returns the path of a program's code; `None` for a command.
pub(crate) fn main_file(language: Language) -> Option<String> {
    let extension = match language {
        Language::Python => "py",
        Language::Bash => "sh",
        Language::Javascript => "js",
        Language::Command => return None,
    };
    Some(format!("{MAIN}.{extension}"))
}

/// Returns the process that runs a request.
pub(crate) fn process(request: &Request, stdin: Stdin) -> NewProcess {
    let interpreter = match request.language {
        Language::Python => Some("python3"),
        Language::Bash => Some("/bin/bash"),
        Language::Javascript => Some("node"),
        Language::Command => None,
    };
    let words = interpreter.map(str::to_owned).into_iter();
    let mut words = words
        .chain(main_file(request.language))
        .chain(request.args.iter().cloned());
    let mut env = Map::new();
    if request.language == Language::Python {
        // Modules that came with the request lie there, and not beside the program.
        env.insert("PYTHONPATH".to_owned(), WORKSPACE.into());
    }
    for (name, value) in &request.env {
        env.insert(name.as_str().to_owned(), Value::from(value.as_str()));
    }
    let below = request.working_directory.as_ref();
    NewProcess {
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        env,
        directory: below.map_or(WORKSPACE.to_owned(), |below| {
            format!("{WORKSPACE}/{}", below.display())
        }),
        stdin,
    }
}

/// Follows a process to its end, and sends it its input. Returns its exit status, `None` if that is unknown.
pub(crate) async fn follow(
    envd: &Envd,
    mut process: Process,
    stdin: Option<mpsc::Receiver<Vec<u8>>>,
    reader: &mut OutputReader,
) -> Result<Option<i32>, Error> {
    let mut is_fed = stdin.is_none();
    let feeding = feed(envd, process.pid, stdin);
    tokio::pin!(feeding);
    loop {
        tokio::select! {
            event = process.next() => match event? {
                Event::Output(chunk) => reader.take(chunk).await,
                Event::Started(_) | Event::Alive => {}
                Event::Ended(status) => return Ok(status),
            },
            fed = &mut feeding, if !is_fed => {
                // Without its input a program would wait for ever.
                fed?;
                is_fed = true;
            }
        }
    }
}

/// Sends input to a process, to its end.
async fn feed(envd: &Envd, pid: u32, stdin: Option<mpsc::Receiver<Vec<u8>>>) -> Result<(), Error> {
    let Some(mut stdin) = stdin else { return Ok(()) };
    while let Some(mut input) = stdin.recv().await {
        while input.len() < MAX_INPUT
            && let Ok(more) = stdin.try_recv()
        {
            input.extend_from_slice(&more);
        }
        if !envd.send(pid, &input).await? {
            return Ok(());
        }
    }
    envd.close_stdin(pid).await.map(drop)
}

/// Output of a helper process, whose standard output is kept as bytes.
#[derive(Debug, Default)]
pub(crate) struct Produced {
    pub(crate) bytes: Vec<u8>,
    /// Set if there was more than the limit; the process was left.
    pub(crate) is_cut: bool,
    pub(crate) errors: String,
    pub(crate) status: Option<i32>,
}

impl Produced {
    /// Returns the errors as a service's words.
    pub(crate) fn said(&self) -> Said {
        Said::new(&self.errors, "")
    }
}

/// Runs one of Ringfence's shell scripts to its end, or until it has printed more than `limit`.
pub(crate) async fn script(envd: &Envd, script: &str, limit: u64) -> Result<Produced, Error> {
    let mut process = envd
        .start(NewProcess {
            command: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: Map::new(),
            directory: "/".to_owned(),
            stdin: Stdin::Empty,
        })
        .await?;
    let mut errors = Captures::new(Bytes::kib(4));
    let mut produced = Produced::default();
    loop {
        match process.next().await? {
            Event::Output(chunk) => match chunk.stream {
                Stream::Stdout => produced.bytes.extend_from_slice(&chunk.bytes),
                Stream::Stderr => errors.push(chunk.stream, &chunk.bytes),
            },
            Event::Started(_) | Event::Alive => {}
            Event::Ended(status) => {
                produced.status = status;
                break;
            }
        }
        if produced.bytes.len() as u64 > limit {
            produced.is_cut = true;
            break;
        }
    }
    produced.errors = errors.finish().1.text;
    Ok(produced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_a_file_and_a_command_its_words() {
        let mut request = Request::new(Language::Python, "1");
        request.args = vec!["-c".to_owned(), String::new()];
        let python = process(&request, Stdin::Empty);
        assert_eq!(python.command, "python3");
        assert_eq!(python.args, ["/tmp/.ringfence/main.py", "-c", ""]);
        assert_eq!(python.directory, "/workspace");
        request.language = Language::Command;
        request.args = vec!["ls".to_owned(), "-l".to_owned()];
        request.working_directory = Some("sub".into());
        let command = process(&request, Stdin::Empty);
        assert_eq!(
            (command.command.as_str(), &command.args[..]),
            ("ls", &["-l".to_owned()][..])
        );
        assert_eq!(command.directory, "/workspace/sub");
        assert!(command.env.is_empty());
    }
}
