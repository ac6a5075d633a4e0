//! LibreChat's Code API, below `/librechat/v1`.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use hyper::body::Bytes;
use ringfence_librechat::{
    Download, Error, Exec, ExecAnswer, FileInfo, Programmatic, ProgrammaticAnswer, UploadAnswer,
};
use serde_json::{Value, json};

use super::content::{BYTES, Content, NOTHING, done};
use super::error::{ApiError, Reason};
use super::extract::{Client, part};
use super::keys::Grant;
use super::recording::Described;
use super::route::{Form, Needs, Parameter, Place, Route, route};
use super::state::Api;
use super::{body, stream};

/// Maximum size of a program with its tools or their results, in bytes.
const MAX: usize = 8 * 1024 * 1024;

/// Maximum size of an upload, with all of its files.
const MAX_UPLOAD: usize = 32 * 1024 * 1024;

const FORM: &str = "multipart/form-data";

const UPLOAD: Content = Content::new(&[FORM], |_| {
    schemars::json_schema!({
        "type": "object",
        "properties": {"file": {"type": "string", "format": "binary"}},
    })
});

const DETAIL: &[Parameter] = &[Parameter {
    place: Place::Query,
    name: "detail",
    required: false,
    form: Form::Text,
    description: "Without effect: every answer has all details.",
}];

pub(super) fn routes() -> Vec<Route> {
    [programs(), uploads(), files()].into_iter().flatten().collect()
}

fn programs() -> Vec<Route> {
    vec![
        Route {
            needs: Needs::Nothing,
            ..route(
                Method::GET,
                "/librechat/v1/health",
                "Answer that the Code API is there.",
                vec![NOTHING],
                |method| on(method, async || Json(json!({"status": "ok"}))),
            )
        },
        route(
            Method::POST,
            "/librechat/v1/exec",
            "Run a program over files of LibreChat's sessions.",
            vec![Content::json::<ExecAnswer>()],
            |method| on(method, exec),
        )
        .with_body(Content::json::<Exec>().at_most(MAX))
        .recorded_as("sandbox.run"),
        route(
            Method::POST,
            "/librechat/v1/exec/programmatic",
            "Run a program that calls its client's tools, until it calls some or ends; or give it their results.",
            vec![Content::json::<ProgrammaticAnswer>()],
            |method| on(method, programmatic),
        )
        .with_body(Content::json::<Programmatic>().at_most(MAX))
        .recorded_as("sandbox.run"),
    ]
}

fn uploads() -> Vec<Route> {
    let upload = |path| {
        route(
            Method::POST,
            path,
            "Store the files of a form in a new session of LibreChat's.",
            vec![Content::json::<UploadAnswer>()],
            |method| on(method, upload),
        )
        .with_body(UPLOAD.at_most(MAX_UPLOAD))
        .recorded_as("sandbox.write")
    };
    vec![
        upload("/librechat/v1/upload"),
        upload("/librechat/v1/upload/batch"),
    ]
}

fn files() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/librechat/v1/download/{session}/{file}",
            "Read a file of a session.",
            vec![BYTES],
            |method| on(method, download),
        )
        .recorded_as("sandbox.read"),
        route(
            Method::GET,
            "/librechat/v1/files/{session}",
            "List the files of a session.",
            vec![Content::json::<Vec<FileInfo>>()],
            |method| on(method, list),
        )
        .with_parameters(DETAIL),
        route(
            Method::DELETE,
            "/librechat/v1/files/{session}/{file}",
            "Remove a file of a session.",
            vec![NOTHING],
            |method| on(method, remove),
        )
        .recorded_as("sandbox.delete"),
        route(
            Method::GET,
            "/librechat/v1/sessions/{session}/objects/{file}",
            "Describe a file of a session.",
            vec![Content::json::<FileInfo>()],
            |method| on(method, describe),
        ),
    ]
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let reason = match error {
            Error::Sandbox(error) => return error.into(),
            Error::NoFile(_) | Error::NoSession(_) | Error::NoContinuation => Reason::NotFound,
            Error::Continued => Reason::Conflict,
            Error::NoCall(_)
            | Error::NoLanguage(_)
            | Error::NoTypescript
            | Error::Name(_)
            | Error::Invalid(_)
            | Error::Form(_) => Reason::Malformed,
            Error::Full => Reason::Busy,
            Error::NoSpace => Reason::LimitExceeded,
            Error::Disk(_) => Reason::Internal,
        };
        Self::new(reason, error.to_string(), error.hint())
    }
}

