//! Reviews a command line that no list allows: a model scores it, and a person is asked.

use std::path::Path;

use ringfence_exec::supervise::cancellation;
use ringfence_network::egress::AttemptLog;
use ringfence_policy::cascade::{Authority, Decision, Stage};

use super::{Approvals, Call, ErrorKind, Questions, ToolError};
use crate::host::{
    HostSettings, MAX_LASTING_RISK, PARTIAL, PathIdentity, Risk, is_blind, is_computed, may_last,
};
use ringfence_records::approval::{self, CommandContext, Kind, Lasting, Question};

/// The circumstances of a command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReviewInfo<'a> {
    pub(crate) directory: &'a Path,
    /// Identities of the files that its words name.
    pub(crate) named: &'a PathIdentity,
    /// Set if the command line's programs execute configuration in that directory that an agent could have
    /// written.
    pub(crate) obeys: bool,
}

impl Call<'_> {
    /// Records the verdict of the policy on a line, for the audit log.
    pub(crate) fn judged(&self, decision: &Decision) {
        self.recording
            .notes()
            .judged(Risk::of(decision, None).recorded(decision));
    }

    /// Resolves once a model or a person allows the line.
    pub(crate) async fn review(
        &self,
        line: &str,
        decision: &Decision,
        around: ReviewInfo<'_>,
    ) -> Result<Authority, ToolError> {
        let host = self.host()?;

        let risk = self.risk(host, line, decision).await?;
        let record = risk.recorded(decision);
        let note = |by: &str| self.recording.notes().judged(format!("{record}; {by}"));
        if risk.is_let_run() {
            note("let run by the model");
            return Ok(Authority::Policy);
        }
        note("nobody has answered");
        let notes = self.recording.notes();
        notes.asked(true);
        let (said, result) = explained_decision(self.ask_about(line, around, decision, &risk).await?, host);
        note(&said);
        notes.asked(result.is_err());
        result.map(|()| Authority::Person)
    }

    /// Asks the model if its score can make a difference. If the floor decides, the command is not sent to
    /// the model.
    async fn risk(&self, host: &HostSettings, line: &str, decision: &Decision) -> Result<Risk, ToolError> {
        let mut risk = Risk::of(decision, host.rules.threshold);
        if let (Stage::PreValidation, Some(assessor)) = (decision.stage, &host.assessor) {
            let log = AttemptLog::default();
            let score = tokio::select! {
                score = assessor.score(line, decision, &log) => score,
                () = cancellation(self.cancelled.clone()) => return Err(ToolError::cancelled()),
            };
            self.tried(&log.attempts());
            risk.assessed(assessor.model(), score);
        }
        Ok(risk)
    }

    /// Asks a person to approve a line for the host, and waits for the decision.
    async fn ask_about(
        &self,
        line: &str,
        around: ReviewInfo<'_>,
        decision: &Decision,
        risk: &Risk,
    ) -> Result<approval::Decision, ToolError> {
        let host = self.host()?;
        let Some(Approvals { service, chat }) = &self.toolbox.approvals else {
            return Err(ToolError::new(
                ErrorKind::PermissionDenied,
                "the command needs a person's approval, and there is nobody to ask",
                "use a command that the user's lists allow",
            ));
        };
        let unbound = around.obeys || around.named.is_partial() || is_computed(line, decision);
        let lasting = match may_last(decision) && risk.value() < MAX_LASTING_RISK {
            _ if unbound => Lasting::Once,
            true => Lasting::Offered,
            false => Lasting::Never,
        };
        let reads = !is_blind(decision);
        let place = CommandContext {
            directory: around.directory.display().to_string(),
            files: reads.then(|| around.named.digest()),
            contents: around.named.contents().filter(|_| reads),
        };
        let question = Question {
            kind: Kind::Command {
                reasons: risk
                    .reason()
                    .into_iter()
                    .chain(decision.reasons.clone())
                    .chain([format!("it starts in {}", place.directory)])
                    .chain(around.named.is_partial().then(|| PARTIAL.to_owned()))
                    .collect(),
                risk: Some(risk.value()),
                lasting,
                place,
            },
            text: line.to_owned(),
            scope: self.caller.scope.clone(),
            session: self.caller.session.clone(),
            chat: chat.clone(),
            patience: host.patience,
        };
        let questions = self.questions.as_ref().map(Questions::sender);
        let asked = tokio::select! {
            asked = service.ask_with(question, questions) => asked,
            () = cancellation(self.cancelled.clone()) => return Err(ToolError::cancelled()),
        };
        asked.map_err(|error| {
            let message = format!("nobody could be asked: {error}");
            let hint = error.hint();
            ToolError::new(ToolError::from(error).kind, message, hint)
        })
    }
}

/// Converts a person's decision for the audit log and for the tool.
fn explained_decision(answer: approval::Decision, host: &HostSettings) -> (String, Result<(), ToolError>) {
    match answer {
        approval::Decision::Approved { by } => (format!("approved by {by}"), Ok(())),
        approval::Decision::Rejected { by } => (
            format!("rejected by {by}"),
            Err(ToolError::new(
                ErrorKind::Rejected,
                format!("the command was rejected by the user ({by})"),
                "do not ask for it again; say what it was for, and go on without it",
            )),
        ),
        approval::Decision::Dismissed { by } => (
            format!("{by} gave no answer"),
            Err(ToolError::new(
                ErrorKind::ApprovalTimeout,
                format!(
                    "the approval timed out: {by} was asked and gave no answer, and nobody else is there to ask"
                ),
                "go on without it, or ask again when the user is back",
            )),
        ),
        approval::Decision::Expired => (
            "nobody answered".to_owned(),
            Err(ToolError::new(
                ErrorKind::ApprovalTimeout,
                format!("the approval timed out: nobody answered within {}", host.patience),
                "go on without it, or ask again when the user is back",
            )),
        ),
    }
}
