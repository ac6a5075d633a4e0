//! The context of one invocation: capabilities, deadline and the caller's channels.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_exec::backend;
use ringfence_exec::local::{Chunk, Connection, Fence, FencedRequest, PrivateDirectory};
use ringfence_exec::runner::{self, Hooks, OutputDirectory, RunSpec};
use ringfence_network::egress::Attempt;
use ringfence_network::fetch::Fetcher;
use ringfence_policy::{
    Access, ExecutionResult, Family, Feature, Limits, Mount, Network, RemoteRequest, RemoteRun, Request,
    RuntimeKind, Target, Terms, Timeout, remedy,
};
use tokio::sync::{mpsc, watch};

use super::disk_quota::{DiskQuota, within};
use super::egress_meter::EgressLog;
use super::{
    Allowance, Approvals, CallRecord, Caller, DeadlineExtension, ErrorKind, Extension, Parts, Questions,
    ToolError,
};
use crate::files::{self, Root, WriteMode};
use crate::host::HostSettings;
use crate::shell::{self, Contained, Program, ShellOutput, ShellRunner};

/// A run that starts this soon after its invocation gets the whole limit.
const AT_ONCE: Duration = Duration::from_millis(50);

/// The context of one invocation.
#[derive(Debug)]
pub struct Call<'a> {
    pub(super) toolbox: &'a Parts,
    pub(super) workspace: Option<Arc<Root>>,
    pub caller: &'a Caller,
    /// Time limit, from the start of the invocation.
    pub allowance: Allowance,
    /// Set if the caller requested more time than the limit.
    pub asked_beyond: bool,
    /// End of the time limit.
    pub deadline: Instant,
    pub(super) recording: &'a CallRecord<'a>,
    pub(super) cancelled: Option<watch::Receiver<bool>>,
    pub(super) overtime: &'a DeadlineExtension,
    pub(super) output: Option<mpsc::Sender<Chunk>>,
    pub(super) questions: Option<Questions>,
    pub(super) notices: Option<mpsc::Sender<String>>,
}

