//! Operations on one sandbox, with the caller's own standard streams and files.

use std::io::{self, Read, Write};

use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client::{Body, Client, Error, query};
use super::events::Events;

/// Length of one piece of input or of a file, in bytes.
pub(crate) const PIECE: usize = 64 * 1024;
/// Bytes that are kept of the end of a standard error.
const ERRORS: usize = 16 * 1024;
/// Pieces that wait to be sent.
pub(crate) const UNSENT: usize = 16;

/// A sandbox of the server.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub(crate) client: Client,
    /// Id or name.
    name: String,
    /// User on whose behalf the caller acts.
    user: Option<String>,
}

/// The caller's input for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Nothing: the process has an empty input.
    None,
    /// Standard input until its end.
    Stdin,
    /// The caller's terminal, every key of it.
    Terminal,
}

/// The end of a process or of code, as the server describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended(pub Value);

impl Ended {
    /// Returns the exit status as a shell has it: 124 at a timeout, 128 + N for the signal N, 125 if it is unknown.
    pub fn status(&self) -> u8 {
        let code = self.0["exit_code"].as_i64().unwrap_or(125);
        match (self.0["outcome"].as_str(), code) {
            (Some("timed_out"), _) => 124,
            (_, signal @ -127..=-1) => (128 - signal) as u8,
            (_, status @ 0..=255) => status as u8,
            _ => 125,
        }
    }
}

impl Sandbox {
    pub const fn new(client: Client, name: String, user: Option<String>) -> Self {
        Self { client, name, user }
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the path of an operation of this sandbox.
    pub(crate) fn path(&self, operation: &str, parameters: &[(&str, &str)]) -> String {
        let mut all = parameters.to_vec();
        if let Some(user) = &self.user {
            all.push(("user", user));
        }
        let mut path = "/v1/sandboxes/".to_owned();
        super::client::encode(&self.name, &mut path);
        query(&(path + operation), &all)
    }

    /// Returns the sandbox's description.
    ///
    /// # Errors
    /// If there is no server, or no such sandbox.
    pub async fn info(&self) -> Result<Value, Error> {
        self.client
            .json(Method::GET, &self.path("", &[]), Body::Empty)
            .await
    }

    /// Ends the sandbox.
    ///
    /// # Errors
    /// If there is no server, or no such sandbox.
    pub async fn remove(&self) -> Result<(), Error> {
        self.client
            .order(Method::DELETE, &self.path("", &[]), Body::Empty)
            .await
    }

    /// Sets the seconds until the sandbox expires, from now on. Returns its description.
    ///
    /// # Errors
    /// If there is no such sandbox, or the time is too long.
    pub async fn set_timeout(&self, seconds: f64) -> Result<Value, Error> {
        let path = self.path("/timeout", &[]);
        self.client.post(&path, &json!({ "timeout": seconds })).await
    }

    /// Replaces the hosts that its programs may reach; connections to others are closed. Returns its description.
    ///
    /// # Errors
    /// If there is no such sandbox, or it was created without a network and without ports.
    pub async fn set_network(&self, allowed_hosts: &[String]) -> Result<Value, Error> {
        let path = self.path("/network", &[]);
        let body = Body::Json(json!({ "allowed_hosts": allowed_hosts }));
        self.client.json(Method::PUT, &path, body).await
    }

    /// Stops the sandbox's processes until [`Sandbox::resume`]. Returns its description.
    ///
    /// # Errors
    /// If there is no such sandbox, or the server's machine has no freezer.
    pub async fn pause(&self) -> Result<Value, Error> {
        let path = self.path("/pause", &[]);
        self.client.json(Method::POST, &path, Body::Empty).await
    }

    /// Continues the sandbox's processes. Returns its description.
    ///
    /// # Errors
    /// If there is no such sandbox.
    pub async fn resume(&self) -> Result<Value, Error> {
        let path = self.path("/resume", &[]);
        self.client.json(Method::POST, &path, Body::Empty).await
    }

    /// Copies the sandbox's files into new sandboxes; one may have a name. Returns the descriptions of the copies.
    ///
    /// # Errors
    /// If there is no such sandbox, or its files are more than a copy may be.
    pub async fn fork(&self, count: u32, name: Option<&str>) -> Result<Value, Error> {
        let path = self.path("/fork", &[]);
        self.client
            .post(&path, &json!({ "count": count, "name": name }))
            .await
    }

    /// Stores the sandbox's files as a snapshot. Returns its description.
    ///
    /// # Errors
    /// If there is no such sandbox, or there is no room.
    pub async fn snapshot(&self, name: Option<&str>) -> Result<Value, Error> {
        let path = self.path("/snapshots", &[]);
        self.client.post(&path, &json!({ "name": name })).await
    }

    /// Returns the sandbox's processes.
    ///
    /// # Errors
    /// If there is no server, or no such sandbox.
    pub async fn processes(&self) -> Result<Vec<Value>, Error> {
        let path = self.path("/processes", &[]);
        let told: Value = self.client.json(Method::GET, &path, Body::Empty).await?;
        Ok(told["processes"].as_array().cloned().unwrap_or_default())
    }

    /// Runs code in a context, as `POST …/run` describes it, and streams its output to this process's.
    /// Returns the execution, with the end of its standard error as `stderr`.
    ///
    /// # Errors
    /// If there is no such sandbox or context, or the connection breaks.
    pub async fn run(&self, code: &Value) -> Result<Ended, Error> {
        let path = self.path("/run", &[]);
        let accept = Some("text/event-stream");
        let events = self
            .client
            .send(Method::POST, &path, Body::of(code)?, accept)
            .await?;
        let mut errors = Vec::new();
        let written = follow(Events::of(events), |stream, bytes| {
            if stream == Stream::Stderr {
                errors.extend_from_slice(bytes);
                errors.drain(..errors.len().saturating_sub(ERRORS));
            }
            write(stream, bytes)
        });
        let mut ended = written.await?;
        ended.0["stderr"] = String::from_utf8_lossy(&errors).into();
        Ok(ended)
    }

    /// Runs code in a context, and returns the execution with its output.
    ///
    /// # Errors
    /// If there is no such sandbox or context.
    pub async fn run_collected(&self, code: &Value) -> Result<Value, Error> {
        self.client.post(&self.path("/run", &[]), code).await
    }

    /// Runs a process to its end, and returns it with its output.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn exec_collected(&self, process: &Value) -> Result<Value, Error> {
        self.client.post(&self.path("/exec", &[]), process).await
    }

