//! Events in the lives of sandboxes.

use hyper::Method;

use super::client::{Body, Client, Error, query};
use super::events::{Event, Events};
use super::sandbox::Sandbox;

impl Sandbox {
    /// Returns the events in the sandbox's life from now on, to its end.
    ///
    /// # Errors
    /// If there is no server, or no such sandbox.
    pub async fn life(&self) -> Result<Events, Error> {
        follow(self.client(), &self.path("/events", &[])).await
    }
}

impl Client {
    /// Returns the events in the lives of all sandboxes of a user, or of the caller's own.
    ///
    /// # Errors
    /// If there is no server.
    pub async fn lives(&self, user: Option<&str>) -> Result<Events, Error> {
        let user: Vec<_> = user.map(|user| ("user", user)).into_iter().collect();
        follow(self, &query("/v1/sandbox-events", &user)).await
    }
}

async fn follow(client: &Client, path: &str) -> Result<Events, Error> {
    let response = client.send(Method::GET, path, Body::Empty, None).await?;
    Ok(Events::of(response))
}

/// Returns why a sandbox has ended, if that is what was read of its events.
pub(crate) fn end(read: Result<Option<Event>, Error>) -> Option<String> {
    match read {
        Ok(Some(event)) => matches!(&*event.name, "expired" | "removed" | "ended")
            .then(|| event.data["reason"].as_str().unwrap_or(&event.name).to_owned()),
        Ok(None) => Some("its events have ended".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Renders an event as a line for people; `None` for the first one, which says that the others follow.
pub fn line(event: &Event) -> Option<String> {
    let field = |name: &str| event.data[name].as_str().unwrap_or_default();
    if event.name == "ready" {
        return None;
    }
    if event.name == "lost" {
        return Some(format!(
            "{} events were lost: they were not read in time",
            event.data["events"]
        ));
    }
    let kind = event.name.replace('_', " ");
    let mut line = format!(
        "{}  {}  {:<24}  {kind}",
        field("time"),
        field("sandbox"),
        field("name")
    );
    let copies = event.data["copies"].as_array().into_iter().flatten();
    let copies: Vec<&str> = copies.filter_map(|copy| copy.as_str()).collect();
    let details = [("reason", ": "), ("snapshot", ": "), ("expires_at", ", until ")];
    for (name, before) in details {
        if !field(name).is_empty() {
            line = line + before + field(name);
        }
    }
    if !copies.is_empty() {
        line = line + ": " + &copies.join(" ");
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let check = |name: &str, data: Value, expected: Option<&str>| {
            let name = name.to_owned();
            assert_eq!(line(&Event { name, data }).as_deref(), expected);
        };
        check("ready", json!({}), None);
        check(
            "lost",
            json!({"events": 3}),
            Some("3 events were lost: they were not read in time"),
        );
        check(
            "paused",
            json!({"time": "T", "sandbox": "i", "name": "lab", "reason": "it has expired", "expires_at": "U"}),
            Some("T  i  lab                       paused: it has expired, until U"),
        );
        check(
            "forked",
            json!({"time": "T", "sandbox": "i", "copies": ["a", "b"]}),
            Some("T  i                            forked: a b"),
        );
    }
}
