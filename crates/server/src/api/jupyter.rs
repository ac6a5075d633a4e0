//! Kernels by Jupyter's protocol, below `/jupyter`.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use ringfence_jupyter::{
    Act, Channels, Error, Gate, Guard, Kernel, KernelInfo, KernelSpec, KernelSpecs, KeyEnd, MAX_MESSAGE,
    NewKernel, Protocol, Refusal,
};
use serde_json::{Value, json};

use super::content::Content;
use super::drain::Work;
use super::error::{ApiError, Reason};
use super::extract::{Client, IdOrName};
use super::key_uses::KeyUse;
use super::keys::Grant;
use super::operation_cost::OperationCost;
use super::recording::{self, Described, Recorder};
use super::rights::Right;
use super::route::{Form, Needs, Parameter, Place, Route, route};
use super::state::Api;
use super::{body, websocket};

/// Protocols that a client of a WebSocket offers, and the one that is chosen (RFC 6455, section 11.3.4).
const SUBPROTOCOL: HeaderName = header::SEC_WEBSOCKET_PROTOCOL;

/// Maximum size of a request for a kernel, in bytes.
const MAX: usize = 1024 * 1024;

/// Version of Jupyter Server whose routes these are: clients choose what they send by it.
const VERSION: &str = "2.17.0";

const KERNEL: Content = Content::json::<KernelInfo>();

/// An answer without a body.
const DONE: Content = Content::new(&[], |_| schemars::json_schema!(true)).with_status(204);

const SESSION: &[Parameter] = &[Parameter {
    place: Place::Query,
    name: "session_id",
    required: false,
    form: Form::Text,
    description: "Name of the client's session. Without effect: what nobody receives is not kept.",
}];

pub(super) fn routes() -> Vec<Route> {
    [kinds(), kernels(), uses()].into_iter().flatten().collect()
}

fn kinds() -> Vec<Route> {
    vec![
        Route {
            needs: Needs::Nothing,
            ..route(
                Method::GET,
                "/jupyter/api",
                "Show the version of Jupyter Server whose kernels this server has.",
                vec![Content::new(
                    &[body::JSON],
                    |_| schemars::json_schema!({"type": "object", "properties": {"version": {"type": "string"}}, "required": ["version"]}),
                )],
                |method| on(method, async || Json(json!({ "version": VERSION }))),
            )
        },
        route(
            Method::GET,
            "/jupyter/api/kernelspecs",
            "List the kinds of kernels, as Jupyter Server does.",
            vec![Content::json::<KernelSpecs>()],
            |method| on(method, async || Json(KernelSpecs::all())),
        ),
        route(
            Method::GET,
            "/jupyter/api/kernelspecs/{name}",
            "Describe a kind of kernel.",
            vec![Content::json::<KernelSpec>()],
            |method| on(method, kernel_spec),
        ),
    ]
}

fn kernels() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/jupyter/api/kernels",
            "List the kernels.",
            vec![Content::json::<Vec<KernelInfo>>()],
            |method| on(method, list),
        ),
        route(
            Method::POST,
            "/jupyter/api/kernels",
            "Create a kernel: a sandbox with an interpreter.",
            vec![KERNEL.with_status(201)],
            |method| on(method, create),
        )
        .with_body(Content::json::<NewKernel>().at_most(MAX).optional())
        .recorded_as("sandbox.create"),
        route(
            Method::GET,
            "/jupyter/api/kernels/{id}",
            "Describe a kernel.",
            vec![KERNEL],
            |method| on(method, get),
        ),
        route(
            Method::DELETE,
            "/jupyter/api/kernels/{id}",
            "End a kernel with its sandbox.",
            vec![DONE],
            |method| on(method, remove),
        )
        .recorded_as("sandbox.remove"),
    ]
}

fn uses() -> Vec<Route> {
    vec![
        route(
            Method::POST,
            "/jupyter/api/kernels/{id}/interrupt",
            "Interrupt the cell that a kernel runs; it keeps its state.",
            vec![DONE],
            |method| on(method, interrupt),
        )
        .recorded_as("sandbox.interrupt"),
        route(
            Method::POST,
            "/jupyter/api/kernels/{id}/restart",
            "Start the interpreter of a kernel anew. Files stay.",
            vec![KERNEL],
            |method| on(method, restart),
        )
        .recorded_as("sandbox.restart_context"),
        route(
            Method::GET,
            "/jupyter/api/kernels/{id}/channels",
            "Connect to the channels of a kernel, over a WebSocket, with messages of Jupyter's protocol as texts of JSON or, if the client \
             offers `v1.kernel.websocket.jupyter.org`, in that form.",
            vec![websocket::SWITCHED],
            |method| on(method, channels),
        )
        .with_parameters(SESSION)
        .recorded_as("sandbox.attach"),
    ]
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let reason = match error {
            Error::Sandbox(error) => return error.into(),
            Error::NoKernel(_) | Error::NoSpec(_) => Reason::NotFound,
            Error::TooManyConnections(_) => Reason::LimitExceeded,
        };
        Self::new(reason, error.to_string(), error.hint())
    }
}

