//! A person's answer.

use ringfence_records::approval::{Answer, Error, Id, Remember, Service, Unanswerable, Verdict};
use ringfence_records::audit::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Reach, find};

/// A person's answer. It must name the digest of the text that the person was shown.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ApprovalAnswer")]
pub(crate) struct AnswerBody {
    approved: bool,
    /// The question's `digest`.
    #[schemars(with = "String")]
    digest: Digest,
    /// Time for which the answer holds: one of the question's `remember`; of a denial, `once` or `session`.
    #[serde(default)]
    #[schemars(with = "RememberSchema")]
    remember: Remember,
}

/// The schema of [`Remember`].
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Remember")]
#[expect(dead_code, reason = "describes a type of another crate")]
enum RememberSchema {
    /// This question alone.
    Once,
    /// The same question in this session.
    Session,
    /// So many more of the same in this session.
    Uses(u32),
    /// The same text from now on.
    Always,
}

/// An accepted answer.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AnsweredApproval")]
pub(crate) struct Accepted {
    id: String,
    approved: bool,
}

/// Answers the question of this id, if it is within reach. `by` names who answers, as others see it.
pub(crate) async fn answer(
    service: &Service,
    reach: &Reach,
    id: &str,
    said: AnswerBody,
    by: &str,
) -> Result<Accepted, Error> {
    let id: Id = id.parse().map_err(|_| Unanswerable::Unknown)?;
    let found = find(service, reach, &id).await?;
    let answer = Answer {
        id: id.clone(),
        verdict: match said.approved {
            true => Verdict::Approve,
            false => Verdict::Reject,
        },
        remember: said.remember,
        // Whoever reaches a question may answer it, whatever chat it is asked in.
        chat: found.ok_or(Unanswerable::Unknown)?.chat,
        digest: said.digest,
        by: by.to_owned(),
    };
    service.answer(answer).await?;
    Ok(Accepted {
        id: id.to_string(),
        approved: said.approved,
    })
}
