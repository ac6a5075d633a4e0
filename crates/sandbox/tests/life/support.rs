//! A server's sandboxes for a test.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_exec::local::{Fence, InterpreterCache, Local, Log, SessionSettings, Settings, Warmth};
use ringfence_network::egress::{NetworkSettings, Resolver};
use ringfence_network::fetch::Trust;
use ringfence_policy::{Bytes, Limits, Scope, Timeout};
use ringfence_sandbox::output::Collected;
use ringfence_sandbox::process::{CommandLine, NewProcess};
use ringfence_sandbox::{NewSandbox, Sandbox, Sandboxes, SnapshotStore};

/// A test with its name.
pub(crate) type Test = (&'static str, fn());

/// The server of a test.
pub(crate) struct Server {
    pub(crate) local: Arc<Local>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) scope: Scope,
    /// Directory of its snapshots.
    pub(crate) snapshots: tempfile::TempDir,
}

/// Runs a test that needs a server.
pub(crate) fn with_server<T: Future<Output = ()>>(test: impl FnOnce(Arc<Server>) -> T) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let local = Arc::new(Local::new(settings()));
        let snapshots = tempfile::tempdir().unwrap();
        let store = SnapshotStore::open(snapshots.path()).unwrap();
        let server = Arc::new(Server {
            sandboxes: Arc::new(Sandboxes::new(Arc::clone(&local), Fence::Default, store)),
            local,
            scope: Scope::local(),
            snapshots,
        });
        tokio::time::timeout(Duration::from_secs(120), test(Arc::clone(&server)))
            .await
            .unwrap();
        server.sandboxes.close().await;
        server.local.close().await;
    });
}

impl Server {
    pub(crate) async fn sandbox(&self) -> Arc<Sandbox> {
        self.sandboxes
            .create(&self.scope, NewSandbox::default())
            .await
            .unwrap()
    }
}

/// A line for the shell.
pub(crate) fn line(text: &str) -> NewProcess {
    NewProcess {
        command: CommandLine::Shell(text.to_owned()),
        ..NewProcess::default()
    }
}

/// Runs a line to its end.
pub(crate) async fn run(sandbox: &Sandbox, text: &str) -> Collected {
    sandbox.run(line(text), Bytes::mib(1)).await.unwrap()
}

/// Runs a line that must succeed. Returns its output.
pub(crate) async fn say(sandbox: &Sandbox, text: &str) -> String {
    let ran = run(sandbox, text).await;
    assert_eq!(ran.end.exit_code, 0, "{ran:?}");
    ran.stdout.text
}

/// Returns the number of processes of this machine whose command line contains this text.
pub(crate) fn everywhere(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.windows(text.len()).any(|part| part == text.as_bytes())
    })
    .count()
}

fn settings() -> Settings {
    Settings {
        python: None,
        javascript: None,
        preload: Vec::new(),
        preload_timeout: Timeout::seconds(60),
        log: Log::default(),
        path: std::env::var_os("PATH"),
        cache: None,
        private: Vec::new(),
        protected: Vec::new(),
        scratch: PathBuf::from("/tmp"),
        warmth: Warmth::Pool {
            size: 1,
            renew_after: 1000,
            renew_every: Duration::from_secs(3600),
        },
        limits: Limits::DEFAULT,
        interpreters: InterpreterCache::default(),
        max_concurrent: 4,
        max_queued: 4,
        sessions: SessionSettings {
            max: 1,
            idle: Timeout::seconds(60),
            lifetime: Timeout::seconds(60),
        },
        network: NetworkSettings {
            resolver: Resolver::system(),
            injections: Vec::new(),
            trust: Arc::new(Trust::new(None)),
        },
    }
}
