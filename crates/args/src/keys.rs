//! The arguments of `ringfence keys`.

use clap::{Args, Subcommand};
use ringfence_policy::Bytes;
use ringfence_policy::CpuTime;
use ringfence_server::api::{Rights, Tenant};

pub(crate) const EXAMPLES: &str = "\
Examples:
  ringfence keys create ci
  ringfence keys create agent --rights run,tools --days 30
  ringfence keys create student --quota-cpu 1h --quota-runs 500
  ringfence keys create ci --tenant team-a
  ringfence keys create agent --e2b=http://127.0.0.1:8080
  ringfence keys usage
  ringfence keys revoke rf_1a2b3c4d
  ringfence keys rm rf_1a2b3c4d";

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Create a key, and print it: it is shown this once.
    Create(KeysCreateArgs),
    /// List the keys.
    Ls {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Print ids only, one a line.
        #[arg(short, long, conflicts_with = "json")]
        quiet: bool,
    },
    /// Show what the keys have used today (UTC) and in all.
    Usage {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key: a running server refuses it, and ends what is open in its name.
    Revoke {
        /// The key's id, as `ringfence keys ls` prints it, or the key itself.
        id: String,
    },
    /// Remove a key that is revoked or has expired, with everything that is kept for it but the audit log.
    Rm {
        /// The key's id, as `ringfence keys ls` prints it, or the key itself.
        id: String,
    },
}

/// `ringfence keys create`.
#[derive(Debug, Args)]
pub struct KeysCreateArgs {
    /// Purpose of the key, for `ringfence keys ls`.
    pub name: String,
    /// Rights of the key, separated by commas: run, sandboxes, tools, approvals, admin. `tools` and `run` exclude `approvals`.
    #[arg(long, default_value = "run,sandboxes")]
    pub rights: Rights,
    /// Tenant of the key: keys of one tenant share sandboxes, snapshots, sessions, usage and a share of the server.
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<Tenant>,
    /// Days until it expires; never by default.
    #[arg(long, value_parser = super::values::number::<1, { u32::MAX }>, allow_negative_numbers = true)]
    pub days: Option<u32>,
    /// Processor time that its runs and sandboxes may use a day (UTC), such as 1h; not limited by default.
    #[arg(long, value_name = "TIME")]
    pub quota_cpu: Option<CpuTime>,
    /// Runs that it may begin a day (UTC): programs, calls of tools, and processes and code in sandboxes.
    #[arg(long, value_name = "COUNT", value_parser = runs, allow_negative_numbers = true)]
    pub quota_runs: Option<u64>,
    /// Memory times the duration of its use that its runs and sandboxes may need a day (UTC), in GiB-seconds: 3600 are 1 GiB for
    /// an hour.
    #[arg(long, value_name = "GIB-SECONDS", value_parser = gib_seconds, allow_negative_numbers = true)]
    pub quota_memory: Option<u64>,
    /// Bytes that its runs and tools may send to hosts and receive from them a day (UTC), such as 1GiB.
    #[arg(long, value_name = "SIZE")]
    pub quota_egress: Option<Bytes>,
    /// Sandboxes that it may have at a time, those of all keys of its tenant together.
    #[arg(long, value_name = "COUNT", value_parser = sandboxes, allow_negative_numbers = true)]
    pub quota_sandboxes: Option<u64>,
    /// Make a key that E2B's clients take, and print it with the variables that lead them to the server at this URL [default:
    /// http://127.0.0.1:8080].
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true,
          default_missing_value = "http://127.0.0.1:8080", value_parser = url)]
    pub e2b: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Parses the URL of a server. A shell reads it from what is printed: it has no character that means something there.
fn url(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/[]".contains(&byte);
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() && rest.bytes().all(is_plain) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err(format!(
            "expected a URL such as http://127.0.0.1:8080, got `{text}`"
        )),
    }
}

fn gib_seconds(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("expected a number of GiB-seconds, such as 3600, got `{text}`"))
}

fn sandboxes(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("expected a number of sandboxes, such as 20, got `{text}`"))
}

fn runs(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("expected a number of runs, such as 500, got `{text}`"))
}
