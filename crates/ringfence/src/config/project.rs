//! Restrictions of a project's own configuration file.
//!
//! A project file comes with a checked-out repository, and may be as hostile as the code in the fence. It may
//! choose quantities and ask for a tighter fence. It may not loosen the effective settings, nor name a
//! program that we start, nor a path that we write to or delete from. Settings of permissions that it may not
//! make are ignored with a warning instead of an error, because configuration files are printed in documents.

use std::path::{Component, Path};

use ringfence_policy::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::keys::dotted;
use super::values;

/// The decision about a value in a project's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The value is used.
    Holds,
    /// The value is ignored with a warning: configurations printed in documents must load from a project too.
    PassedOver(&'static str),
    /// The value is an error.
    Refused(&'static str),
}

/// Decides about `value` at `path` in a project's file, given the effective value `present` without it.
///
/// In the sections that take effect today, an unlisted key is rejected: a new key needs a decision.
pub(super) fn verdict(path: &[String], value: &Value, present: &Value) -> Verdict {
    let section = path.first().map_or("", String::as_str);
    if value == present {
        return Verdict::Holds;
    }
    match section {
        "skills" => skill(&dotted(path), value, present).map_or(Verdict::Holds, Verdict::PassedOver),
        "permissions" | "egress" | "hostExecution" => {
            permission(&dotted(path), value, present).map_or(Verdict::Holds, Verdict::PassedOver)
        }
        "codeExecution" => kept(&dotted(path), value, present).map_or(Verdict::Holds, Verdict::PassedOver),
        "templates" => template(path, value, present).map_or(Verdict::Holds, Verdict::PassedOver),
        "sandbox" if dotted(path) == "sandbox.docker.image" => Verdict::PassedOver(IMAGE),
        _ => refusal(path, value, present).map_or(Verdict::Holds, Verdict::Refused),
    }
}

/// Returns the reason to ignore a project's setting of tool permissions.
fn permission(key: &str, value: &Value, present: &Value) -> Option<&'static str> {
    let (allowed, reason) = match key {
        "permissions.denied_tools" => (holds_all(value, present), "it would allow tools that you denied"),
        "permissions.shell.runner" => (
            value != "host",
            "it would run commands on this machine itself, without a fence",
        ),
        "permissions.shell.container_runtime" | "permissions.shell.container_image" => (false, IMAGE),
        "permissions.shell.container_fallback" => (
            value == "none" || value == "fenced" && present == "host",
            "it would run commands with less of a fence",
        ),
        "permissions.filesystem.user_scope" => (
            present == "none" || value == "session",
            "it would let users see each other's files",
        ),
        "permissions.filesystem.user_root" => (
            value.as_str().is_some_and(is_below_the_project) && present == "data/users/{user_id}",
            "it names a place outside of the project that is written to with your rights",
        ),
        "permissions.filesystem.protected" => (
            holds_all(value, present),
            "it would let tools write what programs of this machine execute",
        ),
        "egress.allowed_hosts" => (holds_all(present, value), "it would let tools reach more hosts"),
        "egress.private_networks" => (
            holds_all(present, value),
            "it would let tools reach more of this machine and its network",
        ),
        "hostExecution.enabled" => (
            value == false,
            "it would let tools run commands on this machine itself",
        ),
        "hostExecution.allowList" | "hostExecution.notifyList" => (
            holds_all(present, value),
            "it would let commands run on this machine without asking",
        ),
        "hostExecution.preValidation.enabled" => {
            (value == false, "it would let a model decide instead of you")
        }
        "hostExecution.preValidation.model" => (value.is_null(), "it would choose the model that decides"),
        "hostExecution.preValidation.baseUrl" | "hostExecution.preValidation.caFile" => (
            false,
            "it would choose who answers for the model, and gets its key",
        ),
        "hostExecution.preValidation.apiKeyEnv" | "hostExecution.preValidation.apiKeyFile" => {
            (false, "it would choose what is sent as a key")
        }
        "hostExecution.preValidation.riskThreshold" => (
            value.as_u64() <= present.as_u64(),
            "it would let a model wave through what you want to be asked about",
        ),
        "hostExecution.unknownFloor" => (
            value.as_u64() >= present.as_u64(),
            "it would let a model wave through what you want to be asked about",
        ),
        "hostExecution.askTimeoutMin" | "permissions.tool_limits.ask_timeout_secs" => (false, PATIENCE),
        // A quantity: without the model's answer a person is asked.
        "hostExecution.preValidation.timeoutMs" => return None,
        "egress.inject" => (false, "it would choose where your credentials are sent"),
        "egress.ca_file" => (false, "it would let others pose as the hosts that you reach"),
        "permissions.tool_limits.max_output_bytes" => (is_kept(value, present), KEPT),
        "permissions.tool_limits.at_limit" => (
            present != "ask" || value == "deny",
            "it would let tools go on beyond their limits without asking you",
        ),
        // Quantities.
        key if key.starts_with("permissions.tool_limits.") => return None,
        _ => (false, "nobody has decided yet whether it could weaken the fence"),
    };
    (!allowed).then_some(reason)
}

