//! The arguments of `ringfence image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringfence_images::{Reference, Selector};

pub(crate) const EXAMPLES: &str = "\
Examples:
  ringfence image pull python:3.12-slim
  ringfence run --image python:3.12-slim report.py
  docker save my/app:1 | gzip > app.tar.gz && ringfence image import app.tar.gz
  ringfence image import rootfs.tar --name my/root:1
  ringfence image ls
  ringfence image rm python:3.12-slim

No daemon and no root are needed. An image is unpacked once; runs on it see its files, read-only, in place of this
machine's. Containers of `--runtime docker` have the images of their engine instead.";

/// `ringfence image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Fetch an image from its registry, with the credentials that `docker login` or `podman login` stored.
    Pull(ImagePullArgs),
    /// Import an archive of `docker save`, an OCI layout (archive or directory), or a root file system as a tar.
    Import(ImageImportArgs),
    /// List the images.
    Ls {
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Remove images. Files in use are deleted by the first image command after that run.
    Rm {
        /// References, or digests as `ringfence image ls --json` prints them.
        #[arg(value_name = "REF", required = true)]
        images: Vec<Selector>,
    },
}

/// `ringfence image pull`.
#[derive(Debug, Args)]
pub struct ImagePullArgs {
    /// The image, as `docker pull` takes it: `python:3.12`, `registry.example.com:5000/team/app@sha256:…`.
    #[arg(value_name = "REF")]
    pub reference: Reference,
}

/// `ringfence image import`.
#[derive(Debug, Args)]
pub struct ImageImportArgs {
    /// The archive, compressed with gzip, zstd or not at all, or the directory of an OCI layout.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Name of the image (default: that in the archive; a root file system has none).
    #[arg(long, value_name = "REF")]
    pub name: Option<Reference>,
}
