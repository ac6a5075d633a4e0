//! The command line of Ringfence as data: the program resolves it into one plan and one call.
//!
//! Help, completions, man pages and the reference are made from these types.
#![forbid(unsafe_code)]

mod accept;
mod approvals;
mod audit;
mod completions;
mod image;
mod keys;
mod manual;
mod packages;
mod policy;
mod sandbox;
mod scoped;
mod session;
mod setup;
mod skills;
mod usage;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ringfence::Failure;
use ringfence_images::Selector;
use ringfence_policy::{Bytes, Cpus, EnvName, Language, Mount, Pids, RuntimeKind, Scope, SessionId, Timeout};
use ringfence_server::site::{Domain, Endpoint};

pub use accept::AcceptArgs;
pub use approvals::{ApprovalsCommand, GatewayCommand};
pub use audit::{AuditCommand, AuditFilterArgs};
pub use completions::completions;
pub use image::{ImageCommand, ImageImportArgs, ImagePullArgs};
pub use keys::{KeysCommand, KeysCreateArgs};
pub use manual::{manual_page, reference_page};
pub use packages::{PackagesCommand, PackagesRmArgs};
pub use policy::{PolicyCheckArgs, PolicyCommand};
pub use sandbox::{
    SandboxCommand, SandboxCopyArgs, SandboxCreateArgs, SandboxEventsArgs, SandboxExecArgs, SandboxFenceArg,
    SandboxFilesArgs, SandboxForkArgs, SandboxListArgs, SandboxLogsArgs, SandboxNameArgs, SandboxNetworkArgs,
    SandboxPortArgs, SandboxRemoveArgs, SandboxRunArgs, SandboxRuntimeArg, SandboxStatsArgs,
    SandboxTimeoutArgs, SnapshotCommand, SnapshotCreateArgs, SnapshotNameArgs,
};
pub use scoped::{ScopedListArgs, ScopedOptions};
pub use session::{SessionCommand, SessionNewArgs};
pub use setup::{DenoArgs, EngineArg, ImageArgs, ImageSource, SetupCommand};
pub use skills::{SkillsAcceptArgs, SkillsCallArgs, SkillsCommand, SkillsOptions};
pub use usage::{ErrorFormat, usage_hint};

const EXAMPLES: &str = "\
Examples:
  ringfence run -c 'print(6 * 7)'          run a line of Python
  ringfence run report.py -- --year 2026   run a file, with arguments
  ringfence doctor                         what this machine offers, and the fix for what is missing
  ringfence config show                    every setting, and where it came from

Exit status: the program's own, and
  2    wrong usage, or a configuration that cannot be used
  124  the program was killed at its time limit
  125  Ringfence itself failed or refused
  126  the program was refused before it ran
  128+N  signal N killed the program; 130: you interrupted it, and it was killed
  141  nobody reads the output any more, as with `| head`";

const RUN_EXAMPLES: &str = "\
Examples:
  ringfence run script.py
  ringfence run -c 'print(1)'
  echo 'console.log(1)' | ringfence run -l javascript -
  ringfence run --mount ./data:/data:ro -o ./out chart.py     files written to /output land in ./out
  ringfence run --workspace . tests.py     works on the files of this directory
  ringfence run --timeout 5s --memory 512MiB --json -c 'print(1)'
  ringfence run --with pandas,seaborn==0.13 chart.py    with packages, which are kept for the next time
  ringfence run --image python:3.12-slim report.py
  cat log.txt | ringfence run --stdin - count.py";

const TOOL_EXAMPLES: &str = "\
Examples:
  ringfence tool --list
  ringfence tool run_python_code '{\"code\": \"print(6 * 7)\"}'
  ringfence tool shell '{\"command\": \"uname\", \"args\": [\"-s\"]}' --json
  ringfence tool file_write '{\"path\": \"a.txt\", \"content\": \"hi\"}' --workspace .    code finds it at /workspace
  ringfence tool run_code - --workspace . < arguments.json

Without a workspace each run has a private directory, and file tools have no files. A running server does the work.

Exit status: 0 with an answer, 2 if the arguments are wrong, 124 if the tool timed out, 125 if it failed or was refused.";

