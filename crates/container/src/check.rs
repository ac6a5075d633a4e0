//! Checks the bytes of every request to an engine against a list of permitted requests and fields.
//!
//! The types of a specification cannot express privilege. This is a second, independent check: it knows
//! nothing of those types, permits the requests and fields that it lists, and rejects everything else.

use std::path::{Component, Path};

use hyper::Method;
use serde_json::{Map, Value};

use super::binds;
use super::spec::name::PREFIX;

/// Rejection of a request that was about to be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refusing to ask the container engine for {0}")]
pub struct Refusal(String);

/// The permitted body of a request.
#[derive(Clone, Copy)]
enum Body {
    Nothing,
    /// A container create request.
    Container,
    /// A volume create request.
    Volume,
    /// An exec create request.
    Exec,
    /// An exec start request.
    Start,
    /// A tar archive.
    Stream,
}

/// Every permitted request; `*` matches one path segment.
const REQUESTS: &[(Method, &str, Body)] = &[
    (Method::GET, "version", Body::Nothing),
    (Method::GET, "info", Body::Nothing),
    (Method::GET, "_ping", Body::Nothing),
    (Method::GET, "events", Body::Nothing),
    (Method::GET, "containers/json", Body::Nothing),
    (Method::GET, "containers/*/json", Body::Nothing),
    (Method::GET, "containers/*/logs", Body::Nothing),
    (Method::GET, "containers/*/stats", Body::Nothing),
    (Method::POST, "containers/create", Body::Container),
    (Method::POST, "containers/*/start", Body::Nothing),
    (Method::POST, "containers/*/stop", Body::Nothing),
    (Method::POST, "containers/*/kill", Body::Nothing),
    (Method::POST, "containers/*/pause", Body::Nothing),
    (Method::POST, "containers/*/unpause", Body::Nothing),
    (Method::POST, "containers/*/attach", Body::Nothing),
    (Method::POST, "containers/*/wait", Body::Nothing),
    (Method::POST, "containers/*/exec", Body::Exec),
    (Method::DELETE, "containers/*", Body::Nothing),
    (Method::POST, "exec/*/start", Body::Start),
    (Method::GET, "exec/*/json", Body::Nothing),
    (Method::GET, "volumes", Body::Nothing),
    (Method::POST, "volumes/create", Body::Volume),
    (Method::DELETE, "volumes/*", Body::Nothing),
    (Method::GET, "images/*/json", Body::Nothing),
    (Method::POST, "images/create", Body::Stream),
    (Method::POST, "build", Body::Stream),
];

/// Checks a request.
///
/// # Errors
/// If the request, or a field of its body, is not permitted.
pub(super) fn request(method: &Method, path: &str, body: &[u8]) -> Result<(), Refusal> {
    let object = || match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(refusal("a body that is not a JSON object")),
    };
    match listed(method, path)? {
        Body::Nothing | Body::Stream if body.is_empty() => Ok(()),
        Body::Nothing | Body::Stream => Err(refusal("a body where none belongs")),
        Body::Container => container(&object()?),
        Body::Volume => fields("", &object()?, VOLUME),
        Body::Exec => fields("", &object()?, EXEC),
        Body::Start => fields("", &object()?, START),
    }
}

/// Checks a request whose body is an archive.
pub(super) fn streamed(method: &Method, path: &str) -> Result<(), Refusal> {
    match listed(method, path)? {
        Body::Stream => Ok(()),
        Body::Nothing | Body::Container | Body::Volume | Body::Exec | Body::Start => {
            Err(refusal("a stream where none belongs"))
        }
    }
}

/// Returns the permitted body of a listed request. The first segment of the path is the API version.
fn listed(method: &Method, path: &str) -> Result<Body, Refusal> {
    let parts: Vec<&str> = path.split('/').skip(2).collect();
    let matches = |pattern: &str| {
        let pattern: Vec<&str> = pattern.split('/').collect();
        let name = |part: &str| !part.is_empty() && part != "." && part != "..";
        let fits = |(wanted, found): (&&str, &&str)| wanted == found || *wanted == "*" && name(found);
        pattern.len() == parts.len() && pattern.iter().zip(&parts).all(fits)
    };
    let image = || parts.first() == Some(&"images") && parts.last() == Some(&"json") && method == Method::GET;
    REQUESTS
        .iter()
        .find(|(known, pattern, _)| known == method && matches(pattern))
        .map(|(.., body)| *body)
        // Image names contain slashes.
        .or_else(|| image().then_some(Body::Nothing))
        .ok_or_else(|| refusal(format!("`{method} {path}`")))
}

fn refusal(what: impl Into<String>) -> Refusal {
    Refusal(what.into())
}

#[derive(Clone, Copy, PartialEq)]
enum Need {
    Must,
    May,
}
use Need::{May, Must};

