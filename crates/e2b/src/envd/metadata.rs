//! Metadata of files: extended attributes `user.e2b.NAME`, which programs inside see and may set.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use ringfence_sandbox::files::{Entry, MAX_ATTRIBUTES};

use crate::error::Error;

/// Header of an upload that sets one, followed by its name.
const HEADER: &str = "x-metadata-";
/// Prefix of the attributes, after `user.`.
const PREFIX: &str = "e2b.";
/// Maximum length of a name: that of an attribute is at most 255 bytes, `user.e2b.` among them.
const MAX_NAME: usize = 246;

/// Returns the attributes that the headers of an upload ask for.
///
/// # Errors
/// If a name is empty or too long, a value is not printable ASCII, or all are too long together.
pub(super) fn of_upload(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Error> {
    let (mut attributes, mut length) = (BTreeMap::new(), 0);
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix(HEADER) else {
            continue;
        };
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Error::invalid(format!(
                "a name of metadata has from 1 to {MAX_NAME} bytes, and not {}",
                name.len()
            )));
        }
        let text = value.to_str().ok().filter(|text| !text.contains('\t'));
        let text = text.ok_or_else(|| Error::invalid(format!("metadata `{name}` is not printable ASCII")))?;
        let full = format!("{PREFIX}{name}");
        length += full.len() + text.len();
        if attributes.insert(full, text.to_owned()).is_some() {
            return Err(Error::invalid(format!("metadata `{name}` is given twice")));
        }
    }
    match length > MAX_ATTRIBUTES {
        true => Err(Error::invalid(format!(
            "metadata of a file has at most {MAX_ATTRIBUTES} bytes, and not {length}"
        ))),
        false => Ok(attributes),
    }
}

/// Returns the metadata of a file.
pub(super) fn of_entry(entry: &Entry) -> BTreeMap<&str, &str> {
    let all = entry.attributes.iter();
    all.filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value.as_str())))
        .collect()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn upload(pairs: &[(&str, &[u8])]) -> Result<BTreeMap<String, String>, Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        of_upload(&headers)
    }

    #[test]
    fn headers_are_attributes() {
        let found = upload(&[
            ("X-Metadata-Author", b"mish"),
            ("Accept", b"*/*"),
            ("x-metadata-e", b""),
        ]);
        let expected = [("e2b.author", "mish"), ("e2b.e", "")];
        let expected: BTreeMap<_, _> = expected
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(found.ok(), Some(expected));
    }

    #[test]
    fn what_no_attribute_can_be_is_refused() {
        let name = |length| format!("x-metadata-{}", "n".repeat(length));
        assert!(upload(&[(&name(MAX_NAME), b"v")]).is_ok());
        assert!(upload(&[(&name(MAX_NAME + 1), b"v")]).is_err());
        assert!(upload(&[("x-metadata-", b"v")]).is_err());
        for value in [&b"a\tb"[..], b"\xc3\xa9"] {
            assert!(upload(&[("x-metadata-a", value)]).is_err(), "{value:?}");
        }
        assert!(upload(&[("x-metadata-a", b"1"), ("x-metadata-a", b"2")]).is_err());
        let longest = vec![b'v'; MAX_ATTRIBUTES - "e2b.a".len()];
        assert!(upload(&[("x-metadata-a", &longest)]).is_ok());
        assert!(upload(&[("x-metadata-a", &longest), ("x-metadata-b", b"")]).is_err());
    }
}
