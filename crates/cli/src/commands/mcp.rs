//! `ringfence mcp`: serves the tools to the MCP client that started us.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_exec::backend::Backend;
use ringfence_exec::local::Local;
use ringfence_mcp::{self as mcp, Elicitation, Peer, RootRequest, Settings};
use ringfence_policy::{Scope, SessionId, Trusted};
use ringfence_tools::skills::Skills;
use ringfence_tools::toolbox::Toolbox;
use ringfence_tools::workspaces::Workspaces;
use tokio::sync::mpsc;

use crate::context::Context;
use crate::ui::Ui;
use ringfence::private_workspace::{Keep, PrivateWorkspace};
use ringfence::{InProcess, local, packages, settings, toolbox};
use ringfence_args::McpArgs;
use ringfence_gateway_protocol::interrupted;

/// Maximum number of threads for slow system calls, standard input and output.
const MAX_BLOCKING_THREADS: usize = 8;

/// Maximum number of messages to the user that are not printed yet.
const MAX_NOTES: usize = 16;

/// Maximum number of yields while waiting for other tasks to release the backend.
const MAX_YIELDS: usize = 1000;

/// Note for a person who starts it by hand.
const ON_TERMINAL: &str = "this server speaks MCP on standard input and output, one JSON message a line; a client starts it itself, as \
                           with `claude mcp add ringfence -- ringfence mcp`; Ctrl-D ends it";

/// The server of one client.
struct Server<'a> {
    context: &'a Context,
    scope: Scope,
    process: InProcess,
    /// The process, with the packages of sessions.
    backend: Arc<dyn Backend>,
    skills: Option<Arc<Skills>>,
    /// The directory named on the command line.
    named: Option<PathBuf>,
    /// The workspace while the client offers none, if none was named.
    private: Option<PrivateWorkspace>,
}

pub(crate) fn run(args: &McpArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .build()?;
    let process = backend(context)?;
    let backend = Arc::new(process.clone());
    let mut server = Server {
        context,
        scope: args.user.clone().unwrap_or_else(Scope::local),
        backend: packages::with_session_defaults(backend, &process.local, context)?,
        process,
        skills: ringfence::skills::all(None, context)?.map(Arc::new),
        named: args
            .workspace
            .as_deref()
            .map(|named| settings::workspace(named, context))
            .transpose()?,
        private: None,
    };
    let mut workspaces = toolbox::workspaces(server.named.as_deref(), context)?;
    if workspaces.is_open_to_choice() {
        let keep = match args.keep_workspace {
            true => Keep::Always,
            false => Keep::Never,
        };
        let private = PrivateWorkspace::make(keep, context)?;
        workspaces = toolbox::directory(private.path(), context)?.measured();
        server.private = Some(private);
    }
    let toolbox = server.toolbox(workspaces)?;
    let session = args.session.clone().or_else(own_session);
    let served = runtime.block_on(server.serve(toolbox, session));
    // A thread may still block on standard input, for ever.
    runtime.shutdown_background();
    served?;
    Ok(ExitCode::SUCCESS)
}

fn backend(context: &Context) -> anyhow::Result<InProcess> {
    let settings = local::settings(&settings::settings(context)?, local::pool(context)?, context)?;
    Ok(InProcess::for_many(Local::new(settings), context)?)
}

/// Returns the default session id: each connection is a conversation.
fn own_session() -> Option<SessionId> {
    let since = std::time::UNIX_EPOCH.elapsed().ok()?.as_millis();
    format!("mcp-{since}-{}", std::process::id()).parse().ok()
}

impl Server<'_> {
    fn toolbox(&self, workspaces: Workspaces) -> anyhow::Result<Toolbox> {
        let (backend, skills) = (self.backend.clone(), self.skills.clone());
        Ok(toolbox::build(backend, skills, workspaces, self.context)?)
    }

    /// Serves the client until it disconnects or we are interrupted, then cleans up.
    async fn serve(self, toolbox: Toolbox, session: Option<SessionId>) -> anyhow::Result<()> {
        let (wishes, wished) = mpsc::channel(1);
        let (notes, noted) = mpsc::channel(MAX_NOTES);
        let trusted = toolbox.trusted().clone();
        let settings = Settings {
            scope: self.scope.clone(),
            session,
            toolbox: Arc::new(toolbox),
            wishes: self.private.is_some().then_some(wishes),
            elicitation: match self.context.config()?.gateway.mcp_elicitation {
                true => Elicitation::Allowed,
                false => Elicitation::Off,
            },
            notes,
            peer: Peer::Local,
        };
        if std::io::stdin().is_terminal() {
            self.context.ui.note(ON_TERMINAL);
        }
        let (reader, writer) = mcp::stdio_pipes();
        tokio::select! {
            () = mcp::serve(settings, reader, writer, interrupted()) => {}
            () = self.supervise(wished, &trusted) => {}
            () = print(noted, self.context.ui) => {}
        }
        released(&self.backend).await;
        self.process.close().await;
        if let Some(skills) = self.skills {
            skills.close().await;
        }
        if let Some(PrivateWorkspace::Kept(path)) = &self.private {
            // Nobody may be left to read it.
            let kept = format!("the workspace is kept in {}\n", path.display());
            let _ = self.context.ui.err(kept);
        }
        Ok(())
    }

    /// Handles the client's root requests, and warms up workers for the tools' workspace. Never returns.
    async fn supervise(&self, mut wished: mpsc::Receiver<RootRequest>, trusted: &Trusted) {
        if let Some(named) = &self.named {
            self.warm_up(named, trusted).await;
        }
        while let Some(wish) = wished.recv().await {
            match wish {
                RootRequest::Adopt(path, answer) => {
                    let adopted = self.adopt(&path);
                    let place = adopted.as_ref().ok();
                    let place = place.map(|(place, toolbox)| (place.clone(), toolbox.trusted().clone()));
                    // The waiting call continues without warm workers.
                    let toolbox = adopted.map(|(_, toolbox)| toolbox);
                    let _ = answer.send(toolbox.map_err(|error| format!("{error:#}")));
                    if let Some((place, trusted)) = place {
                        self.warm_up(&place, &trusted).await;
                    }
                }
                RootRequest::Stay => {
                    if let Some(private) = &self.private {
                        self.warm_up(private.path(), trusted).await;
                    }
                }
            }
        }
        std::future::pending().await
    }

    /// Returns a toolbox for a directory of the client's, and that directory without links.
    fn adopt(&self, path: &Path) -> anyhow::Result<(PathBuf, Toolbox)> {
        let place = settings::workspace(path, self.context)?;
        let workspaces = toolbox::directory(&place, self.context)?;
        let toolbox = self.toolbox(workspaces)?;
        Ok((place, toolbox))
    }

    async fn warm_up(&self, workspace: &Path, trusted: &Trusted) {
        let warming = self.process.local.warm_up(&self.scope, Some(workspace), trusted);
        if let Err(error) = warming.await {
            self.context.ui.warn(&error.explain());
            self.context.ui.hint(&error.hint().person());
        }
    }
}

/// Prints messages to the user, who reads our standard error or the client's log of it. Never returns.
async fn print(mut noted: mpsc::Receiver<String>, ui: Ui) {
    while let Some(note) = noted.recv().await {
        ui.note(&note);
    }
    std::future::pending().await
}

/// Waits until the tasks of the last messages have released the backend.
async fn released(backend: &Arc<dyn Backend>) {
    for _ in 0..MAX_YIELDS {
        if Arc::strong_count(backend) == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
}
