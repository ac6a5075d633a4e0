//! The binary `ringfence`: reads arguments, files and environment, and calls the rest.
#![forbid(unsafe_code)]

mod backend;
mod commands;
mod context;
mod exit;
mod packages;
mod plan;
mod skills;
mod ui;

use std::ffi::OsString;
use std::process::ExitCode;

use ringfence_exec::local as fence;

use crate::backend::Prepared;
use crate::commands as command;
use crate::context::Context;
use ringfence::env::Environment;
use ringfence::paths::Paths;
use ringfence_args::{Cli, ColorChoice, Command, ErrorFormat};

fn main() -> ExitCode {
    // A launcher must fork, so nothing else may have run before; a launcher that is a copy of us must have
    // read no secret.
    fence::init();
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let prepared = match arguments.get(1).and_then(|command| command.to_str()) {
        Some("run") => {
            let local = arguments
                .iter()
                .any(|argument| argument == "--no-engine" || is_image(argument));
            let socket = (!local).then(Paths::socket_early).flatten();
            Prepared::new(socket.as_deref(), &mut arguments)
        }
        Some("tool") if !arguments.iter().any(|argument| argument == "--no-engine") => {
            Prepared::connected(Paths::socket_early().as_deref())
        }
        _ => Prepared::default(),
    };
    let form = ErrorFormat::of(&arguments);
    let cli = match Cli::parsed(&arguments) {
        Ok(cli) => cli.with_checked_file(),
        Err(error) => return exit::unparsed(error, form, ColorChoice::of(&arguments)),
    };
    let Cli { global, command } = cli;
    let context = Context::new(Environment::of_process(), global, form);
    warn_of_api_url(&command, &context);
    dispatch(&command, prepared, &context).unwrap_or_else(|error| exit::report(context.ui, form, &error))
}

/// Warns if the user names another server, which only the SDKs use.
fn warn_of_api_url(command: &Command, context: &Context) {
    let uses_server = matches!(
        command,
        Command::Run(_)
            | Command::Tool(_)
            | Command::Session(_)
            | Command::Sandbox(_)
            | Command::Keys(_)
            | Command::Console(_)
            | Command::Approvals(_)
    );
    if uses_server && context.environment.get("RINGFENCE_API_URL").is_some() {
        context
            .ui
            .warn("RINGFENCE_API_URL is for the SDKs alone: this command acts on this machine");
    }
}

/// Returns `true` for the option of runs on images, which no server takes.
fn is_image(argument: &OsString) -> bool {
    argument == "--image" || argument.as_encoded_bytes().starts_with(b"--image=")
}

fn dispatch(command: &Command, prepared: Prepared, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => command::run::run(args, prepared, context),
        Command::Tool(args) => command::tool::run(args, prepared, context),
        Command::Mcp(args) => command::mcp::run(args, context),
        Command::Accept(args) => command::accept::run(args, context),
        Command::Skills(args) => command::skills::run(args, context),
        Command::Session(args) => command::session::run(args, context),
        Command::Sandbox(args) => command::sandbox::run(args, context),
        Command::Image(args) => command::image::run(args, context),
        Command::Serve(args) => command::serve::run(args, context),
        Command::Keys(args) => command::keys::run(args, context),
        Command::Console(args) => command::console::run(args, context),
        Command::Approvals(args) => command::approvals::run(args, context),
        Command::Gateway(args) => command::gateway::run(args, context),
        Command::Artifacts(args) => command::artifacts::run(args, context),
        Command::Packages(args) => command::packages::run(args, context),
        Command::Audit(args) => command::audit::run(args, context),
        Command::Policy(args) => command::policy::run(args, context),
        Command::Config(args) => command::config::run(args, context),
        Command::Doctor(args) => command::doctor::run(args, context),
        Command::Bench(args) => command::bench::run(args, context),
        Command::Setup(args) => command::setup::run(args, context),
        Command::Seccomp(args) => command::seccomp::run(args, context),
        Command::Completions(args) => command::completions::run(args, context),
        Command::Man => command::man::run(context),
        Command::HelpMarkdown => command::man::run_markdown(context),
        Command::LockStdin { exclusive } => command::lock_stdin::run(*exclusive),
    }
}
