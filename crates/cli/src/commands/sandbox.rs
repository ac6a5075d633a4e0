//! `ringfence sandbox`: sandboxes of the server, in cells of this machine or in containers, and containers of templates.

mod container;
mod copy;
mod logs;
mod port;
mod snapshot;

use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal};
use std::process::ExitCode;

use ringfence_client::place::absolute;
use ringfence_client::sandbox::{Ended, Input, Sandbox, ShownResult};
use ringfence_client::{Client, Error, life, query};
use ringfence_images::Selector;
use ringfence_policy::{EnvName, Timeout};
use ringfence_sandbox::context::Execution;
use ringfence_sandbox::{Resources, SandboxState};
use ringfence_server::wire::SandboxAction;
use ringfence_tools::toolbox::ErrorKind::NotFound;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::exit;
use crate::packages;
use crate::ui::{table, visible};
pub(crate) use container::engine_kind;
use ringfence::packages::named_for_sandbox;
use ringfence::source::{self, Source};
use ringfence::{Failure, Language, named_paths, settings};
use ringfence_args::{
    NetworkChoice, SandboxCommand, SandboxCreateArgs, SandboxEventsArgs, SandboxExecArgs, SandboxFenceArg,
    SandboxFilesArgs, SandboxListArgs, SandboxNameArgs, SandboxNetworkArgs, SandboxRemoveArgs,
    SandboxRunArgs, SandboxRuntimeArg, SandboxStatsArgs, SandboxTimeoutArgs, ScopedOptions,
};

pub(crate) fn run(command: &SandboxCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ran = runtime.block_on(perform(command, context));
    // Standard input may still be read on a thread of its own.
    runtime.shutdown_background();
    ran
}

async fn perform(command: &SandboxCommand, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        SandboxCommand::Create(args) => match args.engine() {
            Some(engine) => container::create(args, engine, context).await,
            None => create(args, context).await,
        },
        SandboxCommand::Ls(args) => list(args, context).await,
        SandboxCommand::Get(args) => get(args, context).await,
        SandboxCommand::Exec(args) => exec(args, context).await,
        SandboxCommand::Shell(args) => shell(args, context).await,
        SandboxCommand::Run(args) => execute(args, context).await,
        SandboxCommand::Cp(args) => copy::copy(args, context).await,
        SandboxCommand::Files(args) => files(args, context).await,
        SandboxCommand::Port(args) => port::port(args, context).await,
        SandboxCommand::Fork(args) => snapshot::fork(args, context).await,
        SandboxCommand::Snapshot(command) => snapshot::run(command, context).await,
        SandboxCommand::Timeout(args) => set_timeout(args, context).await,
        SandboxCommand::Network(args) => set_network(args, context).await,
        SandboxCommand::Pause(args) => set_state(args, SandboxState::Paused, context).await,
        SandboxCommand::Resume(args) => set_state(args, SandboxState::Running, context).await,
        SandboxCommand::Events(args) => events(args, context).await,
        SandboxCommand::Logs(args) => logs::logs(args, context).await,
        SandboxCommand::Stats(args) => stats(args, context).await,
        SandboxCommand::Rm(args) => remove(args, context).await,
    }
}

/// Returns a client of the running server.
fn client(context: &Context) -> Result<Client, Failure> {
    let socket = context.paths.socket_if_ours().ok_or_else(container::no_engine)?;
    Ok(Client::new(&socket))
}

/// Returns a path with the user on whose behalf the caller acts.
fn scoped(path: &str, options: &ScopedOptions) -> String {
    let user = options.user().map(|user| user.as_str());
    let parameters: Vec<_> = user.into_iter().map(|user| ("user", user)).collect();
    query(path, &parameters)
}

fn named(name: &str, options: &ScopedOptions, context: &Context) -> Result<Sandbox, Failure> {
    let user = options.user().map(|user| user.as_str().to_owned());
    Ok(Sandbox::new(client(context)?, name.to_owned(), user))
}

/// Returns the sandbox of this name; `None` if it is a container of a template.
async fn find(
    name: &str,
    options: &ScopedOptions,
    context: &Context,
) -> anyhow::Result<Option<(Sandbox, Value)>> {
    let sandbox = named(name, options, context)?;
    match sandbox.info().await {
        Ok(info) => Ok(Some((sandbox, info))),
        Err(error) if error.kind() == "not_found" => {
            let containers = container::sandboxes(SandboxAction::List, options, context).await?;
            let is_it = |known: &str| known == name || known.strip_prefix("fw-sandbox-") == Some(name);
            match containers.iter().any(|known| is_it(&known.name)) {
                true => Ok(None),
                false => Err(failure(error)),
            }
        }
        Err(error) => Err(failure(error)),
    }
}

