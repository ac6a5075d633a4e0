//! Sets up the image of containers: built from a base image, or assembled from this machine's packages.

mod archive;
mod error;
mod packages;
mod progress;

use std::io;
use std::pin::pin;
use std::sync::Arc;

use bollard::errors::Error as Told;
use bollard::models::{BuildInfo, CreateImageInfo};
use bollard::query_parameters as query;
use futures_util::{Stream, StreamExt, stream};
use hyper::body::Bytes;
use ringfence_policy::{EngineKind, Remedy};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::error::words;
use super::spec::Image;
use super::{ContainerRuntime, Error};
use archive::Writer;
pub use error::GatherError;
use progress::Progress;

/// The Dockerfile, for machines that can pull a base image.
pub const DOCKERFILE: &str = include_str!("../../../docker/Dockerfile");

/// Chunk size of the archive stream to the engine, in bytes.
const PIECE: usize = 256 * 1024;
const PIECES: usize = 8;

/// Label of an imported image: the digest of its archive.
const CONTENTS: &str = "ringfence.contents";

/// Operations, worded to follow "cannot".
const BUILD: &str = "build the image";
const PULL: &str = "pull the image";

/// An error of setting up the image.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] Error),
    /// Assembling the image failed.
    #[error(transparent)]
    Gather(#[from] GatherError),
}

impl SetupError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::Engine(error) => error.hint(),
            Self::Gather(error) => error.hint().into(),
        }
    }
}

/// Builds the image from [`DOCKERFILE`], whose base the engine pulls; returns the image by digest. Passes
/// lines of progress to `report`.
///
/// # Errors
/// If the base cannot be pulled, or the engine rejects the build.
pub async fn build(
    engine: &ContainerRuntime,
    tag: &Image,
    report: &mut dyn FnMut(&str),
) -> Result<Image, SetupError> {
    let mut context = Writer::new(Vec::new());
    context
        .bytes("Dockerfile", DOCKERFILE.as_bytes())
        .map_err(GatherError::Io)?;
    let context = context.finish().map_err(GatherError::Io)?;
    let name = tag.to_string();
    let options = query::BuildImageOptionsBuilder::new()
        .t(&name)
        .rm(true)
        .forcerm(true)
        .build();
    // As a stream: the check of outgoing requests would parse a body of one piece as JSON.
    let body = bollard::body_stream(stream::iter([Bytes::from(context)]));
    let steps = engine.docker.build_image(options, None, Some(body));
    follow(engine, BUILD, tag, steps, report).await?;
    Ok(engine.image(tag).await?)
}

/// Pulls an image from its registry with the engine. Returns the image by digest. Passes progress lines to
/// `report`.
///
/// # Errors
/// If the registry is unreachable, or does not have the image.
pub async fn pull(
    engine: &ContainerRuntime,
    image: &Image,
    report: &mut dyn FnMut(&str),
) -> Result<Image, SetupError> {
    // Without a tag, an engine would pull all of them.
    let name = match image.is_one() {
        true => image.to_string(),
        false => format!("{image}:latest"),
    };
    let options = query::CreateImageOptionsBuilder::new().from_image(&name).build();
    let steps = engine
        .docker
        .create_image(Some(options), None, None)
        .map(of_build);
    follow(engine, PULL, image, steps, report).await?;
    Ok(engine.image(image).await?)
}

/// Reports progress until the last step, or a failed one.
async fn follow(
    engine: &ContainerRuntime,
    doing: &'static str,
    image: &Image,
    steps: impl Stream<Item = Result<BuildInfo, Told>>,
    report: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let name = image.to_string();
    let call = engine.call(doing, &name);
    let mut progress = Progress::default();
    let mut steps = pin!(steps);
    while let Some(step) = steps.next().await {
        let step = step.map_err(|error| not_made(call.failed(error), doing, image))?;
        if let Some(line) = progress.line(&step) {
            report(&line);
        }
        if let Some(message) = step.error_detail.and_then(|detail| detail.message) {
            return Err(not_made(said(doing, &message), doing, image));
        }
    }
    Ok(())
}

