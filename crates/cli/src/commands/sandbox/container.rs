//! Sandboxes that are containers of the server.

use std::process::ExitCode;

use ringfence_container::runtime::Id;
use ringfence_container::sandboxes::{LogChunk, NewSandbox, SandboxInfo};
use ringfence_container::spec::Name;
use ringfence_container::{self as engines, ContainerRuntime};
use ringfence_policy::{EngineKind, Limits};
use ringfence_sandbox::Resources;
use ringfence_server::client::{Client, Error};
use ringfence_server::wire::{SandboxAction, SandboxAnswer, SandboxRequest};
use ringfence_tools::toolbox::ErrorKind;
use serde_json::Value;

use super::text;
use crate::context::Context;
use crate::exit;
use crate::ui::json;
use ringfence::Failure;
use ringfence::config::schema::Template;
use ringfence::config::values::{NetworkMode, SeccompProfile};
use ringfence::container;
use ringfence_args::{
    EngineArg, SandboxCreateArgs, SandboxLogsArgs, SandboxRunArgs, SandboxStatsArgs, ScopedOptions,
};

/// Default template of a container.
const TEMPLATE: &str = "code-executor";

pub(super) async fn create(
    args: &SandboxCreateArgs,
    engine: EngineArg,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    for (is_given, option) in [
        (args.disk.is_some(), "--disk"),
        (args.network.is_some(), "--network"),
        (!args.allow_host.is_empty(), "--allow-host"),
        (!args.env.is_empty(), "--env"),
        (!args.metadata.is_empty(), "--metadata"),
        (args.snapshot.is_some(), "--snapshot"),
        (args.pause_on_expiry, "--pause-on-expiry"),
        (args.ports, "--ports"),
        (args.fence.is_some(), "--fence"),
        (!args.with.is_empty(), "--with"),
    ] {
        if is_given {
            return Err(Failure::usage(
                format!("`{option}` is not an option of containers of a template"),
                "leave it out, or --template, --image and --oci-runtime",
            )
            .into());
        }
    }
    if let Some(Err(error)) = args.name.as_deref().map(str::parse::<Name>) {
        return Err(Failure::usage(error.to_string(), "write it like `build-1`").into());
    }
    context.tell_passed_over()?;
    let config = context.config()?;
    let templates = &config.templates.0;
    let name = args.template.as_deref().unwrap_or(TEMPLATE);
    let template = templates
        .get(name)
        .ok_or_else(|| unknown(name, templates.keys()))?;
    let private_networks = match template.network_mode {
        NetworkMode::None => &[],
        NetworkMode::Restricted => &config.egress.private_networks[..],
    };
    let new = NewSandbox {
        allowed_hosts: allowed_hosts(template),
        private_networks: private_networks.to_vec(),
        engine: engine_kind(engine),
        template: name.to_owned(),
        ..new_sandbox(args, template, &config.code_execution.docker_image)
    };
    let made = sandboxes(SandboxAction::New(Box::new(new)), &args.options, context).await?;
    if args.template.is_none() {
        let what = "a container of the template `code-executor`: it runs commands, by `ringfence sandbox run NAME -- COMMAND`";
        context.ui.note(what);
    }
    print(&made, &args.options, context)
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Failure {
    let known: Vec<&str> = known.map(String::as_str).collect();
    Failure::usage(
        format!("there is no template `{name}`"),
        format!("the templates are {}", known.join(", ")),
    )
}

/// Applies the command line to the template.
fn new_sandbox(args: &SandboxCreateArgs, template: &Template, image: &str) -> NewSandbox {
    let image = args
        .image
        .as_deref()
        .or(template.image.as_deref())
        .unwrap_or(image);
    let max_duration = args.timeout.unwrap_or(template.max_duration.0);
    NewSandbox {
        name: args.name.clone(),
        engine: EngineKind::Docker,
        image: image.to_owned(),
        template: String::new(),
        memory: args.memory.unwrap_or(template.memory_limit),
        cpus: args.cpus.unwrap_or(template.cpu_limit),
        pids: args.pids.unwrap_or(template.max_pids),
        disk: Limits::DEFAULT.disk,
        max_duration_ms: u64::try_from(max_duration.as_duration().as_millis()).unwrap_or(u64::MAX),
        filter: filter(template.seccomp_profile).to_owned(),
        oci_runtime: container::oci_runtime(args.oci_runtime.map_or(template.oci_runtime, Into::into)),
        allowed_hosts: Vec::new(),
        private_networks: Vec::new(),
    }
}

/// Returns the allowlist of a sandbox.
fn allowed_hosts(template: &Template) -> Vec<String> {
    match template.network_mode {
        NetworkMode::None => Vec::new(),
        NetworkMode::Restricted => template.allowed_hosts.clone(),
    }
}

/// Returns the name of a profile's filter.
fn filter(profile: SeccompProfile) -> &'static str {
    match profile {
        SeccompProfile::Strict => "strict",
        SeccompProfile::Standard => "standard",
        SeccompProfile::StandardNet => "standard-net",
    }
}