/// Returns the reason to ignore a project's setting of `sandbox_exec` containers.
fn kept(key: &str, value: &Value, present: &Value) -> Option<&'static str> {
    let (allowed, reason) = match key {
        "codeExecution.dockerImage" | "codeExecution.containerRuntime" => (false, IMAGE),
        "codeExecution.fallback" => (value == "none", "it would run programs without a container"),
        "codeExecution.allowNetwork" => (value == false, "it would give programs a network"),
        "codeExecution.volumeMounts" => (
            holds_all(present, value),
            "it would show programs more of this machine",
        ),
        "codeExecution.keepAlive" => (
            value == false,
            "it would let a container serve more than one call",
        ),
        // Applies to each container.
        "codeExecution.keepAliveIdleTimeoutMin" | "codeExecution.keepAliveMaxExecutions" => (
            amount(value) <= amount(present),
            "it would keep containers for longer than you do",
        ),
        // Quantities of one run.
        "codeExecution.timeout"
        | "codeExecution.maxMemory"
        | "codeExecution.maxDisk"
        | "codeExecution.maxCpus" => return None,
        _ => (false, "nobody has decided yet whether it could weaken the fence"),
    };
    (!allowed).then_some(reason)
}

/// Returns the reason to ignore a project's setting of a template. A template that only the project defines
/// is compared with the default one.
fn template(path: &[String], value: &Value, present: &Value) -> Option<&'static str> {
    let (allowed, reason) = match path.last().map_or("", String::as_str) {
        "image" => (false, IMAGE),
        "plugin_name" | "memory_limit" | "cpu_limit" | "max_pids" | "max_duration" => return None,
        "network_mode" => (
            value == "none" || present == "restricted",
            "it would let sandboxes reach a network",
        ),
        "allowed_hosts" => (
            holds_all(present, value),
            "it would let sandboxes reach more hosts",
        ),
        "seccomp_profile" => (
            filter_width(value) <= filter_width(present),
            "it would let sandboxes make more system calls",
        ),
        "oci_runtime" => (value == "runsc", OCI_RUNTIME),
        _ => (false, "nobody has decided yet whether it could weaken the fence"),
    };
    (!allowed).then_some(reason)
}

const SENT: &str = "it would decide to whom your programs and files are sent, and who gets your key";

/// Another image of this machine may hold data that the project may not see.
const IMAGE: &str = "it would choose what your containers are made of";

/// Reason to reject a project's time limit of questions. A longer one would occupy the queue of questions, and
/// a shorter one would end them before a person sees them.
const PATIENCE: &str = "it would decide how long you have to answer";

/// The engine's default may be gVisor.
const OCI_RUNTIME: &str =
    "it would choose what makes containers, and only gVisor is never less than what you have";