/// Returns `true` for a path of the protocol, whose errors have its form.
pub(super) fn is_path(path: &str) -> bool {
    path.starts_with("/librechat/")
}

/// Gives an error the form of the protocol: a text, and for a client that is to come again its number of seconds.
pub(super) fn in_its_form(response: Response) -> Response {
    let Some(error) = response.extensions().get::<ApiError>() else {
        return response;
    };
    let mut told = json!({"error": error.message(), "details": error.hint()});
    if let Some(seconds) = error.retry_after() {
        told = json!({"error": "rate_limited", "message": error.message(), "retry_after_seconds": seconds});
    }
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = Json(told).into_response().into_body();
    Response::from_parts(parts, body)
}

/// The session and the file of a path.
struct InSession {
    client: Client,
    session: String,
    file: String,
}

impl FromRequestParts<Arc<Api>> for InSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        Ok(Self {
            client: Client::from_request_parts(parts, api).await?,
            session: part("session", parts, api).await?,
            file: part("file", parts, api).await?,
        })
    }
}

async fn exec(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: Exec = body::json(request).await?;
    let described = Extension(Described(json!({"code": asked.code, "language": asked.lang})));
    let _turn = api.admission.enter(&grant).await?;
    let answer = api.librechat.exec(&client.scope, asked).await?;
    Ok((described, Json(answer)).into_response())
}

async fn programmatic(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: Programmatic = body::json(request).await?;
    let results = asked
        .tool_results
        .iter()
        .flatten()
        .map(|result| Value::from(result.call_id.as_str()));
    let described = match &asked.code {
        Some(code) => json!({ "code": code }),
        None => json!({ "results_of": results.collect::<Vec<_>>() }),
    };
    let _turn = api.admission.enter(&grant).await?;
    let most = client.most_sandboxes;
    let answer = api.librechat.programmatic(&client.scope, most, asked).await?;
    Ok((Extension(Described(described)), Json(answer)).into_response())
}

async fn upload(State(api): State<Arc<Api>>, client: Client, request: Request) -> Result<Response, ApiError> {
    // The type has the boundary of the parts.
    let media_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = media_type.unwrap_or_default().to_owned();
    let (_, bytes) = body::read(request, &[FORM]).await?;
    let answer = api.librechat.upload(&client.scope, media_type, bytes).await?;
    let names: Vec<&str> = answer.files.iter().map(|file| file.filename.as_str()).collect();
    let described = Extension(Described(
        json!({"session": answer.storage_session_id, "files": names}),
    ));
    Ok((described, Json(answer)).into_response())
}

async fn download(State(api): State<Arc<Api>>, of: InSession) -> Result<Response, ApiError> {
    let download = api.librechat.open(&of.client.scope, &of.session, &of.file)?;
    let length = download.size;
    let body = stream::fallible(download, |mut download: Download| {
        Box::pin(async move {
            let piece = download.next().await;
            piece.map(|piece| piece.map(|bytes| (Bytes::from(bytes), download)))
        })
    });
    let headers = [
        (header::CONTENT_TYPE, body::BYTES.to_owned()),
        (header::CONTENT_DISPOSITION, "attachment".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    Ok((headers, body).into_response())
}

async fn list(State(api): State<Arc<Api>>, of: InSession) -> Result<Response, ApiError> {
    Ok(Json(api.librechat.list(&of.client.scope, &of.session)?).into_response())
}

async fn describe(State(api): State<Arc<Api>>, of: InSession) -> Result<Response, ApiError> {
    let info = api.librechat.info(&of.client.scope, &of.session, &of.file)?;
    Ok(Json(info).into_response())
}

async fn remove(State(api): State<Arc<Api>>, of: InSession) -> Result<Response, ApiError> {
    api.librechat.remove(&of.client.scope, &of.session, &of.file)?;
    Ok(done())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn errors_have_the_form_of_the_protocol() {
        let told = async |error: ApiError| {
            let response = in_its_form(error.into_response());
            let status = response.status().as_u16();
            let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
            (status, serde_json::from_slice::<Value>(&body).unwrap())
        };
        let (status, body) = told(ApiError::new(Reason::NotFound, "no", "do this")).await;
        assert_eq!(
            (status, body),
            (404, json!({"error": "no", "details": "do this"}))
        );
        let (status, body) = told(ApiError::quota_exceeded("much".to_owned(), "wait".to_owned(), 7)).await;
        let expected = json!({"error": "rate_limited", "message": "much", "retry_after_seconds": 7});
        assert_eq!((status, body), (429, expected));
        assert!(is_path("/librechat/v1/exec") && !is_path("/v1/run") && !is_path("/librechatter"));
    }
}
