//! The records of the log: uses of tools, people's answers, repairs and removals of the log itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ringfence_policy::timestamp;
use serde::{Deserialize, Serialize, Serializer};

use super::arguments::{self, Arguments};
use super::digest::Digest;

/// Maximum length of names and identifiers, in bytes.
const MAX_NAME: usize = 256;
/// Maximum length of a judgement. It ends with the name of the decider, which a model's name must
/// not push out.
const MAX_JUDGEMENT: usize = 512;

/// Maximum length of a question's text.
const MAX_ASKED: usize = 4 * 1024;

/// Maximum number of connection attempts in a record.
pub const MAX_ATTEMPTS: usize = 20;

/// One use of a tool, from the request to its answer.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Time of the request.
    pub started: SystemTime,
    pub who: AuditedCaller<'a>,
    /// Requested tool; it need not exist.
    pub tool: &'a str,
    /// Redacted arguments.
    pub arguments: &'a Arguments,
    /// Hosts that the tool tried to reach, with the verdict on each.
    pub attempts: &'a [String],
    /// Verdict of the command policy, if one applies.
    pub judgement: Option<&'a str>,
    pub decision: Decision,
    pub outcome: Outcome,
    /// Kind of the error, if it failed.
    pub error: Option<&'a str>,
    pub duration: Duration,
    /// Digest of the answer, if there is one.
    pub result: Option<Digest>,
    /// Set for the begin and end of a host command, which the host log records, too.
    pub on_host: bool,
}

/// The caller of a tool.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct AuditedCaller<'a> {
    /// Owner of the files and interpreters.
    #[serde(serialize_with = "name")]
    pub scope: &'a str,
    /// Conversation.
    #[serde(serialize_with = "optional_name")]
    pub session: Option<&'a str>,
    /// Interface that received the call.
    #[serde(serialize_with = "name")]
    pub surface: &'a str,
    /// Client's name, as it claims.
    #[serde(serialize_with = "optional_name")]
    pub client: Option<&'a str>,
}

/// The admission of a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The tool ran.
    Allowed,
    /// The tool did not run.
    Refused,
}

/// The result of a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A host command begins. If no record of its end follows, its process died, and the result is unknown.
    Begun,
    /// The tool answered.
    Answered,
    /// The tool failed.
    Failed,
    /// The caller cancelled the call, or the server stopped.
    Cancelled,
}

/// The serialized form of an entry.
#[derive(Serialize)]
pub(super) struct Written<'a> {
    time: String,
    who: AuditedCaller<'a>,
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
            time: timestamp::rfc3339(entry.started),
            who: entry.who,
            tool: entry.tool,
            arguments: match entry.decision {
                Decision::Allowed => Cow::Borrowed(entry.arguments),
                // A refused use had no effect, and a caller could otherwise fill the log with the arguments
                // of such calls.
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

/// A person's answer to an approval request.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Answered<'a> {
    /// Id of the request.
    pub id: &'a str,
    /// Kind of the request.
    pub kind: &'a str,
    /// Digest of the text that the person was shown.
    pub digest: Digest,
    /// Redacted text of the request.
    #[serde(serialize_with = "text")]
    pub text: &'a str,
    /// Scope of the asker.
    #[serde(serialize_with = "name")]
    pub scope: &'a str,
    /// Session that the request belongs to.
    #[serde(serialize_with = "optional_name")]
    pub session: Option<&'a str>,
    /// Chat in which the request was asked.
    #[serde(serialize_with = "name")]
    pub chat: &'a str,
    pub approved: bool,
    /// Lifetime of the answer.
    #[serde(serialize_with = "name")]
    pub remember: &'a str,
    /// Person who answered.
    #[serde(serialize_with = "name")]
    pub by: &'a str,
}

/// The serialized form of an answer.
#[derive(Serialize)]
pub(super) struct WrittenAnswer<'a> {
    time: String,
    answer: &'a Answered<'a>,
}

impl<'a> WrittenAnswer<'a> {
    /// Timestamps an answer with the current time.
    pub(super) fn now(answer: &'a Answered<'a>) -> Self {
        let time = timestamp::rfc3339(SystemTime::now());
        Self { time, answer }
    }
}

/// Refused uses beyond the rate at which they are recorded one by one.
#[derive(Debug, Serialize)]
pub(super) struct Counted {
    time: String,
    refused: Count,
}

#[derive(Debug, Serialize)]
struct Count {
    scope: String,
    count: u64,
    since: String,
    /// Counts by kind of error.
    errors: BTreeMap<String, u64>,
}

impl Counted {
    /// Sums up the refused uses of a scope since a moment.
    pub(super) fn of(scope: &str, since: SystemTime, errors: BTreeMap<String, u64>) -> Self {
        Self {
            time: timestamp::rfc3339(SystemTime::now()),
            refused: Count {
                scope: arguments::fit(scope, MAX_NAME).to_owned(),
                count: errors.values().sum(),
                since: timestamp::rfc3339(since),
                errors,
            },
        }
    }
}

/// A record of the removal of the oldest records.
#[derive(Serialize)]
pub(super) struct Removal {
    time: String,
    removed: Removed,
}

/// The extent of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Sequence number of the newest removed record; all before it are removed, too.
    pub last: u64,
    /// Length of the files removed this time.
    pub bytes: u64,
}

impl Removal {
    /// Builds the record of a removal up to `last`, of files of `bytes` bytes.
    pub(super) fn of(last: u64, bytes: u64) -> Self {
        let time = timestamp::rfc3339(SystemTime::now());
        let removed = Removed { last, bytes };
        Self { time, removed }
    }
}

/// A record of the truncation of a torn line.
#[derive(Serialize)]
pub(super) struct Repair {
    time: String,
    repair: Torn,
}

/// The truncated bytes.
#[derive(Serialize)]
struct Torn {
    bytes: usize,
    digest: Digest,
    /// Beginning of the truncated bytes.
    text: String,
}

impl Repair {
    pub(super) fn of(torn: &[u8]) -> Self {
        /// Enough to identify the call.
        const MAX_TEXT: usize = 1024;
        Self {
            time: timestamp::rfc3339(SystemTime::now()),
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

/// Serializes the text of a question, which may be long.
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
