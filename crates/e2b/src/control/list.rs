//! Lists sandboxes, page by page.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, Request};
use axum::http::{HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use ringfence_sandbox::SandboxInfo;
use serde::Deserialize;
use serde_json::Value;

use super::life::{listed, state};
use crate::client::Client;
use crate::error::Error;
use crate::service::Service;

/// Maximum number of sandboxes on a page.
const PAGE: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListQuery {
    metadata: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
    next_token: Option<String>,
    order: Option<Order>,
    started_after: Option<String>,
    template: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Asc,
    #[default]
    Desc,
}

pub(super) fn list(service: &Service, client: &Client, request: &Request) -> Result<Response, Error> {
    let query: Query<ListQuery> =
        Query::try_from_uri(request.uri()).map_err(|rejection| Error::invalid(rejection.body_text()))?;
    let Query(query) = query;
    let metadata = query
        .metadata
        .as_deref()
        .map(pairs)
        .transpose()?
        .unwrap_or_default();
    let mut found: Vec<SandboxInfo> = service.sandboxes.list(&client.scope, &metadata);
    let states = query.state.as_deref().unwrap_or("running,paused");
    found.retain(|info| {
        let is_template = query
            .template
            .as_ref()
            .is_none_or(|template| *template == service.template_of(info.id.as_str()));
        let is_after = query
            .started_after
            .as_ref()
            // Clients send the milliseconds of a start that they were told.
            .is_none_or(|time| info.created_at >= *time);
        is_template && is_after && states.split(',').any(|wanted| wanted == state(info.state))
    });
    found.sort_by_key(cursor);
    let order = query.order.unwrap_or_default();
    if order == Order::Desc {
        found.reverse();
    }
    if let Some(token) = &query.next_token {
        found.retain(|info| match order {
            Order::Asc => cursor(info) > *token,
            Order::Desc => cursor(info) < *token,
        });
    }
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let next = (found.len() > limit)
        .then(|| found.get(limit - 1).map(cursor))
        .flatten();
    found.truncate(limit);
    let page: Vec<Value> = found.iter().map(|info| listed(service, info)).collect();
    let mut response = Json(page).into_response();
    if let Some(next) = next.and_then(|next| HeaderValue::try_from(next).ok()) {
        response.headers_mut().insert("x-next-token", next);
    }
    Ok(response)
}

/// Returns the place of a sandbox in the list.
fn cursor(info: &SandboxInfo) -> String {
    format!("{}.{}", info.created_at, info.id)
}

/// Parses `a=b&c=d`, whose names and values clients encode twice.
fn pairs(text: &str) -> Result<BTreeMap<String, String>, Error> {
    let invalid = || Error::invalid("expected pairs `a=b&c=d` in `metadata`");
    let uri: Uri = format!("/?{}", text.replace(' ', "+"))
        .parse()
        .map_err(|_| invalid())?;
    let pairs: Query<Vec<(String, String)>> = Query::try_from_uri(&uri).map_err(|_| invalid())?;
    Ok(pairs
        .0
        .into_iter()
        .map(|(name, value)| (decoded(&name), decoded(&value)))
        .collect())
}

/// Decodes `%41`. What is no such code is left as it is.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let code = after.first_chunk::<2>().filter(|_| *first == b'%');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_decoded_twice() {
        let expected = [("a b", "c&d=e"), ("k", "100%")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs("a%2520b=c%2526d%253De&k=100%25").unwrap(), expected.into());
        assert_eq!(pairs("").unwrap(), BTreeMap::new());
    }
}
