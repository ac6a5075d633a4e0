//! The `timeout` argument of tools.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use std::borrow::Cow;

/// Schema of the argument `timeout`. The dispatcher reads the value before the tool runs.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Timeout(
    #[expect(dead_code, reason = "the kernel has read it before the tool is called")] serde_json::Value,
);

impl JsonSchema for Timeout {
    fn schema_name() -> Cow<'static, str> {
        "Timeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400},
                {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)?$"},
            ]
        })
    }

    fn inline_schema() -> bool {
        true
    }
}