/// Ranks a filter by its permissiveness; no filter ranks as the default one.
fn filter_width(profile: &Value) -> u8 {
    match profile.as_str() {
        Some("strict") => 0,
        Some("standard") | None => 1,
        Some(_) => 2,
    }
}

/// Parses a number, or a duration in minutes; other values are reported by the type check.
fn amount(value: &Value) -> Option<u128> {
    let minutes = |value: &Value| values::Minutes::deserialize(value).ok();
    minutes(value).map(|values::Minutes(time)| time.as_duration().as_millis())
}

/// Returns the reason to ignore a project's setting of skills.
fn skill(key: &str, value: &Value, present: &Value) -> Option<&'static str> {
    let (allowed, reason) = match key {
        "skills.path" => (
            false,
            "it would let programs call functions that the project brings",
        ),
        "skills.allow" => (
            holds_all(present, value),
            "it would let programs call more functions",
        ),
        "skills.notify" | "skills.ask" => (
            holds_all(value, present),
            "it would keep calls from you that you want to know of",
        ),
        "skills.max_calls" | "skills.calls_per_second" => (
            value.as_u64() <= present.as_u64(),
            "it would let programs make more calls than you gave them",
        ),
        key if key.starts_with("skills.servers.") => (
            false,
            "it names programs that are started, and servers that are asked, in your name",
        ),
        "skills.ask_timeout" => (false, PATIENCE),
        // Quantities.
        "skills.call_timeout" | "skills.start_timeout" | "skills.memory" => return None,
        "skills.sandbox.timeout_seconds" | "skills.sandbox.memory_limit_mb" => return None,
        "skills.sandbox.pool_size" => return None,
        "skills.sandbox.enabled" => (value == true, "it would run programs with less of the fence"),
        "skills.sandbox.blocked_imports" => (holds_all(value, present), "it would let more modules through"),
        "skills.sandbox.deno_path" => (false, "it names a program that is started with your rights"),
        "skills.sandbox.packages" => (false, "it names files of yours that programs could read"),
        "skills.sandbox.directory" => (
            false,
            "it names a place that programs are taken from, and written to with your rights",
        ),
        _ => (false, "nobody has decided yet whether it could weaken the fence"),
    };
    (!allowed).then_some(reason)
}

/// Maximum of a program's output that a project may have kept in memory, unless the effective limit is
/// higher.
const MAX_KEPT: Bytes = Bytes::mib(64);

const KEPT: &str = "it would hold more output in memory than 64MiB";

/// Returns `true` if output of this size may be kept. A value that is not a size is reported by the type
/// check.
fn is_kept(value: &Value, present: &Value) -> bool {
    let size = |value| Bytes::deserialize(value).ok();
    size(value).is_none_or(|wanted| wanted <= MAX_KEPT || Some(wanted) <= size(present))
}

fn is_below_the_project(path: &str) -> bool {
    let plain = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    Path::new(path).components().all(plain)
}

