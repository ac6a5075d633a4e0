//! A tool's arguments as the log may show them: without credentials, and short.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::line::{self, Digest};
use crate::redact::{Redactor, is_secret_name};

/// Of one text.
const MAX_TEXT: usize = 4 * 1024;
/// Of all texts together. What surrounds them fits into the rest of a line.
const MAX_ALL: usize = 16 * 1024;
/// Of a command that may run on this machine itself, which is shown whole or does not run.
pub(super) const MAX_COMMAND: usize = 32 * 1024;
/// Values, those within others included.
const MAX_VALUES: usize = 256;
/// Of all texts together, where nothing came of the use.
const MAX_BRIEF: usize = 1024;
/// Values, where nothing came of the use.
const MAX_BRIEF_VALUES: usize = 32;
/// Values within values.
const MAX_DEPTH: usize = 16;
/// A member's name.
const MAX_NAME: usize = 128;
/// No credential that we know of is shorter.
const MIN_SECRET: usize = 6;

/// A tool's arguments without credentials and cut to size, with the digest of the whole.
#[derive(Debug, Clone, Serialize)]
pub struct Arguments {
    #[serde(rename = "arguments")]
    shown: Value,
    #[serde(rename = "arguments_digest")]
    digest: Digest,
    /// Nothing was cut; credentials may have been taken out.
    #[serde(skip)]
    is_whole: bool,
}

impl Arguments {
    /// What the log shows of `arguments`.
    pub fn new(arguments: &Value, redactor: &Redactor) -> Self {
        Self::within((MAX_TEXT, MAX_ALL), arguments, redactor)
    }

    /// What the log shows of the arguments of a command.
    pub(crate) fn of_command(arguments: &Value, redactor: &Redactor) -> Self {
        Self::within((MAX_COMMAND, MAX_COMMAND), arguments, redactor)
    }

    fn within((longest, room): (usize, usize), arguments: &Value, redactor: &Redactor) -> Self {
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

    /// Tells if nothing was cut.
    pub(crate) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// What the log shows.
    pub fn shown(&self) -> &Value {
        &self.shown
    }

    /// The beginning of them, with the digest of the whole: enough of what was refused.
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
    /// The digest of a value, whatever order its members came in.
    pub fn of_value(value: &Value) -> Self {
        Self::of(&serde_json::to_vec(&Sorted(value)).unwrap_or_default())
    }
}

/// A value with the members of its objects by name, whatever order they came in and `serde_json` was built to keep.
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
    /// Takes credentials out; `None` where that is done.
    redactor: Option<&'r Redactor>,
    /// Of one text.
    longest: usize,
    /// Bytes of texts that may still be shown.
    room: usize,
    /// Values that may still be shown.
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
        self.room -= shown.chars().map(line::width).sum::<usize>();
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

/// Whether a member of this name usually holds a secret: also in `camelCase`, and as a header.
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

/// As much of `text` as takes at most `limit` bytes within a line.
pub(super) fn fit(text: &str, limit: usize) -> &str {
    let mut room = limit;
    for (at, c) in text.char_indices() {
        match room.checked_sub(line::width(c)) {
            Some(rest) => room = rest,
            None => return &text[..at],
        }
    }
    text
}

#[cfg(test)]
mod tests;
