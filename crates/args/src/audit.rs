//! The arguments of `ringfence audit`.

use clap::{Args, Subcommand};
use ringfence_records::audit::{Filter, Link};
use ringfence_server::api::Tenant;

pub(crate) const EXAMPLES: &str = "\
Examples:
  ringfence audit tail -n 5               who used which tool, and what came of it
  ringfence audit tail --follow --json    each record as it is stored
  ringfence audit tail --tenant team-a --outcome failed    records that have these members
  ringfence audit verify                  that none was changed or taken out; prints the head
  ringfence audit verify --head SEQUENCE:HASH    and that nothing was cut off since that head
  ringfence audit tail --host             what ran on this machine itself, and what people answered";

/// `ringfence audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Verify every record and the chain between them, and print the head to note.
    Verify {
        /// Verify only the log of commands on the host and of people's answers.
        #[arg(long)]
        host: bool,
        /// Verify that this record, noted earlier, is still part of the log.
        #[arg(long, value_name = "SEQUENCE:HASH")]
        head: Option<Link>,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Print the newest records, newest last.
    Tail {
        /// Print the records of commands on the host and of people's answers, which are kept longer.
        #[arg(long)]
        host: bool,
        /// Number of records, up to 1000.
        #[arg(short = 'n', long = "lines", value_name = "NUMBER", default_value_t = 20)]
        #[arg(value_parser = super::values::number::<0, 1_000>, allow_negative_numbers = true)]
        lines: u32,
        /// Print new records as they are appended, until interrupted.
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        filter: AuditFilterArgs,
        /// Print the records as stored: one JSON object per line.
        #[arg(long)]
        json: bool,
    },
}

/// The members that records of `ringfence audit tail` must have.
#[derive(Debug, Args)]
pub struct AuditFilterArgs {
    /// Print only records of this tenant's keys, among the newest 1000.
    #[arg(long, value_name = "NAME")]
    tenant: Option<Tenant>,
    /// Print only records of this client, such as the id of a key, among the newest 1000.
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// Print only records of this tool or operation, among the newest 1000.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Print only records with this outcome, such as `answered` or `failed`, among the newest 1000.
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
}

impl AuditFilterArgs {
    /// Converts the arguments.
    pub fn filter(&self) -> Filter {
        Filter {
            scope: self.tenant.as_ref().and_then(Tenant::scope),
            client: self.client.clone(),
            tool: self.tool.clone(),
            outcome: self.outcome.clone(),
        }
    }
}
