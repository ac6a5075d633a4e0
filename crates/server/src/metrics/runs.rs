//! Runs, counted by a backend around the server's own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_exec::backend::{Backend, Fingerprint, Reason, Running, Unavailable};
use ringfence_exec::local::Connection;
use ringfence_exec::runner::RunSpec;
use ringfence_policy::{Outcome, Target};

use crate::usage::{Figures, Usage};

use super::text::{Kind, Label, Text};

/// Upper bounds of the histogram of durations, in seconds.
const BOUNDS: [f64; 6] = [0.01, 0.1, 1.0, 10.0, 60.0, 600.0];

/// Counts of runs.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    under_way: u64,
    /// At most one entry for each runtime, language and outcome.
    ended: BTreeMap<Ended, u64>,
    /// By runtime.
    durations: BTreeMap<&'static str, Histogram>,
}

/// A kind of runs. The names are constants, so that callers cannot add labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ended {
    runtime: &'static str,
    language: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Default)]
struct Histogram {
    /// Runs up to each bound; those above the last are in the count alone.
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: Duration,
}

/// A backend that counts the runs of another.
#[derive(Debug)]
pub struct CountedBackend {
    inner: Arc<dyn Backend>,
    runs: Arc<Runs>,
    usage: Arc<Usage>,
}

impl CountedBackend {
    pub(super) fn new(inner: Arc<dyn Backend>, runs: Arc<Runs>, usage: Arc<Usage>) -> Self {
        Self { inner, runs, usage }
    }
}

impl Backend for CountedBackend {
    fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a> {
        Box::pin(async move {
            let mut run = UnderWay::of(spec, &self.runs);
            let result = self.inner.run(spec, connection).await;
            if let Ok(result) = &result {
                self.usage.add(&spec.request.scope, Figures::of_run(result));
            }
            run.kind.outcome = match &result {
                Ok(result) => outcome(result.meta.outcome),
                Err(error) => failure(error.reason),
            };
            result
        })
    }

    fn unavailable<'a>(&'a self, target: &'a Target) -> Unavailable<'a> {
        self.inner.unavailable(target)
    }

    fn fingerprint(&self, spec: &RunSpec) -> Option<Fingerprint> {
        self.inner.fingerprint(spec)
    }
}

/// A run that has not ended. Dropped without a result, its caller has gone away.
struct UnderWay<'a> {
    runs: &'a Runs,
    since: Instant,
    kind: Ended,
}

impl<'a> UnderWay<'a> {
    fn of(spec: &RunSpec, runs: &'a Runs) -> Self {
        runs.change(|counts| counts.under_way += 1);
        Self {
            runs,
            since: Instant::now(),
            kind: Ended {
                runtime: spec.target.runtime().as_str(),
                language: spec.request.language.as_str(),
                outcome: outcome(Outcome::Cancelled),
            },
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let (kind, duration) = (self.kind, self.since.elapsed());
        self.runs.change(|counts| {
            counts.under_way -= 1;
            *counts.ended.entry(kind).or_default() += 1;
            counts.durations.entry(kind.runtime).or_default().add(duration);
        });
    }
}

impl Histogram {
    fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        for (bucket, bound) in self.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += duration;
    }
}

impl Runs {
    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Renders the counts.
    pub(super) fn render(&self, text: &mut Text) {
        self.change(|counts| {
            let name = "ringfence_runs_under_way";
            text.family(name, Kind::Gauge, "Runs that have not ended, queued or at work.");
            text.sample(name, &[], counts.under_way);
            let name = "ringfence_runs_total";
            let help = "Runs that came to a runtime, by their end.";
            text.family(name, Kind::Counter, help);
            for (kind, count) in &counts.ended {
                let labels = [
                    Label::new("runtime", kind.runtime),
                    Label::new("language", kind.language),
                    Label::new("outcome", kind.outcome),
                ];
                text.sample(name, &labels, count);
            }
            let help = "Time from a run's arrival at its runtime to its end.";
            text.family("ringfence_run_duration_seconds", Kind::Histogram, help);
            for (runtime, histogram) in &counts.durations {
                histogram.render(runtime, text);
            }
        });
    }
}

impl Histogram {
    fn render(&self, runtime: &str, text: &mut Text) {
        let runtime = Label::new("runtime", runtime);
        let bounds = BOUNDS.iter().map(ToString::to_string);
        let last = ("+Inf".to_owned(), self.count);
        for (bound, count) in bounds.zip(self.buckets).chain([last]) {
            let labels = [runtime, Label::new("le", &bound)];
            text.sample("ringfence_run_duration_seconds_bucket", &labels, count);
        }
        let sum = self.sum.as_secs_f64();
        text.sample("ringfence_run_duration_seconds_sum", &[runtime], sum);
        text.sample("ringfence_run_duration_seconds_count", &[runtime], self.count);
    }
}

/// Returns the label of a program's end.
const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Exited => "exited",
        Outcome::TimedOut => "timed_out",
        Outcome::MemoryExceeded => "memory_exceeded",
        Outcome::Signalled => "signalled",
        Outcome::Blocked => "blocked",
        Outcome::Cancelled => "cancelled",
        Outcome::Unknown => "unknown",
    }
}

/// Returns the label of a run that did not start or was lost: no program's end has it.
const fn failure(reason: Reason) -> &'static str {
    match reason {
        Reason::Unavailable => "refused_unavailable",
        Reason::Busy => "refused_busy",
        Reason::NotFound => "refused_not_found",
        Reason::Invalid => "refused_invalid",
        Reason::Lost => "lost",
        Reason::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_up_to_each_bound() {
        let mut histogram = Histogram::default();
        for milliseconds in [1, 10, 500, 1_000_000] {
            histogram.add(Duration::from_millis(milliseconds));
        }
        assert_eq!(histogram.buckets, [2, 2, 3, 3, 3, 3]);
        assert_eq!((histogram.count, histogram.sum.as_secs()), (4, 1000));
    }
}
