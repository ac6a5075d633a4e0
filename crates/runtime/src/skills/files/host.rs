//! The process that serves one file of skills.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::{Language, Mount, Network, Request};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::super::{Declared, Fault, Function, process};
use super::HostLimits;
use super::manifest::Manifest;
use crate::bridge::{Call, Id, Line, Message, Speaker, bridge};
use crate::local::{Connection, Local};

/// What runs in it.
const PROGRAM: &str = include_str!("../../../python/skills.py");

/// How long it may take to come up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls that it is given at once. What is said to it then always finds room on the line.
const AT_ONCE: usize = 8;

/// Calls that wait for their turn.
const MAX_WAITING: usize = 64;

/// How often calls are looked for that nobody waits for any more.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long it may go on with one.
const GRACE: Duration = Duration::from_secs(1);

/// What a process serves, and for how much.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) file: &'a str,
    /// The file's text.
    pub(super) code: String,
    pub(super) mounts: Vec<Mount>,
    pub(super) network: Network,
    pub(super) limits: HostLimits,
}

/// The process of a file, as those see it who call its functions.
#[derive(Debug)]
pub(super) struct Host {
    orders: mpsc::Sender<Order>,
    functions: BTreeMap<String, Arc<Function>>,
    problems: Vec<String>,
}

/// A process that is coming up.
#[derive(Debug)]
pub(super) struct Coming {
    orders: mpsc::Sender<Order>,
    offered: oneshot::Receiver<Result<Value, String>>,
}

/// A call for the process.
#[derive(Debug)]
struct Order {
    call: Call,
    /// Closed when nobody waits for it any more.
    reply: oneshot::Sender<Result<Value, Fault>>,
}

/// What a process says of its file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Offered {
    functions: Vec<Declared>,
    left_out: Vec<String>,
}

/// A process for a file, and what runs it: it ends when the process does, and has it end when nobody needs it.
pub(super) fn prepare(local: &Arc<Local>, place: Place<'_>) -> (Coming, impl Future<Output = ()> + use<>) {
    let fence = place.limits.fence;
    let begin = json!({"file": place.file, "code": place.code});
    let request = request(place);
    let (orders, ordered) = mpsc::channel(MAX_WAITING);
    let (offer, offered) = oneshot::channel();
    let local = Arc::clone(local);
    let task = async move {
        let (line, duct) = bridge();
        let (cancel, cancelled) = watch::channel(false);
        let connection = Connection {
            bridge: Some(duct),
            cancelled: Some(cancelled),
            ..Connection::none()
        };
        let running = local.run(&request, fence, None, connection);
        let mut offer = Some(offer);
        let talking = talk((line, begin), &mut offer, ordered);
        tokio::pin!(running);
        let result = tokio::select! {
            result = &mut running => result,
            () = talking => {
                cancel.send_replace(true);
                running.await
            }
        };
        if let Some(offer) = offer {
            let how = result.map_or_else(|error| error.explain(), |result| process::words(&result));
            let _ = offer.send(Err(how));
        }
    };
    (Coming { orders, offered }, task)
}

impl Coming {
    /// The process, once it serves its file.
    pub(super) async fn up(self, manifest: &Manifest) -> Result<Host, String> {
        let Self { orders, offered } = self;
        let Ok(answered) = tokio::time::timeout(PATIENCE, offered).await else {
            return Err(format!("it was not loaded within {} seconds", PATIENCE.as_secs()));
        };
        let answered = answered.unwrap_or_else(|_| Err("its process was ended".to_owned()));
        let offered = answered.map_err(|why| format!("it could not be loaded: {why}"))?;
        let Offered { functions, left_out } = serde_json::from_value(offered)
            .map_err(|error| format!("what it offers makes no sense: {error}"))?;
        let mut host = Host {
            orders,
            functions: BTreeMap::new(),
            problems: left_out,
        };
        for declared in functions {
            let policy = manifest.policy(&declared.path);
            match Function::new(declared, policy) {
                Ok(function) => {
                    host.functions
                        .insert(function.path().to_owned(), Arc::new(function));
                }
                Err(wrong) => host.problems.push(wrong.to_string()),
            }
        }
        Ok(host)
    }
}

impl Host {
    pub(super) fn is_up(&self) -> bool {
        !self.orders.is_closed()
    }

    pub(super) fn offers(&self, path: &str) -> bool {
        self.functions.contains_key(path)
    }