    /// Lists a directory: a page, whose `next` is `after` of the next one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn list(&self, path: &str, depth: u32, after: Option<&str>) -> Result<Value, Error> {
        let depth = depth.to_string();
        let mut parameters = vec![("path", path), ("depth", &*depth)];
        parameters.extend(after.map(|after| ("after", after)));
        let path = self.path("/files/list", &parameters);
        self.client.json(Method::GET, &path, Body::Empty).await
    }

    /// Describes a file. A link is not followed.
    ///
    /// # Errors
    /// If there is none, or it is out of reach.
    pub async fn stat(&self, path: &str) -> Result<Value, Error> {
        self.client
            .get(&self.path("/files/stat", &[("path", path)]))
            .await
    }

    /// Copies a file of the sandbox to a writer, which is opened once the file is known to be there.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub async fn download<W: Write>(
        &self,
        path: &str,
        open: impl FnOnce() -> io::Result<W>,
    ) -> Result<u64, Error> {
        let path = self.path("/files", &[("path", path)]);
        let mut response = self.client.send(Method::GET, &path, Body::Empty, None).await?;
        let mut to = open().map_err(Error::Output)?;
        let mut bytes = 0;
        while let Some(piece) = response.piece().await? {
            to.write_all(&piece).map_err(Error::Output)?;
            bytes += piece.len() as u64;
        }
        to.flush().map_err(Error::Output)?;
        Ok(bytes)
    }

    /// Stores the content of a reader as a file of the sandbox. `mode` is its permission bits, if not the usual ones.
    ///
    /// # Errors
    /// If it cannot be stored.
    pub async fn upload(
        &self,
        from: impl Read + Send + 'static,
        path: &str,
        size: Option<u64>,
        mode: Option<u32>,
    ) -> Result<Value, Error> {
        let size = size.map(|size| size.to_string());
        let mode = mode.map(|mode| format!("{mode:o}"));
        let mut parameters = vec![("path", path)];
        parameters.extend(size.as_deref().map(|size| ("size", size)));
        parameters.extend(mode.as_deref().map(|mode| ("mode", mode)));
        let path = self.path("/files", &parameters);
        self.client
            .json(Method::PUT, &path, Body::Stream(pieces(from)))
            .await
    }

    /// Makes, moves or removes files: an operation of `/files` with a body.
    ///
    /// # Errors
    /// If it fails.
    pub async fn change(&self, operation: &str, body: &Value) -> Result<Value, Error> {
        self.client
            .post(&self.path(&format!("/files/{operation}"), &[]), body)
            .await
    }

    /// Removes a file or directory with everything in it.
    ///
    /// # Errors
    /// If it fails.
    pub async fn delete(&self, path: &str) -> Result<(), Error> {
        let path = self.path("/files", &[("path", path)]);
        self.client.order(Method::DELETE, &path, Body::Empty).await
    }
}

