//! `http_fetch`: sends an HTTP request to an allowed host.

use std::collections::BTreeMap;
use std::fmt;

use ringfence_network::fetch::{Body, FetchLimits, FetchRequest, FetchResponse};
use ringfence_policy::AskedTimeout;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::toolbox::{Answer, Call, Effects, Tool, ToolError};

pub(super) struct HttpFetch;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// URL, `https://…` or `http://…`.
    url: String,
    /// GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS.
    #[serde(default = "get")]
    method: String,
    /// Headers by name.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Body of the request.
    #[serde(default)]
    body: String,
    /// Timeout in seconds above 0, or with a unit such as "500ms". Can shorten the limit, not extend it.
    #[expect(dead_code, reason = "the toolbox reads it")]
    timeout: Option<AskedTimeout>,
}

fn get() -> String {
    "GET".to_owned()
}

/// An HTTP response.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Fetched {
    /// Status of the final response.
    status: u16,
    /// Headers by name. Values of repeated headers are joined by commas.
    headers: BTreeMap<String, String>,
    /// Body, if it is text.
    body: Option<String>,
    /// Description of the body, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<Binary>,
    /// Set if the body was truncated at the limit.
    truncated: bool,
    /// URL of the final response.
    url: String,
    /// URLs that redirected there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    redirects: Vec<String>,
}

/// A body that is not text.
#[derive(Debug, Serialize, JsonSchema)]
struct Binary {
    /// Content type as sent by the server.
    content_type: Option<String>,
    /// Number of bytes received.
    bytes: usize,
}

impl Tool for HttpFetch {
    const NAME: &'static str = "http_fetch";
    const TITLE: &'static str = "Fetch a web page";
    const DESCRIPTION: &'static str = "Sends one HTTP request and returns status, headers and body. Only hosts on the allow-list are reached, \
        and no address inside private networks. Redirects are followed if they lead to an allowed host. Bodies that are \
        not text are described, not shown.";
    const EFFECTS: Effects = Effects::Reaches;
    const ON_HOST: bool = false;
    type Arguments = Arguments;
    type Output = Fetched;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let headers: Vec<_> = arguments.headers.into_iter().collect();
        let body = arguments.body.into_bytes();
        let request = FetchRequest::new(&arguments.url, &arguments.method, &headers, body)?;
        let limits = FetchLimits {
            max_body: call.max_output(),
            ..FetchLimits::until(call.deadline)
        };
        let log = call.egress_log();
        let response = call
            .fetcher()
            .fetch_logged(request, &limits, log.attempts())
            .await;
        call.tried(match &response {
            Ok(response) => &response.attempts,
            Err(error) => &error.attempts,
        });
        let response = response?;
        let fetched = Fetched::from(response);
        Ok(Answer::value(&fetched)?.seen_as(fetched.to_string(), Vec::new()))
    }
}

impl fmt::Display for Fetched {
    /// Writes the status, the type and the body: other headers rarely matter to a model.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[status {}]", self.status)?;
        if let Some(kind) = self.headers.get("content-type") {
            write!(f, " [{kind}]")?;
        }
        if !self.redirects.is_empty() {
            write!(f, " [redirected to {}]", self.url)?;
        }
        f.write_str("\n")?;
        match (&self.body, &self.binary) {
            (Some(body), _) => f.write_str(body)?,
            (None, Some(binary)) => write!(f, "[{} bytes that are not text]", binary.bytes)?,
            (None, None) => {}
        }
        if self.truncated {
            f.write_str("\n[body truncated]")?;
        }
        Ok(())
    }
}

impl From<FetchResponse> for Fetched {
    fn from(response: FetchResponse) -> Self {
        let mut headers = BTreeMap::new();
        for (name, value) in response.headers {
            headers
                .entry(name)
                .and_modify(|present: &mut String| {
                    present.push_str(", ");
                    present.push_str(&value);
                })
                .or_insert(value);
        }
        let (body, binary) = match response.body {
            Body::Text(text) => (Some(text), None),
            Body::Binary { content_type, bytes } => (None, Some(Binary { content_type, bytes })),
        };
        Self {
            status: response.status,
            headers,
            body,
            binary,
            truncated: response.truncated,
            url: response.final_url.to_string(),
            redirects: response.redirects.iter().map(ToString::to_string).collect(),
        }
    }
}
