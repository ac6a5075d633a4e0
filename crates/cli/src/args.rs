//! The command line as it was written; `high` makes of it what will be done.

mod approvals;
mod audit;
mod policy;
mod sandbox;
mod scoped;
mod session;
mod setup;
mod skills;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ringfence_policy::{Bytes, Cpus, EnvName, Language, Mount, Pids, RuntimeKind, Scope, SessionId, Timeout};

pub(crate) use approvals::{ApprovalsCommand, GatewayCommand};
pub(crate) use audit::AuditCommand;
pub(crate) use policy::{PolicyCheckArgs, PolicyCommand};
pub(crate) use sandbox::{
    SandboxCommand, SandboxCreateArgs, SandboxLogsArgs, SandboxRunArgs, SandboxStatsArgs,
};
pub(crate) use scoped::ScopedOptions;
pub(crate) use session::{SessionCommand, SessionNewArgs};
pub(crate) use setup::{DenoArgs, EngineArg, ImageArgs, ImageSource, SetupCommand};
pub(crate) use skills::{SkillsAcceptArgs, SkillsCallArgs, SkillsCommand, SkillsOptions};

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
  128+N  signal N killed the program";

const RUN_EXAMPLES: &str = "\
Examples:
  ringfence run script.py
  ringfence run -c 'print(1)'
  echo 'console.log(1)' | ringfence run -l javascript -
  ringfence run --mount ./data:/data:ro -o ./out chart.py     files written to /output land in ./out
  ringfence run --workspace . tests.py     works on the files of this directory
  ringfence run --timeout 5s --memory 512MiB --json -c 'print(1)'
  cat log.txt | ringfence run --stdin - count.py";

const TOOL_EXAMPLES: &str = "\
Examples:
  ringfence tool --list
  ringfence tool run_python_code '{\"code\": \"print(6 * 7)\"}'
  ringfence tool shell '{\"command\": \"uname\", \"args\": [\"-s\"]}' --json
  ringfence tool file_write '{\"path\": \"a.txt\", \"content\": \"hi\"}' --workspace .    code finds it at /workspace
  ringfence tool run_code - --workspace . < arguments.json

Without a workspace each run has a private directory, and file tools have no files. A running engine does the work.

Exit status: 0 with an answer, 2 if the arguments are wrong, 124 if the tool timed out, 125 if it failed or was refused.";

const MCP_EXAMPLES: &str = "\
A client starts this command itself. Examples of telling it to:
  claude mcp add ringfence -- ringfence mcp
  {\"mcpServers\": {\"ringfence\": {\"command\": \"ringfence\", \"args\": [\"mcp\"]}}}";

/// Runs what a model writes inside the strongest fence the machine offers.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Read this configuration file instead of the system's, the user's and the project's.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Colour messages: always, never, or when they go to a terminal and NO_COLOR is unset.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub(crate) color: ColorChoice,
}

/// When messages are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run code inside the fence.
    Run(Box<RunArgs>),
    /// Use one tool, as an agent would.
    Tool(ToolArgs),
    /// Serve the tools to an MCP client on standard input and output.
    Mcp(McpArgs),
    /// Python interpreters in the engine that keep their variables from one evaluation to the next.
    #[command(subcommand, after_help = session::EXAMPLES)]
    Session(SessionCommand),
    /// Functions of the host that programs may call.
    #[command(subcommand, after_help = skills::EXAMPLES)]
    Skills(SkillsCommand),
    /// Containers in the engine that stay until their time is up.
    #[command(subcommand, after_help = sandbox::EXAMPLES)]
    Sandbox(SandboxCommand),
    /// Keep workers warm behind a Unix socket, so that runs start at once.
    Serve(ServeArgs),
    /// Print a link that opens the engine's web console in one browser.
    Console(ConsoleArgs),
    /// Answer questions that wait for a person's approval, and look at those that were answered.
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Pass the engine's questions on to a person, and the answers back.
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// Look at stored runs.
    #[command(subcommand)]
    Artifacts(ArtifactsCommand),
    /// Check, or look at, the log of every use of a tool.
    #[command(subcommand, after_help = audit::EXAMPLES)]
    Audit(AuditCommand),
    /// Tell what becomes of a command that an agent wants to run on this machine.
    #[command(subcommand, after_help = policy::EXAMPLES)]
    Policy(PolicyCommand),
    /// Show, check or describe the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Tell what this machine offers, layer by layer, and the fix for what is missing.
    Doctor(DoctorArgs),
    /// Measure this machine, side by side with plain python3.
    Bench(BenchArgs),
    /// Make the optional parts: the image of containers, Deno and Pyodide.
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
}