/// Returns the sandbox of this name, which must not be a container of a template.
async fn sandbox_only(
    name: &str,
    what: &str,
    options: &ScopedOptions,
    context: &Context,
) -> anyhow::Result<Sandbox> {
    if let Some((sandbox, _)) = find(name, options, context).await? {
        return Ok(sandbox);
    }
    Err(refusal(
        "not_supported",
        format!("{what} does not work in containers of a template"),
        "use `ringfence sandbox run NAME -- COMMAND`, or create one without --template, --image and --oci-runtime: \
         `sandbox.docker.image` and `sandbox.docker.oci_runtime` hold for those",
    ))
}

/// Returns an error of a type that the API documents.
fn refusal(kind: &str, message: String, hint: &str) -> anyhow::Error {
    let (kind, hint) = (kind.to_owned(), hint.to_owned());
    Error::Refused { kind, message, hint }.into()
}

pub(super) fn failure(error: Error) -> anyhow::Error {
    match error {
        Error::Connect { .. } => container::no_engine().into(),
        Error::Source { path, source } => source::failure(&path, source, "check the path").into(),
        Error::Destination { path, source } => named_paths::failure(&path, source).into(),
        // `exit::report` handles it quietly.
        Error::Output(error) if error.kind() == ErrorKind::BrokenPipe => error.into(),
        Error::SpecialFile { message, hint } => Failure::usage(message, hint).into(),
        // `exit::report` knows its type, its hint and its status.
        error => error.into(),
    }
}

/// Converts an error of running code: a missing interpreter is not a missing command, which has status 127.
fn code_failure(error: Error) -> anyhow::Error {
    match error.is_no_program() {
        true => Failure::refused(error.to_string(), error.hint())
            .of(NotFound)
            .into(),
        false => failure(error),
    }
}

fn print_json(value: &Value, context: &Context) -> anyhow::Result<ExitCode> {
    context.ui.json(value)?;
    Ok(ExitCode::SUCCESS)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Returns the name of a sandbox, or its id if it has none.
fn name_or_id(sandbox: &Value) -> &str {
    sandbox["name"].as_str().unwrap_or_else(|| text(sandbox, "id"))
}

fn variables(pairs: &[(EnvName, String)]) -> Value {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_str().into()));
    Value::Object(pairs.collect::<Map<_, _>>())
}

