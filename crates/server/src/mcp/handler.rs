//! What the server does about each kind of message.

use std::sync::Arc;

use ringfence_policy::{Scope, SessionId};
use ringfence_runtime::kernel::{Answer, Attention, Caller, ErrorKind, Kernel, Surface, ToolError};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, Implementation,
    InitializeResult, ListToolsResult, LoggingLevel, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, SetLevelRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::calls::{Calls, Seat};
use super::lines::Length;
use super::log::Log;
use super::roots::{Adopted, Roots};
use super::{Settings, progress, tools};

/// What a model is told about all tools together.
const INSTRUCTIONS: &str = "\
Ringfence runs code that nobody has read yet, fenced off from this machine: no network, no files but its workspace, \
limits on time, memory and output. Prefer these tools for anything that can be computed instead of guessed.
- run_python_code is for a quick calculation: print what you want to see. run_code takes other languages and tells \
exit status, output and limits apart.
- Files that file tools write are there for code in its working directory, which is /workspace, and the other way \
round. Paths are relative to it.
- Code has no network. http_fetch reaches the hosts that the person here has allowed, and nothing else.
- An error names its type, what was wrong, and after `hint:` what to do about it. Do that instead of calling again \
unchanged; permission_denied does not go away by trying.
- A timeout can be shortened, not lengthened: split long work.";

/// How much of what a client says about itself is kept.
const MAX_CLIENT: usize = 100;

/// Pieces of output on their way into progress notifications.
const OUTPUT_UNDER_WAY: usize = 16;

/// One connection's server. Clones are the same server.
#[derive(Debug, Clone)]
pub(super) struct Handler(Arc<Server>);

#[derive(Debug)]
struct Server {
    scope: Scope,
    session: Option<SessionId>,
    roots: Roots,
    calls: Calls,
    log: Log,
    gone: watch::Receiver<bool>,
}

impl Handler {
    /// A server whose calls are taken back when `gone` becomes true.
    pub(super) fn new(settings: Settings, gone: watch::Receiver<bool>) -> Self {
        Self(Arc::new(Server {
            scope: settings.scope,
            session: settings.session,
            roots: Roots::new(settings.kernel, settings.wishes),
            calls: Calls::new(),
            log: Log::new(),
            gone,
        }))
    }

    /// Waits until no call runs any more.
    pub(super) async fn finished(&self) {
        self.0.calls.finished().await;
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_logging()
            .build();
        let about = Implementation::new("ringfence", env!("CARGO_PKG_VERSION")).with_title("Ringfence");
        InitializeResult::new(capabilities)
            .with_server_info(about)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let kernel = self.0.roots.kernel();
        Ok(ListToolsResult::with_all_items(
            kernel.tools().map(tools::listed).collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let server = &*self.0;
        let length = context.extensions.get().map_or(0, |Length(length)| *length);
        let Some(seat) = server.calls.enter(length) else {
            return Ok(tools::failed(&tools::too_many()).into());
        };
        match server.roots.question(&request, &context).await {
            Ok(adopted) => server.tell_about(&context, &adopted).await,
            Err(question) => return Ok(question.into()),
        }
        Ok(server.call(&seat, request, &context).await?.into())
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.log.set(request.level);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.0.ask_for_roots(&context).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        self.0.ask_for_roots(&context).await;
    }

    /// The library takes a request whose parameters it cannot read for one of a kind that it does not know.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method: String = request.method.chars().take(80).collect();
        Err(match method.as_str() {
            "tools/call" | "tools/list" | "logging/setLevel" | "initialize" | "ping" => {
                ErrorData::invalid_params(format!("the parameters of `{method}` are not right"), None)
            }
            _ => ErrorData::new(
                rmcp::model::ErrorCode::METHOD_NOT_FOUND,
                format!("there is no method `{}`", method.escape_debug()),
                None,
            ),
        })
    }
}

impl Server {
    async fn ask_for_roots(&self, context: &NotificationContext<RoleServer>) {
        let mut gone = self.gone.clone();
        let adopted = tokio::select! {
            adopted = self.roots.ask(&context.peer) => adopted,
            _ = gone.wait_for(|gone| *gone) => return,
        };
        if let Some((level, what)) = adopted.told() {
            self.log.tell(&context.peer, level, &what).await;
        }
    }

    async fn tell_about(&self, context: &RequestContext<RoleServer>, adopted: &Adopted) {
        if let Some((level, what)) = adopted.told() {
            self.log.tell_about(context, level, &what).await;
        }
    }

    /// Makes a call in its turn.
    async fn call(
        &self,
        seat: &Seat<'_>,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let kernel = self.roots.kernel();
        let name = request.name.into_owned();
        let turn = tokio::select! {
            biased;
            () = self.taken_back(context) => None,
            turn = seat.turn() => turn,
        };
        if turn.is_none() {
            // Nobody waits for it, and nothing has begun.
            return Err(ErrorData::internal_error("taken back", None));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        match self.invoke(&kernel, &name, arguments, context).await {
            Ok(answer) => {
                for warning in tools::warnings(&answer) {
                    self.log
                        .tell_about(context, LoggingLevel::Warning, &warning)
                        .await;
                }
                Ok(tools::answered(answer))
            }
            Err(error) if error.kind == ErrorKind::NotFound && !has(&kernel, &name) => {
                Err(tools::unknown(&error))
            }
            Err(error) => Ok(tools::failed(&error)),
        }
    }

    /// Invokes the tool, and looks after whoever waits for it meanwhile.
    async fn invoke(
        &self,
        kernel: &Kernel,
        tool: &str,
        arguments: Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<Answer, ToolError> {
        let (cancel, cancelled) = watch::channel(false);
        let mut attention = Attention {
            cancelled: Some(cancelled),
            ..Attention::default()
        };
        let token = context.meta.get_progress_token();
        let reporting = token.map(|token| {
            let (output, chunks) = mpsc::channel(OUTPUT_UNDER_WAY);
            attention.output = Some(output);
            progress::report(&context.peer, token, chunks)
        });
        let caller = self.caller(context);
        let invoking = kernel.invoke(&caller, tool, arguments, attention);
        // Whatever else is going on, the invocation comes to its end: it kills what it started, and is recorded.
        let beside = async {
            let taking_back = async {
                self.taken_back(context).await;
                cancel.send_replace(true);
            };
            match reporting {
                Some(reporting) => drop(tokio::join!(taking_back, reporting)),
                None => taking_back.await,
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            answer = invoking => answer,
            never = beside => never,
        }
    }

    /// Ends when the client wants no answer any more, or is gone.
    async fn taken_back(&self, context: &RequestContext<RoleServer>) {
        let mut gone = self.gone.clone();
        tokio::select! {
            () = context.ct.cancelled() => {}
            // An error means that the connection has ended.
            _ = gone.wait_for(|gone| *gone) => {}
        }
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let kept = |text: &str| text.chars().take(MAX_CLIENT).collect::<String>();
        Caller {
            scope: self.scope.clone(),
            session: self.session.clone(),
            surface: Surface::Mcp,
            client: context
                .client_info()
                .map(|client| format!("{}/{}", kept(&client.name), kept(&client.version))),
        }
    }
}

fn has(kernel: &Kernel, name: &str) -> bool {
    kernel.tools().any(|tool| tool.name == name)
}
