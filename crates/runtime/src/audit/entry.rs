//! The records of the log: uses of tools, people's answers, and what became of the log itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize, Serializer};

use super::arguments::{self, Arguments};
use super::line::Digest;
use crate::clock;

/// Names and identifiers are cut behind this many bytes.
const MAX_NAME: usize = 256;
/// It ends with who decided, whose name must not be lost behind that of a model.
const MAX_JUDGEMENT: usize = 512;

/// The text of a question is cut behind this many bytes.
const MAX_ASKED: usize = 4 * 1024;

/// How many attempts to reach a host a record names.
pub(crate) const MAX_ATTEMPTS: usize = 20;

/// One use of a tool, from the request to its answer.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// When it was asked for.
    pub started: SystemTime,
    /// By whom.
    pub who: Who<'a>,
    /// The tool that was named; it need not exist.
    pub tool: &'a str,
    /// What it was given, without credentials.
    pub arguments: &'a Arguments,
    /// The hosts that it tried to reach, and what came of each.
    pub attempts: &'a [String],
    /// What the policy said of it, if it is one for a policy.
    pub judgement: Option<&'a str>,
    /// Whether it was let run.
    pub decision: Decision,
    /// What came of it.
    pub outcome: Outcome,
    /// The kind of error, if it was one.
    pub error: Option<&'a str>,
    /// How long it took.
    pub duration: Duration,
    /// The digest of the answer, if there was one.
    pub result: Option<Digest>,
    /// It is a command on this machine itself that begins, or began: the host log has it, too.
    pub on_host: bool,
}

/// Who uses a tool.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Who<'a> {
    /// Whose files and interpreters they are.
    #[serde(serialize_with = "name")]
    pub scope: &'a str,
    /// The conversation.
    #[serde(serialize_with = "optional_name")]
    pub session: Option<&'a str>,
    /// Where the invocation came in.
    #[serde(serialize_with = "name")]
    pub surface: &'a str,
    /// What the client says that it is.
    #[serde(serialize_with = "optional_name")]
    pub client: Option<&'a str>,
}

/// Whether a tool was let run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It ran.
    Allowed,
    /// It did not.
    Refused,
}

/// What came of a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A command on the host begins. Where no record of its end follows, whoever ran it died, and its end is unknown.
    Begun,
    /// The tool answered.
    Answered,
    /// There was an error instead of an answer.
    Failed,
    /// The caller took the invocation back.
    Cancelled,
}

/// An entry as it is written.
#[derive(Serialize)]
pub(super) struct Written<'a> {
    time: String,
    who: Who<'a>,
    #[serde(serialize_with = "name")]
    tool: &'a str,
    #[serde(flatten)]
    arguments: Cow<'a, Arguments>,
    #[serde(skip_serializing_if = "<[String]>::is_empty", serialize_with = "names")]
    attempts: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "judgement")]
    judgement: Option<&'a str>,
    decision: Decision,
    outcome: Outcome,
    #[serde(serialize_with = "optional_name")]
    error: Option<&'a str>,
    duration_micros: u64,
    result_digest: Option<Digest>,
}

impl<'a> From<&Entry<'a>> for Written<'a> {
    fn from(entry: &Entry<'a>) -> Self {
        Self {
            time: clock::rfc3339(entry.started),
            who: entry.who,
            tool: entry.tool,
            arguments: match entry.decision {
                Decision::Allowed => Cow::Borrowed(entry.arguments),
                // Nothing came of it, and whoever sends such calls could fill the log with their arguments.
                Decision::Refused => Cow::Owned(entry.arguments.brief()),
            },
            attempts: entry.attempts,
            judgement: entry.judgement,
            decision: entry.decision,
            outcome: entry.outcome,
            error: entry.error,
            duration_micros: u64::try_from(entry.duration.as_micros()).unwrap_or(u64::MAX),
            result_digest: entry.result,
        }
    }
}

