//! Converts tools, results and errors to MCP types.

use std::sync::Arc;

use ringfence_tools::toolbox::{Answer, Definition, Effects, ErrorKind, ToolError};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::{Peer, schema};

/// Converts a tool for a list.
pub(super) fn listed(definition: &Definition, peer: &Peer) -> Tool {
    let description = match peer {
        Peer::Local => definition.description,
        Peer::Credential(_) => definition.remote_description,
    };
    let input = schema::arguments(&definition.input_schema);
    let tool = Tool::new(definition.name, description, Arc::new(input))
        .with_title(definition.title)
        .with_annotations(annotations(definition.effects));
    match &*definition.output_schema {
        Some(output) => tool.with_raw_output_schema(Arc::new(schema::answer(output))),
        None => tool,
    }
}

fn annotations(effects: Effects) -> ToolAnnotations {
    let hints = |reads, destroys, reaches| {
        ToolAnnotations::new()
            .read_only(reads)
            .destructive(destroys)
            .open_world(reaches)
    };
    match effects {
        Effects::Reads => hints(true, false, false),
        Effects::Writes => hints(false, false, false),
        Effects::Destroys => hints(false, true, false),
        Effects::Reaches => hints(false, true, true),
    }
}

/// Converts an answer: text and pictures for the model, the value for programs.
pub(super) fn answered(answer: Answer) -> CallToolResult {
    let (text, pictures) = match answer.view {
        Some(view) => (view.text, view.pictures),
        None => (answer.text, Vec::new()),
    };
    let pictures = pictures
        .into_iter()
        .map(|picture| ContentBlock::image(picture.base64, picture.mime));
    // Model APIs refuse an empty text.
    let text = match text.is_empty() {
        true => "[no output]".to_owned(),
        false => text,
    };
    let mut content = vec![ContentBlock::text(text)];
    content.extend(pictures);
    let mut result = CallToolResult::success(content);
    result.structured_content = answer.structured;
    result
}

/// Converts an error to a result, so that a model can read it and act on it.
pub(super) fn failed(error: &ToolError) -> CallToolResult {
    let text = format!("{}: {}\nhint: {}", error.kind.as_str(), error.message, error.hint);
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({"error": error.to_json()}));
    result
}

pub(super) fn unknown(error: &ToolError) -> ErrorData {
    ErrorData::invalid_params(
        error.message.clone(),
        Some(json!({"type": error.kind.as_str(), "hint": error.hint})),
    )
}

/// Creates the error for a call beyond the limit.
pub(super) fn too_many() -> ToolError {
    ToolError::new(
        ErrorKind::LimitExceeded,
        "too many calls at once on this connection",
        "wait for some of the answers, then call again",
    )
}

/// Creates the error for a request that resumes no waiting call.
pub(super) fn not_waiting() -> ToolError {
    ToolError::new(
        ErrorKind::InvalidArguments,
        "the request state is unknown or was used already for this tool and these arguments",
        "call the tool again without `requestState`",
    )
}

pub(super) fn warnings(answer: &Answer) -> Vec<String> {
    let warnings = answer
        .structured
        .as_ref()
        .and_then(|value| value.pointer("/meta/warnings"));
    let texts = warnings.and_then(Value::as_array).into_iter().flatten();
    texts
        .filter_map(|text| text.as_str().map(ToOwned::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_and_what_to_do_to_models_and_programs() {
        let result = failed(&ToolError::new(
            ErrorKind::NotFound,
            "there is no file `a`",
            "list the directory",
        ));
        let result = serde_json::to_value(result).unwrap();
        assert_eq!(result["isError"], true);
        assert_eq!(
            result["content"][0]["text"],
            "not_found: there is no file `a`\nhint: list the directory"
        );
        assert_eq!(
            result["structuredContent"]["error"],
            json!({"type": "not_found", "message": "there is no file `a`", "hint": "list the directory"})
        );
    }

    #[test]
    fn warnings_are_found_where_results_hold_them() {
        let of = |value| {
            warnings(&Answer {
                text: String::new(),
                structured: Some(value),
                view: None,
            })
        };
        assert_eq!(of(json!({"meta": {"warnings": ["a", 5, "b"]}})), ["a", "b"]);
        assert_eq!(of(json!({"meta": {}})), [""; 0]);
        assert_eq!(of(json!({"meta": {"warnings": "a"}})), [""; 0]);
    }
}