/// `ringfence run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The program's file, or `-` to read the program from standard input.
    #[arg(value_name = "FILE", conflicts_with = "code")]
    pub(crate) file: Option<PathBuf>,
    /// The program itself.
    #[arg(short = 'c', long = "code", value_name = "CODE")]
    pub(crate) code: Option<String>,
    /// The language: python, bash or javascript (default: by the file's ending or first line, else python).
    #[arg(short, long, value_name = "NAME")]
    pub(crate) language: Option<Language>,
    /// Where it runs: local, docker, podman, pyodide or e2b (default: local).
    #[arg(short, long, value_name = "NAME")]
    pub(crate) runtime: Option<RuntimeKind>,
    /// Wall time until the program is killed, such as 500ms, 5s or 2m (default: 30s).
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(crate) timeout: Option<Timeout>,
    /// How much of stdout, and how much of stderr, is kept (default: 10KiB).
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(crate) max_output: Option<Bytes>,
    /// Memory of all its processes together (default: 256MiB).
    #[arg(long, value_name = "SIZE", value_parser = ringfence_policy::memory::parse, help_heading = "Limits")]
    pub(crate) memory: Option<Bytes>,
    /// Cores' worth of processor time, such as 1 or 0.5 (default: 1).
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub(crate) cpus: Option<Cpus>,
    /// Processes and threads at once (default: 64).
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub(crate) pids: Option<Pids>,
    /// Bytes in its writable directories together (default: 64MiB).
    #[arg(long, value_name = "SIZE", value_parser = ringfence_policy::disk::parse, help_heading = "Limits")]
    pub(crate) disk: Option<Bytes>,
    /// What the program may reach: none, or an allowlist of --allow-host and `egress` (default: none).
    #[arg(long, value_name = "KIND", help_heading = "Access")]
    pub(crate) network: Option<NetworkChoice>,
    /// A host that the program may reach, as `example.com`, `*.example.com` or `example.com:8443`; may be repeated. It implies
    /// --network allowlist.
    #[arg(long, value_name = "HOST", help_heading = "Access")]
    pub(crate) allow_host: Vec<String>,
    /// Show a host path inside, as HOST:GUEST[:ro|rw], read-only unless told; may be repeated.
    #[arg(long, value_name = "HOST:GUEST[:ro|rw]", help_heading = "Access")]
    pub(crate) mount: Vec<Mount>,
    /// Set a variable inside, as NAME=VALUE; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_env, help_heading = "Access")]
    pub(crate) env: Vec<(EnvName, String)>,
    /// What the program reads on standard input: a file, or `-` for our own (default: nothing).
    #[arg(long, value_name = "FILE|-", help_heading = "Access")]
    pub(crate) stdin: Option<PathBuf>,
    /// Work in this directory: the program sees it at /workspace, and may write to it.
    #[arg(short, long, value_name = "DIR", help_heading = "Access")]
    pub(crate) workspace: Option<PathBuf>,
    /// Put the files that the program writes to /output into this directory.
    #[arg(short, long, value_name = "DIR", help_heading = "Access")]
    pub(crate) output: Option<PathBuf>,
    /// Evaluate in this session: an interpreter in the engine that keeps variables and imports; made at its first use.
    #[arg(
        long,
        value_name = "ID",
        conflicts_with_all = ["no_engine", "unfenced"],
        help_heading = "Access"
    )]
    pub(crate) session: Option<SessionId>,
    /// Whose run it is; runs of different users share no warm process.
    #[arg(long, value_name = "ID", help_heading = "Access")]
    pub(crate) user: Option<Scope>,
    /// Let the Python program call the functions of the skill files in this directory, as `device.Skill.function()`.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "unfenced",
        help_heading = "Access"
    )]
    pub(crate) skills: Option<PathBuf>,
    /// Let the Python program call the tools of the configured MCP servers, as `device.Server.tool()`.
    #[arg(long, conflicts_with = "unfenced", help_heading = "Access")]
    pub(crate) servers: bool,
    /// Refuse the run if a layer of the fence is missing (required), or report it (best-effort).
    #[arg(
        long,
        value_name = "MODE",
        conflicts_with = "unfenced",
        help_heading = "Fence"
    )]
    pub(crate) isolation: Option<IsolationArg>,
    /// Run without any fence. Dangerous: the program can do whatever you can.
    #[arg(long, help_heading = "Fence")]
    pub(crate) unfenced: bool,
    /// The Python interpreter, such as a virtual environment's bin/python.
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    /// Do the work in this process even if an engine is running.
    #[arg(long)]
    pub(crate) no_engine: bool,
    /// Print one JSON object with the result or the error, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print JSON objects, one a line: the program's output as it comes, then the result or the error.
    #[arg(long, conflicts_with = "json")]
    pub(crate) json_stream: bool,
    /// Arguments of the program, after `--`.
    #[arg(last = true, value_name = "ARG")]
    pub(crate) args: Vec<String>,
}

/// What `--network` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkChoice {
    /// Nothing.
    None,
    /// The hosts of `--allow-host` and of the configuration.
    Allowlist,
}

/// What `--isolation` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArg {
    /// A missing layer refuses the run.
    Required,
    /// A missing layer is reported.
    BestEffort,
}

