//! The arguments of `ringfence sandbox`.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ringfence_policy::{Bytes, Cpus, EnvName, HostPattern, Language, Pids, Timeout};
use ringfence_sandbox::SandboxName;

use super::scoped::{ScopedListArgs, ScopedOptions};
use super::setup::EngineArg;
use super::{NetworkChoice, values};
use ringfence::config::values::OciRuntime;

pub(crate) const EXAMPLES: &str = "\
Sandboxes live in the server: start one with `ringfence serve &`.

Examples:
  ringfence sandbox create --name lab
  ringfence sandbox exec lab -- python3 -c 'print(6 * 7)'
  ringfence sandbox run lab -c 'x = 1'        # `x` is there for the next `run`
  ringfence sandbox shell lab
  ringfence sandbox cp data.csv lab:/workspace/
  ringfence sandbox port lab 8000             # of a sandbox created with `--ports`
  ringfence sandbox timeout lab 2h            # from now on
  ringfence sandbox rm lab
  ringfence sandbox create --runtime docker --name build --template code-executor";

/// `ringfence sandbox`.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Create a sandbox that stays until it expires or is removed.
    Create(Box<SandboxCreateArgs>),
    /// List the sandboxes.
    Ls(SandboxListArgs),
    /// Describe a sandbox.
    Get(SandboxNameArgs),
    /// Run a command in a sandbox.
    Exec(SandboxExecArgs),
    /// Open a shell in a sandbox.
    Shell(SandboxNameArgs),
    /// Run code in a sandbox, which keeps what it defines; or a command, after `--`.
    Run(SandboxRunArgs),
    /// Copy a file or directory into or out of a sandbox, as NAME:PATH. A relative path in it is below /workspace.
    Cp(SandboxCopyArgs),
    /// List the files of a directory of a sandbox.
    Files(SandboxFilesArgs),
    /// Listen at an address of this machine, and relay its connections to a TCP port of a sandbox, until interrupted.
    ///
    /// Every user of this machine can connect there.
    Port(SandboxPortArgs),
    /// Copy the files of a sandbox into new ones. Processes and interpreters are not copied.
    Fork(SandboxForkArgs),
    /// Keep the files of a sandbox as a snapshot, of which `create --snapshot` makes others.
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Set the time until a sandbox expires, from now on.
    Timeout(SandboxTimeoutArgs),
    /// Replace the hosts that the programs of a sandbox may reach. Connections to others are closed.
    Network(SandboxNetworkArgs),
    /// Pause the processes of a sandbox.
    Pause(SandboxNameArgs),
    /// Resume the processes of a sandbox.
    Resume(SandboxNameArgs),
    /// Print the events in the lives of sandboxes as they happen: one line each, with --json one object each.
    ///
    /// Of one sandbox to its end, without a name of all until interrupted. With --json, an object of the type `ready` comes first.
    Events(SandboxEventsArgs),
    /// Print the output of the commands that ran in a sandbox.
    Logs(SandboxLogsArgs),
    /// Print the resource usage of a sandbox, about once a second.
    Stats(SandboxStatsArgs),
    /// Remove sandboxes and their files.
    ///
    /// Goes on after one that cannot be removed, and fails at the end.
    Rm(SandboxRemoveArgs),
}

/// `ringfence sandbox ls`.
#[derive(Debug, Args)]
pub struct SandboxListArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// Print names only, one a line; of a sandbox without one its ID.
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// List those of all users and keys, each with its user, for `--user` of other commands.
    #[arg(short, long, conflicts_with_all = ["quiet", "user"])]
    pub all: bool,
}