const MCP_EXAMPLES: &str = "\
A client starts this command itself. Examples of telling it to:
  claude mcp add ringfence -- ringfence mcp
  {\"mcpServers\": {\"ringfence\": {\"command\": \"ringfence\", \"args\": [\"mcp\"]}}}";

const SERVE_HELP: &str = "\
It listens at $XDG_RUNTIME_DIR/ringfence/engine.sock, and at gateway.sock beside it for gateways; without that \
variable in /run/user/UID, else in /tmp/ringfence-UID. The console listens at a port of 127.0.0.1, which it prints \
(`engine.listen`).

Start it in the background with `ringfence serve &`. Stop it with SIGTERM, `kill %1`: running programs have 5 s to \
end (`engine.drain_timeout`). Ctrl-C kills them at once. Sandboxes are removed. `ringfence run`, `tool` and `gateway` \
find it by themselves.";

const BENCH_HELP: &str = "\
All benchmarks take ten minutes or more, at full load. Some start containers of Docker and Podman. \
`ringfence bench run-engine run-cold` takes seconds.";

const COMPLETIONS_HELP: &str = "\
Install them, then open a new shell:
  ringfence completions bash > ~/.local/share/bash-completion/completions/ringfence
  ringfence completions zsh > ~/.zfunc/_ringfence
  ringfence completions fish > ~/.config/fish/completions/ringfence.fish
zsh needs `fpath+=~/.zfunc` before compinit in ~/.zshrc.";

/// Run untrusted code, typically written by a language model, in the strongest fence this machine supports.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// The command lines of the commands that run most often, which are parsed without the definitions of the others.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version)]
struct Frequent {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: FrequentCommand,
}

#[derive(Debug, Subcommand)]
enum FrequentCommand {
    Run(Box<RunArgs>),
    Tool(ToolArgs),
}

impl From<Frequent> for Cli {
    fn from(Frequent { global, command }: Frequent) -> Self {
        let command = match command {
            FrequentCommand::Run(args) => Command::Run(args),
            FrequentCommand::Tool(args) => Command::Tool(args),
        };
        Self { global, command }
    }
}

/// Options of every command.
#[derive(Debug, Args)]
pub struct GlobalArgs {
    /// Read this configuration file instead of the system's, the user's and the project's.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Colour messages: always, never, or when they go to a terminal and NO_COLOR is unset.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub color: ColorChoice,
}

/// Colour mode of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorChoice {
    /// Returns the choice of a command line that may not be valid.
    pub fn of(arguments: &[OsString]) -> Self {
        let own = arguments.iter().skip(1).map_while(|argument| {
            let text = argument.to_str().unwrap_or_default();
            (text != "--").then_some(text)
        });
        let mut previous = "";
        for argument in own {
            let value = match previous {
                "--color" => Some(argument),
                _ => argument.strip_prefix("--color="),
            };
            if let Some(choice) = value.and_then(|value| <Self as ValueEnum>::from_str(value, false).ok()) {
                return choice;
            }
            previous = argument;
        }
        Self::Auto
    }
}

/// A subcommand of `ringfence`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run code inside the fence.
    Run(Box<RunArgs>),
    /// Use one tool, as an agent would.
    Tool(ToolArgs),
    /// Serve the tools to an MCP client on standard input and output.
    Mcp(McpArgs),
    /// Manage the server's Python sessions: interpreters that keep their variables between evaluations.
    #[command(subcommand, after_help = session::EXAMPLES)]
    Session(SessionCommand),
    /// List, describe and call the host's functions that programs may call.
    #[command(subcommand, after_help = skills::EXAMPLES)]
    Skills(SkillsCommand),
    /// Accept files as they are now, if programs could have changed them.
    #[command(after_help = accept::EXAMPLES)]
    Accept(AcceptArgs),
    /// Manage the server's sandboxes: cells and containers that stay until they expire.
    #[command(subcommand, after_help = sandbox::EXAMPLES)]
    Sandbox(SandboxCommand),
    /// Pull, import, list and remove images that runs of the local fence can be on.
    #[command(subcommand, after_help = image::EXAMPLES)]
    Image(ImageCommand),
    /// Serve runs on a Unix socket, with ready workers so that they start at once.
    Serve(ServeArgs),
    /// Create, list and revoke keys of the server's HTTP API.
    #[command(subcommand, after_help = keys::EXAMPLES)]
    Keys(KeysCommand),
    /// Print a link that opens the server's web console in one browser.
    Console(ConsoleArgs),
    /// List and answer questions that require a person's approval.
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Forward the server's questions to a person, and return the answers.
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// List and print stored runs.
    #[command(subcommand)]
    Artifacts(ArtifactsCommand),
    /// List and remove the packages that are kept for `run --with`.
    #[command(subcommand, after_help = packages::EXAMPLES)]
    Packages(PackagesCommand),
    /// Verify or print the log of every tool call.
    #[command(subcommand, after_help = audit::EXAMPLES)]
    Audit(AuditCommand),
    /// Show how the command policy classifies a command.
    #[command(subcommand, after_help = policy::EXAMPLES)]
    Policy(PolicyCommand),
    /// Print, check or describe the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Report which isolation layers this machine supports, with a fix for each missing one.
    Doctor(DoctorArgs),
    /// Measure this machine's performance, compared with plain python3.
    #[command(after_help = BENCH_HELP)]
    Bench(BenchArgs),
    /// Install the optional parts: the container image, Deno and Pyodide.
    #[command(subcommand, after_help = setup::EXAMPLES)]
    Setup(SetupCommand),
    /// Print system-call filters.
    #[command(subcommand)]
    Seccomp(SeccompCommand),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page.
    Man,
    /// Print the command line's reference page.
    #[command(hide = true)]
    HelpMarkdown,
    /// Lock the open file that is standard input (flock), for a program that cannot do so itself, and end. The lock is the open file's.
    #[command(hide = true)]
    LockStdin {
        /// Wait until nobody else has a lock.
        #[arg(long)]
        exclusive: bool,
    },
}

