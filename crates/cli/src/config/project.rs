//! What a project's own configuration file may set.
//!
//! A project file comes with the repository that somebody checked out, and may be as hostile as the
//! code we fence. It may choose amounts and ask for a tighter fence, and nothing else: every key that
//! is not listed here is refused, so that a new key is refused until somebody has thought about it.

use serde_json::Value;

use super::keys::dotted;

/// Amounts: a run is killed at whatever they are, and none of them opens a door.
const AMOUNTS: &[&str] = &[
    "sandbox.timeout",
    "sandbox.max_output",
    "sandbox.memory",
    "sandbox.cpus",
    "sandbox.pids",
    "sandbox.disk",
    "sandbox.preload",
];

/// Whether a project file may put `value` at `path`, where `present` is what holds without it.
pub(crate) fn may_set(path: &[String], value: &Value, present: Option<&Value>) -> bool {
    let key = dotted(path);
    let amount = AMOUNTS.contains(&key.as_str()) || key.starts_with("permissions.tool_limits.");
    let tighter = match key.as_str() {
        "sandbox.isolation" => value == "required",
        "sandbox.block_dangerous_imports" => value == true,
        "artifacts.store" => value == "always",
        _ => false,
    };
    amount || tighter || present == Some(value)
}

#[cfg(test)]
mod tests {
    use super::super::keys::Keys;
    use super::*;
    use serde_json::json;

    fn allowed(key: &str, value: Value) -> bool {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        may_set(&path, &value, Some(&json!("something else")))
    }

    #[test]
    fn amounts_and_a_tighter_fence_are_allowed() {
        assert!(allowed("sandbox.memory", json!("1GiB")));
        assert!(allowed("sandbox.isolation", json!("required")));
        assert!(allowed("sandbox.block_dangerous_imports", json!(true)));
        assert!(allowed("permissions.tool_limits.shell_timeout_secs", json!(5.0)));
    }

    #[test]
    fn what_opens_the_fence_is_refused() {
        assert!(!allowed("sandbox.isolation", json!("best-effort")));
        assert!(!allowed("sandbox.isolation", json!("auto")));
        assert!(!allowed("sandbox.block_dangerous_imports", json!(false)));
        assert!(!allowed("artifacts.store", json!("never")));
        for key in [
            "sandbox.python",
            "sandbox.pass_env",
            "sandbox.type",
            "hostExecution.allowList",
            "skills.path",
        ] {
            assert!(!allowed(key, json!("./evil")), "{key}");
        }
    }

    #[test]
    fn repeating_what_holds_already_is_harmless() {
        let value = json!("local");
        assert!(may_set(
            &["sandbox".to_owned(), "type".to_owned()],
            &value,
            Some(&value)
        ));
    }

    #[test]
    fn the_list_names_real_keys() {
        let known: Vec<String> = Keys::new()
            .leaves()
            .iter()
            .map(|(path, _)| dotted(path))
            .collect();
        for key in AMOUNTS {
            assert!(known.iter().any(|name| name == key), "{key}");
        }
    }
}
