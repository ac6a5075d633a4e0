//! The known keys, taken from the serialised default, and validation of single values.

use ringfence_tools::TOOL_NAMES;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::schema::{Config, Server, Template};
use super::suggest;

/// A key's path, in the spelling of the schema.
pub(super) type Path = Vec<String>;

/// The tree of all known keys, with their defaults at the leaves.
#[derive(Debug)]
pub(super) struct Keys {
    defaults: Value,
    template: Value,
    server: Value,
}

/// The meaning of a key within a section.
#[derive(Debug, PartialEq)]
pub(super) enum Child {
    /// A section with further keys.
    Section(String),
    /// A value.
    Leaf(String),
    /// An unknown key, with the path of the likely intended one.
    Unknown(Option<String>),
}

impl Keys {
    /// Builds the tree of known keys from the default configuration.
    #[expect(
        clippy::expect_used,
        reason = "the default is made of plain values; every test loads it"
    )]
    pub(super) fn new() -> Self {
        Self {
            defaults: serde_json::to_value(Config::default())
                .expect("the default configuration is plain data"),
            template: serde_json::to_value(Template::default()).expect("a template is plain data"),
            server: serde_json::to_value(Server::default()).expect("a server is plain data"),
        }
    }

    /// Returns all defaults, as the document that layers are merged into.
    pub(super) fn defaults(&self) -> &Value {
        &self.defaults
    }

    /// Looks up `key`, in either spelling, in the section at `section`.
    pub(super) fn child(&self, section: &[String], key: &str) -> Child {
        let wanted = snake(key);
        let Some(fields) = self.fields(section) else {
            return Child::Unknown(None);
        };
        if let Some((name, node)) = fields.iter().find(|(name, _)| snake(name) == wanted) {
            return if node.is_object() {
                Child::Section(name.clone())
            } else {
                Child::Leaf(name.clone())
            };
        }
        if self.named(section).is_some() {
            return Child::Section(key.to_owned());
        }
        if is_tool_limits(section)
            && let Some(child) = tool_limit(fields, &wanted)
        {
            return child;
        }
        Child::Unknown(self.suggest(section, fields, &wanted))
    }

    /// Returns every known leaf with its default.
    pub(super) fn leaves(&self) -> Vec<(Path, Value)> {
        leaves(&self.defaults)
    }

    fn fields(&self, section: &[String]) -> Option<&Map<String, Value>> {
        let mut node = &self.defaults;
        for (depth, name) in section.iter().enumerate() {
            node = match node.get(name) {
                Some(node) => node,
                None => self.named(&section[..depth])?,
            };
        }
        node.as_object()
    }

    /// Returns the template of a section whose entries have free names.
    fn named(&self, section: &[String]) -> Option<&Value> {
        match section.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["templates"] => Some(&self.template),
            ["skills", "servers"] => Some(&self.server),
            _ => None,
        }
    }

    /// Returns a similarly spelled sibling, else a key of the same name in another section.
    fn suggest(&self, section: &[String], siblings: &Map<String, Value>, wanted: &str) -> Option<String> {
        let names: Vec<String> = siblings.keys().map(|name| snake(name)).collect();
        if let Some(near) = suggest::nearest(wanted, names.iter().map(String::as_str)) {
            let name = siblings.keys().find(|name| snake(name) == near)?;
            return Some(dotted(&[section, std::slice::from_ref(name)].concat()));
        }
        // `token` for `token_file`; a file before a variable.
        let longer = |name: &&String| snake(name).starts_with(&format!("{wanted}_"));
        let mut longer: Vec<&String> = siblings.keys().filter(longer).collect();
        longer.sort_by_key(|name| !snake(name).ends_with("_file"));
        if let Some(name) = longer.first() {
            return Some(dotted(&[section, std::slice::from_ref(*name)].concat()));
        }
        let mut elsewhere: Vec<Path> = self.leaves().into_iter().map(|(path, _)| path).collect();
        // Prefer the section whose keys are set most often.
        elsewhere.sort_by_key(|path| (path[0] != "sandbox", path.len()));
        let mut named = elsewhere.iter().filter(|path| path[0] != "templates");
        named
            .find(|path| path.last().is_some_and(|last| snake(last) == wanted))
            .map(|path| dotted(path))
    }
}

