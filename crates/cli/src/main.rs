//! The binary `ringfence`: reads arguments, files and environment, and calls the rest.
#![forbid(unsafe_code)]

mod args;
mod backend;
mod commands;
mod config;
mod container;
mod context;
mod env;
mod exit;
mod kernel;
mod local;
mod parts;
mod paths;
mod plan;
mod pyodide;
mod skills;
mod trust;
mod ui;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use ringfence_exec::local::{self as fence, Launcher};

use crate::args::{Cli, Command};
use crate::backend::PreforkedLauncher;
use crate::commands as command;
use crate::context::Context;
use crate::env::Environment;
use crate::exit::Form;

fn main() -> ExitCode {
    // A launcher must fork, so nothing else may have run before; a launcher that is a copy of us must have
    // read nothing.
    fence::init();
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let spare = match arguments.get(1).and_then(|command| command.to_str()) {
        // If the fork fails, the local backend tries again later and reports the error.
        Some("run") => PreforkedLauncher::from(Launcher::fork(&mut arguments).ok()),
        _ => PreforkedLauncher::default(),
    };
    let form = Form::of(&arguments);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return exit::unparsed(&error, form),
    };
    let Cli { global, command } = cli;
    let context = Context::new(Environment::of_process(), global);
    dispatch(&command, spare, &context).unwrap_or_else(|error| exit::report(context.ui, form, &error))
}

fn dispatch(command: &Command, spare: PreforkedLauncher, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => command::run::run(args, spare, context),
        Command::Tool(args) => command::tool::run(args, context),
        Command::Mcp(args) => command::mcp::run(args, context),
        Command::Accept(args) => command::accept::run(args, context),
        Command::Skills(args) => command::skills::run(args, context),
        Command::Session(args) => command::session::run(args, context),
        Command::Sandbox(args) => command::sandbox::run(args, context),
        Command::Serve(args) => command::serve::run(args, context),
        Command::Console(args) => command::console::run(args, context),
        Command::Approvals(args) => command::approvals::run(args, context),
        Command::Gateway(args) => command::gateway::run(args, context),
        Command::Artifacts(args) => command::artifacts::run(args, context),
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
    }
}