/// The path's kernel, which the client may use.
struct InKernel(Arc<Kernel>);

impl FromRequestParts<Arc<Api>> for InKernel {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let client = Client::from_request_parts(parts, api).await?;
        let IdOrName(id) = IdOrName::from_request_parts(parts, api).await?;
        Ok(Self(api.jupyter.get(&client.scope, &id)?))
    }
}

async fn kernel_spec(Path(name): Path<String>) -> Result<Response, ApiError> {
    let spec = KernelSpecs::one(&name);
    let spec = spec.ok_or_else(|| Error::NoSpec(name.chars().take(80).collect()))?;
    Ok(Json(spec).into_response())
}

async fn list(State(api): State<Arc<Api>>, client: Client) -> Response {
    Json(api.jupyter.list(&client.scope)).into_response()
}

async fn create(State(api): State<Arc<Api>>, client: Client, request: Request) -> Result<Response, ApiError> {
    // Some clients send no body, of any media type.
    let new: NewKernel = match request.body().size_hint().exact() {
        Some(0) => NewKernel::default(),
        _ => body::json(request).await?,
    };
    let kernel = api
        .jupyter
        .create(&client.scope, client.most_sandboxes, new)
        .await?;
    let info = kernel.info();
    let described = Extension(Described(json!({"kernel": info.id, "name": info.name})));
    let place = format!("/jupyter/api/kernels/{}", info.id);
    Ok((
        StatusCode::CREATED,
        described,
        [(header::LOCATION, place)],
        Json(info),
    )
        .into_response())
}

async fn get(InKernel(kernel): InKernel) -> Response {
    Json(kernel.info()).into_response()
}

async fn remove(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
) -> Result<Response, ApiError> {
    api.jupyter.remove(&client.scope, &id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn interrupt(InKernel(kernel): InKernel) -> Result<Response, ApiError> {
    kernel.interrupt()?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn restart(InKernel(kernel): InKernel) -> Result<Response, ApiError> {
    kernel.restart().await?;
    Ok(Json(kernel.info()).into_response())
}

async fn channels(
    State(api): State<Arc<Api>>,
    InKernel(kernel): InKernel,
    Extension(grant): Extension<Arc<Grant>>,
    Extension(using): Extension<Arc<KeyUse>>,
    request: Request,
) -> Result<Response, ApiError> {
    let offered = request.headers().get_all(SUBPROTOCOL).iter();
    let offered: Vec<&str> = offered.filter_map(|value| value.to_str().ok()).collect();
    let protocol = Protocol::among(&offered.join(","));
    let service = Arc::clone(&api.jupyter);
    let gate = Arc::new(OfKey { api, grant, using });
    let channels = Channels::join(service, kernel, gate, protocol)?;
    let mut answer = websocket::begin(request, MAX_MESSAGE, |socket| channels.serve(socket))?;
    if protocol == Protocol::V1 {
        let chosen = HeaderValue::from_static(Protocol::V1_NAME);
        answer.headers_mut().insert(SUBPROTOCOL, chosen);
    }
    Ok(answer)
}

/// The holder of a key at the channels of a kernel.
#[derive(Debug)]
struct OfKey {
    api: Arc<Api>,
    grant: Arc<Grant>,
    using: Arc<KeyUse>,
}

impl Gate for OfKey {
    fn begin(&self, act: Act, described: &Value) -> Result<Guard, Refusal> {
        let name = match act {
            Act::Run => "sandbox.run",
            Act::Interrupt => "sandbox.interrupt",
            Act::Restart => "sandbox.restart_context",
            Act::Remove => "sandbox.remove",
        };
        let work = self.allow(name, described).map_err(refusal)?;
        Ok(Box::new(work))
    }

    fn keep(&self, bytes: usize) -> Result<Guard, Refusal> {
        let share = self.api.bodies.take(&self.grant, bytes).map_err(refusal)?;
        Ok(Box::new(share))
    }

    fn key_end(&self) -> KeyEnd {
        let using = Arc::clone(&self.using);
        Box::pin(async move { using.ended().await })
    }
}

impl OfKey {
    fn allow(&self, name: &'static str, described: &Value) -> Result<Option<Work>, ApiError> {
        let (api, client) = (&self.api, &self.grant.client);
        if !api.keys.still_has(client, Right::Sandboxes) {
            return Err(ApiError::key_ended());
        }
        let cost = OperationCost::of(name);
        let work = match cost {
            OperationCost::Nothing | OperationCost::Transfer => None,
            OperationCost::Copy | OperationCost::Place | OperationCost::Run => Some(api.drain.begin()?),
        };
        // The quota may have changed since the connection began.
        let begun = api.begin_work(&api.keys.allowance_of(client), cost)?;
        let api = Arc::clone(api);
        let recorded = recording::record_act(Recorder { api, name }, &self.grant, described);
        if recorded.is_err() {
            begun.take_back();
        }
        recorded.map(|()| work)
    }
}

fn refusal(error: ApiError) -> Refusal {
    Refusal {
        kind: error.reason().row().1,
        message: error.message().to_owned(),
    }
}
