//! Classifies response bodies as text or binary.

use hyper::header::{self, HeaderMap};

/// The body of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Text; invalid UTF-8 is replaced.
    Text(String),
    /// Binary data, not included.
    Binary {
        /// The server's `Content-Type`.
        content_type: Option<String>,
        /// Size; that of the received part if the body was truncated.
        bytes: usize,
    },
}

/// Subtypes that are text, although the type is not `text`.
const TEXT_TYPES: &[&str] = &[
    "json",
    "xml",
    "javascript",
    "x-www-form-urlencoded",
    "yaml",
    "toml",
    "x-ndjson",
];

impl Body {
    /// Classifies a body by its bytes, or else by its declared type. A compressed body is binary: the request
    /// ruled out compression.
    pub(super) fn read(headers: &HeaderMap, bytes: Vec<u8>) -> Self {
        let content_type = headers.get(header::CONTENT_TYPE);
        let content_type = content_type.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let declared = content_type.as_deref().is_some_and(is_text_type);
        let shown =
            !is_packed(headers) && !bytes.contains(&0) && (declared || is_utf8_but_for_its_end(&bytes));
        if shown {
            return Self::Text(String::from_utf8_lossy(&bytes).into_owned());
        }
        Self::Binary {
            content_type,
            bytes: bytes.len(),
        }
    }
}

fn is_packed(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    encodings.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn is_text_type(content_type: &str) -> bool {
    let kind = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let Some((main, sub)) = kind.split_once('/') else {
        return false;
    };
    main == "text"
        || TEXT_TYPES
            .iter()
            .any(|text| sub.split('+').next_back() == Some(text))
}

/// Returns `true` for UTF-8, possibly truncated within a character.
fn is_utf8_but_for_its_end(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &'static str)], bytes: &[u8]) -> Body {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        Body::read(&headers, bytes.to_vec())
    }

    #[test]
    fn shows_text_and_nothing_else() {
        let text = |text: &str| Body::Text(text.to_owned());
        assert_eq!(read(&[], b""), text(""));
        assert_eq!(read(&[], b"hello"), text("hello"));
        assert_eq!(read(&[], b"h\xc3\xa9 \xf0\x9f"), text("h\u{e9} \u{fffd}"));
        assert_eq!(
            read(&[("content-type", "Text/HTML; charset=latin1")], b"h\xe9y"),
            text("h\u{fffd}y")
        );
        assert_eq!(
            read(&[("content-type", "image/svg+xml")], b"<\xff>"),
            text("<\u{fffd}>")
        );
        assert_eq!(read(&[("content-encoding", "Identity")], b"a"), text("a"));
        let binary = |headers: &[(&'static str, &'static str)], bytes: &[u8]| {
            assert!(
                matches!(read(headers, bytes), Body::Binary { .. }),
                "{headers:?} {bytes:?}"
            );
        };
        binary(&[], b"\x89PNG\r\n\x1a\n");
        binary(&[], b"a\0b");
        binary(&[("content-type", "text/plain; charset=utf-16")], b"a\0b\0");
        binary(&[("content-type", "image/png")], b"\xff\xd8");
        binary(
            &[("content-encoding", "gzip"), ("content-type", "text/plain")],
            b"\x1f\x8b",
        );
    }
}