/// Converts the error of a build or pull.
fn not_made(error: Error, doing: &'static str, image: &Image) -> Error {
    let image = image.to_string();
    match error {
        Error::NotFound { .. } if doing == PULL => Error::NotInRegistry { image },
        Error::Said { said, .. } if doing == PULL && said.contains("manifest unknown") => {
            Error::NotInRegistry { image }
        }
        Error::Said { said, .. } => Error::NotMade { doing, image, said },
        other => other,
    }
}

/// Converts the progress of a pull to that of a build.
fn of_build(step: Result<CreateImageInfo, Told>) -> Result<BuildInfo, Told> {
    step.map(|step| BuildInfo {
        id: step.id,
        status: step.status,
        progress_detail: step.progress_detail,
        error_detail: step.error_detail,
        ..BuildInfo::default()
    })
}

/// Assembles the image from this machine's packages and imports it; returns the image by digest. If an image
/// of the same files exists, it is kept: imports have a date, so another one would have another digest.
///
/// # Errors
/// If a package is missing, or the engine rejects the import.
pub async fn gather(
    engine: &ContainerRuntime,
    tag: &Image,
    report: &mut dyn FnMut(&str),
) -> Result<Image, SetupError> {
    let files = packages::files(std::path::Path::new("/"))?;
    report(&format!(
        "{} files of {} packages",
        files.members.len(),
        files.packages.len()
    ));
    let files = Arc::new(files);
    let fingerprint = {
        let files = Arc::clone(&files);
        blocking(move || fingerprint(&files))
            .await
            .map_err(GatherError::Io)?
    };
    if engine.image_label(tag, CONTENTS).await.as_ref() == Some(&fingerprint) {
        report("an image of the same files is there");
        return Ok(engine.image(tag).await?);
    }
    let (sender, receiver) = mpsc::channel(PIECES);
    let mut writing = JoinSet::new();
    writing.spawn_blocking(move || files.write(Pipe::new(sender)));
    let imported = import(engine, tag, format!("LABEL {CONTENTS}={fingerprint}"), receiver).await;
    // The engine may have rejected the archive before reading all of it; its error explains why.
    let written = writing.join_next().await;
    imported?;
    if let Some(Ok(written)) = written {
        written.map_err(GatherError::Io)?;
    }
    Ok(engine.image(tag).await?)
}

/// Returns the SHA-256 digest of the archive.
fn fingerprint(files: &packages::Files) -> io::Result<String> {
    let mut archive = Hashed(Sha256::new());
    files.write(&mut archive)?;
    let digest = archive.0.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

/// A writer that computes the SHA-256 digest of its input.
struct Hashed(Sha256);

impl io::Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn import(
    engine: &ContainerRuntime,
    tag: &Image,
    label: String,
    receiver: mpsc::Receiver<io::Result<Bytes>>,
) -> Result<(), Error> {
    let name = tag.to_string();
    let mut options = query::CreateImageOptionsBuilder::new()
        .from_src("-")
        .changes(vec![label]);
    options = match (engine.kind(), name.rsplit_once(':')) {
        (EngineKind::Docker, Some((repo, label))) => options.repo(repo).tag(label),
        // Podman takes the whole name including the tag.
        (EngineKind::Docker, None) | (EngineKind::Podman, _) => options.repo(&name),
    };
    let options = options.build();
    let call = engine.call("import the image", &name);
    let body = bollard::body_try_stream(pieces(receiver));
    let mut steps = pin!(engine.docker.create_image(Some(options), Some(body), None));
    while let Some(step) = steps.next().await {
        let CreateImageInfo { error_detail, .. } = step.map_err(|error| call.failed(error))?;
        if let Some(message) = error_detail.and_then(|detail| detail.message) {
            return Err(said("import the image", &message));
        }
    }
    Ok(())
}

fn said(doing: &'static str, message: &str) -> Error {
    Error::Said {
        doing,
        said: words(message),
    }
}

fn pieces(receiver: mpsc::Receiver<io::Result<Bytes>>) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold(receiver, async |mut receiver| {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    })
}

/// A blocking writer that sends its chunks to the engine.
struct Pipe {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Pipe {
    fn new(sender: mpsc::Sender<io::Result<Bytes>>) -> Self {
        Self {
            sender,
            buffer: Vec::with_capacity(PIECE),
        }
    }
}

impl io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE)));
        self.sender
            .blocking_send(Ok(piece))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
