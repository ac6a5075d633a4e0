//! Tests of redaction and truncation.

use proptest::prelude::*;
use serde_json::json;

use super::super::{Link, MAX_LINE, line};
use super::*;

fn shown(arguments: &Value) -> Value {
    let redactor = Redactor::new([("API_TOKEN", "tr0ub4dor-and-3")]);
    Arguments::new(arguments, &redactor).shown
}

#[test]
fn small_arguments_are_shown_as_they_are() {
    let arguments = json!({"code": "print(1)\n", "timeout": 2.5, "files": [{"path": "a"}, null, true]});
    assert_eq!(shown(&arguments), arguments);
}

#[test]
fn credentials_are_taken_out_wherever_they_stand() {
    let shown = shown(&json!({
        "code": "login('tr0ub4dor-and-3')",
        "headers": {"Authorization": "Basic eA==", "X-Api-Key": "k", "Accept": "a"},
        "list": [{"apiKey": {"deep": "k"}}, {"password": 1234}, {"secret": null}],
        "tr0ub4dor-and-3": "as a name",
    }));
    let expected = json!({
        "code": "login('[redacted:API_TOKEN]')",
        "headers": {"Authorization": "[redacted:Authorization]", "X-Api-Key": "[redacted:X-Api-Key]", "Accept": "a"},
        "list": [{"apiKey": "[redacted:apiKey]"}, {"password": "[redacted:password]"}, {"secret": null}],
        "[redacted:API_TOKEN]": "as a name",
    });
    assert_eq!(shown, expected);
}

#[test]
fn a_long_text_is_cut_and_no_credential_is_cut_in_two() {
    let text = format!("{}tr0ub4dor-and-3{}", "a".repeat(MAX_TEXT - 8), "b".repeat(5_000));
    let shown = shown(&json!({"content": text}))["content"].to_string();
    assert!(
        shown.contains("bytes in all)") && shown.len() < MAX_TEXT + 64,
        "{shown}"
    );
    assert!(!shown.contains("tr0u"), "{shown}");
}

#[test]
fn width_and_depth_are_bounded() {
    let many: Vec<usize> = (0..10_000).collect();
    let list = shown(&json!(many));
    let list = list.as_array().unwrap();
    assert!(list.len() <= MAX_VALUES + 1, "{}", list.len());
    let expected = format!("… ({} more)", 10_000 - (list.len() - 1));
    assert_eq!(list.last().unwrap(), &json!(expected));

    let members: Map<String, Value> = (0..10_000).map(|n| (format!("{n:05}"), json!(n))).collect();
    let object = shown(&Value::Object(members));
    assert!(object.as_object().unwrap().len() <= MAX_VALUES + 1);

    let deep = (0..1_000).fold(json!("end"), |inner, _| json!([inner]));
    let text = shown(&deep).to_string();
    assert_eq!(
        text,
        format!(
            "{}\"… (too deep)\"{}",
            "[".repeat(MAX_DEPTH),
            "]".repeat(MAX_DEPTH)
        )
    );
}

#[test]
fn the_digest_is_that_of_the_whole() {
    let redactor = Redactor::new([("API_TOKEN", "tr0ub4dor-and-3")]);
    let arguments = json!({"b": "tr0ub4dor-and-3", "a": 1});
    let expected = Digest::of(br#"{"a":1,"b":"tr0ub4dor-and-3"}"#);
    assert_eq!(Arguments::new(&arguments, &redactor).digest, expected);
}

fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        ".{0,40}",
        Just("tr0ub4dor-and-3".to_owned()),
        "\\PC{0,9000}",
        "[\u{0}-\u{9f}\u{202e}\"\\\\]{0,6000}",
        Just("\u{e0041}".repeat(3_000)),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(20, 600, 40, move |inner| {
        let name = prop_oneof!["[a-z]{1,8}", text.clone(), "[a-f]{200}", "password[0-9]{150}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..40).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..40)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_given_fits_into_a_line_and_shows_no_secret(arguments in any_json()) {
        let redactor = Redactor::new([("API_TOKEN", "tr0ub4dor-and-3")]);
        let arguments = Arguments::new(&arguments, &redactor);
        prop_assert!(!arguments.shown.to_string().contains("tr0ub4dor-and-3"));
        let mut line = Vec::new();
        prop_assert!(line::seal(&mut line, &Link::START, &arguments).is_ok());
        prop_assert!(line::open(line.trim_ascii_end()).is_ok());
        // Room for the names beside the arguments, at their longest.
        prop_assert!(line.len() < MAX_LINE - 8 * 1024, "{}", line.len());
    }
}

#[test]
fn the_widest_arguments_fit_into_a_line() {
    let name = |n: usize| format!("password{n:0120}");
    let members: Map<String, Value> = (0..1_000).map(|n| (name(n), json!("x"))).collect();
    let texts = json!(vec!["\u{1}".repeat(10_000); 1_000]);
    let numbers = json!(vec![-1.234_567_890_123_456_7e-300; 1_000]);
    for arguments in [Value::Object(members), texts, numbers] {
        let redactor = Redactor::new([("API_TOKEN", "tr0ub4dor-and-3")]);
        let mut line = Vec::new();
        line::seal(&mut line, &Link::START, &Arguments::new(&arguments, &redactor)).unwrap();
        assert!(line.len() < MAX_LINE - 8 * 1024, "{}", line.len());
    }
}

#[test]
fn a_command_is_whole_or_known_to_be_cut() {
    let redactor = Redactor::new([("API_TOKEN", "tr0ub4dor-and-3")]);
    let of = |length: usize| Arguments::of_command(&json!({"command": "a".repeat(length)}), &redactor);
    assert!(of(MAX_TEXT + 1).is_whole() && !of(MAX_COMMAND + 1).is_whole());
    let secret = Arguments::of_command(&json!({"command": "tr0ub4dor-and-3"}), &redactor);
    assert!(secret.is_whole() && secret.shown["command"] == "[redacted:API_TOKEN]");
}
