//! Validates requests, and adapts them to redirects.

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use super::error::FetchCause;
use super::url::{ParseUrlError, Scheme, Url};

/// Size limit of a request body.
const MAX_BODY: usize = 1024 * 1024;
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 * 1024;

const METHODS: &[Method] = &[
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

/// Headers that only this client sets. A request that names one is rejected: a contradicting value enables request
/// smuggling.
const OURS: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "http2-settings",
    "te",
    "trailer",
    "expect",
    "accept-encoding",
];

/// Headers that may be sent to another origin after a redirect. An allowlist: an `X-Api-Key` is as secret as
/// an `Authorization`, and the names of secret headers are endless.
const HARMLESS: &[&str] = &[
    "accept",
    "accept-language",
    "content-language",
    "content-type",
    "range",
    "user-agent",
];

/// A valid request.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    pub(super) url: Url,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// An error for an invalid request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The URL is invalid.
    #[error(transparent)]
    Url(#[from] ParseUrlError),
    /// The method is not supported.
    #[error("the method is none of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")]
    Method,
    /// The name or value of the header is invalid.
    #[error("the header `{0}` has an invalid name or value")]
    Header(String),
    /// The header is set by Ringfence.
    #[error("the header `{0}` is set by Ringfence")]
    OurHeader(HeaderName),
    /// The headers are too many or too long.
    #[error("there are more than 64 headers, or more than 16 KiB of them")]
    TooManyHeaders,
    /// The method permits no body.
    #[error("a {0} request has no body")]
    BodyNotAllowed(Method),
    /// The body exceeds the size limit.
    #[error("the body is larger than 1 MiB")]
    BodyTooLarge,
}

impl RequestError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Url(error) => error.hint(),
            Self::Method => "use one of these; GET if in doubt",
            Self::Header(_) => {
                "names are letters, digits and hyphens; values are one line of printable ASCII, with the rest encoded"
            }
            Self::OurHeader(_) => "leave it out; it follows from the URL and the body",
            Self::TooManyHeaders => "send fewer or shorter headers",
            Self::BodyNotAllowed(_) => "leave the body out, or use POST",
            Self::BodyTooLarge => "send it in parts",
        }
    }
}

