//! The arguments of `ringfence setup`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

pub(super) const EXAMPLES: &str = "\
Examples:
  ringfence setup image                    the image of the docker runtime, from a base if one can be pulled
  ringfence setup image --from host        from the packages of this machine, without any network
  ringfence setup image --engine podman
  ringfence setup image --from registry --image registry.example/sandbox:1
  ringfence setup deno                     Deno and Pyodide, for the pyodide runtime
  ringfence setup deno --from ./packages   from packages that `npm pack` fetched elsewhere";

/// `ringfence setup`.
#[derive(Debug, Subcommand)]
pub(crate) enum SetupCommand {
    /// Make the image that containers are made of, and note its digest.
    Image(ImageArgs),
    /// Install Deno and Pyodide, in the versions that were tried together, their digests checked.
    Deno(DenoArgs),
}

/// `ringfence setup deno`.
#[derive(Debug, Args)]
pub(crate) struct DenoArgs {
    /// A directory with the packages that `npm pack` makes (default: they are fetched by npm).
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,
}

/// `ringfence setup image`.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// The container engine that gets it.
    #[arg(long, value_name = "NAME", default_value = "docker")]
    pub(crate) engine: EngineArg,
    /// What it is made from.
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    pub(crate) from: ImageSource,
    /// Its name (default: `sandbox.docker.image`).
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
}

/// What `--engine` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineArg {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

/// What an image is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImageSource {
    /// From a base, and where none can be pulled from this machine's packages.
    Auto,
    /// From a base that the engine pulls.
    Dockerfile,
    /// From the Debian packages of this machine.
    Host,
    /// As it is, from the registry that its name says.
    Registry,
}