/// Normalises `value` for the key at `path`, or returns why it is invalid.
pub(super) fn normalise(path: &[String], value: &Value) -> Result<Value, String> {
    let mut document = Value::Object(Map::new());
    set(&mut document, path, value.clone());
    let config = Config::deserialize(&document).map_err(|error| plain(&error.to_string(), value))?;
    let document = serde_json::to_value(config).map_err(|error| error.to_string())?;
    Ok(get(&document, path).cloned().unwrap_or(Value::Null))
}

/// Returns the value at `path`.
pub(super) fn get<'a>(document: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(document, |node, name| node.get(name))
}

/// Sets the value at `path`, creating the sections on the way.
pub(super) fn set(document: &mut Value, path: &[String], value: Value) {
    let mut node = document;
    for name in path {
        if !node.is_object() {
            *node = Value::Object(Map::new());
        }
        node = &mut node[name.as_str()];
    }
    *node = value;
}

/// Returns every leaf below `document`.
pub(super) fn leaves(document: &Value) -> Vec<(Path, Value)> {
    fn walk(node: &Value, path: &mut Path, out: &mut Vec<(Path, Value)>) {
        let Value::Object(fields) = node else {
            out.push((path.clone(), node.clone()));
            return;
        };
        for (name, child) in fields {
            path.push(name.clone());
            walk(child, path, out);
            path.pop();
        }
    }
    let mut out = Vec::new();
    walk(document, &mut Vec::new(), &mut out);
    out
}

/// Joins a path, as in `sandbox.memory`.
pub(super) fn dotted(path: &[String]) -> String {
    path.join(".")
}

