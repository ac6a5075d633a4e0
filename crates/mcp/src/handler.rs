//! Handles MCP requests and notifications.

use std::sync::{Arc, Mutex, PoisonError};

use ringfence_policy::{Scope, SessionId};
use ringfence_records::approval::PendingApproval;
use ringfence_tools::toolbox::{Answer, Caller, Surface, ToolError};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, Implementation,
    InitializeResult, InputRequiredResult, ListToolsResult, LoggingLevel, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, SetLevelRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::calls::{Calls, Seat};
use crate::invocation::{CallIdentity, Client, Event, Invocation, Use};
use crate::lines::{CallGuard, Length};
use crate::log::{Log, is_stateless};
use crate::parked::{self, Parked, ParkedInvocation};
use crate::roots::{Adopted, Roots};
use crate::{Elicitation, Peer, Settings, elicitation, progress, tools};
use ringfence_gateway_protocol::waiting;

/// Instructions for a model about all tools.
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

/// The same for clients of the HTTP API, who have no tool of files.
const REMOTE_INSTRUCTIONS: &str = "\
Ringfence runs code that nobody has read yet in a sandbox: no network, an empty working directory, limits on time, memory \
and output. Prefer these tools for anything that can be computed instead of guessed.
- run_python_code is for a quick calculation: print what you want to see. run_code takes other languages and files, and \
tells exit status, output and limits apart.
- A `session` of run_code keeps Python's variables and files, and shows figures. Every other run starts anew: give it what it \
needs, and print what you want to keep, for its files end with it.
- An error names its type, what was wrong, and after `hint:` what to do about it. Do that instead of calling again \
unchanged; permission_denied does not go away by trying.
- A timeout can be shortened, not lengthened: split long work.";

/// Maximum length of the client's name and version.
const MAX_CLIENT: usize = 100;

/// Handler of one connection. Clones share their state.
#[derive(Debug, Clone)]
pub(super) struct Handler(Arc<Server>);

#[derive(Debug)]
struct Server {
    scope: Scope,
    session: Option<SessionId>,
    roots: Roots,
    calls: Calls,
    /// Tasks of invocations; at most as many as there are calls.
    work: Mutex<JoinSet<()>>,
    parked: Parked,
    elicitation: Elicitation,
    notes: mpsc::Sender<String>,
    peer: Peer,
    log: Log,
    gone: watch::Receiver<bool>,
}

impl Handler {
    /// Creates a handler. Its calls are cancelled when `gone` becomes true.
    pub(super) fn new(settings: Settings, gone: watch::Receiver<bool>) -> Self {
        Self(Arc::new(Server {
            scope: settings.scope,
            session: settings.session,
            roots: Roots::new(settings.toolbox, settings.wishes),
            calls: Calls::new(),
            work: Mutex::default(),
            parked: Parked::default(),
            elicitation: settings.elicitation,
            notes: settings.notes,
            peer: settings.peer,
            log: Log::new(),
            gone,
        }))
    }

