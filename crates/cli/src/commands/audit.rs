//! `ringfence audit`: verifies and prints the audit log.

mod line;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_records::audit::{self, Error, Filter, Follow, Link, Verified};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit;
use crate::ui::{Ui, visible};
use line::readable;
use ringfence::audit::{failure, safe_directory};
use ringfence_args::{AuditCommand, ErrorFormat};
use ringfence_gateway_protocol::interrupted;

/// Polling interval of `--follow`.
const INTERVAL: Duration = Duration::from_millis(250);
/// Records among which a filter chooses, as over HTTP.
const MAX_FILTERED: usize = 1_000;

pub(crate) fn run(command: &AuditCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let directory = safe_directory(context)?;
    match command {
        AuditCommand::Verify { host, head, json } => {
            return verify(&directory, *host, head.as_ref(), *json, context.ui);
        }
        AuditCommand::Tail {
            host,
            lines,
            follow,
            filter,
            json,
        } => {
            let directory = if *host { audit::host(&directory) } else { directory };
            let line = if *json { visible } else { readable };
            let (filter, count) = (filter.filter(), *lines as usize);
            let read = if filter.is_empty() { count } else { MAX_FILTERED };
            let newest = audit::tail(&directory, read).map_err(failure)?;
            for text in filter.last(&newest, count) {
                context.ui.out(line(text) + "\n")?;
            }
            if *follow {
                go_on(Follow::behind(&directory, &newest), &filter, line, context.ui)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Verifies both logs, or the host log alone. A head belongs to the named log, or to the first.
fn verify(directory: &Path, host: bool, head: Option<&Link>, json: bool, ui: Ui) -> anyhow::Result<ExitCode> {
    let own = audit::host(directory);
    let result = audit::verify(if host { &own } else { directory }, head);
    let second = (!host).then(|| audit::verify(&own, None));
    if json {
        let mut object = shown(&result)?;
        if let Some(second) = &second {
            object["host"] = shown(second)?;
        }
        if !object["intact"].is_null() {
            ui.json(&object)?;
            let error = result.err().or(second.and_then(Result::err));
            // The document says what is wrong.
            let report = |error| exit::report(ui, ErrorFormat::Text, &failure(error).into());
            return Ok(error.map_or(ExitCode::SUCCESS, report));
        }
    }
    let verified = result.map_err(failure)?;
    let second = second.transpose().map_err(failure)?;
    ui.out(summary(&verified))?;
    if let Some(second) = second.filter(|second| second.records > 0) {
        ui.out(format!("commands on the host and answers:\n{}", summary(&second)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Renders the result as JSON; null if the log cannot be read.
fn shown(result: &Result<Verified, Error>) -> serde_json::Result<Value> {
    let mut object = match result {
        Ok(verified) => serde_json::to_value(verified)?,
        Err(Error::Broken(broken)) => json!({
            "file": broken.file, "line": broken.line, "sequence": broken.sequence, "what": broken.what,
        }),
        Err(error @ Error::Gone { sequence, .. }) => {
            json!({"file": null, "line": null, "sequence": sequence, "what": error.to_string()})
        }
        Err(_) => return Ok(Value::Null),
    };
    object["intact"] = result.is_ok().into();
    Ok(object)
}

fn summary(verified: &Verified) -> String {
    let (Some(first), Some(head)) = (verified.first, verified.head) else {
        return "intact: no records\n".to_owned();
    };
    let (records, files, last) = (verified.records, verified.files, head.sequence);
    let plural = |one: bool| if one { "" } else { "s" };
    let mut text = format!(
        "intact: {records} record{}, {first} to {last}, in {files} file{}\n",
        plural(records == 1),
        plural(files == 1)
    );
    if let (2.., Some(at)) = (first, &verified.removed_at) {
        let gone = first - 1;
        text.push_str(&format!(
            "removed: records 1 to {gone}, the newest of them at {}, to make room (`audit.max_files`)\n",
            visible(at)
        ));
    }
    if verified.counted > 0 {
        let counted = verified.counted;
        text.push_str(&format!(
            "counted: {counted} refused uses have no record of their own\n"
        ));
    }
    if verified.repairs > 0 {
        text.push_str(&format!("repaired: {} torn records\n", verified.repairs));
    }
    if verified.torn_bytes > 0 {
        let bytes = verified.torn_bytes;
        text.push_str(&format!(
            "torn: {bytes} bytes of a record that was never finished\n"
        ));
    }
    text + &format!("head: {head}\n")
}

/// Prints appended records until interrupted.
fn go_on(mut follow: Follow, filter: &Filter, line: fn(&str) -> String, ui: Ui) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stop = interrupted();
        tokio::pin!(stop);
        let mut looks = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                () = &mut stop => return Ok(()),
                _ = looks.tick() => follow.poll(|text| match filter.matches_line(text) {
                    true => ui.out(line(text) + "\n"),
                    false => Ok(()),
                })?,
            }
        }
    })
}
