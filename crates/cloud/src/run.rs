//! A run, from its request to its result.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_exec::backend;
use ringfence_exec::local::output_files::CollectedFiles;
use ringfence_exec::local::{Connection, Destination, Fence, ProgramEnd, Spared, execution_result};
use ringfence_exec::supervise::{Interruption, ProgramExit, RunLimits, cancellation};
use ringfence_network::secret::KeyError;
use ringfence_policy::{ExecutionResult, Network, Outcome, Request, ResourceLimits, RuntimeKind};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::control::{Control, Sandbox};
use crate::envd::{Envd, Stdin};
use crate::error::{Error, Said};
use crate::files::{self, SentFile};
use crate::outputs;
use crate::program::{self, OutputReader};
use crate::settings::Settings;

/// Lifetime of a sandbox beyond its program's time limit, for its preparation and for fetching files. The
/// sandbox ends by itself after that.
const MARGIN: Duration = Duration::from_secs(180);

/// Timeout of the preparation of a sandbox: it may trickle bytes for ever.
const PREPARING: Duration = Duration::from_secs(60);

/// Makes the directories that every program has. The user of hosted sandboxes may become root.
const PREPARE: &str = "for d in /workspace /output; do [ -w $d ] || mkdir -p $d 2>/dev/null && [ -w $d ] || \
                       sudo -n install -d -o \"$(id -u)\" -g \"$(id -g)\" $d || exit 1; done";

/// A request, with everything that decides how it runs.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) request: Request,
    pub(crate) fence: Fence,
    pub(crate) output_directory: Option<PathBuf>,
    /// Names that no output file may have.
    pub(crate) protected: Arc<Vec<String>>,
    pub(crate) connection: Connection,
    /// Closes when the caller no longer waits for the result.
    pub(crate) caller: watch::Receiver<bool>,
}

/// The end of a program.
#[derive(Debug)]
enum Ending {
    Exited(Option<i32>),
    Interrupted(Interruption),
    /// The service failed while the program ran: nothing is known of its end.
    Broken(Error),
}

/// The end of a program, with its output and files.
#[derive(Debug)]
struct Ran {
    ending: Ending,
    files: CollectedFiles,
}

/// The ways in which a caller takes a request back.
#[derive(Debug, Clone)]
struct Stop {
    cancelled: Option<watch::Receiver<bool>>,
    caller: watch::Receiver<bool>,
}

impl Stop {
    /// Resolves when the run is cancelled, or the caller no longer waits for it.
    async fn reached(self) {
        tokio::select! {
            () = cancellation(self.cancelled) => {}
            () = cancellation(Some(self.caller)) => {}
        }
    }
}

/// Rejects a request that cannot be promised.
fn check(request: &Request, fence: Fence) -> Result<(), Error> {
    if request.session.is_some() {
        return Err(Error::Elsewhere("a session"));
    }
    if request.network != Network::None {
        return Err(Error::Elsewhere(
            "a network: no list of hosts can be enforced there",
        ));
    }
    match fence {
        Fence::Default | Fence::BestEffort => Ok(()),
        Fence::Required => Err(Error::Required),
        Fence::Unfenced | Fence::Host => Err(Error::Elsewhere("a run without a fence")),
    }
}

/// Runs a request in a sandbox of its own, which is killed afterwards.
pub(crate) async fn run(settings: Arc<Settings>, order: Order) -> Result<ExecutionResult, backend::Error> {
    let since = Instant::now();
    let Order {
        request,
        fence,
        output_directory,
        protected,
        connection,
        caller,
    } = order;
    check(&request, fence)?;
    let spared = Spared {
        protected: &protected,
        trusted: &request.trusted,
    };
    let destination = output_directory
        .map(|path| Destination::open(&path, spared))
        .transpose();
    let destination = destination.map_err(Error::OutputDirectory)?;
    let sent = files::gathered(&request.mounts)?;
    let key = settings.key.read().await;
    let control = Control::new(settings, key.map_err(|error: KeyError| Error::NoKey(error))?)?;
    let lifetime = request.limits.timeout.as_duration() + MARGIN;
    let Connection {
        stdin,
        output,
        cancelled,
        bridge: _,
    } = connection;
    let mut steps = SandboxRun {
        request: &request,
        destination: destination.as_ref(),
        stop: Stop { cancelled, caller },
        reader: OutputReader::new(&request.limits, output),
    };
    // A creation is awaited whatever happens: the sandbox of one that was given up would live on.
    let sandbox = control.create(lifetime).await?;
    let ran = steps.inside(&control, &sandbox, sent, stdin).await;
    let left = control
        .kill(&sandbox.id)
        .await
        .err()
        .map(|error| format!("the sandbox may live on for {} s: {error}", lifetime.as_secs()));
    match (ran, left) {
        (Ok(ran), left) => {
            let mut result = result(&request, ran, steps.reader);
            result.meta.warnings.extend(left);
            result.duration = since.elapsed().as_secs_f64();
            Ok(result)
        }
        (Err(error), None) => Err(error.into()),
        (Err(error), Some(left)) => {
            let error = backend::Error::from(error);
            Err(backend::Error {
                message: format!("{}; {left}", error.message),
                ..error
            })
        }
    }
}

/// The steps of a run in its sandbox.
struct SandboxRun<'a> {
    request: &'a Request,
    destination: Option<&'a Destination>,
    stop: Stop,
    reader: OutputReader,
}

