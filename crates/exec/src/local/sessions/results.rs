//! Parses the results that a session's interpreter sends beside the text of a value: a guest's bytes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_policy::RichResult;
use ringfence_policy::json::most_values;
use serde_json::Value;

/// Maximum length of all results of an evaluation, encoded. `python/rich.py` has the same bounds.
pub(super) const MAX_RESULTS_BYTES: u32 = (8 << 20) + 64 * 1024;

const MAX_RESULTS: usize = 32;
const MAX_FORMATS: usize = 16;
const MAX_DATUM: usize = 4 << 20;
const MAX_MIME: usize = 100;

/// Maximum number of values and member names in the JSON of all results: parsed, each takes many times its bytes.
const MAX_VALUES: usize = 1 << 18;

/// Maximum nesting of JSON: the whole result must stay below the limit of its parsers, which is 128.
const MAX_DEPTH: usize = 32;

/// The results of an evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RichResults {
    pub results: Vec<RichResult>,
    /// Warnings about data that is missing or incomplete.
    pub warnings: Vec<String>,
    /// Values and member names in the JSON so far, at most.
    values: usize,
}

impl RichResults {
    /// Parses results as `python/rich.py` encodes them. Data that is not of its type is left out, with a
    /// warning. `None`: the encoding is malformed, or a bound is exceeded.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        if bytes.is_empty() {
            return Some(found);
        }
        let mut fields = Fields(bytes);
        let dropped = fields.length()?;
        while !fields.0.is_empty() {
            if found.results.len() == MAX_RESULTS {
                return None;
            }
            let result = found.result(&mut fields)?;
            found.results.push(result);
        }
        if dropped > 0 {
            found.warnings.push(format!(
                "{dropped} more results were left out: an evaluation may have {MAX_RESULTS}"
            ));
        }
        Some(found)
    }

    fn result(&mut self, fields: &mut Fields<'_>) -> Option<RichResult> {
        let main = match fields.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let (mut data, mut omitted) = (BTreeMap::new(), BTreeMap::new());
        let count = usize::from(fields.byte()?);
        if count > MAX_FORMATS {
            return None;
        }
        for _ in 0..count {
            let length = usize::from(fields.byte()?);
            let mime = str::from_utf8(fields.take(length)?).ok()?;
            let format = Format::of(mime)?;
            let completeness = fields.byte()?;
            let length = fields.length()? as usize;
            let value = match completeness {
                WHOLE | SHORTENED if length <= MAX_DATUM => self.value(format, fields.take(length)?),
                OMITTED => None,
                _ => return None,
            };
            let number = self.results.len() + 1;
            let repeated = match value {
                Some(value) => {
                    if completeness == SHORTENED {
                        self.warnings
                            .push(format!("`{mime}` of result {number} was shortened"));
                    }
                    data.insert(mime.to_owned(), value).is_some()
                }
                None => {
                    self.warnings.push(format!(
                        "`{mime}` of result {number} was left out: it is not of its type, larger than 4MiB, or more than 8MiB or \
                         {MAX_VALUES} values with the others"
                    ));
                    omitted.insert(mime.to_owned(), length as u64).is_some()
                }
            };
            if repeated {
                return None;
            }
        }
        Some(RichResult { main, data, omitted })
    }

    /// Returns data as a value; `None` if it is not of its format, or has too many values.
    fn value(&mut self, format: Format, bytes: &[u8]) -> Option<Value> {
        if matches!(format, Format::Json) {
            let values = self.values + most_values(bytes);
            if values > MAX_VALUES {
                return None;
            }
            self.values = values;
        }
        format.value(bytes)
    }
}

const WHOLE: u8 = 0;
const OMITTED: u8 = 1;
const SHORTENED: u8 = 2;

/// The encoding of a MIME type's data in results.
#[derive(Debug, Clone, Copy)]
enum Format {
    Text,
    Json,
    /// Base64; the data begins with this signature.
    Binary(&'static [u8]),
}

impl Format {
    /// Returns the format of a known MIME type, or of JSON of a vendor.
    fn of(mime: &str) -> Option<Self> {
        Some(match mime {
            "text/plain"
            | "text/html"
            | "text/markdown"
            | "text/latex"
            | "image/svg+xml"
            | "application/javascript" => Self::Text,
            "application/json" => Self::Json,
            "image/png" => Self::Binary(b"\x89PNG\r\n\x1a\n"),
            "image/jpeg" => Self::Binary(b"\xff\xd8\xff"),
            "application/pdf" => Self::Binary(b"%PDF-"),
            _ => {
                let name = mime.strip_prefix("application/vnd.")?.strip_suffix("+json")?;
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
                let known = mime.len() <= MAX_MIME && !name.is_empty() && name.bytes().all(plain);
                return known.then_some(Self::Json);
            }
        })
    }

