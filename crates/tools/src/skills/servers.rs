//! MCP servers as skills: their tools are functions.

mod answer;
mod conversation;
mod echo;
mod events;
mod http;
mod names;
mod process;
mod schema;
mod tools;
mod wire;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_exec::local::{Fence, Local};
use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::NamedPaths;
use ringfence_network::egress::{Guard, NetworkSettings};
use ringfence_network::fetch::Url;
use ringfence_policy::{Bytes, Cidr, EgressPolicy, EnvName, Host, HostPattern, Timeout, Trusted};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::journal::Journal;
use super::{CallError, Function, Offer, Skill, SkillFuture, needs};
use conversation::{Client, conversation};
pub use events::Events;
pub use http::Credential;
use http::Site;
use process::Start;
use ringfence_records::audit::Digest;
use tools::Tools;
pub use wire::read as read_message;
use wire::{TransportEnd, wire};

/// Maximum number of pages of a list of tools.
const MAX_PAGES: usize = 32;

/// MCP protocol version of this client.
const PROTOCOL: &str = "2025-11-25";

/// Configuration of a server.
#[derive(Debug, Clone)]
pub struct ServerPlan {
    /// Name of the server's skill, see [`skill_name`].
    pub name: String,
    pub reach: Reach,
}

/// Transport of a server.
#[derive(Debug, Clone)]
pub enum Reach {
    /// A process that is started on first use.
    Process(ServerProcess),
    /// A remote server.
    Http {
        /// Endpoint.
        url: Url,
        /// Headers with credentials.
        credentials: Vec<Credential>,
    },
}

/// Configuration of a server process.
#[derive(Debug, Clone)]
pub struct ServerProcess {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables, in addition to the standard ones.
    pub env: Vec<(EnvName, String)>,
    /// Mounts, as `HOST:GUEST[:ro|rw]`.
    pub mounts: Vec<String>,
    /// Hosts that the server may reach.
    pub hosts: Vec<HostPattern>,
    /// Memory of all its processes together.
    pub memory: Bytes,
    /// Minimum strength of the fence.
    pub fence: Fence,
}

/// Settings shared by all servers.
#[derive(Debug)]
pub struct Surroundings {
    /// Paths that no process may see.
    pub hidden: DeniedPaths,
    /// Paths that no process may change.
    pub trusted: Trusted,
    /// Rules for resolving the paths of mounts.
    pub paths: NamedPaths,
    /// Network settings for remote servers.
    pub network: NetworkSettings,
    /// Non-public address ranges that may be reached.
    pub private_networks: Vec<Cidr>,
    /// Timeout of the handshake and of listing tools.
    pub patience: Timeout,
    /// Directory for logs of standard error. `None` discards it.
    pub journals: Option<PathBuf>,
}

/// Returns the skill name of a server: its name as a Python identifier. `None` if there is none.
pub fn skill_name(server: &str) -> Option<String> {
    names::identifier(server)
}

/// MCP servers as a skill source. Each is started or contacted on first use, and again when it has died.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Server>,
    around: Surroundings,
    /// `None` once closed.
    local: Mutex<Option<Arc<Local>>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Server {
    name: String,
    reach: Way,
    up: Mutex<Option<StartResult>>,
}

/// Result of the last start or listing; `None` while in progress.
type StartResult = watch::Receiver<Option<Result<Arc<ConnectedServer>, String>>>;

/// A connection to a server whose tools are to be listed.
#[derive(Debug)]
enum Partner {
    /// A new connection, before the handshake.
    New(Client),
    /// A connection whose list of tools has changed.
    Known(Arc<Client>),
}

#[derive(Debug)]
enum Way {
    Process(ServerProcess),
    Http(Arc<Site>),
}

/// A connected server with its tools.
#[derive(Debug)]
struct ConnectedServer {
    client: Arc<Client>,
    tools: Tools,
}