impl Call<'_> {
    /// Returns the time left until the deadline, at least the minimum timeout. Returns the whole limit for a
    /// run that starts at once, so that a message about a timeout names the configured limit.
    pub(crate) fn remaining(&self) -> Timeout {
        let hard = self.allowance.hard;
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left + AT_ONCE >= hard.as_duration() {
            return hard;
        }
        Timeout::try_from(left.max(Duration::from_millis(1)).as_secs_f64()).unwrap_or(hard)
    }

    /// Creates the error for a passed deadline.
    pub(crate) fn timed_out(&self, tool: &str) -> ToolError {
        ToolError::new(
            ErrorKind::Timeout,
            format!("`{tool}` timed out after {}", self.allowance.hard),
            remedy::Tool::RaiseTimeout {
                tool: tool.to_owned(),
            },
        )
    }

    /// Creates the error for a limit that was not extended, with the reason.
    pub(super) fn not_extended(&self, tool: &str, why: &str) -> ToolError {
        let mut error = self.timed_out(tool);
        error.message = format!("`{tool}` timed out after {}: {why}", self.allowance.limit);
        error
    }

    /// Returns the terms of the caller's requests: scope, workspace, variables and limits.
    pub(crate) fn terms(&self) -> Terms {
        let code = &self.toolbox.code;
        let limits = code.limits.on(code.runtime);
        Terms {
            scope: self.caller.scope.clone(),
            runtime: code.runtime,
            limits: Limits {
                timeout: self.remaining(),
                max_output: limits.max_output.min(self.toolbox.limits.max_output),
                ..*limits
            },
            network: code.network.clone(),
            env: code.variables.clone(),
            workspace: self.workspace.as_ref().map(|root| root.real().to_path_buf()),
            trusted: code.trusted.clone(),
        }
    }

    /// Converts a request of the caller under these terms. The toolbox has read its timeout, and may extend
    /// it if the configuration allows.
    pub(crate) fn accept(&self, request: RemoteRequest) -> RemoteRun {
        let request = RemoteRequest {
            timeout: None,
            ..request
        };
        request.under(self.terms())
    }

    /// Rejects a runtime that only the operator may choose: one to which code and files are sent.
    pub(crate) fn check_runtime(&self, runtime: RuntimeKind) -> Result<(), ToolError> {
        let configured = self.terms().runtime;
        if runtime.traits().family != Family::Remote || runtime == configured {
            return Ok(());
        }
        Err(ToolError::new(
            ErrorKind::RuntimeUnavailable,
            format!(
                "the runtime `{runtime}` is not available to callers, who would send code and files off this machine: \
                 the configured runtime is `{configured}`"
            ),
            remedy::Run::UseLocal,
        ))
    }

    /// Runs file work on a blocking thread, in the caller's workspace or in the output directory of its
    /// programs.
    pub(crate) async fn files<T: Send + 'static>(
        &self,
        path: String,
        work: impl FnOnce(&Root, &str) -> Result<T, files::Error> + Send + 'static,
    ) -> Result<T, ToolError> {
        if let Some((root, path)) = self.left_by_programs(&path) {
            let working = tokio::task::spawn_blocking(move || work(&root?, &path));
            return Ok(working.await.map_err(|_| broken())??);
        }
        let root = self.workspace.clone().ok_or_else(|| {
            ToolError::new(
                ErrorKind::PermissionDenied,
                "there is no workspace, and thus no file to work on",
                remedy::Tool::NameWorkspace,
            )
        })?;
        let working = tokio::task::spawn_blocking(move || work(&root, &path));
        Ok(working.await.map_err(|_| broken())??)
    }

    /// Returns warnings about the requested or extended time limit.
    fn words_about_time(&self, seconds: f64) -> Vec<String> {
        let Allowance {
            limit,
            hard,
            extension,
        } = self.allowance;
        let beyond = self
            .asked_beyond
            .then(|| format!("the caller asked for more time than {limit}, and there is no more"));
        let extended = (extension == Extension::Configured && seconds > limit.as_duration().as_secs_f64())
            .then(|| format!("the limit of {limit} was extended by the configuration, to {hard} at most"));
        beyond.into_iter().chain(extended).collect()
    }

    /// Records attempts to reach hosts, for the audit log.
    pub(crate) fn tried(&self, attempts: &[Attempt]) {
        self.recording.notes().tried(attempts);
    }

    /// Returns a log of attempts whose bytes count for the caller.
    pub(crate) fn egress_log(&self) -> EgressLog<'_> {
        let owner = &self.recording.caller().scope;
        EgressLog::new(self.toolbox.egress_meter.as_deref(), owner)
    }

    /// Writes files for the program of a request: into the workspace or, if there is none, into a temporary
    /// directory that is removed with the returned guard.
    pub(crate) async fn supply(
        &self,
        request: &mut Request,
        runtime: RuntimeKind,
        files: BTreeMap<String, String>,
    ) -> Result<Option<PrivateDirectory>, ToolError> {
        if files.is_empty() {
            return Ok(None);
        }
        if files.len() > MAX_FILES {
            return Err(ToolError::new(
                ErrorKind::LimitExceeded,
                format!("`/files` holds {} files; {MAX_FILES} is the limit", files.len()),
                "write them with `file_write`, or pack them into one",
            ));
        }
        let write = |root: &Root| {
            let write = |(path, content): (&String, &String)| {
                root.write(path, content.as_bytes(), WriteMode::Replace)
            };
            files.iter().try_for_each(|file| write(file).map(drop))
        };
        let shows_none = runtime.lacks(Feature::Workspace);
        if let Some(root) = self.workspace.as_ref().filter(|_| !shows_none) {
            write(root)?;
            return Ok(None);
        }
        let directory = PrivateDirectory::create(&self.toolbox.scratch).map_err(|error| {
            ToolError::new(
                ErrorKind::Internal,
                format!("cannot make a directory for the files: {error}"),
                "let Ringfence write to the directory for temporary files (`TMPDIR`), and make room there",
            )
        })?;
        let root = Root::open(directory.path(), self.toolbox.workspaces.rules().clone())?;
        write(&root)?;
        let mount = Mount::new(root.real().to_path_buf(), "/workspace", Access::Copy);
        request.mounts.extend(mount);
        Ok(Some(directory))
    }

    /// Returns the HTTP client.
    pub(crate) fn fetcher(&self) -> &Fetcher {
        &self.toolbox.fetcher
    }

    /// Returns the maximum size of an answer in bytes.
    pub(crate) fn max_output(&self) -> usize {
        usize::try_from(self.toolbox.limits.max_output.0).unwrap_or(usize::MAX)
    }

    /// Runs a request like every run: with the import check, the fence, and an artifact where configured.
    pub(crate) async fn execute(
        &self,
        request: Request,
        runtime: RuntimeKind,
        stdin: Option<Vec<u8>>,
    ) -> Result<Executed, ToolError> {
        let code = &self.toolbox.code;
        let target = Target::of(runtime);
        // Locked until the run has ended.
        let output = self.output_of().await;
        let fallback = code
            .fallback
            .target(&target)
            .map(|other| code.spec(request.clone(), other));
        let spec = RunSpec {
            output_directory: output
                .as_ref()
                .map(|output| OutputDirectory::new(output.path().to_path_buf()).showing_earlier()),
            fallback: fallback.map(Box::new),
            ..code.spec(request, target)
        };
        let mut result = self.run(&spec, self.room(&spec), stdin).await?;
        // A fallback has no output directory.
        let keeps_output = output.is_some() && result.meta.runtime == spec.target.runtime().as_str();
        if !keeps_output {
            result.meta.warnings.extend(discarded(&spec.request, &result));
        }
        Ok(Executed { result, keeps_output })
    }

    /// Runs a request, unless it fills the room that it has.
    pub(super) async fn run(
        &self,
        spec: &RunSpec,
        room: Option<DiskQuota>,
        stdin: Option<Vec<u8>>,
    ) -> Result<ExecutionResult, ToolError> {
        let gatekeeper = self.bridge();
        let complete = |result: &mut ExecutionResult| self.overtime.add_notices(result);
        let run = async |cancelled| {
            let hooks = Hooks {
                bridge: gatekeeper.as_ref().map(|gatekeeper| gatekeeper as _),
                complete: Some(&complete),
            };
            let running = self
                .toolbox
                .runner
                .run(spec, hooks, self.connection(stdin, cancelled));
            Ok(running.await?)
        };
        let mut result = within(room, self.cancelled.clone(), run).await?;
        self.recording.notes().reached(result.meta.egress.as_ref());
        self.recording.notes().ended(result.meta.outcome);
        let meta = &mut result.meta;
        meta.warnings.extend(self.words_about_time(result.duration));
        // A client on another machine need not learn the directories of this one.
        if self.caller.surface.is_remote() {
            meta.artifact = meta.artifact.as_deref().and_then(file_name);
        }
        Ok(result)
    }

    /// Returns the settings of commands on this machine itself.
    pub(crate) fn host(&self) -> Result<&HostSettings, ToolError> {
        self.toolbox.host.as_ref().ok_or_else(|| {
            ToolError::new(
                ErrorKind::PermissionDenied,
                "commands on the host are switched off",
                remedy::Tool::AllowHostCommands,
            )
        })
    }

    /// Returns the runner of commands of the tool `shell`.
    pub(crate) fn runner(&self) -> &ShellRunner {
        &self.toolbox.shell
    }

    /// Returns the working directory of a command on the host.
    pub(crate) fn directory(&self, host: &HostSettings) -> PathBuf {
        let workspace = self.workspace.as_ref().map(|root| root.real().to_path_buf());
        workspace.unwrap_or_else(|| host.directory.clone())
    }

    /// Notifies the user. A failure to do so is ignored: it is not a reason to withhold an answer.
    pub(crate) async fn notify(&self, text: &str) {
        if let Some(notices) = &self.notices {
            // Dropped if the caller does not read notices.
            let _ = notices.try_send(text.to_owned());
        }
        if let Some(Approvals { service, chat }) = &self.toolbox.approvals {
            let _ = service.notify(chat, text).await;
        }
    }

    /// Runs a command with a runner, or with its fallback if the container engine is unavailable.
    pub(crate) async fn command(
        &self,
        runner: &ShellRunner,
        request: Request,
        program: Program,
        working_directory: Option<&str>,
    ) -> Result<ShellOutput, ToolError> {
        let Some(other) = runner.fallback() else {
            return self.command_by(runner, request, program, working_directory).await;
        };
        let ran = self.command_by(runner, request.clone(), program.clone(), working_directory);
        match ran.await {
            Err(error) if error.kind == ErrorKind::RuntimeUnavailable => {
                let ran = self.command_by(other, request, program, working_directory);
                let mut output = ran.await?;
                output
                    .warnings
                    .push(runner::replaced(&error.message, other.as_str()));
                Ok(output)
            }
            ran => ran,
        }
    }

    async fn command_by(
        &self,
        runner: &ShellRunner,
        mut request: Request,
        program: Program,
        working_directory: Option<&str>,
    ) -> Result<ShellOutput, ToolError> {
        if let Some(text) = working_directory {
            let below = shell::working_directory(text).ok_or_else(|| {
                ToolError::new(
                    ErrorKind::InvalidArguments,
                    format!(
                        "`/working_dir`: `{}` leads out of the workspace",
                        text.escape_debug()
                    ),
                    "write a path relative to the workspace, without `..`",
                )
            })?;
            request.working_directory = Some(below);
        }
        check_words(&program)?;
        request.limits.max_output = self.toolbox.limits.max_output;
        runner.equip(&mut request);
        let is_line = program.name.contains(char::is_whitespace);
        let mut request = shell::request(request, program);
        let fence = runner.fence(self.toolbox.code.fence);
        if fence == Fence::Host {
            self.recording.begun()?;
            // A command on the host uses the host's network.
            request.network = Network::None;
        }
        // Only time and output of a command on the host are limited.
        let room = self.room_of(&request).filter(|_| fence != Fence::Host);
        let run = async |cancelled| {
            let connection = self.connection(None, cancelled);
            Ok(match runner {
                ShellRunner::Container(Contained {
                    containers, engine, ..
                }) => {
                    let ran = containers
                        .run(
                            *engine,
                            FencedRequest {
                                request: &request,
                                fence,
                            },
                            None,
                            connection,
                        )
                        .await;
                    ran.map_err(backend::Error::from)?
                }
                ShellRunner::Fenced | ShellRunner::Host(_) => {
                    let spec = RunSpec::new(request, Target::Local, fence);
                    self.toolbox.runner.backend().run(&spec, connection).await?
                }
            })
        };
        let ran = within(room, self.cancelled.clone(), run).await;
        let mut result = ran.map_err(|error| if is_line { not_a_line(error) } else { error })?;
        self.overtime.add_notices(&mut result);
        self.recording.notes().reached(result.meta.egress.as_ref());
        self.recording.notes().ended(result.meta.outcome);
        result
            .meta
            .warnings
            .extend(self.words_about_time(result.duration));
        Ok(ShellOutput::of(result, runner))
    }

    /// Returns the private directory that a run can fill, with the smaller limit of the request and its
    /// fallback.
    fn room(&self, spec: &RunSpec) -> Option<DiskQuota> {
        let mut room = self.room_of(&spec.request)?;
        if let Some(fallback) = &spec.fallback {
            room.limit = room.limit.min(fallback.request.limits.disk);
        }
        Some(room)
    }

    /// Returns the private directory that a request can fill: the workspace, or the mount of files supplied
    /// with the call.
    fn room_of(&self, request: &Request) -> Option<DiskQuota> {
        let supplied = request.mounts.first().map(|mount| &mount.host);
        self.private_room(request).or_else(|| {
            Some(DiskQuota {
                directory: supplied?.clone(),
                limit: request.limits.disk,
            })
        })
    }

    /// Returns the workspace, unless the user has chosen it.
    pub(super) fn private_room(&self, request: &Request) -> Option<DiskQuota> {
        let private = |_: &&PathBuf| self.toolbox.workspaces.is_measured();
        let directory = request.workspace.as_ref().filter(private)?.clone();
        let limit = request.limits.disk;
        Some(DiskQuota { directory, limit })
    }

    /// Connects a run to the caller of this invocation.
    fn connection(&self, stdin: Option<Vec<u8>>, cancelled: Option<watch::Receiver<bool>>) -> Connection {
        let stdin = stdin.map(|bytes| {
            let (sender, receiver) = mpsc::channel(1);
            // The channel has capacity for one; dropping the sender ends the input.
            let _ = sender.try_send(bytes);
            receiver
        });
        Connection {
            stdin,
            output: self.output.clone(),
            cancelled,
            bridge: None,
        }
    }
}