/// Reads on a thread of its own, which ends with the input or its reader.
pub(crate) fn pieces(mut from: impl Read + Send + 'static) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(UNSENT);
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        loop {
            let read = match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => Ok(buffer[..count].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let broken = read.is_err();
            if sender.blocking_send(read).is_err() || broken {
                return;
            }
        }
    });
    receiver
}

/// The streams that output goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

pub(super) fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Stderr => io::stderr().write_all(bytes),
    }
}

/// A line for a result of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownResult {
    /// Its text.
    Text(String),
    /// The types of one that has no text.
    NoText(Vec<String>),
}

impl Ended {
    /// Returns what code has displayed, and the value of its last expression, in order.
    pub fn shown_results(&self) -> Vec<ShownResult> {
        let mut value = self.0["value"].as_str();
        let results = self.0["results"].as_array().into_iter().flatten();
        let mut shown: Vec<ShownResult> = results
            .map(|result| {
                let own = match result["main"] == true {
                    true => value.take(),
                    false => None,
                };
                match own.or_else(|| result["data"]["text/plain"].as_str()) {
                    Some(text) => ShownResult::Text(text.to_owned()),
                    None => ShownResult::NoText(types(result)),
                }
            })
            .collect();
        shown.extend(value.map(|value| ShownResult::Text(value.to_owned())));
        shown
    }
}

/// Returns the types of a result, also of what was left out of it.
fn types(result: &Value) -> Vec<String> {
    let of = |member: &str| {
        result[member]
            .as_object()
            .into_iter()
            .flat_map(|types| types.keys())
    };
    let all = of("data").chain(of("omitted"));
    all.filter(|name| *name != DISPLAY).cloned().collect()
}

/// The mark of a result that can be updated, among its types.
const DISPLAY: &str = "application/vnd.ringfence.display+json";

/// Passes output on until the end.
pub(super) async fn follow(
    mut events: Events,
    mut out: impl FnMut(Stream, &[u8]) -> io::Result<()>,
) -> Result<Ended, Error> {
    while let Some(event) = events.next().await? {
        let stream = match event.name.as_str() {
            "stdout" => Stream::Stdout,
            "stderr" => Stream::Stderr,
            "end" => return Ok(Ended(event.data)),
            "error" => return Err(Error::refused(&event.data)),
            _ => continue,
        };
        out(stream, &event.output()).map_err(Error::Output)?;
    }
    Err(Error::Broken("the stream of events broke off".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_the_status_of_a_shell() {
        let check = |outcome: &str, code: i64, expected: u8| {
            let ended = Ended(json!({"outcome": outcome, "exit_code": code}));
            assert_eq!(ended.status(), expected, "{ended:?}");
        };
        check("exited", 0, 0);
        check("exited", 255, 255);
        check("signalled", -11, 139);
        check("timed_out", -1, 124);
        check("memory_exceeded", -9, 137);
        check("unknown", 125, 125);
        check("exited", 256, 125);
    }

    #[test]
    fn results_are_shown_in_order_with_the_value_at_its_place() {
        let check = |execution: Value, expected: &[ShownResult]| {
            assert_eq!(Ended(execution).shown_results(), expected);
        };
        let text = |text: &str| ShownResult::Text(text.to_owned());
        let displayed =
            json!({"main": false, "data": {"text/plain": "2", DISPLAY: {"id": "a", "update": false}}});
        check(json!({}), &[]);
        check(
            json!({"value": "3", "results": [displayed]}),
            &[text("2"), text("3")],
        );
        let main = json!({"main": true, "data": {"text/plain": "cut", "image/png": "="}});
        check(
            json!({"value": "3", "results": [main, displayed]}),
            &[text("3"), text("2")],
        );
        let page =
            json!({"main": true, "data": {"text/html": "<p>", DISPLAY: {}}, "omitted": {"image/png": 9}});
        check(
            json!({"results": [page]}),
            &[ShownResult::NoText(vec![
                "text/html".to_owned(),
                "image/png".to_owned(),
            ])],
        );
    }
}
