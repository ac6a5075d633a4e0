//! `/v1/images`: the images of which sandboxes are made, for the operator.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use hyper::body::Bytes;
use ringfence_images::{Error, ImageInfo, Progress, Reference, Removal, Selector, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::task::JoinHandle;

use super::blocking::BlockingThreads;
use super::content::Content;
use super::error::{ApiError, Reason};
use super::extract::Params;
use super::recording::Described;
use super::rights::Right;
use super::route::{Form, Parameter, Place, Route, route};
use super::state::Api;
use super::{body, events, stream};

/// Maximum number of pulls at once.
pub(super) const MAX_PULLS: usize = 2;

/// Uses the store: a second user would only wait for the first.
static STORE: BlockingThreads = BlockingThreads::new(1);

/// Maximum size of a request to pull, in bytes.
const MAX: usize = 1024 * 1024;

/// The content of an answer of events.
const EVENTS: Content = Content::new(&[events::MEDIA], |_| {
    schemars::json_schema!({
        "type": "string",
        "description": "Events: `progress` with `{\"layer\", \"layers\", \"received\", \"size\"}` (the number of a layer from 1, \
            and bytes of it) as layers arrive, then `result` with the answer, or `error` with `{\"error\"}`. Comments keep \
            the connection open. Closing the connection cancels the pull.",
    })
});

const IMAGE: &[Parameter] = &[Parameter {
    place: Place::Query,
    name: "image",
    required: true,
    form: Form::Text,
    description: "Reference of the image, as `docker pull` takes it, or its digest, which means all its references.",
}];

pub(super) fn routes() -> Vec<Route> {
    let list = route(
        Method::GET,
        "/v1/images",
        "List the images that sandboxes can be made of, by their first reference.",
        vec![Content::json::<ImageList>()],
        |method| on(method, list),
    )
    .with_right(Right::Admin);
    let pull = route(
        Method::POST,
        "/v1/images",
        "Pull an image from its registry, and answer with it or, with `Accept: text/event-stream`, with events.",
        vec![Content::json::<PulledImage>(), EVENTS],
        |method| on(method, pull),
    )
    .with_right(Right::Admin)
    .with_body(Content::json::<PullRequest>().at_most(MAX))
    .recorded_as("image.pull");
    let remove = route(
        Method::DELETE,
        "/v1/images",
        "Remove a reference of an image, or all of a digest, and the image's files if no reference is left and nothing uses it.",
        vec![Content::json::<RemovedImage>()],
        |method| on(method, remove),
    )
    .with_right(Right::Admin)
    .with_parameters(IMAGE)
    .recorded_as("image.remove");
    vec![list, pull, remove]
}

#[derive(Debug, Serialize, JsonSchema)]
struct ImageList {
    images: Vec<ImageInfo>,
}

/// An image to pull.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PullRequest {
    /// Reference of the image, as `docker pull` takes it.
    #[schemars(with = "String")]
    reference: Reference,
}

