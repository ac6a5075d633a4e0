//! Line numbers of the keys of a configuration file.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;
use toml::de::DeTable;

/// The line of each key, by its path as written.
pub(super) type Lines = BTreeMap<Vec<String>, usize>;

/// Returns the line of a byte offset.
pub(super) fn at(text: &str, offset: usize) -> usize {
    1 + text
        .as_bytes()
        .iter()
        .take(offset)
        .filter(|&&byte| byte == b'\n')
        .count()
}

/// Returns the lines of a TOML document's keys.
pub(super) fn of_toml(text: &str, table: &DeTable<'_>) -> Lines {
    fn walk(text: &str, table: &DeTable<'_>, path: &mut Vec<String>, lines: &mut Lines) {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            lines.insert(path.clone(), at(text, key.span().start));
            if let Some(table) = value.get_ref().as_table() {
                walk(text, table, path, lines);
            }
            path.pop();
        }
    }
    let mut lines = Lines::new();
    walk(text, table, &mut Vec::new(), &mut lines);
    lines
}

/// Returns the lines of a YAML document's keys, or of a JSON one's, which is YAML in all that matters here.
pub(super) fn of_yaml(text: &str) -> Lines {
    fn walk(
        keys: Vec<(Spanned<String>, Layout<Spanned<String>>)>,
        path: &mut Vec<String>,
        lines: &mut Lines,
    ) {
        for (key, layout) in keys {
            path.push(key.value);
            lines.insert(
                path.clone(),
                usize::try_from(key.referenced.line()).unwrap_or_default(),
            );
            if let Layout::Keys(keys) = layout {
                walk(keys, path, lines);
            }
            path.pop();
        }
    }
    let mut lines = Lines::new();
    if let Ok(Layout::Keys(keys)) = serde_saphyr::from_str(text) {
        walk(keys, &mut Vec::new(), &mut lines);
    }
    lines
}

/// Returns a key that a JSON document sets twice in one section.
pub(super) fn set_twice(json: &str) -> Option<String> {
    fn walk(layout: &Layout<String>) -> Option<String> {
        let Layout::Keys(keys) = layout else { return None };
        let mut names: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
        names.sort_unstable();
        let here = names
            .windows(2)
            .find(|pair| pair[0] == pair[1])
            .map(|pair| pair[0].to_owned());
        here.or_else(|| keys.iter().find_map(|(_, layout)| walk(layout)))
    }
    walk(&serde_json::from_str(json).ok()?)
}

/// A document's keys, without its values.
enum Layout<K> {
    Keys(Vec<(K, Self)>),
    Other,
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Layout<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk(PhantomData))
    }
}

struct Walk<K>(PhantomData<K>);

impl<'de, K: Deserialize<'de>> Visitor<'de> for Walk<K> {
    type Value = Layout<K>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Layout<K>, A::Error> {
        let mut keys = Vec::new();
        while let Some(entry) = map.next_entry()? {
            keys.push(entry);
        }
        Ok(Layout::Keys(keys))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Layout<K>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Layout::Other)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Layout<K>, E> {
        Ok(Layout::Other)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Layout<K>, E> {
        Ok(Layout::Other)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Layout<K>, E> {
        Ok(Layout::Other)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Layout<K>, E> {
        Ok(Layout::Other)
    }
    fn visit_str<E>(self, _: &str) -> Result<Layout<K>, E> {
        Ok(Layout::Other)
    }
    fn visit_unit<E>(self) -> Result<Layout<K>, E> {
        Ok(Layout::Other)
    }
}