/// Converts `keepAlive` to `keep_alive`; snake case is unchanged.
pub(super) fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            if !out.is_empty() && !out.ends_with('_') {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

fn is_tool_limits(section: &[String]) -> bool {
    section == TOOL_LIMITS
}

const TOOL_LIMITS: [&str; 2] = ["permissions", "tool_limits"];

/// Looks up the limit of a single tool, `<tool>_timeout_secs`, or suggests the likely one; `None` for another
/// key.
fn tool_limit(fields: &Map<String, Value>, wanted: &str) -> Option<Child> {
    let tool = wanted.strip_suffix(TOOL_LIMIT)?;
    if is_tool_limit(wanted) {
        return Some(Child::Leaf(wanted.to_owned()));
    }
    let others = fields.keys().filter_map(|key| key.strip_suffix(TOOL_LIMIT));
    let near = suggest::nearest(tool, TOOL_NAMES.iter().copied().chain(others));
    let near = near.map(|near| [TOOL_LIMITS[0], TOOL_LIMITS[1], &format!("{near}{TOOL_LIMIT}")].join("."));
    Some(Child::Unknown(near))
}

const TOOL_LIMIT: &str = "_timeout_secs";

/// Returns `true` if a key in snake case is the time limit of an existing tool.
pub(super) fn is_tool_limit(key: &str) -> bool {
    let tool = key.strip_suffix(TOOL_LIMIT);
    tool.is_some_and(|tool| TOOL_NAMES.contains(&tool))
}

/// Makes serde's message about a value of the wrong type readable.
fn plain(message: &str, value: &Value) -> String {
    // The text of `expecting`, which does not have the value.
    if message.starts_with("expected ") && !message.contains(", found ") {
        return format!("{message}, found {value}");
    }
    match message.rsplit_once(", expected ") {
        Some((found, expected)) => {
            let of_type = found.strip_prefix("invalid type: ");
            let of_word = found.strip_prefix("unknown variant ");
            match (of_type, of_word) {
                (Some(found), _) => format!("expected {}, found {found}", named(expected)),
                (None, Some(word)) => format!("{word} is not {expected}"),
                (None, None) => message.to_owned(),
            }
        }
        None => message.to_owned(),
    }
}

/// Names a type of the deserializer for people.
fn named(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "a section",
        "a string" => "a text",
        "a boolean" => "`true` or `false`",
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(section: &str, key: &str) -> Child {
        let section: Path = section
            .split('.')
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect();
        Keys::new().child(&section, key)
    }
    fn leaf(name: &str) -> Child {
        Child::Leaf(name.to_owned())
    }
    fn suggested(key: &str) -> Child {
        Child::Unknown(Some(key.to_owned()))
    }

    #[test]
    fn both_spellings_name_the_same_key() {
        assert_eq!(
            child("", "code_execution"),
            Child::Section("codeExecution".to_owned())
        );
        assert_eq!(child("codeExecution", "keep_alive"), leaf("keepAlive"));
        assert_eq!(child("codeExecution", "keepAlive"), leaf("keepAlive"));
        assert_eq!(child("sandbox", "maxOutput"), leaf("max_output"));
    }

    #[test]
    fn unknown_keys_are_met_with_a_suggestion() {
        assert_eq!(child("sandbox", "memry"), suggested("sandbox.memory"));
        assert_eq!(child("", "sandbx"), suggested("sandbox"));
        assert_eq!(
            child("", "block_dangerous_imports"),
            suggested("sandbox.block_dangerous_imports")
        );
        assert_eq!(
            child("hostExecution", "allowLst"),
            suggested("hostExecution.allowList")
        );
        assert_eq!(
            child("gateway.telegram", "token"),
            suggested("gateway.telegram.token_file")
        );
        assert_eq!(child("sandbox", "frobnicate"), Child::Unknown(None));
    }

    #[test]
    fn a_value_of_another_type_is_named_for_people() {
        let check = |key: &str, value: Value, expected: &str| {
            let path: Path = key.split('.').map(str::to_owned).collect();
            assert_eq!(normalise(&path, &value).unwrap_err(), expected);
        };
        check(
            "egress.allowed_hosts",
            "a.test".into(),
            "expected a list, found string \"a.test\"",
        );
        check(
            "gateway.telegram.users",
            vec!["x"].into(),
            "expected a whole number, found string \"x\"",
        );
    }

    #[test]
    fn free_names_are_accepted_only_where_they_belong() {
        assert_eq!(
            child("permissions.tool_limits", "sandbox_exec_timeout_secs"),
            leaf("sandbox_exec_timeout_secs")
        );
        assert_eq!(
            child("permissions.tool_limits", "sandboxExecTimeoutSecs"),
            leaf("sandbox_exec_timeout_secs")
        );
        assert!(matches!(
            child("permissions.tool_limits", "_timeout_secs"),
            Child::Unknown(_)
        ));
        assert_eq!(child("templates", "mine"), Child::Section("mine".to_owned()));
        assert_eq!(child("templates.mine", "memoryLimit"), leaf("memory_limit"));
        assert_eq!(
            child("skills.servers", "My-one"),
            Child::Section("My-one".to_owned())
        );
        assert_eq!(child("skills.servers.My-one", "command"), leaf("command"));
        assert_eq!(
            child("templates.mine", "memory_limt"),
            suggested("templates.mine.memory_limit")
        );
    }

    #[test]
    fn the_default_reads_back_as_itself() {
        let keys = Keys::new();
        assert_eq!(Config::deserialize(keys.defaults()).unwrap(), Config::default());
        for (path, value) in keys.leaves() {
            assert_eq!(normalise(&path, &value), Ok(value), "{}", dotted(&path));
        }
    }
}
