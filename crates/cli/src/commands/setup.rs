//! `ringfence setup`: installs the optional parts.

use std::process::ExitCode;

use ringfence_container::ContainerRuntime;
use ringfence_container::image::{self, SetupError};
use ringfence_container::pins::Pins;
use ringfence_container::spec::Image;
use ringfence_exec::pyodide::install::{install, install_wheels};
use ringfence_policy::EngineKind;

use crate::commands::sandbox::engine_kind;
use crate::context::Context;
use crate::ui::Ui;
use ringfence::Failure;
use ringfence::{container, parts, pyodide, trust};
use ringfence_args::{DenoArgs, ImageArgs, ImageSource, SetupCommand};

pub(crate) fn run(command: &SetupCommand, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        SetupCommand::Image(args) => image(args, context),
        SetupCommand::Deno(args) => deno(args, context),
    }
}

/// Variables of the host that npm and pip need: search path, identity, registry.
const FETCH_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "NPM_CONFIG_REGISTRY",
    "npm_config_registry",
    "PIP_CONFIG_FILE",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_FIND_LINKS",
    "PIP_CERT",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
];

fn deno(args: &DenoArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let settings = pyodide::settings(0, context)?;
    context.paths.make_state()?;
    let path = trust::search_path(context)?;
    // npm is a script of Node; pip is a module of Python.
    for program in ["npm", "node", "python3"] {
        trust::find_program(program, path.as_deref(), &trust::ledger(context))?;
    }
    let named = FETCH_VARIABLES.iter().filter_map(|name| {
        let value = match *name {
            "PATH" => path.as_deref()?.to_str()?,
            name => context.environment.text(name)?,
        };
        Some((name.parse().ok()?, value.to_owned()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ui = context.ui;
    let variables: Vec<_> = named.collect();
    let installed = runtime.block_on(install(
        &settings,
        args.from.as_deref(),
        variables.clone(),
        &mut |line| {
            progress(ui, line);
        },
    ));
    installed.map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    if !args.packages.is_empty() {
        let own = settings.directory.join("wheels");
        let place = settings.packages.as_deref().unwrap_or(&own);
        let fetched = runtime.block_on(install_wheels(&settings, &args.packages, place, variables));
        let count = fetched.map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
        progress(ui, &format!("wheels in {}: {count}", place.display()));
        if settings.packages.is_none() {
            let path = place.display();
            progress(
                ui,
                &format!("to use them, set `skills.sandbox.packages` to \"{path}\""),
            );
        }
    }
    context.ui.out(format!("{}\n", settings.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn image(args: &ImageArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let tag = match &args.image {
        Some(name) => parts::image("--image", name).map_err(Failure::from)?,
        None => context.parts()?.containers.runs.clone(),
    };
    let engine_kind = engine_kind(args.engine);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let digest = runtime.block_on(make(args, engine_kind, &tag, context))?;
    context.paths.make_state()?;
    Pins::pin(&container::pins(context), engine_kind, &tag, &digest)
        .map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    context.ui.out(format!("{tag} {digest}\n"))?;
    Ok(ExitCode::SUCCESS)
}

async fn make(
    args: &ImageArgs,
    engine_kind: EngineKind,
    tag: &Image,
    context: &Context,
) -> Result<Image, Failure> {
    let engine = ContainerRuntime::open(engine_kind, &container::surroundings(context)).await;
    let engine = engine.map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    let ui = context.ui;
    let made = match args.from {
        ImageSource::Dockerfile => image::build(&engine, tag, &mut |line| progress(ui, line)).await,
        ImageSource::Host => image::gather(&engine, tag, &mut |line| progress(ui, line)).await,
        ImageSource::Registry => image::pull(&engine, tag, &mut |line| progress(ui, line)).await,
        ImageSource::Auto => match image::build(&engine, tag, &mut |line| progress(ui, line)).await {
            Err(SetupError::Engine(error)) => {
                progress(
                    ui,
                    &format!("{error}; taking the packages of this machine instead"),
                );
                image::gather(&engine, tag, &mut |line| progress(ui, line)).await
            }
            made => made,
        },
    };
    made.map_err(|error| Failure::refused(format!("{error:#}"), error.hint()))
}

/// Prints a progress line to standard error; it is not part of the result.
fn progress(ui: Ui, line: &str) {
    // A closed standard error leaves nobody to notify.
    let _ = ui.err(format!("{}\n", crate::ui::visible(line)));
}