/// What a person answered.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Answered<'a> {
    /// The question.
    pub id: &'a str,
    /// What kind of question it is.
    pub kind: &'a str,
    /// The digest of the question, which the person was shown.
    pub digest: Digest,
    /// What was asked about, without credentials.
    #[serde(serialize_with = "text")]
    pub text: &'a str,
    /// Who asked.
    #[serde(serialize_with = "name")]
    pub scope: &'a str,
    /// In which conversation.
    #[serde(serialize_with = "optional_name")]
    pub session: Option<&'a str>,
    /// Where the person was asked.
    #[serde(serialize_with = "name")]
    pub chat: &'a str,
    /// Whether the answer was yes.
    pub approved: bool,
    /// How long it holds.
    #[serde(serialize_with = "name")]
    pub remember: &'a str,
    /// Who answered.
    #[serde(serialize_with = "name")]
    pub by: &'a str,
}

/// A person's answer as it is written.
#[derive(Serialize)]
pub(super) struct WrittenAnswer<'a> {
    time: String,
    answer: &'a Answered<'a>,
}

impl<'a> WrittenAnswer<'a> {
    /// An answer that is given at this moment.
    pub(super) fn now(answer: &'a Answered<'a>) -> Self {
        let time = clock::rfc3339(SystemTime::now());
        Self { time, answer }
    }
}

/// Refused uses that came faster than they are recorded one by one.
#[derive(Debug, Serialize)]
pub(super) struct Counted {
    time: String,
    refused: Count,
}

/// How many there were.
#[derive(Debug, Serialize)]
struct Count {
    scope: String,
    count: u64,
    since: String,
    /// How many by kind of error.
    errors: BTreeMap<String, u64>,
}

impl Counted {
    /// So many uses of a scope since a moment.
    pub(super) fn of(scope: &str, since: SystemTime, errors: BTreeMap<String, u64>) -> Self {
        Self {
            time: clock::rfc3339(SystemTime::now()),
            refused: Count {
                scope: arguments::fit(scope, MAX_NAME).to_owned(),
                count: errors.values().sum(),
                since: clock::rfc3339(since),
                errors,
            },
        }
    }
}

/// That the oldest records were removed to make room.
#[derive(Serialize)]
pub(super) struct Removal {
    time: String,
    removed: Removed,
}

/// What was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// The newest record that was; with it, all before.
    pub last: u64,
    /// How long the files were that were removed this time.
    pub bytes: u64,
}

impl Removal {
    /// The records up to `last` are removed, files of so many bytes this time.
    pub(super) fn of(last: u64, bytes: u64) -> Self {
        let time = clock::rfc3339(SystemTime::now());
        let removed = Removed { last, bytes };
        Self { time, removed }
    }
}

/// That the torn end of a file was cut off.
#[derive(Serialize)]
pub(super) struct Repair {
    time: String,
    repair: Torn,
}

/// What was cut off.
#[derive(Serialize)]
struct Torn {
    bytes: usize,
    digest: Digest,
    /// Its beginning.
    text: String,
}

impl Repair {
    /// That `torn` was cut off.
    pub(super) fn of(torn: &[u8]) -> Self {
        /// Enough to see which invocation it was.
        const MAX_TEXT: usize = 1024;
        Self {
            time: clock::rfc3339(SystemTime::now()),
            repair: Torn {
                bytes: torn.len(),
                digest: Digest::of(torn),
                text: arguments::fit(&String::from_utf8_lossy(torn), MAX_TEXT).to_owned(),
            },
        }
    }
}

fn name<S: Serializer>(name: &&str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(arguments::fit(name, MAX_NAME))
}

/// The text of a question, which may be long.
fn text<S: Serializer>(text: &&str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(arguments::fit(text, MAX_ASKED))
}

fn names<S: Serializer>(names: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        names
            .iter()
            .take(MAX_ATTEMPTS)
            .map(|name| arguments::fit(name, MAX_NAME)),
    )
}

fn judgement<S: Serializer>(judgement: &Option<&str>, serializer: S) -> Result<S::Ok, S::Error> {
    let fit = judgement.map(|judgement| arguments::fit(judgement, MAX_JUDGEMENT));
    fit.serialize(serializer)
}

fn optional_name<S: Serializer>(name: &Option<&str>, serializer: S) -> Result<S::Ok, S::Error> {
    name.map(|name| arguments::fit(name, MAX_NAME))
        .serialize(serializer)
}
