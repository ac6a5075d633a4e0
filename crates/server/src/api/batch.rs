//! `POST /v1/batch`: runs many programs, and answers with their results as they end.

use std::fmt;
use std::iter::{Enumerate, Peekable};
use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use hyper::body::{Buf, Bytes};
use ringfence_policy::RemoteRequest;
use schemars::JsonSchema;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::admission::Turn;
use super::content::Content;
use super::error::ApiError;
use super::keys::Grant;
use super::rights::Right;
use super::route::{Needs, Route};
use super::state::Api;
use super::{body, run, stream};

/// Maximum size of a batch. It is read in full before its first program runs: a client that sends all before it reads
/// would otherwise wait for us as we wait for it.
const MAX: usize = 64 * 1024 * 1024;

/// Programs of one batch at a time, for each processor: one runs while the next is prepared.
const EACH: usize = 2;

const BATCH: Content = Content::new(&[body::JSON, body::NDJSON], |generator| {
    generator.subschema_for::<Batch>()
});

const LINES: Content = Content::new(&[body::NDJSON], |_| {
    schemars::json_schema!({
        "type": "string",
        "description": "Lines of `{\"index\", \"result\"}` or `{\"index\", \"error\"}`, in the order in which the programs end.",
    })
});

pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        method: Method::POST,
        path: "/v1/batch",
        needs: Needs::Key(Right::Run),
        summary: "Run many programs, and answer with one line of JSON for each as it ends: its `index`, and its `result` or `error`.",
        recorded: None,
        parameters: &[],
        request: Some(BATCH.at_most(MAX)),
        answers: vec![LINES],
        handler: |method| on(method, batch),
    }]
}

/// Programs to run, each as `POST /v1/run` takes it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Batch {
    /// The programs. As `application/x-ndjson`, the body is one of them a line instead.
    #[schemars(with = "Vec<RemoteRequest>")]
    #[serde(deserialize_with = "bounded")]
    runs: Vec<Box<RawValue>>,
}

/// Programs of a batch in one document. As lines there may be any number, for they are found one by one.
const MAX_RUNS: usize = 50_000;

/// Finds at most [`MAX_RUNS`] programs. Each is parsed when its turn comes: parsed, it may take a hundred times its bytes.
fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<RawValue>>, D::Error> {
    struct Runs;
    impl<'de> Visitor<'de> for Runs {
        type Value = Vec<Box<RawValue>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX_RUNS} programs")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut runs = Vec::new();
            while let Some(run) = all.next_element()? {
                if runs.len() == MAX_RUNS {
                    return Err(serde::de::Error::invalid_length(MAX_RUNS + 1, &self));
                }
                runs.push(run);
            }
            Ok(runs)
        }
    }
    deserializer.deserialize_seq(Runs)
}

/// Maximum number of values in a batch of one document: twenty for each program.
const MAX_VALUES: usize = 20 * MAX_RUNS;

/// The texts of the programs that have not started, in order.
enum Waiting {
    Found(std::vec::IntoIter<Box<RawValue>>),
    Lines(Bytes),
}

impl Iterator for Waiting {
    type Item = Bytes;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Found(runs) => {
                let text: Box<str> = runs.next()?.into();
                Some(text.into_string().into())
            }
            Self::Lines(bytes) => {
                // Blank lines, at once: there may be millions.
                let blank = bytes.len() - bytes.trim_ascii_start().len();
                bytes.advance(blank);
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let line = bytes.split_to(end.map_or(bytes.len(), |end| end + 1));
                (!line.is_empty()).then_some(line)
            }
        }
    }
}

/// A batch under way. Dropping it cancels its programs.
struct UnderWay {
    api: Arc<Api>,
    grant: Arc<Grant>,
    waiting: Peekable<Enumerate<Waiting>>,
    running: JoinSet<String>,
    most: usize,
}

