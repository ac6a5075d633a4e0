//! `ringfence skills`: lists, describes and calls the functions of the host that programs may call.

use std::process::ExitCode;

use ringfence_exec::bridge::Call;
use ringfence_policy::Scope;
use ringfence_tools::skills::{CallError, Function, Gatekeeper, Policy, Table, path_of};
use ringfence_tools::toolbox::{Caller, ErrorKind, Surface};
use serde_json::{Map, Value, json};

use super::tool::read;
use crate::context::Context;
use crate::skills::{self, SkillCalls, attended};
use crate::ui::{json, visible};
use ringfence::Failure;
use ringfence_args::{SkillsAcceptArgs, SkillsCallArgs, SkillsCommand, SkillsOptions};

pub(crate) fn run(command: &SkillsCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let options = match command {
        SkillsCommand::Ls { options, .. } | SkillsCommand::Describe { options, .. } => options,
        SkillsCommand::Call(args) => &args.options,
        SkillsCommand::Accept(args) => return accept(args, context),
    };
    context.tell_passed_over()?;
    if matches!(command, SkillsCommand::Ls { .. }) {
        ringfence::skills::check_manifests(options.skills.as_deref(), context)?;
    }
    let skills = ringfence::skills::all(options.skills.as_deref(), context)?.ok_or_else(none)?;
    let (keeper, person) = SkillCalls::new(context)?;
    let caller = Caller {
        scope: options.user.clone().unwrap_or_else(Scope::local),
        session: None,
        surface: Surface::CommandLine,
        client: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(async {
        let gatekeeper = Gatekeeper::new(&skills, keeper.visitor(&caller));
        let performing = perform(command, &gatekeeper, context);
        let done = attended(Some(person), context.ui, performing).await;
        skills.close().await;
        done
    });
    runtime.shutdown_background();
    context.ui.out(done?)?;
    Ok(ExitCode::SUCCESS)
}

async fn perform(
    command: &SkillsCommand,
    gatekeeper: &Gatekeeper<'_>,
    context: &Context,
) -> anyhow::Result<String> {
    match command {
        SkillsCommand::Ls { words, options } => {
            let table = gatekeeper.table().await;
            for problem in &table.problems {
                context
                    .ui
                    .warn(&skills::explained(problem, options.skills.as_deref(), context)?);
            }
            let functions = table.ranked(&words.join(" "));
            if functions.is_empty() {
                context.ui.note(match table.functions().next() {
                    Some(_) => "no function fits",
                    None if !table.problems.is_empty() => "there are no functions: see the warnings",
                    None => "there are no functions: a skill is a public class with public methods",
                });
            }
            Ok(listed(&functions, options)?)
        }
        SkillsCommand::Describe { path, options } => {
            described(gatekeeper.table().await, path, options, context)
        }
        SkillsCommand::Call(args) => {
            let called = gatekeeper.call(call(args)?).await;
            let called = called.map_err(|fault| failed(fault, args, context))?;
            Ok(json(&called)?)
        }
        // Handled before, without starting skills.
        SkillsCommand::Accept(_) => Ok(String::new()),
    }
}

/// Records consent to the demands of a directory's manifests, and prints them.
fn accept(args: &SkillsAcceptArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let asked = ringfence::skills::accept(args.skills.as_deref(), context)?.ok_or_else(none)?;
    for (file, words) in &asked {
        context
            .ui
            .out(format!("{}: {}\n", visible(file), visible(words)))?;
    }
    if asked.is_empty() {
        context.ui.note("no file there asks for anything");
    }
    Ok(ExitCode::SUCCESS)
}

fn none() -> Failure {
    Failure::usage(
        "there are no skills",
        "name their directory: pass `--skills DIR`, or set `skills.path`; or name MCP servers in `skills.servers`",
    )
}

fn listed(functions: &[(&Function, Policy)], options: &SkillsOptions) -> serde_json::Result<String> {
    if options.json {
        let all = functions
            .iter()
            .map(|(function, policy)| whole(function, *policy));
        return json(&all.collect::<Vec<_>>());
    }
    Ok(functions
        .iter()
        .map(|(function, policy)| line(function, *policy))
        .collect())
}

fn line(function: &Function, policy: Policy) -> String {
    let policy = match policy {
        Policy::Allow => String::new(),
        Policy::Notify | Policy::Ask => format!("  [{}]", policy.as_str()),
    };
    let summary = match function.summary() {
        "" => String::new(),
        summary => format!("    {}\n", visible(summary)),
    };
    let signature = function.signature();
    format!("{}.{}{policy}\n{summary}", function.skill(), visible(&signature))
}

fn whole(function: &Function, policy: Policy) -> Value {
    json!({
        "path": function.path(),
        "signature": function.signature(),
        "summary": function.summary(),
        "doc": function.doc(),
        "policy": policy,
        "arguments": function.arguments(),
        "result": function.result(),
    })
}

fn described(
    table: &Table,
    path: &str,
    options: &SkillsOptions,
    context: &Context,
) -> anyhow::Result<String> {
    let found = table
        .functions()
        .find(|(function, _)| function.path() == path_of(path));
    let (function, policy) = found.ok_or_else(|| {
        let ls = hinted(&["ls"], options, context);
        Failure::refused(table.not_found(path), format!("list the functions with `{ls}`"))
            .of(ErrorKind::NotFound)
    })?;
    Ok(match options.json {
        true => json(&whole(function, policy))?,
        // Its author may have tried to control the terminal.
        false => function
            .description()
            .lines()
            .map(|line| visible(line).to_string() + "\n")
            .collect(),
    })
}

fn call(args: &SkillsCallArgs) -> anyhow::Result<Call> {
    let wrong = |why: String| {
        Failure::usage(
            format!("invalid arguments: {why}"),
            "write a JSON object of arguments by name, or an array of them by position",
        )
    };
    let given = match args.arguments.as_deref() {
        None => "{}".to_owned(),
        Some("-") => read(std::io::stdin().lock())?,
        Some(text) => text.to_owned(),
    };
    let given: Value = serde_json::from_str(&given).map_err(|error| wrong(error.to_string()))?;
    let (by_position, by_name) = match given {
        Value::Object(by_name) => (Vec::new(), by_name),
        Value::Array(by_position) => (by_position, Map::new()),
        _ => return Err(wrong("they are neither an object nor an array".to_owned()).into()),
    };
    Ok(Call {
        path: path_of(&args.path).to_owned(),
        args: by_position,
        kwargs: by_name,
    })
}

/// Returns a command for a hint, with the options of this command line.
fn hinted(words: &[&str], options: &SkillsOptions, context: &Context) -> String {
    let user = options.user.as_ref().map(|user| ["--user", user.as_str()]);
    let words: Vec<&str> = words.iter().copied().chain(user.into_iter().flatten()).collect();
    skills::command(&words, options.skills.as_deref(), context)
}

fn failed(fault: CallError, args: &SkillsCallArgs, context: &Context) -> Failure {
    let command = |words: &[&str]| hinted(words, &args.options, context);
    let told = format!("{}: {}", fault.kind.as_str(), fault.message);
    match fault.kind.as_str() {
        "not_found" => {
            let hint = format!("list the functions with `{}`", command(&["ls"]));
            Failure::refused(fault.message, hint).of(ErrorKind::NotFound)
        }
        "invalid_arguments" => {
            let describe = command(&["describe", path_of(&args.path)]);
            Failure::usage(told, format!("`{describe}` says how it is called"))
        }
        "rejected" | "approval_timeout" | "permission_denied" => {
            Failure::refused(told, "you, or your rules, decide about it")
        }
        _ => Failure::refused(told, "correct the skill, or its manifest"),
    }
}