    /// Waits until no call is running.
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
            .with_instructions(match self.0.peer {
                Peer::Local => INSTRUCTIONS,
                Peer::Credential(_) => REMOTE_INSTRUCTIONS,
            })
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let toolbox = self.0.roots.toolbox();
        Ok(ListToolsResult::with_all_items(
            toolbox
                .tools()
                .map(|tool| tools::listed(tool, &self.0.peer))
                .collect(),
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
        if request.request_state.is_some() {
            return server.go_on(request, &context).await;
        }
        match server.roots.question(&request, &context).await {
            Ok(adopted) => server.tell_about(&context, &adopted).await,
            Err(question) => return Ok(question.into()),
        }
        server.call(seat, request, &context).await
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

    /// Answers a request of an unknown method. The library also reports requests with invalid parameters as
    /// such.
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
        let adopted = tokio::select! {
            adopted = self.roots.ask(&context.peer) => adopted,
            () = self.left() => return,
        };
        if let Some((level, what)) = adopted.log_message() {
            self.log.send(&context.peer, level, &what).await;
        }
    }

    async fn tell_about(&self, context: &RequestContext<RoleServer>, adopted: &Adopted) {
        if let Some((level, what)) = adopted.log_message() {
            self.log.tell_about(context, level, &what).await;
        }
    }

    /// Runs a call when it is its turn.
    async fn call(
        &self,
        seat: Seat,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let turn = tokio::select! {
            biased;
            () = self.cancellation(context) => None,
            turn = seat.turn() => turn,
        };
        let Some(turn) = turn else {
            // The caller is gone, and nothing has started.
            return Err(ErrorData::internal_error("cancelled", None));
        };
        let used = Use {
            toolbox: self.roots.toolbox(),
            caller: self.caller(context),
            tool: request.name.into_owned(),
            arguments: Value::Object(request.arguments.unwrap_or_default()),
        };
        let client = Client {
            answers: self.elicitation == Elicitation::Allowed && elicitation::is_offered(context),
            listens: context.meta.get_progress_token().is_some(),
        };
        let kept = context.extensions.get::<CallGuard>().cloned();
        let (invocation, work) = Invocation::new(used, client, self.gone.clone());
        self.see_to(async move {
            work.await;
            drop((turn, seat, kept));
        });
        self.supervise(invocation, context).await
    }

    /// Spawns work that outlives the request.
    fn see_to(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut all = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        while all.try_join_next().is_some() {}
        all.spawn(work);
    }

    /// Resumes a call whose question was sent to the client, with the client's answer.
    async fn go_on(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let named = CallIdentity::new(&request.name, &arguments);
        drop(arguments);
        let state = request.request_state.unwrap_or_default();
        let Some(ParkedInvocation { invocation, asked }) = self.parked.take(&state, &named) else {
            return Ok(tools::failed(&tools::not_waiting()).into());
        };
        let answers = request.input_responses.unwrap_or_default();
        let answer = elicitation::read(answers.get(elicitation::QUESTION), asked.request());
        elicitation::settle(&asked, answer, &elicitation::client_name(context)).await;
        self.supervise(invocation, context).await
    }

    /// Serves the request that waits for an invocation, until it has ended or needs another request.
    async fn supervise(
        &self,
        invocation: Invocation,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (unwanted, recent, since) = (
            invocation.unwanted(),
            Arc::clone(&invocation.recent),
            invocation.since,
        );
        let reporting = async {
            if let Some(token) = context.meta.get_progress_token() {
                progress::send(&context.peer, token, since, &recent).await;
            }
        };
        let taking_back = async {
            context.ct.cancelled().await;
            unwanted.send_replace(true);
        };
        let beside = async {
            tokio::join!(taking_back, reporting);
            std::future::pending().await
        };
        tokio::select! {
            biased;
            response = self.follow(invocation, context) => response,
            // The library no longer forwards messages, and would wait for this request forever.
            () = self.left() => Err(ErrorData::internal_error("cancelled", None)),
            never = beside => never,
        }
    }

    /// Forwards events of an invocation.
    async fn follow(
        &self,
        mut invocation: Invocation,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut pending: Option<Box<PendingApproval>> = None;
        loop {
            let event = tokio::select! {
                biased;
                () = over(&mut pending) => {
                    invocation.recent.wait(None);
                    pending = None;
                    continue;
                }
                event = invocation.next() => event,
            };
            match event {
                Event::Told(text) => self.log.tell_about(context, LoggingLevel::Notice, &text).await,
                Event::Asked(mut asked) => {
                    if asked.is_over() {
                        continue;
                    }
                    if !invocation.is_answered {
                        self.announce(&asked, &invocation, context).await;
                        pending = Some(asked);
                        continue;
                    }
                    if is_stateless(context) {
                        let asked = *asked;
                        return Ok(self.put_off(ParkedInvocation { invocation, asked }).into());
                    }
                    let by = elicitation::client_name(context);
                    elicitation::ask(&context.peer, &mut asked, &by).await;
                }
                Event::Done(answer) => return Ok(self.result(&invocation, answer, context).await?.into()),
            }
        }
    }

    /// Notifies the client, and the person at this machine, of a question that only the person can answer.
    async fn announce(
        &self,
        asked: &PendingApproval,
        invocation: &Invocation,
        context: &RequestContext<RoleServer>,
    ) {
        let what = waiting(asked.request());
        invocation.recent.wait(Some(what.clone()));
        self.log.tell_about(context, LoggingLevel::Warning, &what).await;
        // Nobody reads slowly here, and the question is listed anyway.
        let _ = self.notes.try_send(what);
    }

    /// Asks the client to get an answer from its user, and to retry with another request.
    fn put_off(&self, waiting: ParkedInvocation) -> InputRequiredResult {
        let request = waiting.asked.request();
        let (questions, state) = (elicitation::input(request), parked::state(request));
        self.parked.put(waiting);
        InputRequiredResult::new(Some(questions), Some(state))
    }

    /// Converts the result of an invocation.
    async fn result(
        &self,
        invocation: &Invocation,
        answer: Result<Answer, ToolError>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        match answer {
            Ok(answer) => {
                for warning in tools::warnings(&answer) {
                    self.log
                        .tell_about(context, LoggingLevel::Warning, &warning)
                        .await;
                }
                Ok(tools::answered(answer))
            }
            Err(error) if !invocation.is_known => Err(tools::unknown(&error)),
            Err(error) => Ok(tools::failed(&error)),
        }
    }

    /// Resolves when the client cancels the request or is gone.
    async fn cancellation(&self, context: &RequestContext<RoleServer>) {
        tokio::select! {
            () = context.ct.cancelled() => {}
            () = self.left() => {}
        }
    }

    /// Resolves when the client is gone.
    async fn left(&self) {
        // An error means that the connection has ended.
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let kept = |text: &str| text.chars().take(MAX_CLIENT).collect::<String>();
        let (surface, client) = match &self.peer {
            Peer::Local => {
                let info = context.client_info();
                let name = info.map(|client| format!("{}/{}", kept(&client.name), kept(&client.version)));
                (Surface::Mcp, name)
            }
            // A name that the client chose could be another credential's.
            Peer::Credential(name) => (Surface::McpOverHttp, Some(name.clone())),
        };
        Caller {
            scope: self.scope.clone(),
            session: self.session.clone(),
            surface,
            client,
        }
    }
}

/// Resolves when a question no longer waits. Never resolves without one.
async fn over(pending: &mut Option<Box<PendingApproval>>) {
    match pending {
        Some(asked) => asked.over().await,
        None => std::future::pending().await,
    }
}