/// `ringfence sandbox create`.
#[derive(Debug, Args)]
pub struct SandboxCreateArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The name; with a template 1 to 40 of `a-z`, `0-9` and `-` (default: none; with a template an unused one).
    #[arg(long, value_name = "NAME", value_parser = values::checked::<SandboxName>)]
    pub name: Option<String>,
    /// The runtime: local, docker or podman (default: local; with --template or --oci-runtime docker).
    #[arg(long, visible_alias = "engine", value_name = "NAME")]
    pub runtime: Option<SandboxRuntimeArg>,
    /// The template of a container's limits (default: code-executor).
    #[arg(long, value_name = "NAME")]
    pub template: Option<String>,
    /// The image: one of `ringfence image ls` in place of this machine's files; with docker or podman the container's, which is
    /// one of a template then.
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// Size limit of all its files together (default: 256MiB). Not with a template.
    #[arg(long, value_name = "SIZE", value_parser = ringfence_policy::disk::parse)]
    pub disk: Option<Bytes>,
    /// Network access: none, or an allowlist of --allow-host and `egress` (default: none). Not with a template.
    #[arg(long, value_name = "KIND")]
    pub network: Option<NetworkChoice>,
    /// Allow connections to this host; may be repeated. Implies --network allowlist. Not with a template, which has them.
    #[arg(long, value_name = "HOST", value_parser = values::checked::<HostPattern>)]
    pub allow_host: Vec<String>,
    /// Let its programs listen on TCP ports, which `ringfence sandbox port` reaches. Not with a template.
    #[arg(long)]
    pub ports: bool,
    /// Install these packages for its programs, such as `pandas,seaborn==0.13` for Python and `npm:lodash@4` for JavaScript; may be
    /// repeated. Not with a template.
    #[arg(long, value_name = "PKG,…")]
    pub with: Vec<String>,
    /// Set an environment variable of its programs, as NAME=VALUE; may be repeated. Not with a template.
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub env: Vec<(EnvName, String)>,
    /// Label it, as NAME=VALUE; may be repeated. Not with a template.
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::label)]
    pub metadata: Vec<(String, String)>,
    /// Memory limit (default: 512MiB; with a template its own).
    #[arg(long, value_name = "SIZE", value_parser = ringfence_policy::memory::parse)]
    pub memory: Option<Bytes>,
    /// CPU limit in cores (default: 1; with a template its own).
    #[arg(long, value_name = "NUMBER")]
    pub cpus: Option<Cpus>,
    /// Maximum number of processes and threads (default: 64; with a template its own).
    #[arg(long, value_name = "NUMBER")]
    pub pids: Option<Pids>,
    /// Time until it expires (default: 1h; with a template its own).
    #[arg(long, alias = "max-duration", value_name = "TIME")]
    pub timeout: Option<Timeout>,
    /// Pause it when its time is up, and end it a day later (default: end it). Not with a template.
    #[arg(long)]
    pub pause_on_expiry: bool,
    /// The fence of a local sandbox: `box` makes its programs root over users and a root file system of their own (default:
    /// the snapshot's, else run). Not with a template.
    #[arg(long, value_enum, value_name = "NAME")]
    pub fence: Option<SandboxFenceArg>,
    /// Begin with the files of this snapshot, given by its id or name, and with its limits of memory, disk and cores.
    /// Not with a template.
    #[arg(long, value_name = "ID")]
    pub snapshot: Option<String>,
    /// The OCI runtime of a container of a template (default: the template's).
    #[arg(long, value_name = "NAME")]
    pub oci_runtime: Option<OciRuntimeArg>,
}

impl SandboxCreateArgs {
    /// Returns the container engine, if it is to be a container of a template.
    pub fn engine(&self) -> Option<EngineArg> {
        let is_of_template = self.template.is_some() || self.oci_runtime.is_some();
        match self.runtime {
            None => is_of_template.then_some(EngineArg::Docker),
            Some(runtime) => runtime
                .engine()
                .filter(|_| is_of_template || self.image.is_some()),
        }
    }
}

/// Choice of the runtime of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SandboxRuntimeArg {
    /// A cell of this machine.
    Local,
    /// A container of Docker.
    Docker,
    /// A container of Podman.
    Podman,
}

impl SandboxRuntimeArg {
    /// Returns the name that the API takes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    const fn engine(self) -> Option<EngineArg> {
        match self {
            Self::Local => None,
            Self::Docker => Some(EngineArg::Docker),
            Self::Podman => Some(EngineArg::Podman),
        }
    }
}

/// Choice of the fence of a sandbox on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SandboxFenceArg {
    /// The fence of runs: one user, over a read-only root file system.
    Run,
    /// Root over users and a root file system of its own; needs a server that runs as root.
    Box,
}

impl SandboxFenceArg {
    /// Returns the name that the API takes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Box => "box",
        }
    }
}

/// Parses an address that only this machine reaches, and that is not the console's.
fn port_address(text: &str) -> Result<SocketAddrV4, String> {
    let address = text
        .parse()
        .ok()
        .filter(|address: &SocketAddrV4| address.ip().is_loopback() && *address.ip() != Ipv4Addr::LOCALHOST);
    let expected = "expected an address of 127.0.0.0/8 but 127.0.0.1, with a port, such as 127.0.0.2:8080";
    address.ok_or_else(|| expected.to_owned())
}