fn refusal(path: &[String], value: &Value, present: &Value) -> Option<&'static str> {
    let (allowed, reason) = match dotted(path).as_str() {
        "sandbox.timeout"
        | "sandbox.memory"
        | "sandbox.cpus"
        | "sandbox.pids"
        | "sandbox.disk"
        | "sandbox.preload"
        | "sandbox.preload_timeout" => return None,
        "sandbox.max_output" => (is_kept(value, present), KEPT),
        // Each is multiplied by the usage of one guest, and some are started before anybody requests them.
        "engine.pool_size"
        | "engine.container_pool_size"
        | "engine.max_concurrent"
        | "engine.queue"
        | "engine.max_sessions" => (
            value
                .as_u64()
                .is_none_or(|number| Some(number) <= present.as_u64()),
            "it would take more of this machine than you gave",
        ),
        // Quantities as well; storing its own runs affects only the project's privacy.
        "engine.rotate_after_runs"
        | "engine.rotate_after_minutes"
        | "engine.session_idle_minutes"
        | "engine.session_lifetime_minutes"
        | "artifacts.store" => return None,
        "engine.sandbox_hosts" => (holds_all(present, value), "it would open more hosts to keys"),
        "engine.drain_timeout" => (false, "it would decide how long your server takes to end"),
        "engine.console" | "engine.listen" => (false, "it would decide where you are asked"),
        "sandbox.docker.cpu_limit" | "sandbox.docker.memory_limit" => return None,
        "sandbox.docker.network_enabled" => (value == false, "it would let programs reach a network"),
        "sandbox.docker.fallback" => (value == "none", "it would run programs without a container"),
        "sandbox.docker.oci_runtime" => (value == "runsc", OCI_RUNTIME),
        "sandbox.type" if value == "e2b" => (false, SENT),
        // A runtime other than `local` reports that it is not available.
        "sandbox.type" => (value != "local", "you asked for another runtime"),
        key if key.starts_with("sandbox.e2b.") => (false, SENT),
        "sandbox.python" | "sandbox.javascript" => {
            (false, "it names a program that is started with your rights")
        }
        "sandbox.isolation" => (
            value == "required" || present == "best-effort",
            "it would let programs run with less of the fence",
        ),
        "sandbox.network" => (value == "none", "it would let programs reach a network"),
        "sandbox.block_dangerous_imports" => {
            (value == true, "it would switch off a check that you asked for")
        }
        "sandbox.blocked_imports" => (holds_all(value, present), "it would let more modules through"),
        "sandbox.pass_env" => (
            holds_all(present, value),
            "it would hand variables of yours to programs",
        ),
        "artifacts.dir" => (false, "it names a place that is written to with your rights"),
        "gateway.mcp_elicitation" => (value == false, "it would have others answer what you are asked"),
        key if key.starts_with("gateway.") => (false, "it would have others answer what you are asked"),
        "audit.dir" => (false, "it names a place that is written to with your rights"),
        "audit.max_file" | "audit.max_files" | "audit.keep_host_days" => (
            false,
            "it would decide how much is kept of what other projects did",
        ),
        key if key.starts_with("packages.") => (false, "it would choose whose code is installed and kept"),
        "artifacts.max_total" | "artifacts.keep_days" => (
            false,
            "it would decide how much of your disk is used, or delete stored runs",
        ),
        "artifacts.keep" => (
            value.as_u64() > present.as_u64(),
            "it would delete stored runs of other projects",
        ),
        _ => (false, "nobody has decided yet whether it could weaken the fence"),
    };
    (!allowed).then_some(reason)
}

