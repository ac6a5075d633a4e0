//! `ringfence setup`: makes the optional parts.

use std::process::ExitCode;

use ringfence_runtime::container::image::{self, SetupError};
use ringfence_runtime::container::pins::Pins;
use ringfence_runtime::container::spec::Image;
use ringfence_runtime::container::{ContainerRuntime, Flavor};

use crate::args::{ImageArgs, ImageSource, SetupCommand};
use crate::commands::sandbox::flavor;
use crate::container;
use crate::context::Context;
use crate::exit::Failure;
use crate::ui::Ui;

pub(crate) fn run(command: &SetupCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let SetupCommand::Image(args) = command;
    let tag = match &args.image {
        Some(name) => container::image("--image", name)?,
        None => container::image("sandbox.docker.image", &context.config()?.sandbox.docker.image)?,
    };
    let flavor = flavor(args.engine);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let digest = runtime.block_on(make(args, flavor, &tag, context))?;
    context.paths.make_state()?;
    Pins::pin(&container::pins(context), flavor, &tag, &digest)
        .map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    context.ui.out(format!("{tag} {digest}\n"))?;
    Ok(ExitCode::SUCCESS)
}

async fn make(args: &ImageArgs, flavor: Flavor, tag: &Image, context: &Context) -> Result<Image, Failure> {
    let engine = ContainerRuntime::open(flavor, &container::surroundings(context)).await;
    let engine = engine.map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    let ui = context.ui;
    let made = match args.from {
        ImageSource::Dockerfile => image::build(&engine, tag, &mut |line| progress(ui, line)).await,
        ImageSource::Host => image::gather(&engine, tag, &mut |line| progress(ui, line)).await,
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

/// A line for whoever waits; it is no part of the answer.
fn progress(ui: Ui, line: &str) {
    // There is nobody left to tell if standard error is closed.
    let _ = ui.err(format!("{}\n", crate::ui::visible(line)));
}