/// Choice of the OCI runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OciRuntimeArg {
    /// The container engine's choice.
    Default,
    /// runc.
    Runc,
    /// crun.
    Crun,
    /// gVisor: a kernel of its own between the program and the host's.
    Runsc,
}

impl From<OciRuntimeArg> for OciRuntime {
    fn from(choice: OciRuntimeArg) -> Self {
        match choice {
            OciRuntimeArg::Default => Self::Default,
            OciRuntimeArg::Runc => Self::Runc,
            OciRuntimeArg::Crun => Self::Crun,
            OciRuntimeArg::Runsc => Self::Runsc,
        }
    }
}

/// `ringfence sandbox get`, `shell`, `pause` and `resume`.
#[derive(Debug, Args)]
pub struct SandboxNameArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
}

/// `ringfence sandbox timeout`.
#[derive(Debug, Args)]
pub struct SandboxTimeoutArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
    /// Time from now on, such as 30m or 2h.
    #[arg(value_name = "TIME")]
    pub timeout: Timeout,
}

/// `ringfence sandbox network`.
#[derive(Debug, Args)]
pub struct SandboxNetworkArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
    /// A host, or `*.DOMAIN` for those below one, with a port if it is not 80 or 443. Those of `egress.allowed_hosts` count as
    /// well.
    #[arg(value_name = "HOST", required_unless_present = "none")]
    pub hosts: Vec<String>,
    /// No host: closes the network.
    #[arg(long, conflicts_with = "hosts")]
    pub none: bool,
}

/// `ringfence sandbox events`.
#[derive(Debug, Args)]
pub struct SandboxEventsArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox (default: all).
    pub name: Option<String>,
}

/// `ringfence sandbox rm`.
#[derive(Debug, Args)]
pub struct SandboxRemoveArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandboxes.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// `ringfence sandbox fork`.
#[derive(Debug, Args)]
pub struct SandboxForkArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
    /// Number of new sandboxes, at most 16.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = values::number::<1, 16>)]
    pub count: u32,
    /// Name of the new sandbox (default: none). Not with several.
    #[arg(long = "name", value_name = "NAME", conflicts_with = "count", value_parser = values::checked::<SandboxName>)]
    pub new_name: Option<String>,
}

/// `ringfence sandbox snapshot`.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Keep the files of a sandbox.
    Create(SnapshotCreateArgs),
    /// List the snapshots.
    Ls(ScopedListArgs),
    /// Remove a snapshot. Sandboxes that were made of it stay.
    Rm(SnapshotNameArgs),
}

/// `ringfence sandbox snapshot create`.
#[derive(Debug, Args)]
pub struct SnapshotCreateArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub sandbox: String,
    /// The name of the snapshot (default: none).
    #[arg(long, value_name = "NAME", value_parser = values::checked::<SandboxName>)]
    pub name: Option<String>,
}

/// `ringfence sandbox snapshot rm`.
#[derive(Debug, Args)]
pub struct SnapshotNameArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The id or name of the snapshot.
    pub snapshot: String,
}

/// `ringfence sandbox exec`.
#[derive(Debug, Args)]
pub struct SandboxExecArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
    /// Pass on standard input.
    #[arg(short, long)]
    pub interactive: bool,
    /// Run it in a terminal, this one: with `-i`, as `-it`.
    #[arg(short, long, requires = "interactive")]
    pub tty: bool,
    /// Working directory (default: /workspace).
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Set an environment variable, as NAME=VALUE; may be repeated.
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub env: Vec<(EnvName, String)>,
    /// Run it as this user of a sandbox with the fence `box`: a name of its /etc/passwd, or a number (default: root).
    #[arg(short = 'u', long = "as", value_name = "NAME")]
    pub account: Option<String>,
    /// Wall-clock limit, at which it is killed (default: none).
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Timeout>,
    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `ringfence sandbox run`.
