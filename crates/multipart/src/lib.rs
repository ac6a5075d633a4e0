//! Bodies of `multipart/form-data` (RFC 7578), of which nothing is believed.
//!
//! - [`Form`]: a body that is there as a whole.
//! - [`boundary`] and [`PartHead`]: what a parser of a body that arrives in pieces needs.
#![forbid(unsafe_code)]

use memchr::memmem::find;

/// Maximum number of parts.
const MAX_PARTS: usize = 400;

/// Maximum length of a part's headers, in bytes.
pub const MAX_HEAD: usize = 16 * 1024;

/// A form.
#[derive(Debug, PartialEq, Eq)]
pub struct Form<'a> {
    pub parts: Vec<FormPart<'a>>,
}

/// A part of a form.
#[derive(Debug, PartialEq, Eq)]
pub struct FormPart<'a> {
    pub head: PartHead,
    pub content: &'a [u8],
}

/// The headers of a part.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PartHead {
    /// Name of the form's field.
    pub name: String,
    /// Set for a file.
    pub filename: Option<String>,
}

/// An error of parsing a body as a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("the media type names no boundary of 1 to 200 bytes")]
    NoBoundary,
    #[error("the body ends inside of a part")]
    Unfinished,
    #[error("the head of a part has more than 16 KiB")]
    LongHead,
    #[error("a form has at most 400 parts")]
    TooManyParts,
}

impl<'a> Form<'a> {
    /// Parses a body of this media type.
    ///
    /// # Errors
    /// If it is not a form, or too large a one.
    pub fn parse(media_type: &str, body: &'a [u8]) -> Result<Self, FormError> {
        let boundary = boundary(media_type).ok_or(FormError::NoBoundary)?;
        let first = format!("--{boundary}");
        let delimiter = format!("\r\n--{boundary}");
        // What comes before the first delimiter is to be ignored.
        let mut rest = match body.strip_prefix(first.as_bytes()) {
            Some(rest) => rest,
            None => split_at_mark(body, delimiter.as_bytes())?.1,
        };
        let mut parts = Vec::new();
        while !rest.starts_with(b"--") {
            if parts.len() == MAX_PARTS {
                return Err(FormError::TooManyParts);
            }
            let (head, content) = split_at_mark(rest, b"\r\n\r\n")?;
            if head.len() > MAX_HEAD {
                return Err(FormError::LongHead);
            }
            let (content, next) = split_at_mark(content, delimiter.as_bytes())?;
            let head = PartHead::parse(&String::from_utf8_lossy(head));
            parts.push(FormPart { head, content });
            rest = next;
        }
        Ok(Self { parts })
    }
}

/// Splits bytes at a mark, which is in neither part.
fn split_at_mark<'a>(bytes: &'a [u8], mark: &[u8]) -> Result<(&'a [u8], &'a [u8]), FormError> {
    let at = find(bytes, mark).ok_or(FormError::Unfinished)?;
    Ok((&bytes[..at], &bytes[at + mark.len()..]))
}

/// Returns the boundary that a media type names, of 1 to 200 bytes.
pub fn boundary(media_type: &str) -> Option<String> {
    parameter(media_type, "boundary").filter(|boundary| (1..=200).contains(&boundary.len()))
}

impl PartHead {
    /// Parses the headers of a part.
    pub fn parse(head: &str) -> Self {
        let lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
        let mut dispositions =
            lines.filter(|(name, _)| name.trim().eq_ignore_ascii_case("content-disposition"));
        let value = dispositions.next().map_or("", |(_, value)| value);
        Self {
            name: parameter(value, "name").unwrap_or_default(),
            filename: parameter(value, "filename"),
        }
    }
}

/// Returns a parameter of a header's value, such as `form-data; name="file"; filename="a b"`. Browsers and clients write quotes and line
/// breaks in names as `%22`, `%0D` and `%0A`, or quotes as `\"`.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once(';') {
        let (name, after) = after.split_once('=')?;
        let (text, left) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(text);
        }
        rest = left;
    }
    None
}

/// Returns a quoted text and what follows it.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let (mut text, mut characters) = (String::new(), quoted.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let text = text
                    .replace("%22", "\"")
                    .replace("%0D", "\r")
                    .replace("%0A", "\n");
                return Some((text, &quoted[at + 1..]));
            }
            '\\' => match characters.next()?.1 {
                escaped @ ('"' | '\\') => text.push(escaped),
                other => text.extend(['\\', other]),
            },
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEDIA: &str = "multipart/form-data; boundary=x";

    #[test]
    fn a_form_has_fields_and_files() {
        let body = b"--x\r\nContent-Disposition: form-data; name=\"kind\"\r\n\r\nuser\r\n--x\r\n\
            content-disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".csv\"\r\nContent-Type: text/csv\r\n\r\n1\r\n2\r\n\r\n--x--\r\n";
        let form = Form::parse(MEDIA, body).unwrap();
        let [field, file] = &form.parts[..] else {
            panic!("{form:?}")
        };
        assert_eq!(
            (
                field.head.name.as_str(),
                field.head.filename.as_deref(),
                field.content
            ),
            ("kind", None, &b"user"[..])
        );
        assert_eq!(
            (file.head.filename.as_deref(), file.content),
            (Some("a \"b\".csv"), &b"1\r\n2\r\n"[..])
        );
    }

    #[test]
    fn what_is_no_form_is_refused() {
        let check = |media: &str, body: &[u8], error| assert_eq!(Form::parse(media, body), Err(error));
        check("multipart/form-data", b"", FormError::NoBoundary);
        check(MEDIA, b"", FormError::Unfinished);
        check(MEDIA, b"--x\r\n\r\n\r\na", FormError::Unfinished);
        check(MEDIA, &b"--x\r\n\r\n\r\n".repeat(500), FormError::TooManyParts);
        let long = format!("--x\r\na: {}\r\n\r\n\r\n--x--", "a".repeat(MAX_HEAD));
        check(MEDIA, long.as_bytes(), FormError::LongHead);
        assert_eq!(Form::parse(MEDIA, b"--x--"), Ok(Form { parts: Vec::new() }));
    }
}