impl SandboxRun<'_> {
    async fn inside(
        &mut self,
        control: &Control,
        sandbox: &Sandbox,
        sent: Vec<SentFile>,
        stdin: Option<mpsc::Receiver<Vec<u8>>>,
    ) -> Result<Ran, Error> {
        let envd = Envd {
            origin: control.origin_of(sandbox)?,
        };
        let prepared = tokio::select! {
            prepared = timeout(PREPARING, prepare(&envd, self.request, sent)) => match prepared {
                Ok(prepared) => Some(prepared?),
                Err(_) => return Err(Error::Setup(Said::new("it was not ready in time", ""))),
            },
            () = self.stop.clone().reached() => None,
        };
        let ending = match prepared {
            Some(()) => self.program(&envd, stdin).await?,
            None => Ending::Interrupted(Interruption::Cancelled),
        };
        let files = self.files(&envd, &ending).await;
        Ok(Ran { ending, files })
    }

    /// Runs the program to its end. What keeps it from starting is an error.
    async fn program(
        &mut self,
        envd: &Envd,
        stdin: Option<mpsc::Receiver<Vec<u8>>>,
    ) -> Result<Ending, Error> {
        let timeout = self.request.limits.timeout.as_duration();
        let limits = RunLimits {
            deadline: tokio::time::Instant::now() + timeout,
            cancellation: self.stop.clone().reached(),
            // The service decides how much its sandboxes may write.
            disk_limit_exceeded: std::future::pending(),
        };
        let input = stdin.as_ref().map_or(Stdin::Empty, |_| Stdin::Open);
        let reader = &mut self.reader;
        let running = async {
            let process = envd.start(program::process(self.request, input)).await?;
            Ok::<_, Error>(program::follow(envd, process, stdin, reader).await)
        };
        tokio::select! {
            biased;
            interruption = limits.reached() => Ok(Ending::Interrupted(interruption)),
            ended = running => match ended? {
                Ok(status) => Ok(Ending::Exited(status)),
                Err(error) => Ok(Ending::Broken(error)),
            },
        }
    }

    /// Fetches the output files of a program that has ended.
    async fn files(&self, envd: &Envd, ending: &Ending) -> CollectedFiles {
        let left = |why: &str| CollectedFiles {
            files: Vec::new(),
            warnings: vec![format!("the output files were not fetched: {why}")],
            incomplete: true,
        };
        match ending {
            Ending::Exited(_) => tokio::select! {
                fetched = outputs::fetch(envd, self.destination, self.request.limits.disk) => fetched,
                () = self.stop.clone().reached() => left("the run was cancelled"),
            },
            // The sandbox is killed with the program in it.
            Ending::Interrupted(_) | Ending::Broken(_) => match self.destination {
                Some(_) => left("the program did not end by itself"),
                None => CollectedFiles::default(),
            },
        }
    }
}

/// Makes the directories, and sends the code and its files.
async fn prepare(envd: &Envd, request: &Request, sent: Vec<SentFile>) -> Result<(), Error> {
    let produced = program::script(envd, PREPARE, 64 * 1024)
        .await
        .map_err(|error| match error {
            // There is no shell.
            Error::Program(said) => Error::Setup(said),
            other => other,
        })?;
    if produced.status != Some(0) {
        return Err(Error::Setup(produced.said()));
    }
    let code = program::main_file(request.language).map(|path| SentFile {
        path,
        bytes: request.code.clone().into_bytes(),
    });
    for SentFile { path, bytes } in sent.into_iter().chain(code) {
        envd.write(&path, bytes).await?;
    }
    Ok(())
}

/// Assembles a result, which claims no layer, and no limit but those that this machine enforced.
fn result(request: &Request, ran: Ran, reader: OutputReader) -> ExecutionResult {
    let Ran { ending, files } = ran;
    let (status, interruption) = match &ending {
        Ending::Exited(status) => (*status, None),
        Ending::Interrupted(interruption) => (None, Some(*interruption)),
        Ending::Broken(_) => (None, None),
    };
    let exit = ProgramExit {
        status,
        out_of_memory: false,
        interruption,
    };
    let (outcome, exit_code) = exit.outcome();
    let (stdout, stderr) = reader.finish();
    let end = ProgramEnd {
        outcome,
        exit_code,
        stdout,
        stderr,
    };
    let mut result = execution_result(RuntimeKind::E2b, request, end);
    let meta = &mut result.meta;
    meta.isolation = None;
    meta.remote = true;
    meta.resource_limits = ResourceLimits {
        memory_bytes: None,
        cpus: None,
        pids: None,
        disk_bytes: None,
        ..meta.resource_limits
    };
    meta.output_files = files.files;
    meta.output_incomplete = files.incomplete;
    meta.warnings.extend(files.warnings);
    match ending {
        Ending::Broken(error) => meta
            .warnings
            .push(format!("the service failed while the program ran: {error}")),
        Ending::Exited(_) if outcome == Outcome::Unknown => {
            meta.warnings
                .push("the service does not say how the program ended".to_owned());
        }
        Ending::Exited(_) | Ending::Interrupted(_) => {}
    }
    if request.workspace.is_some() {
        meta.warnings
            .push("the workspace stays on this machine: the program does not see it".to_owned());
    }
    result
}
