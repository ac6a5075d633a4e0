//! Redacts credentials from a server's messages.

use serde_json::Value;

/// Minimum length of a redacted credential: shorter ones match by chance.
const MIN_ECHO: usize = 8;

/// Redacts credentials in all strings of a value: programs must not see them.
pub(super) fn hide(value: &mut Value, secrets: &[String]) {
    match value {
        Value::String(text) => {
            for secret in secrets.iter().filter(|secret| secret.len() >= MIN_ECHO) {
                if text.contains(secret.as_str()) {
                    *text = text.replace(secret.as_str(), "[REDACTED]");
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| hide(value, secrets)),
        Value::Object(members) => members.values_mut().for_each(|value| hide(value, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn credentials_are_not_sent_back() {
        let secrets = ["secret-token".to_owned(), "a".to_owned()];
        let mut value = json!({"a": ["it was secret-token!", 1], "b": "a"});
        hide(&mut value, &secrets);
        assert_eq!(value, json!({"a": ["it was [REDACTED]!", 1], "b": "a"}));
    }
}
