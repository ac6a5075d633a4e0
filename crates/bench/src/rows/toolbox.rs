//! Overhead of the toolbox: with a backend that does nothing, all the time is the toolbox's.

use std::sync::Arc;
use std::time::Instant;

use ringfence_exec::artifact::{Keep, Store, StorePolicy};
use ringfence_exec::backend::{Backend, Fingerprint, Running, Unavailable};
use ringfence_exec::local::{Connection, Fence};
use ringfence_exec::runner::{Rules, RunSpec, Runner};
use ringfence_network::egress::{Guard, Resolver};
use ringfence_network::fetch::{Fetcher, Trust};
use ringfence_network::redact::Redactor;
use ringfence_policy::{
    self as policy, Bytes, EgressPolicy, ExecutionResult, Fallback, Limits, Meta, Network, Outcome,
    RuntimeKind, Scope, Timeout, Trusted,
};
use ringfence_records::audit::{self, Log};
use ringfence_tools::files;
use ringfence_tools::shell::ShellRunner;
use ringfence_tools::toolbox::{
    AtLimit, Attention, Caller, CodeLimits, CodeSettings, Parts, Surface, ToolLimits, Toolbox,
};
use ringfence_tools::workspaces::Workspaces;
use serde_json::json;

use super::super::context::BenchContext;
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::milliseconds;

const INVOCATIONS: usize = 3_000;

pub(super) fn overhead(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let toolbox = toolbox(place)?;
    let caller = Caller {
        scope: Scope::local(),
        session: None,
        surface: Surface::Library,
        client: None,
    };
    let mut times = Vec::with_capacity(INVOCATIONS);
    for _ in 0..INVOCATIONS {
        let arguments = json!({"code": "print(1)", "timeout": 5});
        let since = Instant::now();
        let invoking = toolbox.invoke(&caller, "run_code", arguments, Attention::default());
        place.runtime.block_on(invoking)?;
        times.push(milliseconds(since.elapsed()));
    }
    let times = Sample::of(times);
    let figure = Figure::new("kernel", "overhead, p50", times.median, Unit::Milliseconds);
    Ok(vec![figure.with(times).against(Target::AtMost(0.05)).noting(
        "schema, permission, deadline, answer and the record in the audit log; the run itself does nothing",
    )])
}

fn toolbox(place: &BenchContext) -> anyhow::Result<Toolbox> {
    let directory = place.directory("kernel");
    let limits = audit::Limits {
        max_file_bytes: 64 << 20,
        max_files: 2,
        keep_host: std::time::Duration::ZERO,
    };
    let rules = Rules {
        blocked_imports: None,
        blocked_in_pyodide: None,
        pyodide: true,
        store_policy: StorePolicy::Never,
        store: Store::new(&directory, Keep::DEFAULT),
        redactor: Redactor::from_environment([]),
        log: None,
    };
    Ok(Toolbox::new(Parts {
        runner: Runner::new(Arc::new(Nothing), rules),
        code: CodeSettings {
            trusted: Trusted::none(),
            runtime: RuntimeKind::Local,
            fallback: Fallback::None,
            limits: CodeLimits {
                local: Limits::DEFAULT,
                container: Limits::DEFAULT,
                pyodide: Limits::DEFAULT,
            },
            fence: Fence::Default,
            variables: Vec::new(),
            network: Network::None,
        },
        limits: ToolLimits {
            default_timeout: Timeout::seconds(60),
            timeouts: [].into(),
            at_limit: AtLimit::Deny,
            max_output: Bytes::mib(1),
        },
        denied: Vec::new(),
        closed: Vec::new(),
        sandbox: None,
        shell: ShellRunner::Fenced,
        host: None,
        workspaces: Workspaces::none(files::Rules::standard()),
        fetcher: Fetcher::new(
            Arc::new(Guard::new(EgressPolicy::default(), Resolver::system())),
            Trust::default(),
        ),
        scratch: directory.clone(),
        approvals: None,
        skills: None,
        audit: Some(Log::open(&directory.join("audit"), limits)?),
        egress_meter: None,
    })?)
}

/// A backend that returns at once.
#[derive(Debug)]
struct Nothing;

impl Backend for Nothing {
    fn run<'a>(&'a self, spec: &'a RunSpec, _: Connection) -> Running<'a> {
        let request = &spec.request;
        let result = ExecutionResult {
            stdout: "1\n".to_owned(),
            stderr: String::new(),
            exit_code: 0,
            duration: 0.0,
            meta: Meta {
                stdout_bytes: 2,
                ..Meta::of(
                    RuntimeKind::Local,
                    request.language,
                    request.limits,
                    Outcome::Exited,
                )
            },
        };
        Box::pin(async { Ok(result) })
    }

    fn unavailable<'a>(&'a self, _: &'a policy::Target) -> Unavailable<'a> {
        Box::pin(std::future::ready(None))
    }

    fn fingerprint(&self, _: &RunSpec) -> Option<Fingerprint> {
        None
    }
}