/// A field, its presence, and a predicate for its harmless values.
type Field = (&'static str, Need, fn(&Value) -> bool);

const CONTAINER: &[Field] = &[
    ("Image", Must, text),
    ("Cmd", May, texts),
    ("Entrypoint", May, texts),
    ("Env", May, texts),
    ("WorkingDir", May, text),
    ("Hostname", May, text),
    ("User", Must, numeric_user),
    ("Labels", Must, Value::is_object),
    ("AttachStdin", May, Value::is_boolean),
    ("AttachStdout", May, Value::is_boolean),
    ("AttachStderr", May, Value::is_boolean),
    ("OpenStdin", May, Value::is_boolean),
    ("StdinOnce", May, Value::is_boolean),
    ("Healthcheck", Must, |v| {
        *v == serde_json::json!({"Test": ["NONE"]})
    }),
    ("HostConfig", Must, Value::is_object),
];

const HOST_CONFIG: &[Field] = &[
    ("CapDrop", Must, |v| *v == serde_json::json!(["ALL"])),
    ("SecurityOpt", Must, security),
    ("ReadonlyRootfs", Must, |v| *v == true),
    ("NetworkMode", Must, |v| one_of(v, &["none", "bridge"])),
    ("IpcMode", Must, |v| one_of(v, &["private", "none"])),
    ("CgroupnsMode", Must, |v| one_of(v, &["private"])),
    ("Memory", Must, positive),
    ("MemorySwap", Must, positive),
    ("NanoCpus", Must, positive),
    ("PidsLimit", Must, positive),
    ("LogConfig", Must, log),
    ("Init", May, Value::is_boolean),
    ("Ulimits", May, Value::is_array),
    ("Tmpfs", May, tmpfs),
    ("Mounts", May, mounts),
    ("ShmSize", May, positive),
    ("OomScoreAdj", May, |v| v.as_i64().is_some_and(|n| n >= 0)),
    ("Runtime", May, |v| one_of(v, &["runc", "crun", "runsc"])),
];

const MOUNT: &[Field] = &[
    ("Type", Must, |v| one_of(v, &["bind", "volume"])),
    ("Source", Must, text),
    ("Target", Must, text),
    ("ReadOnly", Must, Value::is_boolean),
    ("BindOptions", May, bind_options),
    ("VolumeOptions", May, |v| {
        *v == serde_json::json!({"NoCopy": true})
    }),
];

const BIND_OPTIONS: &[Field] = &[
    ("Propagation", Must, |v| one_of(v, &["rprivate", "private"])),
    ("NonRecursive", Must, |v| *v == true),
];

// A volume's driver options could name any directory of the host; without options, it has the host's whole
// disk.
const VOLUME: &[Field] = &[
    ("Name", Must, prefixed),
    ("Driver", Must, |v| one_of(v, &["local"])),
    ("DriverOpts", Must, |v| object(v, DRIVER_OPTIONS)),
    ("Labels", Must, Value::is_object),
];

const DRIVER_OPTIONS: &[Field] = &[
    ("type", Must, |v| one_of(v, &["tmpfs"])),
    ("device", Must, |v| one_of(v, &["tmpfs"])),
    ("o", Must, sized),
];

const EXEC: &[Field] = &[
    ("AttachStdin", May, Value::is_boolean),
    ("AttachStdout", May, Value::is_boolean),
    ("AttachStderr", May, Value::is_boolean),
    ("Cmd", Must, texts),
    ("Env", May, texts),
    ("User", May, numeric_user),
    ("WorkingDir", May, text),
];

const START: &[Field] = &[
    ("Detach", May, |v| *v == false),
    ("Tty", May, |v| *v == false),
    ("OutputCapacity", May, Value::is_null),
];

fn container(body: &Map<String, Value>) -> Result<(), Refusal> {
    fields("", body, CONTAINER)?;
    let host = body.get("HostConfig").and_then(Value::as_object);
    let host = host.ok_or_else(|| refusal("a container without a HostConfig"))?;
    fields("HostConfig.", host, HOST_CONFIG)?;
    if host.get("Memory") != host.get("MemorySwap") {
        return Err(refusal("memory beyond its limit, in swap"));
    }
    for mount in host.get("Mounts").and_then(Value::as_array).into_iter().flatten() {
        exposing(mount)?;
    }
    Ok(())
}

/// Checks that every field is listed and harmless, and that required fields are present.
fn fields(within: &str, found: &Map<String, Value>, known: &[Field]) -> Result<(), Refusal> {
    let missing = known
        .iter()
        .find(|(name, need, _)| *need == Must && !found.contains_key(*name));
    if let Some((name, ..)) = missing {
        return Err(refusal(format!("something without `{within}{name}`")));
    }
    for (name, value) in found {
        let harmless = known
            .iter()
            .find(|(known, ..)| known == name)
            .map(|field| field.2);
        match harmless {
            None => return Err(refusal(format!("`{within}{name}`"))),
            Some(harmless) if !harmless(value) => {
                return Err(refusal(format!("`{within}{name}` with that value")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn object(value: &Value, known: &[Field]) -> bool {
    value
        .as_object()
        .is_some_and(|found| fields("", found, known).is_ok())
}

fn text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.contains('\0'))
}

fn texts(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(text))
}

fn one_of(value: &Value, known: &[&str]) -> bool {
    value.as_str().is_some_and(|text| known.contains(&text))
}

fn positive(value: &Value) -> bool {
    value.as_i64().is_some_and(|number| number > 0)
}

fn prefixed(value: &Value) -> bool {
    value.as_str().is_some_and(|name| name.starts_with(PREFIX))
}

/// Accepts `UID:GID`, both numeric: a name would be looked up in a file of the image.
fn numeric_user(value: &Value) -> bool {
    let figures = |text: &str| text.parse::<u32>().is_ok();
    value
        .as_str()
        .and_then(|text| text.split_once(':'))
        .is_some_and(|(uid, gid)| figures(uid) && figures(gid))
}

/// Accepts exactly `no-new-privileges` and one seccomp filter that denies by default.
fn security(value: &Value) -> bool {
    let Some(options) = value.as_array() else {
        return false;
    };
    let filters = options
        .iter()
        .filter_map(|option| option.as_str()?.strip_prefix("seccomp="));
    options.len() == 2
        && options.iter().any(|option| option == "no-new-privileges")
        && filters.map(denies).eq([true])
}

/// Returns `true` if a filter denies by default. Docker takes the filter inline, Podman as the path of a
/// file.
fn denies(filter: &str) -> bool {
    let text = match filter.starts_with('/') {
        true => std::fs::read_to_string(filter).unwrap_or_default(),
        false => filter.to_owned(),
    };
    let profile: Option<Value> = serde_json::from_str(&text).ok();
    let action = profile.as_ref().and_then(|profile| profile.get("defaultAction"));
    action.is_some_and(|action| one_of(action, &["SCMP_ACT_ERRNO", "SCMP_ACT_KILL_PROCESS"]))
}

fn log(value: &Value) -> bool {
    let bounded = |config: &Value| config.get("max-size").is_some_and(text);
    match value.get("Type").and_then(Value::as_str) {
        Some("none") => value.as_object().is_some_and(|fields| fields.len() == 1),
        Some("json-file" | "k8s-file" | "local") => value.get("Config").is_some_and(bounded),
        _ => false,
    }
}

/// Accepts tmpfs mounts, each with a size, `nosuid` and `nodev`.
fn tmpfs(value: &Value) -> bool {
    let bounded = |options: &Value| {
        let options: Vec<&str> = options.as_str().unwrap_or_default().split(',').collect();
        let sized = options.iter().any(|option| option.starts_with("size="));
        sized && options.contains(&"nosuid") && options.contains(&"nodev")
    };
    value
        .as_object()
        .is_some_and(|all| all.keys().all(|path| path.starts_with('/')) && all.values().all(bounded))
}

/// Accepts tmpfs options that bound both bytes and inodes, and nothing else. A limit of 0 would mean
/// unlimited.
fn sized(value: &Value) -> bool {
    let options: Vec<&str> = value.as_str().unwrap_or_default().split(',').collect();
    let bound = |name: &str| {
        let numbers = options.iter().filter_map(|option| option.strip_prefix(name));
        numbers
            .map(|number| number.parse::<u64>().is_ok_and(|number| number > 0))
            .eq([true])
    };
    let plain = ["nosuid", "nodev", "uid=0", "gid=0", "mode=1777"];
    options.len() == 7
        && plain.iter().all(|option| options.contains(option))
        && bound("nr_blocks=")
        && bound("nr_inodes=")
}

fn mounts(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|all| all.iter().all(|mount| object(mount, MOUNT)))
}

fn bind_options(value: &Value) -> bool {
    object(value, BIND_OPTIONS)
}

/// Rejects a mount that exposes a denied path of the host.
fn exposing(mount: &Value) -> Result<(), Refusal> {
    let part = |name: &str| mount.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, source) = (part("Type"), part("Source"));
    if kind == "volume" {
        return match source.strip_prefix(PREFIX) {
            Some(_) if mount.get("BindOptions").is_none() && mount.get("VolumeOptions").is_some() => Ok(()),
            _ => Err(refusal(format!("the volume `{source}`"))),
        };
    }
    let path = Path::new(source);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let bound = mount.get("BindOptions").is_some() && mount.get("VolumeOptions").is_none();
    if !path.is_absolute() || !plain || !bound {
        return Err(refusal(format!("a mount of `{source}`")));
    }
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    // What is mounted there was checked by its own path.
    for path in [path, &resolved]
        .into_iter()
        .filter(|path| !binds::is_attached(path))
    {
        binds::check(path).map_err(|why| refusal(format!("a mount of `{source}`: {why}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