pub(crate) fn engine_kind(engine: EngineArg) -> EngineKind {
    match engine {
        EngineArg::Docker => EngineKind::Docker,
        EngineArg::Podman => EngineKind::Podman,
    }
}

pub(super) async fn execute(args: &SandboxRunArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let action = SandboxAction::Run {
        name: args.name.clone(),
        command: args.command.clone(),
        timeout_ms: u64::try_from(args.timeout.as_duration().as_millis())?,
    };
    let SandboxAnswer::Ran(ran) = ask(action, &args.options, context).await? else {
        return Err(nonsense().into());
    };
    if args.options.json {
        context.ui.json(&ran)?;
    } else {
        context.ui.out(&ran.stdout)?;
        context.ui.err(&ran.stderr)?;
    }
    Ok(ExitCode::from(match ran.status {
        Some(status) => u8::try_from(status & 0xff)?,
        None => {
            context.ui.error(match ran.sandbox_ended {
                true => "the command went past its time; its sandbox was ended",
                false => "the command went past its time, and was ended",
            });
            exit::TIMED_OUT
        }
    }))
}

pub(super) async fn logs(args: &SandboxLogsArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let (mut after, mut wait) = (0, false);
    loop {
        let name = args.name.clone();
        let action = SandboxAction::Log { name, after, wait };
        let SandboxAnswer::Log(log) = ask(action, &args.options, context).await? else {
            return Err(nonsense().into());
        };
        for LogChunk { is_error, text } in &log.printed {
            match is_error {
                false => context.ui.out(text)?,
                true => context.ui.err(text)?,
            }
        }
        if !args.follow || log.ended {
            return Ok(ExitCode::SUCCESS);
        }
        (after, wait) = (log.next, true);
    }
}

