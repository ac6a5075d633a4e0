//! `ringfence tool`: calls one tool as an agent would.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_exec::local::Warmth;
use ringfence_policy::Scope;
use ringfence_tools::toolbox::{
    Answer, Attention, Caller, Definition, ErrorKind, Questions, Surface, ToolError, Toolbox,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::backend::{self, Prepared};
use crate::context::Context;
use crate::exit;
use crate::skills::{Notifier, Person, attended};
use crate::ui::{self, Tone, Ui};
use ringfence::Failure;
use ringfence::{local, settings, toolbox};
use ringfence_args::ToolArgs;
use ringfence_gateway_protocol::interrupted;

/// Maximum length of the arguments: a program of 8 MiB, written as JSON.
const MAX_ARGUMENTS: u64 = 64 * 1024 * 1024;

pub(crate) fn run(args: &ToolArgs, prepared: Prepared, context: &Context) -> anyhow::Result<ExitCode> {
    let settings = local::settings(&settings::settings(context)?, Warmth::Cold, context)?;
    let socket = if args.no_engine {
        None
    } else {
        context.paths.socket_if_ours()
    };
    let backend = backend::server_or_local(socket, settings, prepared, context)?;
    let backend = Arc::new(backend.with_log(context.log.clone()));
    let workspaces = toolbox::workspaces(args.workspace.as_deref(), context)?;
    let skills = ringfence::skills::all(None, context)?.map(Arc::new);
    let toolbox = toolbox::build(backend.clone(), skills.clone(), workspaces, context)?;
    let Some(name) = &args.name else {
        list(&toolbox, args.json, context.ui)?;
        return Ok(ExitCode::SUCCESS);
    };
    let arguments = arguments(args.arguments.as_deref())?;
    let caller = Caller {
        scope: args.user.clone().unwrap_or_else(Scope::local),
        session: args.session.clone(),
        surface: Surface::CommandLine,
        client: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (notifier, person) = Person::new();
    let invoking = invoke(&toolbox, &caller, notifier, name, arguments);
    let result = runtime.block_on(attended(Some(person), context.ui, invoking));
    toolbox.close_without_sync();
    runtime.block_on(async {
        backend.own().close().await;
        if let Some(skills) = skills {
            skills.close().await;
        }
    });
    // A thread may still block on a slow file system.
    runtime.shutdown_background();
    match result {
        Ok(answer) => {
            context.ui.out(printed(&answer, args.json)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            if args.json {
                context
                    .ui
                    .out(format!("{}\n", json!({"error": error.to_json()})))?;
            }
            context
                .ui
                .error(&format!("{}: {}", error.kind.as_str(), error.message));
            context.ui.hint(&error.hint);
            Ok(ExitCode::from(status(error.kind)))
        }
    }
}

async fn invoke(
    toolbox: &Toolbox,
    caller: &Caller,
    notifier: Notifier,
    name: &str,
    arguments: Value,
) -> Result<Answer, ToolError> {
    let (cancel, cancelled) = watch::channel(false);
    let attention = Attention {
        cancelled: Some(cancelled),
        questions: Some(Questions::Told(notifier.questions)),
        notices: Some(notifier.notices),
        ..Attention::default()
    };
    let invoking = toolbox.invoke(caller, name, arguments, attention);
    tokio::pin!(invoking);
    tokio::select! {
        result = &mut invoking => result,
        () = interrupted() => {
            cancel.send_replace(true);
            invoking.await
        }
    }
}

/// Reads the arguments: a JSON object on the command line or, for `-`, on standard input; none are an empty
/// object.
fn arguments(given: Option<&str>) -> anyhow::Result<Value> {
    let text = match given {
        None => return Ok(json!({})),
        Some("-") => read(std::io::stdin().lock())?,
        Some(text) => text.to_owned(),
    };
    Ok(serde_json::from_str(&text).map_err(|error| {
        Failure::usage(
            format!("the arguments are not JSON: {error}"),
            "write an object such as '{\"code\": \"print(1)\"}', or `-` to read one from standard input",
        )
    })?)
}

/// Reads all of it, up to the maximum length of arguments.
///
/// # Errors
/// If they are longer, or invalid UTF-8.
pub(super) fn read(from: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    from.take(MAX_ARGUMENTS + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_ARGUMENTS {
        return Err(Failure::usage(
            format!("the arguments are longer than {} MiB", MAX_ARGUMENTS >> 20),
            "put large contents into files of the workspace",
        )
        .into());
    }
    Ok(String::from_utf8(bytes).map_err(|error| {
        Failure::usage(
            format!("the arguments are not UTF-8: {error}"),
            "write JSON in UTF-8, with other bytes escaped",
        )
    })?)
}

fn printed(answer: &Answer, is_json: bool) -> serde_json::Result<String> {
    let mut text = match &answer.structured {
        Some(value) if is_json => ui::json(value)?,
        None if is_json => ui::json(&answer.text)?,
        _ => answer.text.clone(),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

fn list(toolbox: &Toolbox, json: bool, ui: Ui) -> anyhow::Result<()> {
    if json {
        let tools: Vec<Value> = toolbox.tools().map(described).collect();
        ui.json(&tools)?;
        return Ok(());
    }
    for tool in toolbox.tools() {
        let name = ui.toned(tool.name, Tone::Hint);
        ui.out(format!(
            "{name} {{{}}}\n    {}\n",
            tool.members(),
            tool.description
        ))?;
    }
    Ok(())
}

fn described(tool: &Definition) -> Value {
    let mut described = json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": *tool.input_schema,
    });
    if let Some(schema) = &*tool.output_schema {
        described["outputSchema"] = Value::Object(schema.clone());
    }
    described
}

/// Returns the exit status of a failed tool.
const fn status(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidArguments => exit::USAGE,
        ErrorKind::Timeout => exit::TIMED_OUT,
        ErrorKind::Blocked => exit::BLOCKED,
        ErrorKind::Cancelled => exit::INTERRUPTED,
        ErrorKind::PermissionDenied
        | ErrorKind::Rejected
        | ErrorKind::ApprovalTimeout
        | ErrorKind::NotFound
        | ErrorKind::RuntimeUnavailable
        | ErrorKind::RuntimeLost
        | ErrorKind::LimitExceeded
        | ErrorKind::Busy
        | ErrorKind::Internal => exit::FAILED,
    }
}
