//! The headers that pass between visitors and programs.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers of one connection, which end here (RFC 9110, section 7.6.1), with those whose work is done here: the body is framed anew, and
/// the server has sent `100 Continue`.
const OF_A_CONNECTION: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers of requests that are for this server: its tokens, the name of the sandbox, and what only proxies before this one could say.
const OURS: &[&str] = &[
    "e2b-sandbox-id",
    "e2b-sandbox-port",
    "e2b-traffic-access-token",
    "forwarded",
    "x-access-token",
    "true-client-ip",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
];

/// Headers of answers whose effect goes beyond the origin of a program: on cookies of its parent domain, and on where the names lead.
const BEYOND_ITS_ORIGIN: &[&str] = &["alt-svc", "clear-site-data", "set-cookie2"];

/// Changes the headers of a visitor's request to those that a program gets. `host` takes the place of the visitor's `Host`.
pub(super) fn clean_request(headers: &mut HeaderMap, host: Option<&HeaderValue>) {
    end_here(headers);
    for name in OURS {
        headers.remove(*name);
    }
    let visited = headers.get(header::HOST).cloned();
    if let Some(host) = host {
        headers.insert(header::HOST, host.clone());
        headers.extend(visited.map(|visited| (HeaderName::from_static("x-forwarded-host"), visited)));
    }
}

/// Changes the headers of a program's answer to those that its visitor gets. `has_length_only`: its length is that of a body which does
/// not follow.
pub(super) fn clean_answer(headers: &mut HeaderMap, has_length_only: bool) {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let length = lengths
        .next()
        .filter(|_| has_length_only && lengths.next().is_none())
        .filter(|length| !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit));
    let length = length.filter(|length| length.len() <= 18).cloned();
    end_here(headers);
    for name in BEYOND_ITS_ORIGIN {
        headers.remove(*name);
    }
    headers.extend(length.map(|length| (header::CONTENT_LENGTH, length)));
    let cookies = headers.get_all(header::SET_COOKIE).iter();
    let own: Vec<HeaderValue> = cookies
        .filter(|cookie| !names_a_domain(cookie))
        .cloned()
        .collect();
    headers.remove(header::SET_COOKIE);
    for cookie in own {
        headers.append(header::SET_COOKIE, cookie);
    }
}

/// Returns the options in `Connection`, which are names of headers or words.
pub(super) fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::CONNECTION).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn end_here(headers: &mut HeaderMap) {
    let named: Vec<String> = connection_options(headers).map(str::to_owned).collect();
    let named = named
        .iter()
        .map(String::as_str)
        .filter(|name| !name.eq_ignore_ascii_case("host"));
    for name in named.chain(OF_A_CONNECTION.iter().copied()) {
        headers.remove(name);
    }
}

/// Returns `true` if a cookie has the attribute `Domain`: browsers would send it to other sandboxes, and to the API.
fn names_a_domain(cookie: &HeaderValue) -> bool {
    let attributes = cookie.as_bytes().split(|byte| *byte == b';').skip(1);
    let mut names = attributes.filter_map(|attribute| attribute.split(|byte| *byte == b'=').next());
    names.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"domain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let headers = headers.iter();
        headers
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_program_gets_no_header_of_the_connection_or_of_the_server() {
        let mut given = of(&[
            ("host", "8000-a.test"),
            ("connection", "close, X-Own ,host"),
            ("x-own", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("e2b-traffic-access-token", "secret"),
            ("x-access-token", "secret"),
            ("x-forwarded-for", "127.0.0.1"),
            ("authorization", "Bearer of the program"),
            ("cookie", "a=b"),
        ]);
        let mut masked = given.clone();
        clean_request(&mut given, None);
        let kept = [
            ("host", "8000-a.test"),
            ("authorization", "Bearer of the program"),
            ("cookie", "a=b"),
        ];
        assert_eq!(given, of(&kept));
        clean_request(&mut masked, Some(&HeaderValue::from_static("localhost:8000")));
        assert_eq!(masked["host"], "localhost:8000");
        assert_eq!(masked["x-forwarded-host"], "8000-a.test");
    }

    #[test]
    fn a_visitor_gets_cookies_of_the_program_alone() {
        let mut answer = of(&[
            ("set-cookie", "a=domain; Path=/; HttpOnly"),
            ("set-cookie", "b=1; Domain=a.test"),
            ("set-cookie", "c=1;\tDOMAIN =.a.test; Path=/"),
            ("set-cookie", "d=1; domain"),
            ("set-cookie", "domain=1"),
            ("clear-site-data", "\"cookies\""),
            ("connection", "keep-alive"),
            ("content-length", "5"),
        ]);
        clean_answer(&mut answer, false);
        let kept = [
            ("set-cookie", "a=domain; Path=/; HttpOnly"),
            ("set-cookie", "domain=1"),
        ];
        assert_eq!(answer, of(&kept));
        let mut head = of(&[("content-length", "5")]);
        clean_answer(&mut head, true);
        assert_eq!(head, of(&[("content-length", "5")]));
    }
}
