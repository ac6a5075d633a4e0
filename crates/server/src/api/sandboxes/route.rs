//! Routes of sandboxes in their plain form.

use std::sync::Arc;

use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter};

use super::super::content::Content;
use super::super::rights::Right;
use super::super::route::{Needs, Route};
use super::super::state::Api;

/// Returns a route without parameters, body and record.
pub(super) fn route(
    method: Method,
    path: &'static str,
    summary: &'static str,
    answers: Vec<Content>,
    handler: fn(MethodFilter) -> MethodRouter<Arc<Api>>,
) -> Route {
    Route {
        method,
        path,
        needs: Needs::Key(Right::Sandboxes),
        summary,
        recorded: None,
        parameters: &[],
        request: None,
        answers,
        handler,
    }
}
