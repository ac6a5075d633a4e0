//! What a project's own configuration file may not set.
//!
//! A project file comes with the repository that somebody checked out, and may be as hostile as the
//! code we fence. It may choose amounts and ask for a tighter fence. It may not loosen what holds
//! without it, nor name a program that we start, nor a place that we write to or delete from.

use serde_json::Value;

use super::keys::dotted;

/// Sections that no code acts on yet, so that there is nothing to weaken.
///
/// Whoever brings a section to life takes it off this list and decides key by key what a project may say.
const LATER: &[&str] = &[
    "permissions",
    "codeExecution",
    "hostExecution",
    "skills",
    "templates",
    "egress",
    "gateway",
];

/// Why a project file may not put `value` at `path`, where `present` is what holds without it.
///
/// In the sections that we act on, a key that is not named here is refused: a new one waits for a decision.
pub(crate) fn refusal(path: &[String], value: &Value, present: &Value) -> Option<&'static str> {
    let section = path.first().map_or("", String::as_str);
    if value == present || LATER.contains(&section) {
        return None;
    }
    let (allowed, reason) = match dotted(path).as_str() {
        "sandbox.timeout" | "sandbox.max_output" | "sandbox.memory" | "sandbox.cpus" | "sandbox.pids"
        | "sandbox.disk" | "sandbox.preload" => return None,
        // Amounts as well, and what is kept of a run is the project's privacy.
        "engine.pool_size"
        | "engine.max_concurrent"
        | "engine.queue"
        | "engine.rotate_after_runs"
        | "engine.rotate_after_minutes"
        | "artifacts.store" => return None,
        key if key.starts_with("sandbox.docker.") => return None,
        // Another runtime than `local` answers that it is not available.
        "sandbox.type" => (value != "local", "you asked for another runtime"),
        "sandbox.python" | "sandbox.javascript" => {
            (false, "it names a program that is started with your rights")
        }
        "sandbox.isolation" => (
            value == "required" || present == "best-effort",
            "it would let programs run with less of the fence",
        ),
        "sandbox.block_dangerous_imports" => {
            (value == true, "it would switch off a check that you asked for")
        }
        "sandbox.blocked_imports" => (holds_all(value, present), "it would let more modules through"),
        "sandbox.pass_env" => (
            holds_all(present, value),
            "it would hand variables of yours to programs",
        ),
        "artifacts.dir" => (false, "it names a place that is written to with your rights"),
        "artifacts.keep" => (
            value.as_u64() > present.as_u64(),
            "it would delete stored runs of other projects",
        ),
        _ => (false, "nobody has decided yet whether it could weaken the fence"),
    };
    (!allowed).then_some(reason)
}

/// Whether the list `all` holds every element of the list `some`.
fn holds_all(all: &Value, some: &Value) -> bool {
    match (all.as_array(), some.as_array()) {
        (Some(all), Some(some)) => some.iter().all(|element| all.contains(element)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::{Keys, get};
    use super::*;
    use serde_json::json;

    fn path(key: &str) -> Vec<String> {
        key.split('.').map(str::to_owned).collect()
    }

    /// Over the built-in default.
    fn allowed(key: &str, value: Value) -> bool {
        let keys = Keys::new();
        let present = get(keys.defaults(), &path(key)).unwrap_or(&Value::Null);
        refusal(&path(key), &value, present).is_none()
    }

    fn allowed_over(present: Value, key: &str, value: Value) -> bool {
        refusal(&path(key), &value, &present).is_none()
    }

    #[test]
    fn amounts_privacy_and_a_tighter_fence_are_allowed() {
        assert!(allowed("sandbox.memory", json!("64GiB")));
        assert!(allowed("sandbox.isolation", json!("required")));
        assert!(allowed("sandbox.block_dangerous_imports", json!(true)));
        assert!(allowed("artifacts.store", json!("never")));
        assert!(allowed("artifacts.keep", json!(1_000_000)));
        assert!(allowed("engine.pool_size", json!(2)));
    }

    #[test]
    fn what_opens_the_fence_or_runs_foreign_code_is_refused() {
        assert!(!allowed("sandbox.isolation", json!("best-effort")));
        assert!(!allowed("sandbox.python", json!("/tmp/evil")));
        assert!(!allowed("sandbox.javascript", json!("node")));
        assert!(!allowed("sandbox.pass_env", json!(["AWS_SECRET_ACCESS_KEY"])));
        assert!(!allowed("sandbox.blocked_imports", json!([])));
        assert!(!allowed("artifacts.dir", json!("/home/ann/.ssh")));
        assert!(!allowed("artifacts.keep", json!(1)));
    }

    #[test]
    fn what_the_user_asked_for_can_be_tightened_but_not_undone() {
        let isolation = "sandbox.isolation";
        assert!(!allowed_over(json!("required"), isolation, json!("auto")));
        assert!(allowed_over(json!("best-effort"), isolation, json!("auto")));
        assert!(!allowed_over(json!("docker"), "sandbox.type", json!("local")));
        assert!(allowed_over(json!("local"), "sandbox.type", json!("docker")));
        let block = "sandbox.block_dangerous_imports";
        assert!(!allowed_over(json!(true), block, json!(false)));
        let imports = "sandbox.blocked_imports";
        assert!(allowed_over(json!(["os"]), imports, json!(["socket", "os"])));
        assert!(!allowed_over(json!(["os", "socket"]), imports, json!(["os"])));
        assert!(allowed_over(json!(["A", "B"]), "sandbox.pass_env", json!(["B"])));
        assert!(!allowed_over(json!(["A"]), "sandbox.pass_env", json!(["A", "B"])));
        assert!(!allowed_over(
            json!("/opt/python3"),
            "sandbox.python",
            json!(null)
        ));
    }

    #[test]
    fn repeating_what_holds_already_is_harmless() {
        for (path, default) in Keys::new().leaves() {
            assert_eq!(refusal(&path, &default, &default), None, "{}", dotted(&path));
        }
    }

    #[test]
    fn every_key_has_been_decided_and_a_new_one_is_refused() {
        let reason = "nobody has decided yet whether it could weaken the fence";
        let other = json!("neither the default nor allowed");
        for (path, default) in Keys::new().leaves() {
            assert_ne!(
                refusal(&path, &other, &default),
                Some(reason),
                "{}",
                dotted(&path)
            );
        }
        for key in ["sandbox.new", "engine.new", "new.key"] {
            assert_eq!(refusal(&path(key), &other, &Value::Null), Some(reason), "{key}");
        }
    }

    #[test]
    fn the_list_names_real_sections() {
        let keys = Keys::new();
        for section in LATER {
            assert!(keys.defaults().get(section).is_some(), "{section}");
        }
    }
}