#[derive(Debug, Args)]
pub struct SandboxRunArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
    /// The code's file, or `-` for standard input (default: standard input, unless it is a terminal).
    #[arg(conflicts_with_all = ["code", "command"])]
    pub file: Option<PathBuf>,
    /// The code itself.
    #[arg(short, long, value_name = "CODE", conflicts_with = "command")]
    pub code: Option<String>,
    /// Language of the code: python, bash or javascript (default: by the file's ending or first line, else python).
    #[arg(short, long, value_name = "NAME", conflicts_with = "command")]
    pub language: Option<Language>,
    /// Run it as this user of a sandbox with the fence `box`, whose code keeps what it defines apart from other users': a name of
    /// its /etc/passwd, or a number (default: root).
    #[arg(short = 'u', long = "as", value_name = "NAME")]
    pub account: Option<String>,
    /// Wall-clock limit (default: 30s). Code is interrupted and keeps its state; a command is killed, and a container without
    /// allowed hosts removed.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: Timeout,
    /// A program and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `ringfence sandbox cp`.
#[derive(Debug, Args)]
pub struct SandboxCopyArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// A file or directory, or NAME:PATH of a sandbox; `-` for standard input. With `/.` at the end, the entries of a
    /// directory.
    pub from: String,
    /// A file or directory, or NAME:PATH of a sandbox; `-` for standard output. With `/` at the end, a directory.
    pub to: String,
    /// Maximum size of a directory that comes out of a sandbox.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = ringfence_policy::memory::parse)]
    pub max_size: Bytes,
    /// Copy out of the sandbox also what programs of this machine execute or obey, such as `.git` and `.envrc`: whoever wrote
    /// it there acts with your rights.
    #[arg(long)]
    pub include_protected: bool,
    /// Has no effect: a directory is always copied with everything in it.
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
}

/// `ringfence sandbox files`.
#[derive(Debug, Args)]
pub struct SandboxFilesArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
    /// The directory. A relative one is below /workspace.
    #[arg(default_value = "/workspace")]
    pub path: String,
    /// Levels of directories.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = values::number::<1, { u32::MAX }>)]
    pub depth: u32,
    /// List what comes behind this path: with `--json`, which prints at most 10,000 entries, `next` of the list before.
    #[arg(long, value_name = "PATH")]
    pub after: Option<String>,
}

/// `ringfence sandbox port`.
#[derive(Debug, Args)]
pub struct SandboxPortArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
    /// The port inside, where a program listens at 127.0.0.1 or 0.0.0.0.
    #[arg(value_parser = values::port)]
    pub port: u16,
    /// Address to listen at: one of 127.0.0.0/8 but 127.0.0.1, to which browsers send the console's cookies (default:
    /// 127.0.0.2 with the same port).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = port_address)]
    pub listen: Option<SocketAddrV4>,
}

/// `ringfence sandbox logs`.
#[derive(Debug, Args)]
pub struct SandboxLogsArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
    /// Print further output as it arrives.
    #[arg(short, long)]
    pub follow: bool,
}

/// `ringfence sandbox stats`.
#[derive(Debug, Args)]
pub struct SandboxStatsArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// The sandbox.
    pub name: String,
    /// Print one line and exit.
    #[arg(long)]
    pub once: bool,
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;

    fn create(line: &str) -> SandboxCreateArgs {
        let words = ["ringfence", "sandbox", "create"].into_iter();
        let cli = Cli::try_parse_from(words.chain(line.split_whitespace())).unwrap();
        match cli.command {
            Command::Sandbox(SandboxCommand::Create(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn either_spelling_names_the_runtime_and_with_a_template_the_engine() {
        for spelling in ["--runtime", "--engine"] {
            let check = |rest: &str, runtime: SandboxRuntimeArg, engine: Option<EngineArg>| {
                let args = create(&format!("{spelling} {rest}"));
                assert_eq!((args.runtime, args.engine()), (Some(runtime), engine), "{rest}");
            };
            use SandboxRuntimeArg::{Docker, Local, Podman};
            check("local", Local, None);
            check("docker", Docker, None);
            check("podman", Podman, None);
            check("docker --template ai-provider", Docker, Some(EngineArg::Docker));
            check("podman --template ai-provider", Podman, Some(EngineArg::Podman));
            check("podman --oci-runtime crun", Podman, Some(EngineArg::Podman));
            check("docker --image a:1", Docker, Some(EngineArg::Docker));
            check("local --image a:1", Local, None);
            // The command refuses the template.
            check("local --template ai-provider", Local, None);
        }
        assert_eq!(create("--template x").engine(), Some(EngineArg::Docker));
        assert_eq!(create("--image a:1").engine(), None);
    }
}
