//! MCP servers as skills: their tools are functions.

mod answer;
mod conversation;
mod echo;
mod events;
mod http;
mod process;
mod schema;
mod tools;
mod wire;
mod words;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::{Bytes, Cidr, EgressPolicy, EnvName, Host, HostPattern, Timeout, Trusted};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::journal::Journal;
use super::{Asked, Fault, Function, Offer, Skill, needs};
use crate::audit::Digest;
use crate::egress::{Guard, NetworkSettings};
use crate::exposure::Hidden;
use crate::fetch::Url;
use crate::local::{Fence, Local};
use conversation::{Client, conversation};
pub use events::Events;
pub use http::Credential;
use http::Site;
use process::Start;
use tools::Tools;
pub use wire::read as read_message;
use wire::{Carried, wire};

/// Pages of a list of tools.
const MAX_PAGES: usize = 32;

/// What we speak.
const PROTOCOL: &str = "2025-11-25";

/// A server, as it is configured.
#[derive(Debug, Clone)]
pub struct ServerPlan {
    /// The name of its skill, see [`skill_name`].
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Reach {
    /// It is started.
    Process(ServerProcess),
    /// It is there.
    Http {
        /// Where.
        url: Url,
        /// What it wants to see.
        credentials: Vec<Credential>,
    },
}

/// A server that is started when it is first used.
#[derive(Debug, Clone)]
pub struct ServerProcess {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its environment, beside what every program sees.
    pub env: Vec<(EnvName, String)>,
    /// Paths of the host that it sees, as `HOST:GUEST[:ro|rw]`.
    pub mounts: Vec<String>,
    /// Hosts that it may reach.
    pub hosts: Vec<HostPattern>,
    /// Memory of all its processes together.
    pub memory: Bytes,
    /// How strongly it is fenced.
    pub fence: Fence,
}

/// What all servers have in common.
#[derive(Debug)]
pub struct Surroundings {
    /// What no process may see.
    pub hidden: Hidden,
    /// What none may change.
    pub trusted: Trusted,
    /// How servers are reached that are there already.
    pub network: NetworkSettings,
    /// Ranges of addresses that are not public, and may be reached all the same.
    pub private_networks: Vec<Cidr>,
    /// How long one may take until it has said what it offers.
    pub patience: Timeout,
    /// Where it is kept what servers write to standard error; `None`: nowhere.
    pub journals: Option<PathBuf>,
}

/// The name of the skill of a server: its own, made into one of Python. `None`: that cannot be done.
pub fn skill_name(server: &str) -> Option<String> {
    words::identifier(server)
}

/// MCP servers. Each is started, or spoken to, at the first use, and anew when it has died.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Server>,
    around: Surroundings,
    /// Until they are closed.
    local: Mutex<Option<Arc<Local>>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Server {
    name: String,
    reach: Way,
    up: Mutex<Option<Coming>>,
}

/// What became of the last start, or of another look at what the server offers; nothing while that is under way.
type Coming = watch::Receiver<Option<Result<Arc<Up>, String>>>;

/// A server that is to say what it offers.
#[derive(Debug)]
enum Partner {
    /// It has just been started.
    New(Client),
    /// It has said so before.
    Known(Arc<Client>),
}

#[derive(Debug)]
enum Way {
    Process(ServerProcess),
    Http(Arc<Site>),
}

/// A server that answers.
#[derive(Debug)]
struct Up {
    client: Arc<Client>,
    tools: Tools,
}

/// What carries messages, as a task.
type Carrying = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Servers {
    /// These servers; those that are started are processes of `local`, which is theirs alone. Nothing is started yet.
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

    /// A server that answers, with what it offers: started if it does not, asked again if that has changed. To drop this
    /// ends neither: who asks next finds what came of it.
    async fn ensure(&self, server: &Server) -> Result<Arc<Up>, String> {
        let mut coming = self.coming(server)?;
        let told = coming.wait_for(Option::is_some).await;
        let up = told.ok().and_then(|told| told.clone());
        up.unwrap_or_else(|| Err("it was ended".to_owned()))
    }

    fn coming(&self, server: &Server) -> Result<Coming, String> {
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

    /// Starts a server, or begins to speak to one.
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

    fn carrying(&self, server: &Server, carried: Carried) -> Result<Carrying, String> {
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
    fn up(&self) -> MutexGuard<'_, Option<Coming>> {
        self.up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Surroundings {
    fn start(&self, process: &ServerProcess) -> Result<Start, String> {
        Ok(Start {
            command: process.command.clone(),
            env: process.env.clone(),
            trusted: self.trusted.clone(),
            mounts: needs::mounts(&process.mounts, (Path::new("/"), "its entry"), &self.hidden)?,
            network: needs::network(process.hosts.clone(), &self.private_networks),
            memory: process.memory,
            fence: process.fence,
        })
    }

    /// The way to one place and to no other.
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

/// Waits for a server to say what it offers, unless nobody knows of it any more: that ends it.
async fn bring_up(
    name: String,
    partner: Partner,
    patience: Timeout,
    tell: watch::Sender<Option<Result<Arc<Up>, String>>>,
) {
    let coming = async {
        let client = match partner {
            Partner::New(client) => introduced(client).await?,
            Partner::Known(client) => client,
        };
        let tools = listed(&name, &client).await?;
        Ok(Arc::new(Up { client, tools }))
    };
    let late = || format!("it did not say within {patience} what it offers");
    let up = tokio::select! {
        up = tokio::time::timeout(patience.as_duration(), coming) => up.unwrap_or_else(|_| Err(late())),
        () = tell.closed() => return,
    };
    tell.send_replace(Some(up));
}

/// A server that knows who speaks to it.
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

/// Everything that a server offers.
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
    fn offer(&self) -> Asked<'_, Offer> {
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
                    Err(why) => offer.problems.push(told(&server.name, &why)),
                }
            }
            offer
        })
    }

    fn definition<'a>(&'a self, path: &'a str) -> Asked<'a, Option<Digest>> {
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
    ) -> Asked<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let gone = || Fault::new("unavailable", "its server is not there any more");
            let mut servers = self.servers.iter();
            let server = servers.find(|server| server.name == function.skill());
            let up = self.ensure(server.ok_or_else(gone)?).await;
            let up = up.map_err(|why| Fault::new("unavailable", why))?;
            let tool = up.tools.tool(function.path());
            let tool =
                tool.ok_or_else(|| Fault::new("not_found", "its server does not offer it any more"))?;
            let asked = json!({"name": tool.name, "arguments": tool.named(arguments)});
            let result = up.client.request("tools/call", asked).await?;
            answer::value(&result, tool)
        })
    }

    fn close(&self) -> Asked<'_, ()> {
        Box::pin(async move {
            // From here on none is started. Whom nobody asks any more is told to end.
            let local = self.local().take();
            for server in &self.servers {
                server.up().take();
            }
            let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            while tasks.join_next().await.is_some() {}
            if let Some(local) = local.and_then(Arc::into_inner) {
                // What cannot be removed is removed at the next start, which looks for it.
                let _ = local.close().await;
            }
        })
    }
}

/// Why a server offers nothing, in words that a program may see.
fn told(name: &str, why: &str) -> String {
    format!("{name}: {}", super::fault::sanitised(why))
}
