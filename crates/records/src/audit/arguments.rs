//! Redaction and truncation of a tool's arguments for the log.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ringfence_network::redact::{Redactor, is_secret_name};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::digest::Digest;
use super::escape::width;

/// Maximum length of one text.
const MAX_TEXT: usize = 4 * 1024;
/// Maximum length of all texts together. Names and punctuation fit into the rest of a line.
const MAX_ALL: usize = 16 * 1024;
/// Maximum length of a host command, which is recorded whole or does not run.
pub(super) const MAX_COMMAND: usize = 32 * 1024;
/// Maximum number of values, nested ones included.
const MAX_VALUES: usize = 256;
/// Maximum length of all texts together, for a refused use.
const MAX_BRIEF: usize = 1024;
/// Maximum number of values, for a refused use.
const MAX_BRIEF_VALUES: usize = 32;
/// Maximum nesting depth.
const MAX_DEPTH: usize = 16;
/// Maximum length of a member's name.
const MAX_NAME: usize = 128;
/// Minimum length of a credential. No known one is shorter.
const MIN_SECRET: usize = 6;

/// A tool's arguments, redacted and truncated, with the digest of the originals.
#[derive(Debug, Clone, Serialize)]
pub struct Arguments {
    #[serde(rename = "arguments")]
    shown: Value,
    #[serde(rename = "arguments_digest")]
    digest: Digest,
    /// Set if nothing was truncated; credentials may have been redacted.
    #[serde(skip)]
    is_whole: bool,
}

impl Arguments {
    /// Redacts and truncates `arguments`.
    pub fn new(arguments: &Value, redactor: &Redactor) -> Self {
        Self::within(MAX_TEXT, MAX_ALL, arguments, redactor)
    }

    /// Redacts and truncates the arguments of a command.
    pub fn of_command(arguments: &Value, redactor: &Redactor) -> Self {
        Self::within(MAX_COMMAND, MAX_COMMAND, arguments, redactor)
    }

    fn within(longest: usize, room: usize, arguments: &Value, redactor: &Redactor) -> Self {
        let mut walk = Walk {
            redactor: Some(redactor),
            longest,
            room,
            values: MAX_VALUES,
            is_whole: true,
        };
        Self {
            shown: walk.value(arguments, MAX_DEPTH),
            digest: Digest::of_value(arguments),
            is_whole: walk.is_whole,
        }
    }

    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub fn shown(&self) -> &Value {
        &self.shown
    }

    /// Truncates further, for a refused use; the digest stays that of the originals.
    pub(super) fn brief(&self) -> Self {
        let mut walk = Walk {
            redactor: None,
            longest: MAX_TEXT,
            room: MAX_BRIEF,
            values: MAX_BRIEF_VALUES,
            is_whole: self.is_whole,
        };
        Self {
            shown: walk.value(&self.shown, MAX_DEPTH),
            digest: self.digest,
            is_whole: walk.is_whole,
        }
    }
}

impl Digest {
    /// Returns the digest of a value, independent of the order of its members.
    pub fn of_value(value: &Value) -> Self {
        Self::of(&serde_json::to_vec(&Sorted(value)).unwrap_or_default())
    }
}

/// A value that serializes the members of its objects by name, independent of their order and of
/// `serde_json`'s feature `preserve_order`.
struct Sorted<'a>(&'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(list) => serializer.collect_seq(list.iter().map(Sorted)),
            Value::Object(members) => {
                let sorted: BTreeMap<_, _> = members
                    .iter()
                    .map(|(name, value)| (name, Sorted(value)))
                    .collect();
                serializer.collect_map(sorted)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.serialize(serializer)
            }
        }
    }
}

struct Walk<'r> {
    /// `None` if the values are redacted already.
    redactor: Option<&'r Redactor>,
    /// Maximum length of one text.
    longest: usize,
    /// Remaining bytes of text.
    room: usize,
    /// Remaining number of values.
    values: usize,
    is_whole: bool,
}

impl Walk<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Value {
        self.values = self.values.saturating_sub(1);
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
            Value::String(text) => Value::String(self.text(text, self.longest)),
            Value::Array(_) | Value::Object(_) if depth == 0 => {
                self.is_whole = false;
                Value::String("… (too deep)".to_owned())
            }
            Value::Array(list) => Value::Array(self.list(list, depth - 1)),
            Value::Object(members) => Value::Object(self.members(members, depth - 1)),
        }
    }

    fn list(&mut self, list: &[Value], depth: usize) -> Vec<Value> {
        let mut shown = Vec::with_capacity(list.len().min(self.values));
        for (at, value) in list.iter().enumerate() {
            if self.is_full() {
                self.is_whole = false;
                shown.push(Value::String(format!("… ({} more)", list.len() - at)));
                break;
            }
            shown.push(self.value(value, depth));
        }
        shown
    }

    fn members(&mut self, members: &Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut shown = Map::new();
        for (at, (name, value)) in members.iter().enumerate() {
            if self.is_full() {
                self.is_whole = false;
                shown.insert(
                    "…".to_owned(),
                    Value::String(format!("{} more", members.len() - at)),
                );
                break;
            }
            let shown_name = self.text(name, MAX_NAME);
            let value = if is_secret_member(name) && !value.is_null() {
                Value::String(format!("[redacted:{shown_name}]"))
            } else {
                self.value(value, depth)
            };
            shown.insert(shown_name, value);
        }
        shown
    }

    fn text(&mut self, text: &str, limit: usize) -> String {
        let limit = limit.min(self.room);
        let window = &text[..text.floor_char_boundary(limit)];
        let clean = match self.redactor {
            Some(redactor) if window.len() >= MIN_SECRET && window.len() < text.len() => {
                redactor.redact_cut(window, &[])
            }
            Some(redactor) if window.len() >= MIN_SECRET => redactor.redact(window),
            _ => Cow::Borrowed(window),
        };
        let shown = fit(&clean, limit);
        self.room -= shown.chars().map(width).sum::<usize>();
        if window.len() < text.len() || shown.len() < clean.len() {
            self.is_whole = false;
            return format!("{shown}… ({} bytes in all)", text.len());
        }
        shown.to_owned()
    }

    fn is_full(&self) -> bool {
        self.values == 0 || self.room == 0
    }
}

/// Returns `true` if a member of this name usually holds a secret; recognizes `camelCase` and header names.
fn is_secret_member(name: &str) -> bool {
    let mut words = String::with_capacity(name.len() + 4);
    let mut before = '_';
    for c in name.chars().take(MAX_NAME) {
        if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
            words.push('_');
        }
        words.push(if c.is_ascii_alphanumeric() { c } else { '_' });
        before = c;
    }
    is_secret_name(&words) || is_secret_name(name) || words.to_ascii_lowercase().ends_with("authorization")
}

/// Returns the longest prefix of `text` that takes at most `limit` bytes within a line.
pub(super) fn fit(text: &str, limit: usize) -> &str {
    let mut room = limit;
    for (at, c) in text.char_indices() {
        match room.checked_sub(width(c)) {
            Some(rest) => room = rest,
            None => return &text[..at],
        }
    }
    text
}

#[cfg(test)]
mod tests;