    /// Returns the data as a value; `None` if it is not of this format.
    fn value(self, bytes: &[u8]) -> Option<Value> {
        match self {
            Self::Text => str::from_utf8(bytes).ok().map(Value::from),
            Self::Json => serde_json::from_slice(bytes)
                .ok()
                .filter(|value| is_shallow(value, MAX_DEPTH)),
            Self::Binary(signature) => bytes
                .starts_with(signature)
                .then(|| STANDARD.encode(bytes).into()),
        }
    }
}

fn is_shallow(value: &Value, left: usize) -> bool {
    let inner = |value| left > 0 && is_shallow(value, left - 1);
    match value {
        Value::Array(values) => values.iter().all(inner),
        Value::Object(values) => values.values().all(inner),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// The rest of an encoding.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn length(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(mime: &str, completeness: u8, data: &[u8]) -> Vec<u8> {
        let head = [&[mime.len() as u8], mime.as_bytes(), &[completeness]].concat();
        [&head, &(data.len() as u32).to_le_bytes()[..], data].concat()
    }

    fn encoded(formats: &[Vec<u8>]) -> Vec<u8> {
        [&[0, 0, 0, 0, 1, formats.len() as u8][..], &formats.concat()].concat()
    }

    #[track_caller]
    fn check(mime: &str, data: &[u8], expected: Option<Value>) {
        let bytes = encoded(&[format("text/plain", WHOLE, b"x"), format(mime, WHOLE, data)]);
        let found = RichResults::parse(&bytes).unwrap();
        let [result] = &found.results[..] else {
            panic!("{found:?}")
        };
        assert!(result.main);
        assert_eq!(result.data.get(mime), expected.as_ref());
        let missing = expected.is_none();
        assert_eq!(result.omitted.get(mime), missing.then_some(&(data.len() as u64)));
        assert_eq!(found.warnings.len(), usize::from(missing), "{found:?}");
    }

    #[test]
    fn data_of_its_type_is_kept_and_other_data_named() {
        check("text/html", b"<b>1</b>", Some("<b>1</b>".into()));
        check("text/html", b"\xff", None);
        let png = b"\x89PNG\r\n\x1a\n\0";
        check("image/png", png, Some("iVBORw0KGgoA".into()));
        check("image/png", b"<script>", None);
        check("image/jpeg", png, None);
        check("application/pdf", b"%PDF-1.7", Some("JVBERi0xLjc=".into()));
        check(
            "application/json",
            b"{\"b\": [1, null]}",
            Some(serde_json::json!({"b": [1, null]})),
        );
        check("application/json", b"NaN", None);
        check(
            "application/vnd.plotly.v1+json",
            b"{}",
            Some(serde_json::json!({})),
        );
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let deepest = nested(MAX_DEPTH + 1);
        check(
            "application/json",
            deepest.as_bytes(),
            serde_json::from_str(&deepest).ok(),
        );
        check("application/json", nested(MAX_DEPTH + 2).as_bytes(), None);
        check("application/json", nested(100_000).as_bytes(), None);
    }

    #[test]
    fn what_the_interpreter_left_out_is_told() {
        let mut omitted = format("image/png", OMITTED, b"");
        let end = omitted.len() - 4;
        omitted[end..].copy_from_slice(&5_000_000_u32.to_le_bytes());
        let shortened = format("text/plain", SHORTENED, b"x");
        let mut bytes = encoded(&[omitted, shortened]);
        bytes[0] = 3;
        let found = RichResults::parse(&bytes).unwrap();
        assert_eq!(found.results[0].omitted["image/png"], 5_000_000);
        assert_eq!(found.warnings.len(), 3, "{found:?}");
        assert!(found.warnings[2].starts_with("3 more results"), "{found:?}");
    }

    #[test]
    fn malformed_and_excessive_encodings_are_rejected() {
        let good = encoded(&[format("text/plain", WHOLE, b"x")]);
        assert!(RichResults::parse(&good).is_some());
        for end in 1..good.len() {
            assert_eq!(
                RichResults::parse(&good[..end]),
                if end == 4 {
                    Some(RichResults::default())
                } else {
                    None
                }
            );
        }
        let twice = format("text/plain", WHOLE, b"x");
        let many: Vec<_> = (0..=MAX_FORMATS)
            .map(|n| format(&format!("application/vnd.a{n}+json"), WHOLE, b"1"))
            .collect();
        for bytes in [
            encoded(&[format("text/x-unknown", WHOLE, b"x")]),
            encoded(&[format("application/vnd.a\"b+json", WHOLE, b"1")]),
            encoded(&[format("application/vnd.+json", WHOLE, b"1")]),
            encoded(&[format("text/plain", 3, b"x")]),
            encoded(&[format("text/plain", WHOLE, &vec![b'x'; MAX_DATUM + 1])]),
            encoded(&[twice.clone(), twice]),
            encoded(&many),
            [&[0; 4][..], &[2, 0]].concat(),
            [&[0; 4][..], &[0, 0].repeat(MAX_RESULTS + 1)].concat(),
        ] {
            assert_eq!(RichResults::parse(&bytes), None);
        }
        let most = [&[0; 4][..], &[0, 0].repeat(MAX_RESULTS)].concat();
        assert_eq!(RichResults::parse(&most).unwrap().results.len(), MAX_RESULTS);
    }
}