/// Returns `true` if the list `all` contains every element of the list `some`.
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

    /// Returns `true` if a project may set the value over the built-in default.
    fn allowed(key: &str, value: Value) -> bool {
        let keys = Keys::new();
        let present = get(keys.defaults(), &path(key)).unwrap_or(&Value::Null);
        verdict(&path(key), &value, present) == Verdict::Holds
    }

    fn allowed_over(present: Value, key: &str, value: Value) -> bool {
        verdict(&path(key), &value, &present) == Verdict::Holds
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
    fn what_all_guests_take_together_is_not_the_projects_to_raise() {
        for key in [
            "pool_size",
            "container_pool_size",
            "max_concurrent",
            "queue",
            "max_sessions",
        ] {
            let key = format!("engine.{key}");
            assert!(allowed(&key, json!(1)), "{key}");
            assert!(!allowed(&key, json!(1_000_000)), "{key}");
            assert!(allowed_over(json!(2_000_000), &key, json!(1_000_000)), "{key}");
        }
        for key in ["sandbox.max_output", "permissions.tool_limits.max_output_bytes"] {
            assert!(allowed(key, json!("64MiB")), "{key}");
            assert!(
                !allowed(key, json!("65MiB")) && !allowed(key, json!(1_u64 << 40)),
                "{key}"
            );
            assert!(allowed_over(json!("1GiB"), key, json!("65MiB")), "{key}");
        }
    }

    #[test]
    fn what_opens_the_fence_or_runs_foreign_code_is_refused() {
        assert!(!allowed("sandbox.isolation", json!("best-effort")));
        assert!(!allowed("sandbox.type", json!("e2b")));
        assert!(allowed_over(json!("e2b"), "sandbox.type", json!("docker")));
        for key in ["api_url", "sandbox_url", "domain", "template", "api_key_file"] {
            assert!(
                !allowed(&format!("sandbox.e2b.{key}"), json!("evil.example")),
                "{key}"
            );
        }
        assert!(!allowed("sandbox.python", json!("/tmp/evil")));
        assert!(!allowed("sandbox.javascript", json!("node")));
        assert!(!allowed("sandbox.pass_env", json!(["AWS_SECRET_ACCESS_KEY"])));
        assert!(!allowed("sandbox.blocked_imports", json!([])));
        assert!(!allowed("artifacts.dir", json!("/home/ann/.ssh")));
        assert!(!allowed("audit.dir", json!("/home/ann/.ssh")));
        assert!(!allowed("packages.index", json!("https://evil.example/simple")));
        assert!(!allowed("packages.hosts", json!(["evil.example"])));
        assert!(!allowed("engine.sandbox_hosts", json!(["evil.example"])));
        assert!(!allowed("engine.console", json!(false)));
        assert!(!allowed("engine.listen", json!("127.0.0.1:1")));
        assert!(!allowed("gateway.chats", json!(["telegram_666"])));
        assert!(!allowed("gateway.telegram.users", json!([666])));
        assert!(!allowed(
            "gateway.telegram.base_url",
            json!("https://evil.example")
        ));
        assert!(allowed("gateway.mcp_elicitation", json!(false)));
        assert!(!allowed("gateway.mcp_elicitation", json!("on")));
        for (key, value) in [
            ("token_env", json!("MINE")),
            ("token_file", json!("token")),
            ("channels", json!(["1"])),
            ("users", json!(["1"])),
            ("base_url", json!("https://evil.example")),
            ("gateway_url", json!("wss://evil.example")),
        ] {
            assert!(!allowed(&format!("gateway.discord.{key}"), value), "{key}");
        }
        assert!(!allowed("audit.max_file", json!("1GiB")));
        assert!(!allowed("audit.max_files", json!(2)));
        assert!(!allowed("audit.keep_host_days", json!(0)));
        assert!(!allowed("artifacts.keep", json!(1)));
        assert!(!allowed("artifacts.max_total", json!("1TiB")));
        assert!(!allowed("artifacts.keep_days", json!(1)));
    }

    #[test]
    fn a_person_who_wants_to_be_asked_is_asked() {
        let at_limit = "permissions.tool_limits.at_limit";
        assert!(allowed(at_limit, json!("ask")));
        assert!(allowed_over(json!("ask"), at_limit, json!("deny")));
        assert!(!allowed_over(json!("ask"), at_limit, json!("extend")));
        // Neither longer nor shorter than the person wants.
        for key in [
            "hostExecution.askTimeoutMin",
            "skills.ask_timeout",
            "permissions.tool_limits.ask_timeout_secs",
        ] {
            for other in [json!("1ms"), json!("24h")] {
                let passed = verdict(&path(key), &other, &json!("5m"));
                assert_eq!(passed, Verdict::PassedOver(PATIENCE), "{key}");
            }
        }
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
    fn permissions_can_be_tightened_and_otherwise_are_passed_over() {
        let runner = "permissions.shell.runner";
        assert!(!allowed(runner, json!("host")));
        assert!(allowed_over(json!("host"), runner, json!("fenced")));
        assert!(allowed("permissions.denied_tools", json!(["shell"])));
        assert!(!allowed_over(
            json!(["shell"]),
            "permissions.denied_tools",
            json!([])
        ));
        let (scope, root) = (
            "permissions.filesystem.user_scope",
            "permissions.filesystem.user_root",
        );
        assert!(allowed(scope, json!("user")));
        assert!(!allowed_over(json!("user"), scope, json!("none")));
        assert!(allowed(root, json!("files/{user_id}")));
        assert!(!allowed(root, json!("../{user_id}")));
        assert!(!allowed(root, json!("/etc/{user_id}")));
        assert!(!allowed_over(
            json!("/srv/{user_id}"),
            root,
            json!("files/{user_id}")
        ));
        assert!(!allowed("sandbox.network", json!("allowlist")));
        assert!(allowed_over(json!("allowlist"), "sandbox.network", json!("none")));
        let inject = json!([{"host": "evil.example", "header": "Authorization", "value_env": "TOKEN"}]);
        assert!(!allowed("egress.inject", inject));
        assert!(!allowed("egress.allowed_hosts", json!(["evil.example"])));
        assert!(allowed_over(
            json!(["a", "b"]),
            "egress.allowed_hosts",
            json!(["a"])
        ));
        assert!(allowed("permissions.tool_limits.shell_timeout_secs", json!(1)));
        let passed = verdict(&path(runner), &json!("host"), &json!("fenced"));
        assert!(matches!(passed, Verdict::PassedOver(_)));
    }

    #[test]
    fn containers_can_be_tightened_and_not_opened() {
        assert!(!allowed("sandbox.docker.network_enabled", json!(true)));
        for key in ["sandbox.docker.oci_runtime", "templates.mine.oci_runtime"] {
            assert!(allowed(key, json!("runsc")), "{key}");
            assert!(!allowed_over(json!("runsc"), key, json!("default")), "{key}");
            assert!(!allowed_over(json!("default"), key, json!("runc")), "{key}");
        }
        let profile = "templates.ai-provider.seccomp_profile";
        assert!(!allowed(profile, json!("standard")));
        assert!(allowed_over(json!("standard-net"), profile, json!("standard")));
        assert!(allowed("templates.mine.seccomp_profile", json!("standard")));
        assert!(!allowed("templates.mine.seccomp_profile", json!("standard-net")));
        let (network, hosts) = (
            "templates.code-executor.network_mode",
            "templates.x.allowed_hosts",
        );
        assert!(!allowed(network, json!("restricted")));
        assert!(allowed_over(json!("restricted"), network, json!("none")));
        assert!(allowed_over(json!(["a", "b"]), hosts, json!(["a"])));
        assert!(!allowed(hosts, json!(["a"])));
        assert!(allowed("templates.mine.memory_limit", json!("64MiB")));
    }

    #[test]
    fn a_project_makes_no_container_see_or_reach_more() {
        let key = |name: &str| format!("codeExecution.{name}");
        assert!(!allowed(&key("allowNetwork"), json!(true)));
        assert!(allowed_over(json!(true), &key("allowNetwork"), json!(false)));
        assert!(!allowed("sandbox.docker.network_enabled", json!(true)));
        assert!(!allowed(&key("volumeMounts"), json!(["/home:/home"])));
        assert!(allowed_over(json!(["/a:/a"]), &key("volumeMounts"), json!([])));
        for image in [
            "codeExecution.dockerImage",
            "sandbox.docker.image",
            "permissions.shell.container_image",
            "templates.code-executor.image",
            "templates.mine.image",
        ] {
            let passed = verdict(&path(image), &json!("other:latest"), &Value::Null);
            assert_eq!(passed, Verdict::PassedOver(IMAGE), "{image}");
        }
        assert!(!allowed(&key("fallback"), json!("local")));
        assert!(allowed_over(json!("local"), &key("fallback"), json!("none")));
        assert!(allowed(&key("keepAlive"), json!(false)));
        assert!(!allowed_over(json!(false), &key("keepAlive"), json!(true)));
        for name in ["keepAliveIdleTimeoutMin", "keepAliveMaxExecutions"] {
            assert!(allowed(&key(name), json!(5)), "{name}");
            assert!(!allowed(&key(name), json!(1000)), "{name}");
        }
        assert!(allowed(&key("keepAliveIdleTimeoutMin"), json!("30s")));
        assert!(!allowed(&key("keepAliveIdleTimeoutMin"), json!("2h")));
        assert!(allowed(&key("maxMemory"), json!("1GiB")));
        let fallback = "permissions.shell.container_fallback";
        assert!(!allowed(fallback, json!("host")));
        assert!(allowed_over(json!("host"), fallback, json!("fenced")));
    }

    #[test]
    fn a_project_brings_no_functions_and_hides_no_calls() {
        assert!(!allowed("skills.path", json!("./skills")));
        for key in ["command", "url", "headers", "mounts", "hosts", "env", "fence"] {
            assert!(!allowed(&format!("skills.servers.x.{key}"), json!(["a"])));
        }
        assert!(!allowed_over(json!(["Notes.add"]), "skills.allow", json!(["*"])));
        assert!(allowed("skills.allow", json!([])));
        assert!(allowed("skills.ask", json!(["*"])));
        assert!(!allowed_over(json!(["Mail.*"]), "skills.ask", json!([])));
        assert!(!allowed("skills.max_calls", json!(1_000_000)));
        assert!(!allowed("skills.sandbox.deno_path", json!("./deno")));
        assert!(!allowed("skills.sandbox.directory", json!("./pyodide")));
        assert!(!allowed("skills.sandbox.blocked_imports", json!([])));
        assert!(allowed("skills.sandbox.timeout_seconds", json!("20s")));
        assert!(allowed("skills.max_calls", json!(1)));
    }

    #[test]
    fn a_project_lets_no_command_run_on_the_machine() {
        let list = "hostExecution.allowList";
        assert!(!allowed(list, json!(["@read-only"])));
        assert!(!allowed("hostExecution.notifyList", json!(["docker restart *"])));
        assert!(allowed_over(json!(["ls *", "df -h"]), list, json!(["df -h"])));
        assert!(!allowed_over(json!(["df -h"]), list, json!(["df -h", "bash *"])));
        assert!(!allowed("hostExecution.enabled", json!(true)));
        assert!(allowed_over(json!(true), "hostExecution.enabled", json!(false)));
        let model = "hostExecution.preValidation.model";
        assert!(!allowed(model, json!("mine/always-zero")));
        assert!(allowed_over(json!("a/b"), model, json!(null)));
        for key in ["baseUrl", "apiKeyEnv", "apiKeyFile", "caFile"] {
            let key = format!("hostExecution.preValidation.{key}");
            assert!(!allowed(&key, json!("HOME")), "{key}");
            assert!(!allowed_over(json!("HOME"), &key, json!(null)), "{key}");
        }
        let threshold = "hostExecution.preValidation.riskThreshold";
        assert!(allowed(threshold, json!(3)));
        assert!(!allowed(threshold, json!(10)));
        assert!(allowed("hostExecution.unknownFloor", json!(7)));
        assert!(!allowed("hostExecution.unknownFloor", json!(0)));
    }

    #[test]
    fn repeating_what_holds_already_is_harmless() {
        for (path, default) in Keys::new().leaves() {
            assert_eq!(
                verdict(&path, &default, &default),
                Verdict::Holds,
                "{}",
                dotted(&path)
            );
        }
    }

    #[test]
    fn every_key_has_been_decided_and_a_new_one_is_refused() {
        let reason = "nobody has decided yet whether it could weaken the fence";
        let other = json!("neither the default nor allowed");
        for (path, default) in Keys::new().leaves() {
            let verdict = verdict(&path, &other, &default);
            for undecided in [Verdict::Refused(reason), Verdict::PassedOver(reason)] {
                assert_ne!(verdict, undecided, "{}", dotted(&path));
            }
        }
        for key in ["sandbox.new", "engine.new", "new.key"] {
            let verdict = verdict(&path(key), &other, &Value::Null);
            assert_eq!(verdict, Verdict::Refused(reason), "{key}");
        }
    }
}