impl Cli {
    /// Parses a command line.
    ///
    /// # Errors
    /// If it is wrong, or asks for help.
    pub fn parsed(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let is_frequent = arguments
            .get(1)
            .is_some_and(|command| command == "run" || command == "tool");
        if is_frequent && let Ok(frequent) = Frequent::try_parse_from(arguments) {
            return Ok(frequent.into());
        }
        // Errors and help know all commands.
        Self::try_parse_from(arguments)
    }

    /// Returns the file that replaces the configuration's layers: of `--config`, or of `config check FILE`.
    pub fn with_checked_file(mut self) -> Self {
        if let Command::Config(ConfigCommand::Check { file: Some(file) }) = &self.command {
            self.global.config = Some(file.clone());
        }
        self
    }
}

/// `ringfence run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// The program's file, or `-` to read the program from standard input.
    #[arg(value_name = "FILE", conflicts_with = "code")]
    pub file: Option<PathBuf>,
    /// The program itself.
    #[arg(short = 'c', long = "code", value_name = "CODE")]
    pub code: Option<String>,
    /// The language: python, bash or javascript (default: by the file's ending or first line, else python).
    #[arg(short, long, value_name = "NAME")]
    pub language: Option<Language>,
    /// Runtime: local, docker, podman, pyodide or e2b (default: local).
    #[arg(short, long, value_name = "NAME")]
    pub runtime: Option<RuntimeKind>,
    /// Wall time until the program is killed, such as 500ms, 5s or 2m (default: 30s).
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub timeout: Option<Timeout>,
    /// Bytes of stdout, and of stderr, that are kept in the result: `--json`, stored runs (default: 10KiB).
    /// Output that is printed as it arrives is not cut.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub max_output: Option<Bytes>,
    /// Memory limit of all processes of the run together (default: 256MiB).
    #[arg(long, value_name = "SIZE", value_parser = ringfence_policy::memory::parse, help_heading = "Limits")]
    pub memory: Option<Bytes>,
    /// CPU limit in cores, such as 1 or 0.5 (default: 1).
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub cpus: Option<Cpus>,
    /// Maximum number of processes and threads (default: 64).
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub pids: Option<Pids>,
    /// Disk limit of all writable directories together (default: 64MiB).
    #[arg(long, value_name = "SIZE", value_parser = ringfence_policy::disk::parse, help_heading = "Limits")]
    pub disk: Option<Bytes>,
    /// Network access: none, or an allowlist of --allow-host and `egress` (default: none).
    #[arg(long, value_name = "KIND", help_heading = "Access")]
    pub network: Option<NetworkChoice>,
    /// Allow connections to this host, as `example.com`, `*.example.com` or `example.com:8443`; may be
    /// repeated. Implies --network allowlist.
    #[arg(long, value_name = "HOST", help_heading = "Access")]
    pub allow_host: Vec<String>,
    /// Mount a host path, as HOST:GUEST[:ro|rw], read-only by default; may be repeated.
    #[arg(long, value_name = "HOST:GUEST[:ro|rw]", help_heading = "Access")]
    pub mount: Vec<Mount>,
    /// Set an environment variable of the program, as NAME=VALUE; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable, help_heading = "Access")]
    pub env: Vec<(EnvName, String)>,
    /// Install these packages for the program, such as `pandas,seaborn==0.13` for Python and `lodash@4` for JavaScript; may
    /// be repeated. They are kept, and installed in a fence that reaches the index alone (`packages.index`,
    /// `packages.npm_registry`).
    #[arg(
        long,
        value_name = "PKG,…",
        conflicts_with = "unfenced",
        help_heading = "Access"
    )]
    pub with: Vec<String>,
    /// Run on this image: the program sees its files, read-only, in place of this machine's, and its interpreter
    /// runs it (`ringfence image pull`).
    #[arg(
        long,
        value_name = "REF",
        conflicts_with_all = ["session", "unfenced", "python", "skills", "servers"],
        help_heading = "Access"
    )]
    pub image: Option<Selector>,
    /// Standard input of the program: a file, or `-` for standard input of this command (default: empty).
    #[arg(long, value_name = "FILE|-", help_heading = "Access")]
    pub stdin: Option<PathBuf>,
    /// Use this directory as the workspace: the program sees it at /workspace and may write to it.
    #[arg(short, long, value_name = "DIR", help_heading = "Access")]
    pub workspace: Option<PathBuf>,
    /// Copy the files that the program writes to /output into this directory.
    #[arg(short, long, value_name = "DIR", help_heading = "Access")]
    pub output: Option<PathBuf>,
    /// Evaluate in this session, an interpreter of the server that keeps variables and imports; created at
    /// first use.
    #[arg(
        long,
        value_name = "ID",
        conflicts_with_all = ["no_engine", "unfenced"],
        help_heading = "Access"
    )]
    pub session: Option<SessionId>,
    /// Run on behalf of this user; runs of different users share no warm process.
    #[arg(long, value_name = "ID", help_heading = "Access")]
    pub user: Option<Scope>,
    /// Let the Python program call the functions of the skill files in this directory, as
    /// `device.Skill.function()`.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "unfenced",
        help_heading = "Access"
    )]
    pub skills: Option<PathBuf>,
    /// Let the Python program call the tools of the configured MCP servers, as `device.Server.tool()`.
    #[arg(long, conflicts_with = "unfenced", help_heading = "Access")]
    pub servers: bool,
    /// Refuse the run if a layer of the fence is missing (required), or report it (best-effort).
    #[arg(
        long,
        value_name = "MODE",
        conflicts_with = "unfenced",
        help_heading = "Fence"
    )]
    pub isolation: Option<IsolationArg>,
    /// Run without any fence. Dangerous: the program can do whatever you can.
    #[arg(long, help_heading = "Fence")]
    pub unfenced: bool,
    /// The Python interpreter, such as a virtual environment's bin/python (default: `sandbox.python`, else the
    /// first python3 on the PATH that is a program rather than a script; `ringfence doctor` prints it).
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Run in this process even if a server is available.
    #[arg(long)]
    pub no_engine: bool,
    /// Print one JSON object with the result or the error, and nothing else.
    #[arg(long)]
    pub json: bool,
    /// Print JSON objects, one per line: output as it arrives, then the result or the error.
    #[arg(long, conflicts_with = "json")]
    pub json_stream: bool,
    /// Arguments of the program, after `--`.
    #[arg(last = true, value_name = "ARG")]
    pub args: Vec<String>,
}