/// An image that was pulled.
#[derive(Debug, Serialize, JsonSchema)]
struct PulledImage {
    image: ImageInfo,
    /// Set if the image was there already, so that no layer was fetched.
    was_there: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageQuery {
    image: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RemovedImage {
    files: Files,
}

/// The state of an image's files after a reference was removed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Files {
    Removed,
    /// Another reference means the image.
    StillNamed,
    /// A run or a sandbox uses the image. Its files go with the first operation on images after it.
    InUse,
}

impl From<Removal> for Files {
    fn from(removal: Removal) -> Self {
        match removal {
            Removal::Removed => Self::Removed,
            Removal::StillNamed => Self::StillNamed,
            Removal::InUse => Self::InUse,
        }
    }
}

async fn list(State(api): State<Arc<Api>>) -> Result<Response, ApiError> {
    let images = in_store(api, |store| {
        // A list is no reason to fail where nothing can be removed.
        let _ = store.collect();
        store.list()
    });
    Ok(Json(ImageList {
        images: images.await?,
    })
    .into_response())
}

async fn remove(
    State(api): State<Arc<Api>>,
    Params(ImageQuery { image }): Params<ImageQuery>,
) -> Result<Response, ApiError> {
    let selector: Selector = image.parse().map_err(Error::from)?;
    let removal = in_store(api, move |store| store.remove(&selector)).await?;
    let files = removal.into();
    Ok(Json(RemovedImage { files }).into_response())
}

async fn pull(State(api): State<Arc<Api>>, request: Request) -> Result<Response, ApiError> {
    let wants_events = events::accepts(request.headers());
    let PullRequest { reference } = body::json(request).await?;
    let permit = Arc::clone(&api.pulls).try_acquire_owned().map_err(|_| {
        ApiError::new(
            Reason::Busy,
            format!("{MAX_PULLS} images are being pulled"),
            "ask again when one is there",
        )
    })?;
    let described = axum::Extension(Described(json!({ "reference": reference })));
    let mut pulling = Pulling::new(api, reference, permit);
    if wants_events {
        let body = stream::body(pulling, |pulling| Box::pin(next(pulling)));
        return Ok((described, [(header::CONTENT_TYPE, events::MEDIA)], body).into_response());
    }
    let pulled = pulling.end().await;
    Ok((described, pulled.map(Json)).into_response())
}

/// A pull under way. Dropping it cancels the pull, of which nothing is kept.
struct Pulling {
    task: JoinHandle<Result<PulledImage, ApiError>>,
    /// Cancels the task when it is dropped.
    _client: oneshot::Sender<()>,
    /// The newest progress. Closed when the task is about to end.
    progress: watch::Receiver<Option<Progress>>,
    is_over: bool,
}

impl Pulling {
    /// Starts a pull, on a thread that may wait for whoever changes the store.
    fn new(api: Arc<Api>, reference: Reference, permit: OwnedSemaphorePermit) -> Self {
        let (sender, progress) = watch::channel(None);
        let (client, gone) = oneshot::channel();
        let runtime = Handle::current();
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            runtime.block_on(async {
                tokio::select! {
                    pulled = pulled(&api, &reference, sender) => pulled,
                    // The sender is only dropped.
                    _ = gone => Err(ApiError::new(Reason::Cancelled, "the pull was cancelled", "pull it again")),
                }
            })
        });
        Self {
            task,
            _client: client,
            progress,
            is_over: false,
        }
    }

    /// Waits for the end.
    async fn end(&mut self) -> Result<PulledImage, ApiError> {
        let ended = (&mut self.task).await;
        ended.unwrap_or_else(|_| Err(ApiError::panicked()))
    }
}

/// Pulls an image. `progress` learns each percent of a layer.
async fn pulled(
    api: &Api,
    reference: &Reference,
    progress: watch::Sender<Option<Progress>>,
) -> Result<PulledImage, ApiError> {
    let store = api.sandboxes.image_store()?;
    let mut last = None;
    let mut report = |newest: Progress| {
        let percent = newest.received.saturating_mul(100) / newest.size.max(1);
        if last.replace((newest.layer, percent)) != Some((newest.layer, percent)) {
            progress.send_replace(Some(newest));
        }
    };
    let pulled = ringfence_images::pull(&store, reference, &api.registries, &mut report).await?;
    let image = store
        .list()?
        .into_iter()
        .find(|image| image.digest == pulled.digest);
    let image = image.ok_or(Error::NotFound(Selector::Digest(pulled.digest)))?;
    Ok(PulledImage {
        image,
        was_there: pulled.was_there,
    })
}

async fn next(mut pulling: Pulling) -> Option<(Bytes, Pulling)> {
    if pulling.is_over {
        return None;
    }
    let text = match tokio::time::timeout(events::HEARTBEAT, pulling.progress.changed()).await {
        Ok(Ok(())) => match *pulling.progress.borrow_and_update() {
            Some(Progress {
                layer,
                layers,
                received,
                size,
            }) => events::event(
                "progress",
                &json!({"layer": layer, "layers": layers, "received": received, "size": size}),
            ),
            None => events::COMMENT.to_owned(),
        },
        Ok(Err(_)) => {
            pulling.is_over = true;
            match pulling.end().await {
                Ok(pulled) => events::event("result", &json!(pulled)),
                Err(error) => events::event("error", &error.to_json()),
            }
        }
        Err(_) => events::COMMENT.to_owned(),
    };
    Some((text.into(), pulling))
}

/// Does something with the store, which may wait for another process that changes it.
async fn in_store<T: Send + 'static>(
    api: Arc<Api>,
    act: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
) -> Result<T, ApiError> {
    let acting = STORE.run(move || {
        let store = api.sandboxes.image_store()?;
        Ok(act(&store)?)
    });
    acting.await?
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let reason = match &error {
            Error::NotFound(_) | Error::NothingToRemove(_) => Reason::NotFound,
            Error::Full { .. } => Reason::LimitExceeded,
            Error::NameTaken { .. } => Reason::Conflict,
            Error::Store { .. } | Error::Input { .. } => Reason::Internal,
            // The image that was asked for cannot be had, or is no image.
            Error::Archive(_)
            | Error::ArchiveContent(_)
            | Error::DigestName(_)
            | Error::Reference(_)
            | Error::Registry(_)
            | Error::Document(_)
            | Error::Layer { .. }
            | Error::Digest { .. }
            | Error::Unnamed => Reason::InvalidArguments,
        };
        Self::new(reason, ringfence_images::explain(&error), error.hint())
    }
}
