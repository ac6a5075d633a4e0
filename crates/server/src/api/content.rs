//! Contents of requests and answers.

use axum::Json;
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::json;

use super::body;

/// A body, of a request or an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content {
    /// Media types: the first is described by the schema, others say in their description what differs.
    pub(super) media: &'static [&'static str],
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
    /// Maximum size in bytes, of a request.
    pub(super) max: usize,
    /// Set if a request may come without it.
    pub(super) optional: bool,
    /// Status, of an answer.
    pub(super) status: u16,
}

/// A body of bytes that are passed on as they come.
pub(super) const BYTES: Content = Content::new(
    &[body::BYTES],
    |_| schemars::json_schema!({"type": "string", "format": "binary"}),
);

/// Maximum size of such a request, in bytes.
pub(super) const MAX_BYTES: usize = 64 << 30;

/// An answer without content.
pub(super) const NOTHING: Content =
    Content::new(&[body::JSON], |_| schemars::json_schema!({"type": "object"}));

impl Content {
    /// Creates the content of an answer.
    pub(super) const fn new(
        media: &'static [&'static str],
        schema: fn(&mut SchemaGenerator) -> Schema,
    ) -> Self {
        Self {
            media,
            schema,
            max: 0,
            optional: false,
            status: 200,
        }
    }

    /// Turns it into the content of an answer with another status.
    pub(super) const fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Creates the content of an answer of JSON.
    pub(super) const fn json<T: JsonSchema>() -> Self {
        Self::new(&[body::JSON], |generator| generator.subschema_for::<T>())
    }

    /// Turns it into the content of a request that may come without it.
    pub(super) const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// Turns it into the content of a request, of this many bytes at most.
    pub(super) const fn at_most(self, max: usize) -> Self {
        Self { max, ..self }
    }
}

/// Returns an answer without content.
pub(super) fn done() -> Response {
    Json(json!({})).into_response()
}
