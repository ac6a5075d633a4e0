//! Questions that an interpreter answers about itself: completions, descriptions, expressions.
//!
//! The program that answers is text alone here, and runs in the sandbox. So nothing that a client or a guest sends is compiled
//! outside, and an answer may be anything that JSON has.

use ringfence_sandbox::context::Execution;
use serde_json::{Map, Value, json};

use crate::media::{ANSWER, ERROR};
use crate::outputs::Forms;

/// The program, which is the Python package's, too.
const PROGRAM: &str = include_str!("../python/questions.py");

/// Bounds of a guest's answers: completions, bytes of one, of an indent and of a text.
const MAX_MATCHES: usize = 1000;
const MAX_MATCH: usize = 1000;
const MAX_INDENT: usize = 256;
const MAX_TEXT: usize = 100_000;

/// Returns the code that a Python interpreter runs before the first cell. It prints the version.
pub(crate) fn prelude() -> String {
    // Strings of JSON are strings of Python.
    let source = json!(format!(
        "ERROR, ANSWER = {}, {}\n{PROGRAM}",
        json!(ERROR),
        json!(ANSWER)
    ));
    format!(
        "import sys\n\
         sys.modules[\"ringfence_jupyter\"] = type(sys)(\"ringfence_jupyter\")\n\
         exec(compile({source}, \"<ringfence>\", \"exec\"), sys.modules[\"ringfence_jupyter\"].__dict__)\n\
         print(sys.version.split()[0])\n\
         del sys\n"
    )
}

/// Returns the code that has a question answered. It leaves no name and no value behind.
pub(crate) fn question(function: &str, arguments: &Value) -> String {
    let mut call = vec![json!(function)];
    call.extend(arguments.as_array().into_iter().flatten().cloned());
    let given = json!(json!(call).to_string());
    format!(
        "__import__(\"ringfence_jupyter\").answer(*__import__(\"ringfence_jupyter\").json.loads({given}))"
    )
}

/// Returns the answer in an execution; empty if there is none.
pub(crate) fn answer(execution: &Execution) -> Map<String, Value> {
    let mut answers = execution
        .results
        .iter()
        .filter_map(|result| result.data.get(ANSWER));
    let last = answers.next_back().and_then(Value::as_object);
    last.cloned().unwrap_or_default()
}

/// Returns the exception that ended a cell, if the guest reported one.
pub(crate) fn exception(execution: &Execution, forms: Forms) -> Option<Exception> {
    let mut reports = execution
        .results
        .iter()
        .filter_map(|result| result.data.get(ERROR));
    let report = reports.next_back()?.as_object()?;
    let text = |name| text(report, name, forms);
    Some(Exception {
        name: text("name"),
        value: text("value"),
        traceback: text("traceback"),
    })
}

/// An exception, as a guest reports it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exception {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) traceback: String,
}

fn text(answer: &Map<String, Value>, name: &str, forms: Forms) -> String {
    let text = answer.get(name).and_then(Value::as_str).unwrap_or_default();
    forms.whole(cut(text, MAX_TEXT))
}

/// Returns the beginning of a text, of at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Returns the content of `complete_reply`.
pub(crate) fn completions(answer: &Map<String, Value>, cursor: u64, forms: Forms) -> Value {
    let start = answer
        .get("start")
        .and_then(Value::as_u64)
        .filter(|start| *start <= cursor);
    let matches = answer
        .get("matches")
        .and_then(Value::as_array)
        .filter(|_| start.is_some());
    let matches = matches.into_iter().flatten().filter_map(Value::as_str);
    let matches: Vec<String> = matches
        .take(MAX_MATCHES)
        .map(|text| forms.whole(cut(text, MAX_MATCH)))
        .collect();
    json!({
        "status": "ok",
        "matches": matches,
        "cursor_start": start.unwrap_or(cursor),
        "cursor_end": cursor,
        "metadata": {},
    })
}

/// Returns the content of `inspect_reply`.
pub(crate) fn description(answer: &Map<String, Value>, forms: Forms) -> Value {
    let found = answer.get("text").is_some_and(Value::is_string);
    let data = match found {
        true => json!({"text/plain": text(answer, "text", forms)}),
        false => json!({}),
    };
    json!({"status": "ok", "found": found, "data": data, "metadata": {}})
}

