//! The image that sandboxes are made of: built from a base, or gathered from this machine's own packages.

mod archive;
mod packages;
mod progress;

use std::io;
use std::pin::pin;

use bollard::errors::Error as Told;
use bollard::models::{BuildInfo, CreateImageInfo};
use bollard::query_parameters as query;
use futures_util::{Stream, StreamExt, stream};
use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::error::words;
use super::spec::Image;
use super::{ContainerRuntime, Error, Flavor};
use archive::Writer;
use progress::Progress;

/// The image, where a base can be pulled.
pub const DOCKERFILE: &str = include_str!("../../../../docker/Dockerfile");

/// How much of an archive is under way to the engine at once.
const PIECE: usize = 256 * 1024;
const PIECES: usize = 8;

/// As they follow "cannot".
const BUILD: &str = "build the image";
const PULL: &str = "pull the image";

/// Why the image could not be gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// This machine's packages are not Debian's.
    #[error("cannot read the list of packages {}: {error}", path.display())]
    NoPackages {
        /// Where it should be.
        path: std::path::PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A package that no image can do without.
    #[error("the package `{0}` is not installed on this machine")]
    Missing(&'static str),
    /// A file could not be read, or the engine stopped listening.
    #[error("cannot gather the files of the image")]
    Io(#[from] io::Error),
}

impl GatherError {
    /// What the reader can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoPackages { .. } => {
                "only a Debian-like machine can lend its packages; build from the Dockerfile instead"
            }
            Self::Missing(_) => "install it, or build from the Dockerfile instead",
            Self::Io(_) => "check that the container engine runs, and that its disk is not full",
        }
    }
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The engine did not do it.
    #[error(transparent)]
    Engine(#[from] Error),
    /// There is nothing to give to it.
    #[error(transparent)]
    Gather(#[from] GatherError),
}

impl SetupError {
    /// What the reader can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Engine(error) => error.hint(),
            Self::Gather(error) => error.hint(),
        }
    }
}

/// Builds the image from [`DOCKERFILE`], whose base the engine pulls; its digest. Lines of progress go to `tell`.
///
/// # Errors
/// If the base cannot be pulled, or the engine says no.
pub async fn build(
    engine: &ContainerRuntime,
    tag: &Image,
    tell: &mut dyn FnMut(&str),
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
    // As a stream: a body of one piece is taken for a request in JSON, and looked at as such.
    let body = bollard::body_stream(stream::iter([Bytes::from(context)]));
    let steps = engine.docker.build_image(options, None, Some(body));
    follow(engine, (BUILD, tag), steps, tell).await?;
    Ok(engine.image(tag).await?)
}

/// Has the engine pull an image from the registry that its name says; its digest. Lines of progress go to `tell`.
///
/// # Errors
/// If the registry cannot be reached, or does not have it.
pub async fn pull(
    engine: &ContainerRuntime,
    image: &Image,
    tell: &mut dyn FnMut(&str),
) -> Result<Image, SetupError> {
    // Without a tag, an engine pulls what is behind every one.
    let name = match image.is_one() {
        true => image.to_string(),
        false => format!("{image}:latest"),
    };
    let options = query::CreateImageOptionsBuilder::new().from_image(&name).build();
    let steps = engine
        .docker
        .create_image(Some(options), None, None)
        .map(of_build);
    follow(engine, (PULL, image), steps, tell).await?;
    Ok(engine.image(image).await?)
}

/// Tells of the steps, until the last one or one that failed.
async fn follow(
    engine: &ContainerRuntime,
    (doing, image): (&'static str, &Image),
    steps: impl Stream<Item = Result<BuildInfo, Told>>,
    tell: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let name = image.to_string();
    let asked = engine.asked(doing, &name);
    let mut progress = Progress::default();
    let mut steps = pin!(steps);
    while let Some(step) = steps.next().await {
        let step = step.map_err(|error| not_made(asked.failed(error), doing, image))?;
        if let Some(line) = progress.line(&step) {
            tell(&line);
        }
        if let Some(message) = step.error_detail.and_then(|detail| detail.message) {
            return Err(not_made(said(doing, &message), doing, image));
        }
    }
    Ok(())
}

/// What an error means for an image that was to be had.
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

/// What is said of a pull, as it is said of a build.
fn of_build(step: Result<CreateImageInfo, Told>) -> Result<BuildInfo, Told> {
    step.map(|step| BuildInfo {
        id: step.id,
        status: step.status,
        progress_detail: step.progress_detail,
        error_detail: step.error_detail,
        ..BuildInfo::default()
    })
}

/// Gathers the image from the packages of this machine and imports it; its digest.
///
/// # Errors
/// If a package is missing, or the engine says no.
pub async fn gather(
    engine: &ContainerRuntime,
    tag: &Image,
    tell: &mut dyn FnMut(&str),
) -> Result<Image, SetupError> {
    let files = packages::files(std::path::Path::new("/"))?;
    tell(&format!(
        "{} files of {} packages",
        files.members.len(),
        files.packages.len()
    ));
    let (sender, receiver) = mpsc::channel(PIECES);
    let mut writing = JoinSet::new();
    writing.spawn_blocking(move || files.write(Pipe::new(sender)));
    let imported = import(engine, tag, receiver).await;
    // The engine may have answered before it had it all; then it has said why.
    let written = writing.join_next().await;
    imported?;
    if let Some(Ok(written)) = written {
        written.map_err(GatherError::Io)?;
    }
    Ok(engine.image(tag).await?)
}

async fn import(
    engine: &ContainerRuntime,
    tag: &Image,
    receiver: mpsc::Receiver<io::Result<Bytes>>,
) -> Result<(), Error> {
    let name = tag.to_string();
    let mut options = query::CreateImageOptionsBuilder::new().from_src("-");
    options = match (engine.flavor(), name.rsplit_once(':')) {
        (Flavor::Docker, Some((repo, label))) => options.repo(repo).tag(label),
        // Podman takes the whole name, and knows no other tag.
        (Flavor::Docker, None) | (Flavor::Podman, _) => options.repo(&name),
    };
    let options = options.build();
    let asked = engine.asked("import the image", &name);
    let body = bollard::body_try_stream(pieces(receiver));
    let mut steps = pin!(engine.docker.create_image(Some(options), Some(body), None));
    while let Some(step) = steps.next().await {
        let CreateImageInfo { error_detail, .. } = step.map_err(|error| asked.failed(error))?;
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

/// A writer on a thread, whose pieces go to the engine.
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