/// `ringfence tool`.
#[derive(Debug, Args)]
#[command(after_help = TOOL_EXAMPLES)]
pub(crate) struct ToolArgs {
    /// The tool's name.
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub(crate) name: Option<String>,
    /// Its arguments as a JSON object, or `-` to read them from standard input (default: none).
    #[arg(value_name = "JSON|-")]
    pub(crate) arguments: Option<String>,
    /// List the tools instead, with what they take.
    #[arg(long, conflicts_with_all = ["name", "arguments"])]
    pub(crate) list: bool,
    /// The directory that file tools and code work in.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The conversation, where the configuration gives each session files of its own.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,
    /// Whose invocation it is: whose files, whose warm processes.
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<Scope>,
    /// Do the work in this process even if an engine is running.
    #[arg(long)]
    pub(crate) no_engine: bool,
    /// Print JSON: the answer's structured part, errors, or the tools with their schemas.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ringfence mcp`.
#[derive(Debug, Args)]
#[command(after_help = MCP_EXAMPLES)]
pub(crate) struct McpArgs {
    /// The directory that file tools and code work in (default: the client's root, else a private one).
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Keep the private directory, and say where it is.
    #[arg(long, conflicts_with = "workspace")]
    pub(crate) keep_workspace: bool,
    /// The conversation, where the configuration gives each session files of its own (default: this connection).
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,
    /// Whose invocations they are: whose files, whose warm processes.
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<Scope>,
}

/// `ringfence serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {}

/// `ringfence console`.
#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// Print the address, a link, and the token that a program sends with each request, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ringfence artifacts`.
#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactsCommand {
    /// List stored runs, newest first.
    Ls {
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Print one stored run.
    Show {
        /// Its name in the list, or a part of it that fits one run alone.
        name: String,
        /// Print the JSON document as it is stored.
        #[arg(long)]
        json: bool,
    },
}

/// `ringfence config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting and where it came from.
    Show {
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Read every layer and report all that is wrong.
    Check,
    /// Print the JSON Schema of the configuration file.
    Schema {
        /// Print the reference page instead.
        #[arg(long, hide = true)]
        markdown: bool,
    },
}

/// `ringfence doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print a JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ringfence bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The figures to measure (default: all).
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Name the figures, and measure nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// Let the flood be 10 GiB instead of 1.
    #[arg(long)]
    pub(crate) full: bool,
    /// Print a JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ringfence seccomp`.
#[derive(Debug, Subcommand)]
pub(crate) enum SeccompCommand {
    /// Print a filter as JSON, with a reason for each rule.
    Show {
        /// `strict`, `standard`, `standard-tcp` or `standard-net`, which are for containers, `fence` or `fence-network`.
        name: String,
        /// The processor (default: this machine's).
        #[arg(long, value_name = "ARCH")]
        arch: Option<Arch>,
    },
}

/// A processor that filters exist for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arch {
    /// AMD64.
    #[value(name = "x86_64")]
    X86_64,
    /// ARM64.
    #[value(name = "aarch64")]
    Aarch64,
}

/// `ringfence completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

fn parse_env(text: &str) -> Result<(EnvName, String), ringfence_policy::ParseEnvNameError> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.parse()?, value.to_owned())),
        // A name must not hold `=`, so this is refused with the parser's own words.
        None => format!("{text}=").parse().map(|name| (name, String::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(args: &[&str]) -> Result<RunArgs, clap::Error> {
        let cli = Cli::try_parse_from(["ringfence", "run"].iter().chain(args))?;
        let Command::Run(args) = cli.command else {
            panic!("`run` is parsed as {:?}", cli.command);
        };
        Ok(*args)
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_of_run_is_understood() {
        let args = run(&[
            "x.py",
            "-l",
            "bash",
            "-r",
            "local",
            "--timeout",
            "5s",
            "--max-output",
            "1KiB",
            "--memory",
            "256m",
            "--cpus",
            "0.5",
            "--pids",
            "7",
            "--network",
            "none",
            "--allow-host",
            "a",
            "--mount",
            "./d:/d:rw",
            "--env",
            "A=b=c",
            "--stdin",
            "-",
            "-o",
            "out",
            "--user",
            "ann",
            "--isolation",
            "best-effort",
            "--python",
            "p",
            "--no-engine",
            "--json",
            "--",
            "-x",
            "y",
        ])
        .unwrap();
        assert_eq!(args.args, ["-x", "y"]);
        assert_eq!((args.env[0].0.as_str(), args.env[0].1.as_str()), ("A", "b=c"));
        assert_eq!(args.memory, Some(Bytes::mib(256)));
    }

    #[test]
    fn bad_values_are_usage_errors_with_the_units_own_words() {
        for (args, words) in [
            (&["--timeout", "0"][..], "between 1ms and 24h"),
            (&["--timeout", "1000000000"], "between 1ms and 24h"),
            (&["--memory", "lots"], "write it like"),
            (&["--env", "NAME"], "NAME=value"),
            (&["--mount", "nowhere"], "is not a mount"),
            (&["-l", "cobol"], "known are python"),
            (&["-c", "1", "x.py"], "cannot be used with"),
            (&["--unfenced", "--isolation", "required"], "cannot be used with"),
        ] {
            let error = run(args).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{args:?}");
            assert!(error.to_string().contains(words), "{args:?}: {error}");
        }
    }
}