/// The values of `--network`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NetworkChoice {
    /// No network.
    None,
    /// The hosts of `--allow-host` and of the configuration.
    Allowlist,
}

impl NetworkChoice {
    /// Returns the choice that `--network` and `--allow-host` make: a host implies an allowlist.
    ///
    /// # Errors
    /// If hosts are named beside `--network none`.
    pub fn of(choice: Option<Self>, hosts: &[String]) -> Result<Option<Self>, Failure> {
        let implied = (!hosts.is_empty()).then_some(Self::Allowlist);
        match choice {
            Some(Self::None) if implied.is_some() => Err(Failure::usage(
                "--allow-host has no effect with --network none",
                "pass `--network allowlist`, or leave --allow-host out",
            )),
            choice => Ok(choice.or(implied)),
        }
    }
}

/// The values of `--isolation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    /// Refuses the run if a layer is missing.
    Required,
    /// Reports a missing layer in the result.
    BestEffort,
}

/// `ringfence tool`.
#[derive(Debug, Args)]
#[command(after_help = TOOL_EXAMPLES)]
pub struct ToolArgs {
    /// The tool's name.
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub name: Option<String>,
    /// Its arguments as a JSON object, or `-` to read them from standard input (default: none).
    #[arg(value_name = "JSON|-")]
    pub arguments: Option<String>,
    /// List the tools with their parameters instead.
    #[arg(long, conflicts_with_all = ["name", "arguments"])]
    pub list: bool,
    /// The directory for file tools and code.
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// The conversation, if the configuration gives each session its own files.
    #[arg(long, value_name = "ID")]
    pub session: Option<SessionId>,
    /// Call on behalf of this user, with this user's files and warm processes.
    #[arg(long, value_name = "ID")]
    pub user: Option<Scope>,
    /// Run in this process even if a server is available.
    #[arg(long)]
    pub no_engine: bool,
    /// Print JSON: the structured part of the answer, errors, or the tools with their schemas.
    #[arg(long)]
    pub json: bool,
}

