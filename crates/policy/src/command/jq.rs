//! `jq` and `yq`: filters that compute, and words that open files, show the environment or run other texts.
//!
//! Only `eval`, itself one of these words, can compute a word of the language: a filter without them reads
//! its input and no more. Neither program writes, runs or connects.

use super::analysis::Analysis;
use super::effect::Effect;
use super::options::Scanned;
use crate::shell::Word;

/// Words that open files or show more than the input; words that begin or end with `load` are others
/// (`strload`, `load_str`).
const REFUSED: &[&str] = &[
    "import",
    "include",
    "modulemeta",
    "get_search_list",
    "input_filename",
    "__prog_args",
    "env",
    "ENV",
    "getenv",
    "strenv",
    "envsubst",
    "eval",
    "system",
    "filename",
];

/// Words that people use for fields, and that load nothing.
const LOADED: &[&str] = &["payload", "workload", "upload", "download", "overload", "unload"];

/// Judges `jq`: the first operand is the filter.
pub(super) fn jq(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    if let Some(first) = scanned.operands.first() {
        filter(&args[*first], "jq", analysis);
    }
}

/// Judges `yq`: an operand that could be a filter counts as one.
pub(super) fn yq(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    let names_file = |text: &str| {
        let plain = |sign: char| sign.is_ascii_alphanumeric() || "_-./".contains(sign);
        let ends = [".yaml", ".yml", ".json", ".toml", ".xml", ".csv", ".properties"];
        text.chars().all(plain) && !text.starts_with('.') && ends.iter().any(|end| text.ends_with(end))
    };
    for index in &scanned.operands {
        if !args[*index].literal().is_some_and(|text| names_file(&text)) {
            filter(&args[*index], "yq", analysis);
        }
    }
}

fn filter(word: &Word, title: &str, analysis: &mut Analysis) {
    match word.literal() {
        Some(text) if is_harmless(&text) => {}
        Some(_) => analysis.add(
            Effect::Unknown,
            format!("{title}: the filter may read other files or the environment"),
        ),
        None => analysis.add(
            Effect::Unknown,
            format!("{title}: the filter is not known beforehand"),
        ),
    }
}

/// Returns `true` if the filter has none of the words, except as a field name: `.env`.
fn is_harmless(filter: &str) -> bool {
    let in_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    // A single dot before a word makes it a field.
    let (mut before, mut is_field) = (' ', false);
    let mut rest = filter;
    while let Some(first) = rest.chars().next() {
        if !in_word(first) {
            is_field = first == '.' && before != '.';
            before = first;
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|sign| !in_word(sign)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let loads = word.starts_with("load") || word.ends_with("load") || word.contains("load_");
        let refused = REFUSED.contains(&word) || loads && !LOADED.contains(&word);
        if refused && !is_field {
            return false;
        }
        (before, is_field, rest) = (' ', false, behind);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is_harmless;

    #[test]
    fn filters_that_only_compute_are_told() {
        for filter in [
            ".",
            ".a.b[0]",
            ".items[] | select(.id == 3) | .name",
            ".spec.containers[].env",
            "\"\\(.name)\\t\\(.size)\"",
            "[.[] | {name, size}] | sort_by(.size)",
            ".environment, .important",
            "{id, payload}",
            "..|.load?",
        ] {
            assert!(is_harmless(filter), "{filter}");
        }
        for filter in [
            "env",
            "$ENV.A",
            "env.A",
            "import \"x\" as x; .",
            "import\"x\" as $d; $d",
            "include \"x\"; f",
            ".a|env",
            "{a: $ENV}",
            "load(\"/x\")",
            "load_str(\"/x\")",
            "strload(\"/x\")",
            ".a = xml_load(\"/x\")",
            "propsload(\"/x\")",
            "base64load(\"/x\")",
            "..load(\"/x\")",
            "..env",
            "eval(\"lo\" + \"ad\")",
            "\"\\(env)\"",
            ".a = strenv(A)",
            "system(\"id\")",
            "\"$A\" | envsubst",
        ] {
            assert!(!is_harmless(filter), "{filter}");
        }
    }
}