pub(super) async fn stats(args: &SandboxStatsArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let (engine, id) = find(&args.name, &args.options, context).await?;
    let mut stats = engine.stats(&id);
    while let Some(used) = stats.next().await.map_err(failed)? {
        let line = match args.options.json {
            true => serde_json::to_string(&used)?,
            false => Resources {
                memory_bytes: used.memory_bytes,
                cpu_seconds: used.cpu_seconds,
                pids: used.pids,
                ..Resources::default()
            }
            .to_line(),
        };
        context.ui.out(line + "\n")?;
        if args.once {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds the container of a sandbox, and its engine.
async fn find(
    name: &str,
    options: &ScopedOptions,
    context: &Context,
) -> anyhow::Result<(ContainerRuntime, Id)> {
    let given = name;
    let name: Name = given.parse().map_err(|error: engines::spec::ParseNameError| {
        Failure::usage(error.to_string(), "`ringfence sandbox ls` shows which there are")
    })?;
    let all = sandboxes(SandboxAction::List, options, context).await?;
    let found = all.iter().find(|sandbox| sandbox.name == name.as_str());
    let found = found.ok_or_else(|| {
        Failure::refused(
            format!("there is no sandbox `{given}` in the server"),
            "`ringfence sandbox ls` shows which there are",
        )
        .of(ErrorKind::NotFound)
    })?;
    let engine = ContainerRuntime::open(found.engine, &container::surroundings(context)).await;
    Ok((engine.map_err(failed)?, Id::from(&name)))
}

fn failed(error: engines::Error) -> Failure {
    Failure::refused(error.to_string(), error.hint())
}

pub(super) async fn quietly(
    action: SandboxAction,
    options: &ScopedOptions,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    let changed = sandboxes(action, options, context).await?;
    if options.json {
        return print(&changed, options, context);
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn sandboxes(
    action: SandboxAction,
    options: &ScopedOptions,
    context: &Context,
) -> Result<Vec<SandboxInfo>, Failure> {
    match ask(action, options, context).await? {
        SandboxAnswer::Sandboxes(all) => Ok(all),
        SandboxAnswer::Ran(_) | SandboxAnswer::Log(_) => Err(nonsense()),
    }
}

async fn ask(
    action: SandboxAction,
    options: &ScopedOptions,
    context: &Context,
) -> Result<SandboxAnswer, Failure> {
    let socket = context.paths.socket_if_ours().ok_or_else(no_engine)?;
    let mut client = Client::connect(&socket).await.map_err(|_| no_engine())?;
    let request = SandboxRequest {
        scope: options.scope(),
        action,
    };
    let name = name_of(&request.action).unwrap_or("NAME");
    client.sandboxes(&request).await.map_err(|error| match error {
        Error::Refused(refusal) => {
            let kind = refusal.kind();
            Failure::refused(refusal.message, refusal.hint.person().replace("NAME", name)).of(kind)
        }
        Error::Unread(_) => no_engine(),
        error @ (Error::Declined(_) | Error::Broken(_) | Error::Answer(_)) => Failure::refused(
            error.to_string(),
            "check the server; `ringfence sandbox ls` shows which sandboxes there are",
        ),
    })
}

/// Returns the sandbox's name in an action, as the user wrote it.
fn name_of(action: &SandboxAction) -> Option<&str> {
    let SandboxAction::Run { name, .. } = action else {
        return None;
    };
    Some(name)
}

/// Returns the error for a missing server. A sandbox outlives the command that created it, so the server must
/// end it at its time limit.
pub(super) fn no_engine() -> Failure {
    Failure::refused(
        "sandboxes live in a server, and none is running for this user",
        "start one with `ringfence serve &`, or run this as the user of the one that runs",
    )
    .of(ErrorKind::RuntimeUnavailable)
}

fn nonsense() -> Failure {
    Failure::refused("the server's answer is malformed", "check the server")
}

pub(super) fn print(
    all: &[SandboxInfo],
    options: &ScopedOptions,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    let text = match options.json {
        true => json(all)?,
        false => all.iter().map(|sandbox| line(sandbox) + "\n").collect(),
    };
    context.ui.out(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the cells of a container in a list, as the API describes it.
pub(super) fn row(container: &Value) -> [String; 9] {
    let field = |name| text(container, name).to_owned();
    let expires = format!(
        "in {:.0} s",
        container["left_seconds"].as_f64().unwrap_or_default()
    );
    let image = format!("of the template {}", text(container, "template"));
    let (name, engine, state, user) = (field("name"), field("engine"), field("state"), field("user"));
    let none = String::new;
    [none(), name, engine, state, none(), expires, image, none(), user]
}

fn line(sandbox: &SandboxInfo) -> String {
    let SandboxInfo {
        name,
        engine,
        template,
        state,
        left_seconds,
        ..
    } = sandbox;
    format!(
        "{name:<32}  {:<6}  {template:<16}  {state}, {} s left",
        engine.as_str(),
        *left_seconds as u64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_has_a_line() {
        let sandbox = SandboxInfo {
            name: "fw-sandbox-a".to_owned(),
            engine: EngineKind::Docker,
            template: "code-executor".to_owned(),
            state: "running".to_owned(),
            age_seconds: 1.0,
            left_seconds: 299.5,
        };
        assert_eq!(
            line(&sandbox),
            "fw-sandbox-a                      docker  code-executor     running, 299 s left"
        );
    }
}