/// The result of a run.
pub(crate) struct Executed {
    pub(crate) result: ExecutionResult,
    /// Set if the run's output files are in the output directory of the conversation.
    pub(crate) keeps_output: bool,
}

/// Returns the last component of a path.
fn file_name(path: &str) -> Option<String> {
    Some(Path::new(path).file_name()?.to_str()?.to_owned())
}

/// Returns a warning if the program wrote files to an `/output` that ended with it. A session's ends with the session.
fn discarded(request: &Request, result: &ExecutionResult) -> Option<String> {
    let ended = request.session.is_none();
    let first = result.meta.output_files.first().filter(|_| ended)?;
    let advice = match request.workspace {
        Some(_) => "write files to /workspace",
        None => "there is no workspace; print what matters",
    };
    Some(format!(
        "/output/{} was discarded with the run: {advice}",
        first.path
    ))
}

/// Adds a hint to the error for a missing program whose name looks like a shell command line.
fn not_a_line(error: ToolError) -> ToolError {
    const HINT: &str = "name the program alone in `command`, and each argument in `args`; for a shell's line use \
                        `run_code` with bash";
    if error.kind != ErrorKind::NotFound {
        return error;
    }
    ToolError::new(error.kind, error.message, HINT)
}

/// Rejects NUL in arguments: it ends an argument in the kernel.
fn check_words(program: &Program) -> Result<(), ToolError> {
    let wrong = if program.name.contains('\0') {
        "/command".to_owned()
    } else if let Some(index) = program.args.iter().position(|arg| arg.contains('\0')) {
        format!("/args/{index}")
    } else {
        return Ok(());
    };
    Err(ToolError::new(
        ErrorKind::InvalidArguments,
        format!("`{wrong}` holds NUL, which no argument of a program can"),
        "write it to a file, and have the program read that",
    ))
}

/// Maximum number of files supplied with code.
const MAX_FILES: usize = 100;

fn broken() -> ToolError {
    ToolError::new(
        ErrorKind::Internal,
        "the task of the file operation panicked",
        "report this as a defect",
    )
}