/// Returns the content of `is_complete_reply`.
pub(crate) fn completeness(answer: &Map<String, Value>) -> Value {
    let indent = answer.get("indent").and_then(Value::as_str).unwrap_or_default();
    match answer.get("status").and_then(Value::as_str) {
        Some("incomplete") => {
            let is_blank = indent.bytes().all(|byte| b" \t".contains(&byte));
            let indent = if is_blank { cut(indent, MAX_INDENT) } else { "" };
            json!({"status": "incomplete", "indent": indent})
        }
        Some(status @ ("complete" | "invalid")) => json!({ "status": status }),
        Some(_) | None => json!({"status": "unknown"}),
    }
}

/// Returns the values of expressions for `execute_reply`.
pub(crate) fn values<'a>(
    answer: &Map<String, Value>,
    names: impl Iterator<Item = &'a String>,
    forms: Forms,
) -> Map<String, Value> {
    let unknown = || json!({"name": "NotAvailable", "value": "there is no answer"});
    let value = |name: &String| {
        let found = answer.get(name).filter(|found| found.is_object());
        let found = found.cloned().unwrap_or_else(unknown);
        let found = found.as_object().cloned().unwrap_or_default();
        let value = match found.contains_key("text") {
            true => {
                json!({"status": "ok", "data": {"text/plain": text(&found, "text", forms)}, "metadata": {}})
            }
            false => failure(&text(&found, "name", forms), &text(&found, "value", forms), None),
        };
        (name.clone(), value)
    };
    names.map(value).collect()
}

/// Returns the content of a reply with an error.
pub(crate) fn failure(name: &str, value: &str, traceback: Option<&str>) -> Value {
    let lines: Vec<String> = match traceback {
        Some(traceback) => traceback
            .trim_end_matches('\n')
            .split('\n')
            .map(str::to_owned)
            .collect(),
        None if value.is_empty() => vec![name.to_owned()],
        None => vec![format!("{name}: {value}")],
    };
    json!({"status": "error", "ename": name, "evalue": value, "traceback": lines})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_that_of_the_python_package() {
        let package = include_str!("../../../sdk/python/src/ringfence/jupyter/_guest.py");
        assert!(package.contains(&format!("r'''\n{PROGRAM}'''")));
    }

    #[test]
    fn a_guests_answers_are_bounded_and_checked() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let check = |answer: Value, matches: Value, start: u64| {
            let told = completions(&object(answer), 3, Forms::Inert);
            assert_eq!(
                (&told["matches"], &told["cursor_start"]),
                (&matches, &json!(start))
            );
        };
        check(json!({"matches": ["a\x1b[2J", 1], "start": 1}), json!(["a"]), 1);
        check(json!({"matches": ["a"], "start": 4}), json!([]), 3);
        check(json!({"matches": ["a"], "start": -1}), json!([]), 3);
        check(json!({"matches": 1, "start": 0}), json!([]), 0);
        check(json!({}), json!([]), 3);
        let long = completions(
            &object(json!({"matches": vec!["é".repeat(1000); 2000], "start": 0})),
            3,
            Forms::All,
        );
        assert_eq!(long["matches"].as_array().unwrap().len(), MAX_MATCHES);
        assert_eq!(long["matches"][0].as_str().unwrap().len(), MAX_MATCH);
        assert_eq!(
            completeness(&object(json!({"status": "incomplete", "indent": "x"})))["indent"],
            ""
        );
        assert_eq!(
            completeness(&object(json!({"status": "evil"})))["status"],
            "unknown"
        );
        assert_eq!(
            description(&object(json!({"text": 1})), Forms::All)["found"],
            false
        );
    }

    #[test]
    fn a_question_is_one_expression_whatever_it_asks() {
        let code = question("complete", &json!(["\"\\\n'", 1]));
        assert!(
            !code.contains('\n') && code.ends_with(r#"json.loads("[\"complete\",\"\\\"\\\\\\n'\",1]"))"#),
            "{code}"
        );
    }
}
