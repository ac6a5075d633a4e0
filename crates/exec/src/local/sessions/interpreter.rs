//! A session's interpreter: the guest, the request it was created for, and the assembly of results.

use std::sync::Arc;

use ringfence_policy::{ExecutionResult, Language, Limits, Request, SessionFacts, SessionId};

use super::super::exchange::Exchange;
use super::super::guest::{Guest, LimitScope};
use super::super::launcher::Exit;
use super::super::launcher_state::{LauncherState, SessionOrigin, Start, clear_up};
use super::super::notice;
use super::super::result::{add_groups, assemble, collect};
use super::super::session_error::Error;
use super::super::settings::Fence;
use super::ending::Reason;
use super::evaluation::Evaluated;
use super::evaluation_call::EvaluationCall;
use crate::output;

/// A session's interpreter.
#[derive(Debug)]
pub(in super::super) struct Interpreter {
    pub(in super::super) guest: Guest,
    pub(in super::super) served: Arc<LauncherState>,
    pub(in super::super) origin: SessionOrigin,
    /// Request that the interpreter was created for, without its code. Its timeout is the session's lifetime.
    pub(in super::super) made_for: Request,
    pub(in super::super) fence: Fence,
    /// Version of the interpreter's control group.
    pub(in super::super) cgroup: Option<String>,
    /// Set if the interpreter's last evaluation was interrupted.
    pub(in super::super) interrupted: bool,
    /// The files that its `/output` shares with the directory of its output files.
    pub(in super::super) exchange: Exchange,
}

/// The name of a session, with the number of its evaluations.
pub(super) struct Evaluations<'a> {
    pub(super) id: &'a SessionId,
    pub(super) count: u64,
}

impl Interpreter {
    /// Checks that the interpreter has everything a request requires, and sets the request's fixed limits to
    /// those of the session.
    pub(super) fn fit(&self, work: &mut EvaluationCall) -> Result<(), Error> {
        let (request, made_for) = (&work.request, &self.made_for);
        let fixed = |what| {
            let id = request.session.clone();
            Err(id.map_or(Error::Closing, |id| Error::Fixed { id, what }))
        };
        if !request.mounts.iter().all(|mount| made_for.mounts.contains(mount)) {
            return fixed("set of mounts");
        }
        if request.workspace.is_some() && request.workspace != made_for.workspace {
            return fixed("workspace");
        }
        if self.is_weaker_than(work.fence) {
            return Err(request.session.clone().map_or(Error::Closing, Error::Weaker));
        }
        work.request.limits = Limits {
            timeout: request.limits.timeout,
            max_output: request.limits.max_output,
            ..made_for.limits
        };
        Ok(())
    }

    fn is_weaker_than(&self, fence: Fence) -> bool {
        let applied = self.guest.applied;
        match fence {
            Fence::Required => {
                !applied.namespaces || self.lacks_layers() || self.guest.limit_scope != LimitScope::Together
            }
            Fence::Default => self.fence == Fence::BestEffort && self.lacks_layers(),
            Fence::BestEffort | Fence::Unfenced | Fence::Host => false,
        }
    }

    fn lacks_layers(&self) -> bool {
        !self.guest.applied.seccomp || self.guest.applied.landlock_abi == 0
    }

    /// Assembles the result of an evaluation.
    pub(super) fn result(
        &self,
        work: &EvaluationCall,
        evaluated: Evaluated,
        evaluations: Evaluations<'_>,
        former: Option<Reason>,
    ) -> ExecutionResult {
        let Evaluations { id, count } = evaluations;
        let Evaluated {
            finished,
            value,
            results,
            interrupted,
            ended,
        } = evaluated;
        let request = &work.request;
        let collected = match &work.host_output {
            Some(host_output) => host_output.collect(&self.guest.output),
            None => collect(&self.guest.output, None, request.limits.disk.0),
        };
        let start = match self.origin {
            SessionOrigin::Preloaded => Start::Preloaded,
            SessionOrigin::Started if count == 1 => Start::Cold,
            SessionOrigin::Forked | SessionOrigin::Started => Start::Warm,
        };
        let survivors = finished.survivors();
        let mut result = assemble(request, &self.guest, finished, start, work.since);
        let meta = &mut result.meta;
        add_groups(meta, self.cgroup.clone());
        meta.output_files = collected.files;
        meta.output_incomplete = collected.incomplete;
        meta.truncated |= value.as_ref().is_some_and(|value| value.cut);
        meta.session = Some(SessionFacts {
            id: id.as_str().to_owned(),
            evaluations: count,
            value: value.map(|value| value.text),
            interrupted,
            ended: ended.is_some(),
        });
        meta.warnings = self.served.warnings();
        meta.warnings.extend(survivors);
        meta.warnings
            .extend(self.served.preload_warnings(Language::Python));
        // One that no zygote made is confined as a run.
        let lasts = !matches!(self.origin, SessionOrigin::Started);
        let gap = notice::limits_gap(self.guest.limit_scope, &self.made_for.limits, lasts);
        meta.warnings.extend(gap);
        meta.warnings.extend(notice::landlock_gap(self.guest.applied));
        meta.warnings.extend(collected.warnings);
        meta.warnings.extend(results.warnings);
        meta.results = results.results;
        meta.warnings.extend(former.map(|reason| {
            format!("this is a new session: the one that was called `{id}` before ended, and its variables with it: {reason}")
        }));
        if interrupted {
            output::add(&mut result.stderr, &(notice::session_kept(id.as_str()) + "\n"));
        }
        if ended.is_some() {
            output::add(&mut result.stderr, &(notice::session_ended(id.as_str()) + "\n"));
        }
        result.duration = work.since.elapsed().as_secs_f64();
        result
    }

    /// Wraps the guest of a fork.
    pub(super) fn fork(&self, guest: Guest) -> Self {
        Self {
            guest,
            served: Arc::clone(&self.served),
            origin: SessionOrigin::Forked,
            made_for: self.made_for.clone(),
            fence: self.fence,
            cgroup: self.cgroup.clone(),
            interrupted: false,
            // Its files are copies, whose versions differ.
            exchange: Exchange::default(),
        }
    }

    /// Returns the reason for its exit between evaluations.
    pub(super) fn ended(&mut self, exit: Option<Exit>) -> Reason {
        let usage = self.guest.group.as_mut().map(|group| group.take_usage());
        match exit.map(|exit| exit.status) {
            Some(-9) if usage.is_some_and(|usage| usage.oom_kills > 0) => Reason::Memory,
            status => Reason::of_status(status),
        }
    }

    /// Ends the interpreter with everything that belongs to it.
    pub(super) async fn close(self) {
        clear_up(self.served, Some(self.guest)).await;
    }
}
