//! Watches directories: as a stream, or as a watcher whose events a client fetches.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::Request;
use axum::response::Response;
use ringfence_sandbox::files::{Event, EventType, Operation, WatchDepth, parse};
use serde::Deserialize;
use serde_json::{Value, json};

use super::entry;
use super::paths::User;
use super::watchers::{MAX, Watcher};
use crate::body::{self, BrokenOff};
use crate::known::Opened;
use crate::rpc::{self, Code, RpcError};
use crate::token::Token;

/// Time to wait for a further event, when a client fetches.
const SILENCE: Duration = Duration::from_millis(50);
/// Time to collect events in all: a busy directory must not hold up the answer.
const COLLECTING: Duration = Duration::from_secs(1);
/// Events that a client gets at once.
const MAX_FETCHED: usize = 10_000;
/// Time without an event after which a stream says that it lives.
const KEEPALIVE: Duration = Duration::from_secs(50);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatchRequest {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    include_entry: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatcherId {
    watcher_id: String,
}

impl Watcher {
    /// Begins to watch: returns once changes are noticed.
    async fn begin(opened: &Opened, user: &User, asked: WatchRequest) -> Result<Self, RpcError> {
        let path = user.absolute(&opened.sandbox, &asked.path).await?;
        let depth = match asked.recursive {
            true => WatchDepth::Recursive,
            false => WatchDepth::Flat,
        };
        let operation = Operation::Watch {
            path: path.clone(),
            depth,
        };
        let mut watcher = Self {
            operating: user.files(&opened.sandbox).operate(&operation).await?,
            user: user.clone(),
            path,
            include_entry: asked.include_entry,
            lines: Vec::new(),
        };
        match watcher.next().await? {
            Some(Event {
                kind: EventType::Ready,
                ..
            }) => Ok(watcher),
            _ => Err(RpcError::new(Code::Internal, "the directory is not watched")),
        }
    }

    /// Returns the next event; `None` at the end. Cancel safe.
    async fn next(&mut self) -> Result<Option<Event>, RpcError> {
        loop {
            if let Some(end) = self.lines.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.lines.drain(..=end).collect();
                return Ok(Some(parse(&line)?));
            }
            match self.operating.next().await? {
                Some(bytes) if self.lines.len() <= body::MAX => self.lines.extend(bytes),
                _ => return Ok(None),
            }
        }
    }

    /// Renders an event as those of E2B; `None` if E2B has no word for it.
    async fn rendered(&self, opened: &Opened, event: &Event) -> Result<Option<Value>, RpcError> {
        let kind = match event.kind {
            EventType::Create => "EVENT_TYPE_CREATE",
            EventType::Write => "EVENT_TYPE_WRITE",
            EventType::Remove => "EVENT_TYPE_REMOVE",
            EventType::Rename => "EVENT_TYPE_RENAME",
            EventType::Chmod => "EVENT_TYPE_CHMOD",
            EventType::Ready | EventType::Gone => return Ok(None),
            EventType::Overflow | EventType::Limit => {
                let message = "changes were lost, or there are too many directories: list them anew";
                return Err(RpcError::new(Code::ResourceExhausted, message));
            }
        };
        let has_entry = matches!(
            event.kind,
            EventType::Create | EventType::Write | EventType::Chmod
        );
        let mut rendered = json!({"name": event.path, "type": kind});
        if self.include_entry && has_entry {
            // It may have gone since.
            let path = format!("{}/{}", self.path.trim_end_matches('/'), event.path);
            if let Ok(entry) = entry::stat(opened, self.user.files(&opened.sandbox), path).await {
                rendered["entry"] = entry;
            }
        }
        Ok(Some(rendered))
    }
}

/// Follows the changes of a directory as a stream.
pub(super) async fn follow(opened: Opened, user: &User, request: Request) -> Result<Response, RpcError> {
    let watcher = Watcher::begin(&opened, user, rpc::framed(request).await?).await?;
    let first = rpc::data(&json!({"start": {}}));
    let state = (Some(first), Some(watcher), opened);
    Ok(rpc::streaming(body::streamed(
        state,
        |(first, watcher, opened)| async move {
            if let Some(first) = first {
                return Ok(Some((first, (None, watcher, opened))));
            }
            let Some(mut watcher) = watcher else {
                return Ok(None);
            };
            let (part, is_last) = part(&mut watcher, &opened).await?;
            let watcher = (!is_last).then_some(watcher);
            Ok(Some((part, (None, watcher, opened))))
        },
    )))
}

/// Returns the next frames of a stream of changes, and whether they are the last.
async fn part(watcher: &mut Watcher, opened: &Opened) -> Result<(Bytes, bool), BrokenOff> {
    loop {
        let event = match tokio::time::timeout(KEEPALIVE, watcher.next()).await {
            Err(_) => return Ok((rpc::data(&json!({"keepalive": {}})), false)),
            Ok(_) if !opened.is_running() => return Err(BrokenOff),
            Ok(Ok(None)) => return Ok((rpc::end(), true)),
            Ok(Ok(Some(event))) => event,
            Ok(Err(error)) => return Ok((error.frame(), true)),
        };
        match watcher.rendered(opened, &event).await {
            Ok(None) => {}
            Ok(Some(event)) => {
                return Ok((rpc::data(&json!({"filesystem": event})), false));
            }
            Err(error) => return Ok((error.frame(), true)),
        }
    }
}

/// Creates a watcher.
pub(super) async fn create(opened: &Opened, user: &User, request: Request) -> Result<Value, RpcError> {
    let full = || {
        RpcError::new(
            Code::ResourceExhausted,
            format!("a sandbox has at most {MAX} watchers"),
        )
    };
    let watchers = &opened.known.shared.watchers;
    if watchers.count() >= MAX {
        return Err(full());
    }
    let watcher = Watcher::begin(opened, user, rpc::message(request).await?).await?;
    let id = Token::random().ok_or_else(|| RpcError::new(Code::Internal, "no random bytes"))?;
    let id = id.as_str().chars().take(20).collect::<String>();
    match watchers.add(id.clone(), watcher) {
        true => Ok(json!({ "watcherId": id })),
        false => Err(full()),
    }
}

/// Returns the events of a watcher since the last time.
pub(super) async fn events(opened: &Opened, request: Request) -> Result<Value, RpcError> {
    let WatcherId { watcher_id } = rpc::message(request).await?;
    let missing = || RpcError::new(Code::NotFound, "there is no such watcher");
    let watcher = opened
        .known
        .shared
        .watchers
        .get(&watcher_id)
        .ok_or_else(missing)?;
    let mut watcher = watcher.lock().await;
    let (mut events, began) = (Vec::new(), Instant::now());
    while events.len() < MAX_FETCHED
        && began.elapsed() < COLLECTING
        && let Ok(next) = tokio::time::timeout(SILENCE, watcher.next()).await
    {
        let Some(event) = next? else { break };
        events.extend(watcher.rendered(opened, &event).await?);
    }
    Ok(json!({ "events": events }))
}

pub(super) async fn remove(opened: &Opened, request: Request) -> Result<Value, RpcError> {
    let WatcherId { watcher_id } = rpc::message(request).await?;
    match opened.known.shared.watchers.remove(&watcher_id) {
        true => Ok(json!({})),
        false => Err(RpcError::new(Code::NotFound, "there is no such watcher")),
    }
}
