//! The arguments of `ringfence setup`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

pub(crate) const EXAMPLES: &str = "\
Examples:
  ringfence setup image                    the image of the docker runtime, from a base if one can be pulled
  ringfence setup image --from host        from the packages of this machine, without any network
  ringfence setup image --engine podman
  ringfence setup image --from registry --image registry.example/sandbox:1
  ringfence setup deno                     Deno and Pyodide, for the pyodide runtime
  ringfence setup deno --from ./packages   from packages that `npm pack` fetched elsewhere";

/// `ringfence setup`.
#[derive(Debug, Subcommand)]
pub enum SetupCommand {
    /// Build the image of containers, and record its digest.
    Image(ImageArgs),
    /// Install Deno and Pyodide in versions tested together, with verified digests.
    Deno(DenoArgs),
}

/// `ringfence setup deno`.
#[derive(Debug, Args)]
pub struct DenoArgs {
    /// A directory with the packages that `npm pack` creates (default: fetch them with npm).
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,

    /// Fetch wheels of these packages as well, with what they need, from the package index that pip uses; into the
    /// directory of `skills.sandbox.packages`, whose content is replaced.
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub packages: Vec<String>,
}

/// `ringfence setup image`.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// The container engine to install it in.
    #[arg(long, value_name = "NAME", default_value = "docker")]
    pub engine: EngineArg,
    /// The source of the image.
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    pub from: ImageSource,
    /// The image's name (default: `sandbox.docker.image`).
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
}

/// The values of `--engine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

/// The source of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImageSource {
    /// A base image, or this machine's packages if none can be pulled.
    Auto,
    /// A base image that the engine pulls.
    Dockerfile,
    /// The Debian packages of this machine.
    Host,
    /// The finished image from the registry in its name.
    Registry,
}
