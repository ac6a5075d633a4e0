//! Files and processes of a sandbox.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use ringfence_exec::output::{Chunk, Stream as OutputStream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::error::{Error, Said};
use crate::exchange::{Answer, Call, Origin, Stream};
use crate::frames::{Frame, Frames, framed};

/// Timeout of a call that does not wait for a program.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Keep-alive interval of a stream without output, in seconds.
const KEEPALIVE: &str = "20";
/// Time without a message after which a stream counts as lost. Services that ignore the interval send one
/// every 90 seconds.
const SILENCE: Duration = Duration::from_secs(200);

const STREAMED: HeaderValue = HeaderValue::from_static("application/connect+json");

/// The files and processes of a sandbox.
#[derive(Debug)]
pub(crate) struct Envd {
    pub(crate) origin: Origin,
}

/// A process to start.
#[derive(Debug)]
pub(crate) struct NewProcess {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: serde_json::Map<String, Value>,
    pub(crate) directory: String,
    pub(crate) stdin: Stdin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stdin {
    Empty,
    Open,
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    stream: Stream,
    frames: Frames,
}

/// An event of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Started(u32),
    Output(Chunk),
    Alive,
    /// Exit status, or a negative signal; `None` if the service reports none.
    Ended(Option<i32>),
}

#[derive(Debug, Deserialize)]
struct Message {
    event: Option<WireEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireEvent {
    start: Option<WireStart>,
    data: Option<WireData>,
    end: Option<WireEnd>,
}

#[derive(Debug, Deserialize)]
struct WireStart {
    pid: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireData {
    stdout: Option<String>,
    stderr: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireEnd {
    exit_code: i32,
    exited: bool,
    status: String,
}

/// The end of a stream, and the error of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireError {
    error: Option<Box<Self>>,
    code: Value,
    message: String,
}

impl WireError {
    fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

impl Envd {
    /// Writes a file. Creates missing directories.
    pub(crate) async fn write(&self, path: &str, bytes: Vec<u8>) -> Result<(), Error> {
        let call = Call {
            method: Method::POST,
            path: format!("files?path={}", encoded(path)),
            headers: vec![(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/octet-stream"),
            )],
            body: bytes,
        };
        let answer = self.origin.ask(call, Instant::now() + TIMEOUT).await?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => Ok(()),
            _ => Err(refusal(&answer)),
        }
    }

    /// Starts a process.
    pub(crate) async fn start(&self, new: NewProcess) -> Result<Process, Error> {
        let message = json!({
            "process": {"cmd": new.command, "args": new.args, "envs": new.env, "cwd": new.directory},
            "stdin": new.stdin == Stdin::Open,
        });
        let ping = HeaderName::from_static("keepalive-ping-interval");
        let call = Call {
            method: Method::POST,
            path: "process.Process/Start".to_owned(),
            headers: vec![
                (header::CONTENT_TYPE, STREAMED),
                (ping, HeaderValue::from_static(KEEPALIVE)),
                version(),
            ],
            body: framed(message.to_string().as_bytes()),
        };
        let stream = self.origin.open(call, Instant::now() + TIMEOUT).await?;
        if stream.status != StatusCode::OK {
            let answer = timeout(TIMEOUT, stream.whole(64 * 1024)).await;
            return Err(answer.map_or(Error::Gone, |answer| {
                answer.map_or_else(|error| error, |answer| refusal(&answer))
            }));
        }
        if stream.headers.get(header::CONTENT_TYPE) != Some(&STREAMED) {
            return Err(Error::Protocol("a stream has another type"));
        }
        let mut process = Process {
            pid: 0,
            stream,
            frames: Frames::default(),
        };
        match process.next().await? {
            Event::Started(pid) => Ok(Process { pid, ..process }),
            Event::Output(_) | Event::Alive | Event::Ended(_) => {
                Err(Error::Protocol("a process does not begin with its start"))
            }
        }
    }

