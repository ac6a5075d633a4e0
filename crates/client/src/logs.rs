//! Output that the processes of a sandbox have left.

use std::time::Duration;

use hyper::Method;
use serde_json::Value;

use super::client::{Body, Error};
use super::events::{Event, Events};
use super::sandbox::Sandbox;

/// Time after which no more output comes of a process that is not followed: what is there comes at once.
const SILENCE: Duration = Duration::from_millis(200);

/// An item of the output of several processes.
#[derive(Debug)]
pub enum LogItem<'a> {
    /// The process whose output follows.
    Process(&'a Value),
    /// An event of that process: output, or its end.
    Event(&'a Event),
    /// The server has forgotten the process meanwhile.
    Forgotten,
}

impl Sandbox {
    /// Passes the output of its processes on, one after the other: so far and, if `follow_them`, until their ends. Each item comes
    /// with the id of its process.
    ///
    /// # Errors
    /// If there is no server, or no such sandbox, or `each` fails.
    pub async fn logs(
        &self,
        follow_them: bool,
        mut each: impl FnMut(u64, LogItem<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for process in self.processes().await? {
            let pid = process["pid"].as_u64().unwrap_or_default();
            each(pid, LogItem::Process(&process))?;
            let has_ended = process["end"].is_object();
            let follow_it = follow_them || has_ended;
            match self.logs_of(pid, follow_it, &mut each).await {
                // The sandbox is there, and so it is the process that is not.
                Err(error) if error.is_not_found() && self.info().await.is_ok() => {
                    each(pid, LogItem::Forgotten)?;
                }
                passed => passed?,
            }
        }
        Ok(())
    }

    async fn logs_of(
        &self,
        pid: u64,
        follow_it: bool,
        each: &mut impl FnMut(u64, LogItem<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = self.path(&format!("/processes/{pid}/output"), &[]);
        let response = self.client.send(Method::GET, &path, Body::Empty, None).await?;
        let mut events = Events::of(response);
        loop {
            let next = events.next();
            let event = match follow_it {
                true => next.await?,
                false => match tokio::time::timeout(SILENCE, next).await {
                    Ok(event) => event?,
                    Err(_) => return Ok(()),
                },
            };
            let Some(event) = event else { return Ok(()) };
            each(pid, LogItem::Event(&event))?;
            if event.name == "end" {
                return Ok(());
            }
        }
    }
}

/// Renders a process and its state as the title of its output. `visible` escapes what controls a terminal.
pub fn title(process: &Value, visible: fn(&str) -> String) -> String {
    let words = process["command"].as_array().into_iter().flatten();
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    let mut command = words.join(" ");
    if let Some((cut, _)) = command.char_indices().nth(MAX_COMMAND) {
        command.truncate(cut);
        command.push('…');
    }
    let end = &process["end"];
    let code = end["exit_code"].as_i64().unwrap_or(-1);
    let state = match end["outcome"].as_str() {
        None => "running".to_owned(),
        Some("exited") => format!("status {code}"),
        Some("signalled") => format!("killed by signal {}", -code),
        Some(outcome) => outcome.replace('_', " "),
    };
    format!(
        "==> process {}: {} ({state}) <==",
        process["pid"],
        visible(&command)
    )
}

/// Characters of a command in a title.
const MAX_COMMAND: usize = 200;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_title_has_the_command_and_its_state() {
        let check = |end: Value, state: &str| {
            let process = json!({"pid": 7, "command": ["sh", "-c", "exit 3"], "end": end});
            let titled = title(&process, |text| text.replace("exit", "EXIT"));
            assert_eq!(titled, format!("==> process 7: sh -c EXIT 3 ({state}) <=="));
        };
        check(Value::Null, "running");
        check(json!({"outcome": "exited", "exit_code": 3}), "status 3");
        check(
            json!({"outcome": "signalled", "exit_code": -9}),
            "killed by signal 9",
        );
        check(json!({"outcome": "timed_out", "exit_code": -1}), "timed out");
        let long = json!({"pid": 7, "command": ["é".repeat(999)]});
        let titled = title(&long, str::to_owned);
        assert!(
            titled.ends_with("é… (running) <==") && titled.chars().count() < 240,
            "{titled}"
        );
    }
}
