//! Figures of a server for monitoring, with labels that no client chooses.
//!
//! - `runs`: runs, counted at the backend, which every run of the server passes.
//! - `process`: the server's own memory and descriptors.
//! - `text`: the format of Prometheus.

mod process;
mod runs;
mod text;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_exec::backend::Backend;
use ringfence_records::approval::Service;
use ringfence_sandbox::SandboxState;

use crate::api::admission::AdmissionFigures;
use crate::usage::{KeyUsage, Usage};
pub use runs::CountedBackend;
use runs::Runs;
pub(crate) use text::MEDIA;
use text::{Kind, Label, Text};

/// Counters of a server, from its start on.
#[derive(Debug)]
pub struct Metrics {
    runs: Arc<Runs>,
    refusals: Mutex<BTreeMap<Refusal, u64>>,
    approvals: Service,
    usage: Arc<Usage>,
    warn: Warn,
}

/// A sink of warnings for the operator.
pub type Warn = fn(&dyn Display);

/// A kind of refused requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// Type of the error: one of the API's table, or of E2B's.
    pub(crate) kind: &'static str,
}

/// Figures that others keep, at the time of an answer.
#[derive(Debug)]
pub(crate) struct Gauges {
    pub(crate) sandboxes: Vec<SandboxState>,
    pub(crate) mcp_sessions: usize,
    pub(crate) admission: AdmissionFigures,
    /// Set if the renewed files of the certificate cannot be used; `None` without TLS.
    pub(crate) has_stale_certificate: Option<bool>,
}

impl Metrics {
    /// Creates the counters of a server whose questions wait at `approvals`, whose keys have this usage, and which reports some events at once.
    pub fn new(approvals: Service, usage: Arc<Usage>, warn: Warn) -> Self {
        Self {
            runs: Arc::default(),
            refusals: Mutex::default(),
            approvals,
            usage,
            warn,
        }
    }

    /// Reports an event to the operator at once.
    pub(crate) fn warn(&self, event: &dyn Display) {
        (self.warn)(event);
    }

    pub(crate) const fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }

    /// Returns a backend that counts the runs of `inner`, and the usage of keys.
    pub fn counted(&self, inner: Arc<dyn Backend>) -> CountedBackend {
        CountedBackend::new(inner, Arc::clone(&self.runs), Arc::clone(&self.usage))
    }

    /// Counts a request over HTTP that was answered with an error.
    pub(crate) fn refused(&self, refusal: Refusal) {
        let mut all = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(refusal).or_default() += 1;
    }

    /// Renders all figures. One that cannot be read is left out.
    pub(crate) async fn render(&self, gauges: &Gauges) -> String {
        let mut text = Text::default();
        let version = env!("CARGO_PKG_VERSION");
        text.family("ringfence_build_info", Kind::Gauge, "Version of the server.");
        text.sample("ringfence_build_info", &[Label::new("version", version)], 1);
        self.runs.render(&mut text);
        render_admission(gauges.admission, &mut text);
        self.render_refusals(&mut text);
        render_usage(&self.usage.all(), &mut text);
        let name = "ringfence_sandboxes";
        text.family(name, Kind::Gauge, "Sandboxes that live, by state.");
        for (state, label) in [
            (SandboxState::Running, "running"),
            (SandboxState::Paused, "paused"),
        ] {
            let count = gauges.sandboxes.iter().filter(|found| **found == state).count();
            text.sample(name, &[Label::new("state", label)], count);
        }
        text.family("ringfence_mcp_sessions", Kind::Gauge, "Open sessions of `/mcp`.");
        text.sample("ringfence_mcp_sessions", &[], gauges.mcp_sessions);
        if let Some(is_stale) = gauges.has_stale_certificate {
            let name = "ringfence_tls_certificate_stale";
            text.family(
                name,
                Kind::Gauge,
                "1 while renewed files of the certificate cannot be used.",
            );
            text.sample(name, &[], u8::from(is_stale));
        }
        if let Ok(waiting) = self.approvals.waiting().await {
            let name = "ringfence_approvals_waiting";
            text.family(name, Kind::Gauge, "Questions that wait for a person's answer.");
            text.sample(name, &[], waiting.len());
        }
        process::render(&mut text);
        text.into_string()
    }

    fn render_refusals(&self, text: &mut Text) {
        let name = "ringfence_http_errors_total";
        text.family(
            name,
            Kind::Counter,
            "Answers of the HTTP API that are errors, by status and type.",
        );
        let all = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        for (refusal, count) in &*all {
            let status = refusal.status.to_string();
            let labels = [Label::new("status", &status), Label::new("type", refusal.kind)];
            text.sample(name, &labels, count);
        }
    }
}

/// Renders the usage of keys. The labels are bounded: the server generates the ids, and the operator creates
/// the keys.
fn render_usage(all: &BTreeMap<String, KeyUsage>, text: &mut Text) {
    let mut family = |name: &str, help: &str, of: fn(&KeyUsage) -> f64| {
        text.family(name, Kind::Counter, help);
        for (id, used) in all {
            text.sample(name, &[Label::new("key", id)], of(used));
        }
    };
    family("ringfence_key_runs_total", "Runs that a key has begun.", |used| {
        used.total.runs as f64
    });
    family(
        "ringfence_key_cpu_seconds_total",
        "Processor time that runs and sandboxes of a key have used.",
        |used| used.total.cpu_seconds,
    );
    family(
        "ringfence_key_memory_gib_seconds_total",
        "Memory that runs and sandboxes of a key have used, times its duration.",
        |used| used.total.memory_gib_seconds,
    );
    family(
        "ringfence_key_egress_bytes_total",
        "Bytes that runs and tools of a key sent to hosts and received from them.",
        |used| used.total.egress_bytes as f64,
    );
}

/// Renders the queues of keys. No label names a key, since monitoring must not learn who waits.
fn render_admission(figures: AdmissionFigures, text: &mut Text) {
    let AdmissionFigures {
        at_work,
        waiting,
        oldest,
        refused_full,
        refused_late,
    } = figures;
    let name = "ringfence_calls_at_work";
    text.family(name, Kind::Gauge, "Calls of keys that are at work.");
    text.sample(name, &[], at_work);
    let name = "ringfence_calls_waiting";
    text.family(name, Kind::Gauge, "Calls of keys that wait for their turn.");
    text.sample(name, &[], waiting);
    let name = "ringfence_calls_oldest_seconds";
    text.family(
        name,
        Kind::Gauge,
        "Time that the first call in a queue has waited, at most.",
    );
    text.sample(name, &[], oldest.as_secs_f64());
    let name = "ringfence_calls_refused_total";
    text.family(
        name,
        Kind::Counter,
        "Calls of keys that were refused: their queue was full, or their turn did not come in time.",
    );
    for (reason, count) in [("full", refused_full), ("late", refused_late)] {
        text.sample(name, &[Label::new("reason", reason)], count);
    }
}