impl FetchRequest {
    /// Creates a request with these headers, as pairs of name and value, and this body.
    ///
    /// # Errors
    /// If one of the parts is invalid or not permitted.
    pub fn new(
        url: &str,
        method: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<Self, RequestError> {
        let method = method.to_ascii_uppercase();
        let method = METHODS.iter().find(|known| known.as_str() == method);
        let method = method.ok_or(RequestError::Method)?.clone();
        if body.len() > MAX_BODY {
            return Err(RequestError::BodyTooLarge);
        }
        if !body.is_empty() && (method == Method::GET || method == Method::HEAD) {
            return Err(RequestError::BodyNotAllowed(method));
        }
        Ok(Self {
            url: url.parse()?,
            method,
            headers: read_headers(headers)?,
            body: Bytes::from(body),
        })
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn has_body(&self) -> bool {
        !self.body.is_empty()
    }

    /// Returns the request after a redirect (RFC 9110, section 15.4). To another origin it has no credentials.
    ///
    /// # Errors
    /// If the location is not a URL, or leads from https to http.
    pub fn redirected(&self, status: StatusCode, location: &[u8]) -> Result<Self, FetchCause> {
        let location =
            std::str::from_utf8(location).map_err(|_| FetchCause::Redirect(ParseUrlError::Malformed))?;
        let url = self.url.join(location).map_err(FetchCause::Redirect)?;
        if self.url.scheme == Scheme::Https && url.scheme == Scheme::Http {
            return Err(FetchCause::Downgrade);
        }
        let mut next = Self { url, ..self.clone() };
        if !self.url.same_origin(&next.url) {
            next.headers = shared_headers(&self.headers);
        }
        if becomes_get(status, &self.method) {
            next.method = Method::GET;
            next.body = Bytes::new();
            next.headers.remove(header::CONTENT_TYPE);
            next.headers.remove(header::CONTENT_LANGUAGE);
        }
        Ok(next)
    }
}

/// Always for 303; for a POST also after 301 and 302, as all clients do.
fn becomes_get(status: StatusCode, method: &Method) -> bool {
    match status {
        StatusCode::SEE_OTHER => *method != Method::HEAD,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        _ => false,
    }
}

fn shared_headers(headers: &HeaderMap) -> HeaderMap {
    let shared = headers
        .iter()
        .filter(|(name, _)| HARMLESS.contains(&name.as_str()));
    shared
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn read_headers(given: &[(String, String)]) -> Result<HeaderMap, RequestError> {
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if given.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return Err(RequestError::TooManyHeaders);
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let wrong = || RequestError::Header(name.escape_debug().to_string());
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        if OURS.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
            return Err(RequestError::OurHeader(name));
        }
        let ascii = Some(value).filter(|value| value.is_ascii()).ok_or_else(wrong)?;
        let value = HeaderValue::from_str(ascii).map_err(|_| wrong())?;
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Result<FetchRequest, RequestError> {
        let owned: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let body = if matches!(method, "GET" | "HEAD") {
            Vec::new()
        } else {
            b"body".to_vec()
        };
        FetchRequest::new("https://a.test/x", method, &owned, body)
    }

    #[test]
    fn refuses_headers_that_could_split_or_smuggle() {
        for (name, value) in [
            ("a\r\nb", "c"),
            ("a b", "c"),
            ("a:", "c"),
            ("", "c"),
            ("a", "b\r\nHost: evil.test"),
            ("a", "b\nc"),
            ("a", "b\0"),
            ("a", "\u{e9}"),
        ] {
            let refusal = request("GET", &[(name, value)]).unwrap_err();
            assert!(
                matches!(refusal, RequestError::Header(_)),
                "{name:?} {value:?}: {refusal}"
            );
            assert!(!refusal.to_string().contains(char::is_control));
        }
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "connection",
            "Proxy-Authorization",
            "proxy-anything",
            "Upgrade",
            "TE",
            "Expect",
            "Keep-Alive",
            "Accept-Encoding",
        ] {
            let refusal = request("GET", &[(name, "x")]).unwrap_err();
            assert!(matches!(refusal, RequestError::OurHeader(_)), "{name}: {refusal}");
        }
    }

    #[test]
    fn keeps_to_its_bounds() {
        let many: Vec<(&str, &str)> = vec![("a", "b"); 65];
        assert_eq!(request("GET", &many).unwrap_err(), RequestError::TooManyHeaders);
        let long = "x".repeat(17 * 1024);
        assert_eq!(
            request("GET", &[("a", &long)]).unwrap_err(),
            RequestError::TooManyHeaders
        );
        for method in ["CONNECT", "TRACE", "GET / HTTP/1.1\r\n", "", "PROPFIND"] {
            assert_eq!(request(method, &[]).unwrap_err(), RequestError::Method);
        }
        let body = |method: &str, size| {
            let request = FetchRequest::new("http://a.test/", method, &[], vec![0; size]);
            request.map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(body("POST", MAX_BODY), Ok(()));
        assert_eq!(
            body("POST", MAX_BODY + 1),
            Err("the body is larger than 1 MiB".to_owned())
        );
        assert_eq!(body("GET", 1), Err("a GET request has no body".to_owned()));
    }

    fn redirect(method: &str, status: u16, expected: &str) {
        let status = StatusCode::from_u16(status).unwrap();
        let next = request(method, &[]).unwrap().redirected(status, b"/y").unwrap();
        assert_eq!(next.method.as_str(), expected, "{method} {status}");
        assert_eq!(next.body.is_empty(), matches!(expected, "GET" | "HEAD"));
    }

    #[test]
    fn a_redirect_changes_the_method_as_the_standard_says() {
        for status in [301, 302] {
            redirect("POST", status, "GET");
            redirect("PUT", status, "PUT");
            redirect("HEAD", status, "HEAD");
        }
        redirect("POST", 303, "GET");
        redirect("DELETE", 303, "GET");
        redirect("HEAD", 303, "HEAD");
        for status in [307, 308] {
            redirect("POST", status, "POST");
            redirect("GET", status, "GET");
        }
    }

    fn kept(location: &str) -> Vec<String> {
        let headers = [
            ("Authorization", "Bearer x"),
            ("Cookie", "a=b"),
            ("X-Api-Key", "x"),
            ("Accept", "text/plain"),
        ];
        let first = request("GET", &headers).unwrap();
        let next = first.redirected(StatusCode::FOUND, location.as_bytes()).unwrap();
        next.headers.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        assert_eq!(kept("/y").len(), 4);
        assert_eq!(kept("https://a.test:443/y").len(), 4);
        for other in [
            "https://b.test/",
            "https://a.test:8443/",
            "https://www.a.test/",
            "//b.test",
        ] {
            assert_eq!(kept(other), ["accept"], "{other}");
        }
    }

    #[test]
    fn a_redirect_leads_to_no_lesser_scheme() {
        let first = request("GET", &[]).unwrap();
        let next = |location: &str| {
            first
                .redirected(StatusCode::FOUND, location.as_bytes())
                .unwrap_err()
        };
        assert_eq!(next("http://a.test/"), FetchCause::Downgrade);
        assert_eq!(
            next("file:///etc/passwd"),
            FetchCause::Redirect(ParseUrlError::Scheme)
        );
        assert_eq!(
            next("https://u:p@b.test/"),
            FetchCause::Redirect(ParseUrlError::User)
        );
        let odd = first.redirected(StatusCode::FOUND, b"/\xff").unwrap_err();
        assert_eq!(odd, FetchCause::Redirect(ParseUrlError::Malformed));
    }
}