async fn create(args: &SandboxCreateArgs, context: &Context) -> anyhow::Result<ExitCode> {
    check_options(args)?;
    let allowed_hosts = match NetworkChoice::of(args.network, &args.allow_host)? {
        Some(NetworkChoice::Allowlist) => settings::allowlist(&args.allow_host, context)?,
        Some(NetworkChoice::None) | None => Vec::new(),
    };
    let named = named_for_sandbox(&args.with, context)?;
    let packages = packages::provide(named, &args.options.scope(), context).await?;
    let keys: Vec<_> = packages.iter().map(|set| &set.key).collect();
    let mut body = json!({
        "packages": keys,
        "runtime": args.runtime.map(SandboxRuntimeArg::as_str),
        "name": args.name,
        "fence": args.fence.map(SandboxFenceArg::as_str),
        "cpus": args.cpus.map(|cpus| cpus.get()),
        "pids": args.pids.map(|pids| pids.get()),
        "memory": args.memory.map(|memory| memory.0),
        "disk": args.disk.map(|disk| disk.0),
        "allowed_hosts": allowed_hosts,
        "ports": args.ports.then_some(true),
        "env": variables(&args.env),
        "metadata": args.metadata.iter().cloned().collect::<BTreeMap<_, _>>(),
        "timeout": args.timeout.map(|timeout| timeout.as_duration().as_secs_f64()),
        "on_expiry": args.pause_on_expiry.then_some("pause"),
        "snapshot": args.snapshot,
        "image": args.image,
    });
    if let Some(members) = body.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    let path = scoped("/v1/sandboxes", &args.options);
    let made = client(context)?.post(&path, &body).await;
    let made: Value = made.map_err(|error| match error.kind() {
        // All of it is on the command line.
        "invalid_arguments" => Failure::usage(error.to_string(), error.hint()).into(),
        _ => failure(error),
    })?;
    match args.options.json {
        true => print_json(&made, context),
        false => {
            context.ui.out(format!("{}\n", name_or_id(&made)))?;
            warn_of(&made, context);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Rejects options of containers, an image that is none, and packages of this machine where they do not work.
fn check_options(args: &SandboxCreateArgs) -> Result<(), Failure> {
    for (is_given, option) in [
        (args.template.is_some(), "--template"),
        (args.oci_runtime.is_some(), "--oci-runtime"),
    ] {
        if is_given {
            return Err(Failure::usage(
                format!("`{option}` is an option of containers"),
                "leave it out, or use `--runtime docker`",
            ));
        }
    }
    if let Some(Err(error)) = args.image.as_deref().map(str::parse::<Selector>) {
        return Err(Failure::usage(
            format!("--image: {error}"),
            "`ringfence image ls` lists the images",
        ));
    }
    let other = match (&args.image, args.runtime) {
        (Some(_), _) => "an image's",
        (None, Some(SandboxRuntimeArg::Docker | SandboxRuntimeArg::Podman)) => "a container's",
        (None, None | Some(SandboxRuntimeArg::Local)) => return Ok(()),
    };
    match args.with.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(
            format!("packages are built for this machine's interpreters, not for {other}"),
            "leave --with out, or use an image that has the packages",
        )),
    }
}

async fn list(args: &SandboxListArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let options = &args.options;
    let path = match args.all {
        true => query("/v1/sandboxes", &[("all", "true")]),
        false => scoped("/v1/sandboxes", options),
    };
    let client = client(context)?;
    let told: Value = client.get(&path).await.map_err(failure)?;
    let sandboxes = told["sandboxes"].as_array().cloned().unwrap_or_default();
    let containers = told["containers"].as_array().cloned().unwrap_or_default();
    if options.json {
        return print_json(&sandboxes.into_iter().chain(containers).collect(), context);
    }
    if args.quiet {
        let all = sandboxes.iter().chain(&containers);
        return print_names(all, context);
    }
    if sandboxes.is_empty() && containers.is_empty() {
        context.ui.note("there are no sandboxes");
    }
    let header = [
        "ID", "NAME", "RUNTIME", "STATE", "COMMANDS", "EXPIRES", "IMAGE", "ACCOUNT", "USER",
    ];
    let rows = sandboxes
        .iter()
        .map(row)
        .chain(containers.iter().map(container::row));
    context.ui.out(table(header, rows))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the cells of a sandbox in a list.
fn row(sandbox: &Value) -> [String; 9] {
    let field = |name| text(sandbox, name).to_owned();
    let digest: String = text(sandbox, "image_digest").chars().take(19).collect();
    let image = match digest.is_empty() {
        // This machine's files.
        true => String::new(),
        false => format!("{} {digest}", text(sandbox, "image")),
    };
    let (id, name, runtime, state) = (field("id"), field("name"), field("runtime"), field("state"));
    let (commands, expires) = (sandbox["processes"].to_string(), field("expires_at"));
    let (account, user) = (field("account"), field("user"));
    [id, name, runtime, state, commands, expires, image, account, user]
}

/// Prints the names of a list, one a line.
fn print_names<'a>(all: impl Iterator<Item = &'a Value>, context: &Context) -> anyhow::Result<ExitCode> {
    let names = all.map(|one| format!("{}\n", name_or_id(one)));
    context.ui.out(names.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

async fn get(args: &SandboxNameArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let sandbox = sandbox_only(&args.name, "`get`", &args.options, context).await?;
    print_json(&sandbox.info().await.map_err(failure)?, context)
}

async fn exec(args: &SandboxExecArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let sandbox = sandbox_only(&args.name, "`exec`", &args.options, context).await?;
    let process = json!({
        "command": args.command,
        "env": variables(&args.env),
        "cwd": args.workdir,
        "user": args.account,
        "timeout": args.timeout.map(|timeout| timeout.as_duration().as_secs_f64()),
    });
    if args.options.json {
        return collected(&sandbox, &process, context).await;
    }
    let input = match (args.interactive, args.tty) {
        (_, true) if std::io::stdin().is_terminal() => Input::Terminal,
        (_, true) => {
            return Err(Failure::usage(
                "`-t` needs a terminal, and standard input is none",
                "leave `-t` out",
            )
            .into());
        }
        (true, false) => Input::Stdin,
        (false, false) => Input::None,
    };
    let ended = sandbox.attach(process, input).await.map_err(failure)?;
    Ok(status(&ended, context))
}

/// Runs a process, and prints it with its output as JSON.
async fn collected(sandbox: &Sandbox, process: &Value, context: &Context) -> anyhow::Result<ExitCode> {
    let ended = sandbox.exec_collected(process).await.map_err(failure)?;
    context.ui.json(&ended)?;
    Ok(status(&Ended(ended), context))
}

/// Says why a process ended that did not end by itself.
fn status(ended: &Ended, context: &Context) -> ExitCode {
    match text(&ended.0, "outcome") {
        "timed_out" if ended.0["interrupted"] == true => {
            context
                .ui
                .error("the code went past its time, and was interrupted; its context has kept its state");
        }
        "timed_out" => context.ui.error("it went past its time, and was ended"),
        "memory_exceeded" => context.ui.error("it was killed at the sandbox's memory limit"),
        "unknown" => context
            .ui
            .error(ended.0["error"].as_str().unwrap_or("its end is unknown")),
        _ => {}
    }
    warn_of(&ended.0, context);
    ExitCode::from(ended.status())
}

/// Prints the warnings of an answer.
fn warn_of(answer: &Value, context: &Context) {
    let warnings = answer["warnings"].as_array().into_iter().flatten();
    for warning in warnings.filter_map(Value::as_str) {
        context.ui.warn(warning);
    }
}

async fn shell(args: &SandboxNameArgs, context: &Context) -> anyhow::Result<ExitCode> {
    // An image may have another shell alone.
    let either = ["sh", "-c", "command -v bash > /dev/null && exec bash; exec sh"];
    let exec = SandboxExecArgs {
        account: None,
        options: args.options.clone(),
        name: args.name.clone(),
        interactive: true,
        tty: std::io::stdin().is_terminal(),
        workdir: None,
        env: Vec::new(),
        timeout: None,
        command: either.map(str::to_owned).into(),
    };
    self::exec(&exec, context).await
}

async fn execute(args: &SandboxRunArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let timeout = args.timeout.as_duration().as_secs_f64();
    if !args.command.is_empty() {
        let found = find(&args.name, &args.options, context).await?;
        let sandbox = match (found, &args.account) {
            (Some((sandbox, _)), _) => sandbox,
            (None, Some(_)) => sandbox_only(&args.name, "`--as`", &args.options, context).await?,
            (None, None) => return container::execute(args, context).await,
        };
        let process = json!({"command": args.command, "user": args.account, "timeout": timeout});
        if args.options.json {
            return collected(&sandbox, &process, context).await;
        }
        let ended = sandbox.attach(process, Input::None).await.map_err(failure)?;
        return Ok(status(&ended, context));
    }
    let (code, language) = code(args, context)?;
    let sandbox = sandbox_only(&args.name, "`run` with code", &args.options, context).await?;
    let code = json!({
        "code": code,
        "language": language.as_str(),
        "user": args.account,
        "timeout": timeout,
    });
    if args.options.json {
        let mut executed = sandbox.run_collected(&code).await.map_err(code_failure)?;
        if let Some(hint) = hint(&sandbox, &executed, language, args.timeout).await {
            executed["hints"] = json!([hint]);
        }
        print_json(&executed, context)?;
        return Ok(ExitCode::from(Ended(executed).status()));
    }
    let executed = sandbox.run(&code).await.map_err(code_failure)?;
    for shown in executed.shown_results() {
        match shown {
            ShownResult::Text(text) => context.ui.out(text + "\n")?,
            ShownResult::NoText(types) => context.ui.note(&format!(
                "a result of `{}` has no text; `--json` has it",
                visible(&types.join("`, `"))
            )),
        }
    }
    let status = status(&executed, context);
    if let Some(hint) = hint(&sandbox, &executed.0, language, args.timeout).await {
        context.ui.hint(&hint);
    }
    Ok(status)
}

/// Returns a hint about code that failed.
async fn hint(sandbox: &Sandbox, executed: &Value, language: Language, timeout: Timeout) -> Option<String> {
    let execution: Execution = Deserialize::deserialize(executed).ok()?;
    if execution.exit_code == 0 {
        return None;
    }
    // Without a sandbox any more there is none.
    let info = serde_json::from_value(sandbox.info().await.ok()?).ok()?;
    ringfence_sandbox::hint(&info, language, timeout, &execution, text(executed, "stderr"))
}

/// Returns the code and its language.
fn code(args: &SandboxRunArgs, context: &Context) -> Result<(String, Language), Failure> {
    let source = Source::of(args.code.as_deref(), args.file.as_deref()).ok_or_else(|| {
        Failure::usage(
            "there is nothing to run",
            "pass code with `-c`, name a file, or give a command after `--`",
        )
    })?;
    let program = source.read(args.language, &context.named_paths())?;
    match program.language {
        language @ (Language::Python | Language::Bash | Language::Javascript) => Ok((program.code, language)),
        Language::Command => Err(Failure::usage(
            "the contexts of sandboxes run python, bash and javascript",
            "run it as a command: `ringfence sandbox exec NAME -- COMMAND`",
        )),
    }
}

async fn files(args: &SandboxFilesArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let sandbox = sandbox_only(&args.name, "`files`", &args.options, context).await?;
    let (path, mut after) = (absolute(&args.path), args.after.clone());
    loop {
        let listing = sandbox.list(&path, args.depth, after.as_deref());
        let page = listing.await.map_err(failure)?;
        if args.options.json {
            return print_json(&page, context);
        }
        for entry in page["entries"].as_array().into_iter().flatten() {
            let mark = match text(entry, "type") {
                "directory" => "/",
                "symlink" => "@",
                _ => "",
            };
            let line = format!("{:>12}  {}{mark}\n", entry["size"], visible(text(entry, "path")));
            context.ui.out(line)?;
        }
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            if page["complete"] == false {
                context.ui.warn("the list is not complete");
            }
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Sets the time until a sandbox expires, and prints when that is.
async fn set_timeout(args: &SandboxTimeoutArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let sandbox = sandbox_only(&args.name, "`timeout`", &args.options, context).await?;
    let seconds = args.timeout.as_duration().as_secs_f64();
    let set = sandbox.set_timeout(seconds).await.map_err(failure)?;
    if args.options.json {
        return print_json(&set, context);
    }
    context.ui.out(format!("until {}\n", text(&set, "expires_at")))?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces the hosts of a sandbox, and prints them.
async fn set_network(args: &SandboxNetworkArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let sandbox = sandbox_only(&args.name, "`network`", &args.options, context).await?;
    let hosts = match args.none {
        true => Vec::new(),
        false => settings::allowlist(&args.hosts, context)?,
    };
    let set = sandbox.set_network(&hosts).await.map_err(failure)?;
    if args.options.json {
        return print_json(&set, context);
    }
    let hosts: String = hosts.iter().map(|host| format!("{}\n", visible(host))).collect();
    context.ui.out(hosts)?;
    Ok(ExitCode::SUCCESS)
}

/// Pauses or resumes a sandbox.
async fn set_state(
    args: &SandboxNameArgs,
    state: SandboxState,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    let Some((sandbox, _)) = find(&args.name, &args.options, context).await? else {
        let name = args.name.clone();
        let action = match state {
            SandboxState::Paused => SandboxAction::Pause { name },
            SandboxState::Running => SandboxAction::Resume { name },
        };
        return container::quietly(action, &args.options, context).await;
    };
    let done = match state {
        SandboxState::Paused => sandbox.pause().await,
        SandboxState::Running => sandbox.resume().await,
    };
    done.map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints events until the sandbox or the server ends.
async fn events(args: &SandboxEventsArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let mut events = match &args.name {
        Some(name) => {
            let sandbox = sandbox_only(name, "`events`", &args.options, context).await?;
            sandbox.life().await
        }
        None => {
            client(context)?
                .lives(args.options.user().map(|user| user.as_str()))
                .await
        }
    }
    .map_err(failure)?;
    while let Some(event) = events.next().await.map_err(failure)? {
        let line = match args.options.json {
            true => Some(event.data.to_string()),
            false => life::line(&event),
        };
        context
            .ui
            .out(line.map_or_else(String::new, |line| line + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn stats(args: &SandboxStatsArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let Some((sandbox, mut info)) = find(&args.name, &args.options, context).await? else {
        return container::stats(args, context).await;
    };
    loop {
        let used = &info["resources"];
        let line = match args.options.json {
            true => serde_json::to_string(used)?,
            false => Resources::deserialize(used)?.to_line(),
        };
        context.ui.out(line + "\n")?;
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        info = sandbox.info().await.map_err(failure)?;
    }
}

/// Removes sandboxes. One that cannot be removed keeps no other.
async fn remove(args: &SandboxRemoveArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for name in &args.names {
        if let Err(error) = remove_one(name, &args.options, context).await {
            status = exit::report(context.ui, context.form, &error);
        }
    }
    Ok(status)
}

async fn remove_one(name: &str, options: &ScopedOptions, context: &Context) -> anyhow::Result<ExitCode> {
    let Some((sandbox, _)) = find(name, options, context).await? else {
        let name = name.to_owned();
        return container::quietly(SandboxAction::Remove { name }, options, context).await;
    };
    sandbox.remove().await.map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}
