//! The server: `ringfence serve`.

use ringfence_policy::Timeout;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::values;

/// The server (`ringfence serve`), which keeps workers ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// Idle workers kept ready.
    pub pool_size: u32,
    /// Idle containers kept ready for runs, of Docker and Podman together; up to four times as many while
    /// runs arrive faster than containers start; 0: none.
    pub container_pool_size: u32,
    /// Maximum number of concurrent runs.
    pub max_concurrent: u32,
    /// Maximum number of queued requests; further ones fail with "busy".
    pub queue: u32,
    /// Number of runs after which a warm Python is replaced.
    pub rotate_after_runs: u32,
    /// Minutes after which a warm Python is replaced.
    pub rotate_after_minutes: u32,
    /// Maximum number of sessions, of all users together.
    pub max_sessions: u32,
    /// Minutes, or a duration with its unit, after which an idle session is ended.
    pub session_idle_minutes: values::Minutes,
    /// Minutes, or a duration with its unit, after which any session is ended.
    pub session_lifetime_minutes: values::Minutes,
    /// Time after SIGTERM in which runs, calls, transfers of files and builds under way may end; then they are cancelled. Keep it below the time that
    /// your supervisor gives: 10 s for `docker stop`, 30 s for Kubernetes, 90 s for systemd.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub drain_timeout: Timeout,
    /// Hosts that sandboxes of API keys may reach if they ask for them: patterns as in `egress.allowed_hosts`, and `packages` for
    /// the hosts of the package indexes. Empty: none.
    pub sandbox_hosts: Vec<String>,
    /// Serve the web console, on which you answer questions.
    pub console: bool,
    /// Address of the console on this machine, such as `127.0.0.1:8737`. Unset, or with port 0: 127.0.0.1 at
    /// a random port for each start.
    #[schemars(with = "Option<String>")]
    pub listen: Option<values::Listen>,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            pool_size: 8,
            container_pool_size: 2,
            max_concurrent: 16,
            queue: 256,
            rotate_after_runs: 1_000,
            rotate_after_minutes: 30,
            max_sessions: 16,
            session_idle_minutes: values::Minutes(Timeout::seconds(30 * 60)),
            session_lifetime_minutes: values::Minutes(Timeout::seconds(480 * 60)),
            drain_timeout: Timeout::seconds(5),
            sandbox_hosts: Vec::new(),
            console: true,
            listen: None,
        }
    }
}