    /// Sends input to a process, as fast as it reads. Returns `false` if it reads no more.
    pub(crate) async fn send(&self, pid: u32, bytes: &[u8]) -> Result<bool, Error> {
        let input = json!({"process": {"pid": pid}, "input": {"stdin": STANDARD.encode(bytes)}});
        self.tell("SendInput", &input).await
    }

    /// Closes the input of a process.
    pub(crate) async fn close_stdin(&self, pid: u32) -> Result<bool, Error> {
        self.tell("CloseStdin", &json!({"process": {"pid": pid}})).await
    }

    /// Makes a call about a process. Returns `false` if the process has ended, or does not take part. The caller limits
    /// the time.
    async fn tell(&self, method: &str, message: &Value) -> Result<bool, Error> {
        let mut call = Call::json(Method::POST, format!("process.Process/{method}"), message);
        call.headers.push(version());
        let far = Instant::now() + Duration::from_secs(24 * 3600);
        let answer = self.origin.ask(call, far).await?;
        match answer.status {
            StatusCode::OK => Ok(true),
            StatusCode::BAD_GATEWAY => Err(refusal(&answer)),
            // The process is known no more, or has closed its end. Any other answer is a failure of the service.
            _ => match WireError::read(&answer.body).code.as_str() {
                Some("not_found" | "failed_precondition" | "internal") => Ok(false),
                _ => Err(refusal(&answer)),
            },
        }
    }
}

fn version() -> (HeaderName, HeaderValue) {
    let name = HeaderName::from_static("connect-protocol-version");
    (name, HeaderValue::from_static("1"))
}

/// Returns the error of an answer of a sandbox, or of the proxy before it.
fn refusal(answer: &Answer) -> Error {
    let error = WireError::read(&answer.body);
    let is_gone = answer.status == StatusCode::BAD_GATEWAY && error.message.contains("was not found");
    match (is_gone, error.code.as_str()) {
        (true, _) => Error::Gone,
        (false, Some("not_found" | "invalid_argument")) => Error::Program(Said::new(&error.message, "")),
        (false, _) => Error::Service {
            status: answer.status.as_u16(),
            said: Said::new(&error.message, ""),
        },
    }
}

impl Process {
    /// Returns the next event. After [`Event::Ended`] there is none.
    pub(crate) async fn next(&mut self) -> Result<Event, Error> {
        loop {
            match self.frames.next()? {
                Some(Frame::Message(message)) => match event(&message)? {
                    Event::Alive => continue,
                    event => return Ok(event),
                },
                Some(Frame::Last(message)) => return Err(broken_off(&message)),
                None => {}
            }
            let received = timeout(SILENCE, self.stream.next()).await;
            let bytes = received.map_err(|_| Error::Gone)??;
            // A stream ends with a last message.
            self.frames.push(&bytes.ok_or(Error::Gone)?);
        }
    }
}

/// Returns the error of a stream that ended before its process.
fn broken_off(message: &[u8]) -> Error {
    let last = WireError::read(message);
    let Some(error) = last.error else {
        return Error::Protocol("a stream ended before its process");
    };
    match error.code.as_str() {
        Some("not_found" | "invalid_argument") => Error::Program(Said::new(&error.message, "")),
        _ => Error::Service {
            status: 200,
            said: Said::new(&error.message, ""),
        },
    }
}

fn event(message: &[u8]) -> Result<Event, Error> {
    let message: Message = serde_json::from_slice(message)
        .map_err(|_| Error::Protocol("a message of a process is not JSON of its kind"))?;
    let WireEvent { start, data, end } = message.event.unwrap_or_default();
    if let Some(WireStart { pid }) = start {
        return Ok(Event::Started(pid));
    }
    if let Some(end) = end {
        return Ok(Event::Ended(status(&end)));
    }
    let (stream, text) = match data {
        Some(WireData {
            stdout: Some(text), ..
        }) => (OutputStream::Stdout, text),
        Some(WireData {
            stderr: Some(text), ..
        }) => (OutputStream::Stderr, text),
        Some(_) | None => return Ok(Event::Alive),
    };
    let bytes = STANDARD
        .decode(text)
        .map_err(|_| Error::Protocol("output is not base64"))?;
    Ok(Event::Output(Chunk { stream, bytes }))
}

/// Returns the exit status of a process, or its negative signal.
fn status(end: &WireEnd) -> Option<i32> {
    if end.exited {
        return (0..=255).contains(&end.exit_code).then_some(end.exit_code);
    }
    let name = end.status.strip_prefix("signal: ")?;
    let name = name.strip_suffix(" (core dumped)").unwrap_or(name);
    let number = SIGNALS.iter().find(|(known, _)| *known == name);
    let other = || name.strip_prefix("signal ")?.parse().ok();
    let number: i32 = number.map(|(_, number)| *number).or_else(other)?;
    (1..=64).contains(&number).then_some(-number)
}

/// Go's names of signals, as the daemon of a sandbox reports them.
const SIGNALS: &[(&str, i32)] = &[
    ("hangup", 1),
    ("interrupt", 2),
    ("quit", 3),
    ("illegal instruction", 4),
    ("trace/breakpoint trap", 5),
    ("aborted", 6),
    ("bus error", 7),
    ("floating point exception", 8),
    ("killed", 9),
    ("user defined signal 1", 10),
    ("segmentation fault", 11),
    ("user defined signal 2", 12),
    ("broken pipe", 13),
    ("alarm clock", 14),
    ("terminated", 15),
    ("CPU time limit exceeded", 24),
    ("file size limit exceeded", 25),
    ("bad system call", 31),
];

/// Encodes a path as the value of a query.
fn encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Event, String> {
        event(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn events_are_read_and_others_ignored() {
        let output = |stream, text: &str| {
            let bytes = text.as_bytes().to_vec();
            Ok(Event::Output(Chunk { stream, bytes }))
        };
        assert_eq!(read(r#"{"event":{"start":{"pid":7}}}"#), Ok(Event::Started(7)));
        let said = read(r#"{"event":{"data":{"stdout":"aGk="}}}"#);
        assert_eq!(said, output(OutputStream::Stdout, "hi"));
        let said = read(r#"{"event":{"data":{"stderr":"aGk="}}}"#);
        assert_eq!(said, output(OutputStream::Stderr, "hi"));
        for idle in [
            "{}",
            r#"{"event":{"keepalive":{}}}"#,
            r#"{"event":{"new":1},"more":2}"#,
        ] {
            assert_eq!(read(idle), Ok(Event::Alive), "{idle}");
        }
        for wrong in [
            "",
            "[]",
            r#"{"event":{"data":{"stdout":"?"}}}"#,
            r#"{"event":{"start":{}}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_end_is_a_status_or_a_signal_and_never_made_up() {
        let check = |end: &str, expected| {
            let text = format!(r#"{{"event":{{"end":{end}}}}}"#);
            assert_eq!(read(&text), Ok(Event::Ended(expected)), "{end}");
        };
        check(r#"{"exited":true,"status":"exit status 0"}"#, Some(0));
        check(r#"{"exitCode":139,"exited":true}"#, Some(139));
        check(
            r#"{"exitCode":-1,"exited":false,"status":"signal: killed"}"#,
            Some(-9),
        );
        check(
            r#"{"status":"signal: segmentation fault (core dumped)"}"#,
            Some(-11),
        );
        check(r#"{"status":"signal: signal 40"}"#, Some(-40));
        check(r#"{"status":"signal: signal 4000"}"#, None);
        check(r#"{"status":"signal: of love"}"#, None);
        check(r#"{"exitCode":70000,"exited":true}"#, None);
        check("{}", None);
    }

    #[test]
    fn a_path_is_one_value_of_a_query() {
        assert_eq!(encoded("/a b/é&x=1#?%"), "/a%20b/%C3%A9%26x%3D1%23%3F%25");
    }
}