/// `ringfence mcp`.
#[derive(Debug, Args)]
#[command(after_help = MCP_EXAMPLES)]
pub struct McpArgs {
    /// The directory for file tools and code (default: the client's root, else a private one).
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Keep the private directory, and print its path.
    #[arg(long, conflicts_with = "workspace")]
    pub keep_workspace: bool,
    /// The conversation, if the configuration gives each session its own files (default: this connection).
    #[arg(long, value_name = "ID")]
    pub session: Option<SessionId>,
    /// Call on behalf of this user, with this user's files and warm processes.
    #[arg(long, value_name = "ID")]
    pub user: Option<Scope>,
}

/// `ringfence serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub struct ServeArgs {
    /// Serve the HTTP API at this address: ADDRESS:PORT, or unix:PATH. A loopback address replaces `engine.listen`.
    #[arg(long, value_name = "ENDPOINT")]
    pub listen: Option<Endpoint>,
    /// Serve HTTPS at `--listen` with this certificate, followed by its chain (PEM). A renewed file is used within a second.
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"], conflicts_with = "plain_http")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of `--tls-cert` (PEM). Other users must not be able to read it.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Serve the API at api.DOMAIN, and each sandbox, with programs on its ports, at PORT-ID.DOMAIN: names of `--tls-cert`, which needs *.DOMAIN.
    #[arg(long, value_name = "DOMAIN", requires = "tls_cert")]
    pub domain: Option<Domain>,
    /// Let other machines send keys and programs unencrypted.
    #[arg(long, requires = "listen")]
    pub plain_http: bool,
    /// Let keys build E2B's templates on this image of `ringfence image ls`, named as here, in sandboxes with the fence `box` (can be repeated).
    #[arg(long, value_name = "IMAGE")]
    pub template_image: Vec<String>,
    /// Stop once no process holds a lock (flock) of this file, as programs do that start a server for themselves.
    #[arg(long, value_name = "FILE")]
    pub while_used: Option<PathBuf>,
}

/// `ringfence console`.
#[derive(Debug, Args)]
pub struct ConsoleArgs {
    /// Print JSON: the address, a link, and the token that a program sends with each request.
    #[arg(long)]
    pub json: bool,
}

/// `ringfence artifacts`.
#[derive(Debug, Subcommand)]
pub enum ArtifactsCommand {
    /// List stored runs, newest first.
    Ls {
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Print one stored run.
    Show {
        /// The run's name in the list, or an unambiguous part of it.
        name: String,
        /// Print the JSON document as stored.
        #[arg(long)]
        json: bool,
    },
}

/// `ringfence config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting and its source.
    Show {
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Read every layer, or one file, and report all mistakes.
    Check {
        /// Check this file, as `--config FILE` would use it (default: every layer).
        #[arg(value_name = "FILE", conflicts_with = "config")]
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of the configuration file.
    Schema {
        /// Print the reference page instead.
        #[arg(long, hide = true)]
        markdown: bool,
    },
}

/// `ringfence doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print a JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ringfence bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The benchmarks to run (default: all).
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// List the benchmarks without running any.
    #[arg(long)]
    pub list: bool,
    /// Use 10 GiB of output in the flood benchmark instead of 1.
    #[arg(long)]
    pub full: bool,
    /// Keep the figures in the state directory, and show the change since they were kept last.
    #[arg(long)]
    pub history: bool,
    /// Print a JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ringfence seccomp`.
#[derive(Debug, Subcommand)]
pub enum SeccompCommand {
    /// Print a filter as JSON, with a reason for each rule.
    Show {
        /// The filter: `strict`, `standard`, `standard-tcp` or `standard-net` (for containers), `fence` or
        /// `fence-network`, `box` or `box-network` (for sandboxes with the fence `box`).
        name: String,
        /// The processor architecture (default: this machine's).
        #[arg(long, value_name = "ARCH")]
        arch: Option<Arch>,
    },
}

/// A processor architecture with filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    /// AMD64.
    #[value(name = "x86_64")]
    X86_64,
    /// ARM64.
    #[value(name = "aarch64")]
    Aarch64,
}

/// `ringfence completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests;