    pub(super) fn functions(&self) -> impl Iterator<Item = Arc<Function>> {
        self.functions.values().cloned()
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        self.problems.iter().cloned()
    }

    /// Has a function called. To drop the call takes it back.
    pub(super) async fn call(&self, path: &str, arguments: Map<String, Value>) -> Result<Value, Fault> {
        let (reply, replied) = oneshot::channel();
        let call = Call {
            path: path.to_owned(),
            args: Vec::new(),
            kwargs: arguments,
        };
        let ended = || Fault::new("unavailable", "the process of its skill has ended");
        let order = Order { call, reply };
        self.orders.send(order).await.map_err(|_| ended())?;
        replied.await.map_err(|_| ended())?
    }
}

fn request(place: Place<'_>) -> Request {
    Request {
        code: PROGRAM.to_owned(),
        name: "skills.py".to_owned(),
        language: Language::Python,
        ..process::request(place.limits.memory, place.network, place.mounts)
    }
}

/// Has the file loaded, then has functions called, until nobody needs the process or it does not answer as it should.
async fn talk(
    (mut line, begin): (Line, Value),
    offer: &mut Option<oneshot::Sender<Result<Value, String>>>,
    orders: mpsc::Receiver<Order>,
) {
    let speaker = line.speaker();
    speaker.say(&Message::Execute(Id::whole(), begin)).await;
    let offered = match line.next().await {
        Ok(Some(Message::Complete(_, offered))) => Ok(offered),
        Ok(Some(Message::Error(_, fault))) => Err(fault.message),
        // The end of the process says why.
        Ok(None) => return std::future::pending().await,
        Ok(Some(_)) => Err("it answered what makes no sense".to_owned()),
        Err(malformed) => Err(malformed.to_string()),
    };
    let is_up = offered.is_ok();
    let offer = offer.take();
    if offer.is_some_and(|offer| offer.send(offered).is_ok()) && is_up {
        let calls = Calls::default();
        calls.attend(line, speaker, orders).await;
    }
}

/// The calls that the process has not answered, oldest first.
#[derive(Debug, Default)]
struct Calls {
    last: u64,
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    reply: oneshot::Sender<Result<Value, Fault>>,
    /// Since when the process knows that nobody waits for it.
    taken_back: Option<Instant>,
}

impl Calls {
    async fn attend(mut self, mut line: Line, speaker: Speaker, mut orders: mpsc::Receiver<Order>) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = line.next() => match message {
                    Ok(Some(Message::Result(id, value))) => self.answered(&id, Ok(value)),
                    Ok(Some(Message::Error(id, fault))) => self.answered(&id, Err(fault)),
                    // The end of the process closes the line; what it says instead of an answer makes no sense.
                    Ok(_) | Err(_) => return,
                },
                order = orders.recv(), if self.open.len() < AT_ONCE => match order {
                    Some(order) => self.begin(order, &speaker).await,
                    None => return,
                },
                _ = looks.tick(), if !self.open.is_empty() => {
                    self.take_back(&speaker).await;
                    if self.is_stuck() {
                        return;
                    }
                }
            }
        }
    }

    async fn begin(&mut self, Order { call, reply }: Order, speaker: &Speaker) {
        if reply.is_closed() {
            return;
        }
        self.last += 1;
        let id = self.last;
        speaker.say(&Message::Call(Id::of(id), call)).await;
        self.open.insert(
            id,
            Open {
                reply,
                taken_back: None,
            },
        );
    }

    fn answered(&mut self, id: &Id, answer: Result<Value, Fault>) {
        // An answer to no call is nobody's.
        let id = self.open.keys().copied().find(|open| Id::of(*open) == *id);
        if let Some(open) = id.and_then(|id| self.open.remove(&id)) {
            let _ = open.reply.send(answer);
        }
    }

    /// Tells the process of calls that nobody waits for any more.
    async fn take_back(&mut self, speaker: &Speaker) {
        for (id, open) in &mut self.open {
            if open.taken_back.is_none() && open.reply.is_closed() {
                open.taken_back = Some(Instant::now());
                let fault = Fault::new("cancelled", "taken back");
                speaker.say(&Message::Error(Id::of(*id), fault)).await;
            }
        }
    }

    /// Whether the process goes on with what nobody waits for. Calls that are not coroutines are answered in order: the
    /// oldest is the one that it works on.
    fn is_stuck(&self) -> bool {
        let oldest = self.open.values().next().and_then(|open| open.taken_back);
        oldest.is_some_and(|since| since.elapsed() > GRACE)
    }
}