/// The task of a transport.
type Carrying = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Servers {
    /// Creates a source of these servers. Processes are started by `local`, which must not be shared. Starts
    /// nothing yet.
    pub fn new(plans: Vec<ServerPlan>, local: Local, around: Surroundings) -> Self {
        let server = |ServerPlan { name, reach }| Server {
            name,
            reach: match reach {
                Reach::Process(process) => Way::Process(process),
                Reach::Http { url, credentials } => Way::Http(Arc::new(around.site(url, credentials))),
            },
            up: Mutex::default(),
        };
        Self {
            servers: plans.into_iter().map(server).collect(),
            around,
            local: Mutex::new(Some(Arc::new(local))),
            tasks: Mutex::default(),
        }
    }

    /// Returns a connected server with its tools: starts it if it is down, lists its tools again if they have
    /// changed. Dropping the future cancels neither; the next caller gets the result.
    async fn ensure(&self, server: &Server) -> Result<Arc<ConnectedServer>, String> {
        let mut coming = self.coming(server)?;
        let told = coming.wait_for(Option::is_some).await;
        let up = told.ok().and_then(|told| told.clone());
        up.unwrap_or_else(|| Err("it was stopped".to_owned()))
    }

    fn coming(&self, server: &Server) -> Result<StartResult, String> {
        let mut known = server.up();
        let partner = match known.as_ref().map(|coming| (coming, coming.borrow().clone())) {
            Some((coming, None)) if coming.has_changed().is_ok() => return Ok(coming.clone()),
            Some((coming, Some(Ok(up)))) if up.client.is_up() => match up.client.has_changed() {
                true => Partner::Known(Arc::clone(&up.client)),
                false => return Ok(coming.clone()),
            },
            _ => Partner::New(self.start(server)?),
        };
        let (tell, coming) = watch::channel(None);
        let name = server.name.clone();
        self.spawn(bring_up(name, partner, self.around.patience, tell));
        *known = Some(coming.clone());
        Ok(coming)
    }

    /// Starts a server process, or connects to a remote server.
    fn start(&self, server: &Server) -> Result<Client, String> {
        let (wire, carried) = wire();
        let (client, conversation) = conversation(wire);
        self.spawn(self.carrying(server, carried)?);
        self.spawn(conversation.hold());
        Ok(client)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn carrying(&self, server: &Server, carried: TransportEnd) -> Result<Carrying, String> {
        Ok(match &server.reach {
            Way::Http(site) => Box::pin(http::carry(Arc::clone(site), carried)),
            Way::Process(process) => {
                let start = self.around.start(process)?;
                let local = self.local().clone();
                let local = local.ok_or_else(|| "the skills are closed".to_owned())?;
                let journal = Journal::open(self.around.journals.as_deref(), &server.name);
                Box::pin(process::carry(local, start, carried, journal))
            }
        })
    }

    fn local(&self) -> MutexGuard<'_, Option<Arc<Local>>> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    fn up(&self) -> MutexGuard<'_, Option<StartResult>> {
        self.up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Surroundings {
    fn start(&self, process: &ServerProcess) -> Result<Start, String> {
        Ok(Start {
            command: process.command.clone(),
            env: process.env.clone(),
            trusted: self.trusted.clone(),
            mounts: needs::mounts(
                &process.mounts,
                Path::new("/"),
                "its entry",
                &self.hidden,
                &self.paths,
            )?,
            network: needs::network(process.hosts.clone(), &self.private_networks),
            memory: process.memory,
            fence: process.fence,
        })
    }

    /// Limits a remote server's connections to its own endpoint.
    fn site(&self, url: Url, credentials: Vec<Credential>) -> Site {
        let here = match &url.host {
            Host::Name(name) if name.as_str() == "localhost" => ["127.0.0.1", "::1"].as_slice(),
            _ => &[],
        };
        let here = here.iter().filter_map(|address| address.parse().ok());
        let open = self.private_networks.iter().copied().chain(here).collect();
        let policy = EgressPolicy::of_named(vec![HostPattern::only(url.host.clone(), url.port)], open);
        Site {
            url,
            credentials,
            guard: Guard::new(policy, self.network.resolver.clone()),
            trust: Arc::clone(&self.network.trust),
        }
    }
}

/// Waits for a server's tools. Cancels the start once no receiver is left.
async fn bring_up(
    name: String,
    partner: Partner,
    patience: Timeout,
    tell: watch::Sender<Option<Result<Arc<ConnectedServer>, String>>>,
) {
    let coming = async {
        let client = match partner {
            Partner::New(client) => introduced(client).await?,
            Partner::Known(client) => client,
        };
        let tools = listed(&name, &client).await?;
        Ok(Arc::new(ConnectedServer { client, tools }))
    };
    let late = || format!("it did not say within {patience} what it offers");
    let up = tokio::select! {
        up = tokio::time::timeout(patience.as_duration(), coming) => up.unwrap_or_else(|_| Err(late())),
        () = tell.closed() => return,
    };
    tell.send_replace(Some(up));
}

/// Performs the MCP handshake.
async fn introduced(client: Client) -> Result<Arc<Client>, String> {
    let us = json!({
        "protocolVersion": PROTOCOL,
        "capabilities": {},
        "clientInfo": {"name": "ringfence", "version": env!("CARGO_PKG_VERSION")},
    });
    let greeted = client.request("initialize", us).await;
    greeted.map_err(|fault| fault.message)?;
    client.notify("notifications/initialized").await;
    Ok(Arc::new(client))
}

async fn listed(skill: &str, client: &Client) -> Result<Tools, String> {
    let mut tools = Tools::default();
    let mut params = json!({});
    for _ in 0..MAX_PAGES {
        let page = client.request("tools/list", params).await;
        let page = page.map_err(|fault| fault.message)?;
        match tools.add(skill, &page)? {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return Ok(tools),
        }
    }
    tools.cut(skill, MAX_PAGES);
    Ok(tools)
}

impl Skill for Servers {
    fn offer(&self) -> SkillFuture<'_, Offer> {
        Box::pin(async move {
            let up = self.servers.iter().map(|server| self.ensure(server));
            let up = futures_util::future::join_all(up).await;
            let mut offer = Offer::default();
            for (server, up) in self.servers.iter().zip(up) {
                match up {
                    Ok(up) => {
                        offer.functions.extend(up.tools.functions());
                        offer.problems.extend(up.tools.problems());
                    }
                    Err(why) => offer.problems.push(unavailable_reason(&server.name, &why)),
                }
            }
            offer
        })
    }

    fn definition<'a>(&'a self, path: &'a str) -> SkillFuture<'a, Option<Digest>> {
        Box::pin(async move {
            let skill = path.split('.').next();
            let server = self.servers.iter().find(|server| Some(&*server.name) == skill)?;
            self.ensure(server).await.ok()?.tools.definition(path)
        })
    }

    fn call<'a>(
        &'a self,
        function: &'a Function,
        arguments: Map<String, Value>,
    ) -> SkillFuture<'a, Result<Value, CallError>> {
        Box::pin(async move {
            let gone = || CallError::new("unavailable", "its server is not there any more");
            let mut servers = self.servers.iter();
            let server = servers.find(|server| server.name == function.skill());
            let up = self.ensure(server.ok_or_else(gone)?).await;
            let up = up.map_err(|why| CallError::new("unavailable", why))?;
            let tool = up.tools.tool(function.path());
            let tool =
                tool.ok_or_else(|| CallError::new("not_found", "its server does not offer it any more"))?;
            let asked = json!({"name": tool.name, "arguments": tool.named(arguments)});
            let result = up.client.request("tools/call", asked).await?;
            answer::value(&result, tool)
        })
    }

    fn close(&self) -> SkillFuture<'_, ()> {
        Box::pin(async move {
            // Nothing is started from here on. Dropping the clients closes the connections, which ends the
            // servers.
            let local = self.local().take();
            for server in &self.servers {
                server.up().take();
            }
            let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            while tasks.join_next().await.is_some() {}
            if let Some(local) = local.and_then(Arc::into_inner) {
                // Leftovers are removed at the next start.
                local.close().await;
            }
        })
    }
}

/// Sanitizes the reason why a server is unavailable, for programs.
fn unavailable_reason(name: &str, why: &str) -> String {
    format!("{name}: {}", super::fault::sanitised(why))
}