async fn batch(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, ApiError> {
    api.check_quota(&grant)?;
    let waiting = match body::read(request, &[body::JSON, body::NDJSON]).await? {
        (body::NDJSON, bytes) => Waiting::Lines(bytes),
        (_, bytes) => {
            let parse = |bytes: &[u8]| body::parse_object(bytes, MAX_VALUES);
            let batch: Batch = body::off_thread(bytes, parse).await?;
            Waiting::Found(batch.runs.into_iter())
        }
    };
    let under_way = UnderWay {
        api,
        grant,
        waiting: waiting.enumerate().peekable(),
        running: JoinSet::new(),
        most: EACH * std::thread::available_parallelism().map_or(1, NonZero::get),
    };
    let body = stream::body(under_way, |under_way| Box::pin(next(under_way)));
    Ok(([(header::CONTENT_TYPE, body::NDJSON)], body).into_response())
}

/// Starts as many programs as may run, and returns the line of the next that ends.
///
/// No turn outlives a call: a client that does not read a line would keep one that came meanwhile.
async fn next(mut batch: UnderWay) -> Option<(Bytes, UnderWay)> {
    let mut waits: Option<NextTurn> = None;
    loop {
        let has_room = batch.running.len() < batch.most;
        let has_more = has_room && batch.waiting.peek().is_some();
        let next = match (&mut waits, has_more) {
            (_, false) => None,
            (Some(turn), true) => Some(turn),
            (none, true) => Some(none.insert(wait(&batch.api, &batch.grant))),
        };
        let turn = tokio::select! {
            biased;
            Some(turn) = async { Some(next?.await) } => turn,
            Some(line) = batch.running.join_next() => {
                // A call that panicked is an error of its line; the task that waits for it does nothing else.
                return Some((line.unwrap_or_default().into(), batch));
            }
            else => return None,
        };
        waits = None;
        if let Some((index, run)) = batch.waiting.next() {
            batch.start(index, run, turn);
        }
    }
}

type NextTurn = Pin<Box<dyn Future<Output = Result<Turn, ApiError>> + Send>>;

/// Waits for a turn. The others of the batch wait behind it, so that a batch has one place in the queue of its key.
fn wait(api: &Arc<Api>, grant: &Arc<Grant>) -> NextTurn {
    let (api, grant) = (Arc::clone(api), Arc::clone(grant));
    Box::pin(async move { api.admission.enter_from_batch(&grant).await })
}

impl UnderWay {
    fn start(&mut self, index: usize, program: Bytes, turn: Result<Turn, ApiError>) {
        let (api, grant) = (Arc::clone(&self.api), Arc::clone(&self.grant));
        self.running.spawn(async move {
            let answered = async {
                let arguments = body::parse_off_thread(program).await?;
                let used = api.used(&grant, run::TOOL, arguments, turn?)?;
                api.invocations.start(used).answer().await
            };
            match answered.await {
                // The text is the result's JSON, on one line.
                Ok(answer) => format!("{{\"index\":{index},\"result\":{}}}\n", answer.text),
                Err(error) => failed(index, &run::of_body(error)),
            }
        });
    }
}

fn failed(index: usize, error: &ApiError) -> String {
    let mut line = error.to_json();
    line["index"] = index.into();
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[tokio::test]
    async fn lines_are_read_one_by_one_and_a_bad_one_costs_itself_only() {
        let text = Bytes::from_static(b"{\"code\":\"1\"}\n\n  \r\nnot\n{\"code\":\"2\"}\n \n");
        let mut told = Vec::new();
        for program in Waiting::Lines(text) {
            let arguments: Option<Value> = body::parse_off_thread(program).await.ok();
            told.push(arguments.map(|arguments| arguments["code"].as_str().unwrap().to_owned()));
        }
        assert_eq!(told, [Some("1".to_owned()), None, Some("2".to_owned())]);
    }

    #[test]
    fn a_line_of_an_error_has_its_index() {
        let line = failed(7, &ApiError::unknown_path());
        assert!(line.ends_with("}\n"));
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&line["index"], &line["error"]["type"]),
            (&7.into(), &"not_found".into())
        );
    }
}
