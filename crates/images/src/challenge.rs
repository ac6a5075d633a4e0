//! The challenges of registries, and the tokens that answer them.

use std::fmt::Write;

use serde::Deserialize;

use crate::registry_error::RegistryError;

/// Maximum length of a challenge, and of a token.
const MAX_CHALLENGE: usize = 4 * 1024;
const MAX_TOKEN: usize = 12 * 1024;

/// The credentials that a registry wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A token of the server that the challenge names.
    Token(Challenge),
    /// A name and a password.
    Password,
}

impl Wanted {
    /// Reads the values of `WWW-Authenticate`; `None` if none is understood. A token says less of its user than a
    /// password.
    pub(crate) fn read(values: &[&str]) -> Option<Self> {
        let token = values.iter().find_map(|value| Challenge::read(value));
        let is_basic = |value: &&str| {
            let scheme = value.split(' ').next().unwrap_or_default();
            scheme.eq_ignore_ascii_case("basic")
        };
        let password = || values.iter().any(is_basic).then_some(Self::Password);
        token.map(Self::Token).or_else(password)
    }
}

/// A challenge `Bearer realm="…",service="…"`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    realm: String,
    service: Option<String>,
}

impl Challenge {
    /// Reads the value of `WWW-Authenticate`; `None` if it asks for something else than a token.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (scheme, mut rest) = text.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") || text.len() > MAX_CHALLENGE {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        while !rest.trim().is_empty() {
            let (name, after) = rest.split_once('=')?;
            let (value, after) = value(after)?;
            match name.trim().to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                // The scope is what we ask for, not what the registry would like us to.
                _ => {}
            }
            let after = after.trim_start();
            rest = after.strip_prefix(',').unwrap_or(after);
            if rest == after && !rest.is_empty() {
                return None;
            }
        }
        Some(Self {
            realm: realm?,
            service,
        })
    }

    /// Returns the URL of a token that allows to pull `name`.
    pub(crate) fn url(&self, name: &str) -> String {
        let separator = if self.realm.contains('?') { '&' } else { '?' };
        format!("{}{separator}{}", self.realm, self.asked(name))
    }

    /// Returns the URL of the token server.
    pub(crate) fn realm(&self) -> &str {
        &self.realm
    }

    /// Returns the form that exchanges an identity token for one that allows to pull `name` (OAuth 2.0).
    pub(crate) fn form(&self, name: &str, identity: &str) -> String {
        let asked = self.asked(name);
        let identity = encoded(identity);
        format!("grant_type=refresh_token&client_id=ringfence&{asked}&refresh_token={identity}")
    }

    fn asked(&self, name: &str) -> String {
        let scope = encoded(&format!("repository:{name}:pull"));
        let service = self.service.as_deref().map(encoded);
        let service = service.map_or(String::new(), |service| format!("service={service}&"));
        format!("{service}scope={scope}")
    }
}

/// Reads a quoted or plain value; returns it with the text after it.
fn value(text: &str) -> Option<(String, &str)> {
    match text.trim_start().strip_prefix('"') {
        Some(quoted) => {
            let (value, after) = quoted.split_once('"')?;
            // Nobody escapes in a URL or a name.
            (!value.contains('\\')).then(|| (value.to_owned(), after))
        }
        None => {
            let end = text.find(',').unwrap_or(text.len());
            Some((text[..end].trim().to_owned(), &text[end..]))
        }
    }
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => all.push(char::from(byte)),
            byte => {
                // A string takes everything.
                let _ = write!(all, "%{byte:02X}");
            }
        }
        all
    })
}

/// Reads the answer of a token server.
pub(crate) fn token(body: &[u8]) -> Result<String, RegistryError> {
    #[derive(Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
    }
    let answer: Option<Answer> = serde_json::from_slice(body).ok();
    let token = answer.and_then(|answer| answer.token.or(answer.access_token));
    let is_sound = |token: &String| {
        (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
    };
    token.filter(is_sound).ok_or(RegistryError::Token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_with_bounds() {
        let read = |text: &str| Challenge::read(text).map(|challenge| challenge.url("a/b"));
        let expected = "https://auth.test/t?service=reg.test%3A5000&scope=repository%3Aa%2Fb%3Apull";
        for text in [
            r#"Bearer realm="https://auth.test/t",service="reg.test:5000",scope="repository:other:push""#,
            r#"bearer service=reg.test:5000, realm="https://auth.test/t""#,
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(
            read(r#"Bearer realm="https://auth.test/t?x=1""#).as_deref(),
            Some("https://auth.test/t?x=1&scope=repository%3Aa%2Fb%3Apull")
        );
        let long = format!(r#"Bearer realm="https://{}""#, "a".repeat(5000));
        for text in [
            "",
            "Bearer",
            r#"Basic realm="x""#,
            r#"Bearer service="x""#,
            r#"Bearer realm="x"#,
            r#"Bearer realm="x" service="y""#,
            r#"Bearer realm="x\"y""#,
            &long,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let bearer = r#"Bearer realm="https://auth.test/t""#;
        let basic = r#"basic realm="x""#;
        assert!(matches!(Wanted::read(&[basic, bearer]), Some(Wanted::Token(_))));
        assert_eq!(Wanted::read(&["Bearer", basic]), Some(Wanted::Password));
        assert_eq!(Wanted::read(&["Negotiate", "Basically x"]), None);
    }

    #[test]
    fn a_token_is_one_line_of_bounded_length() {
        assert_eq!(token(br#"{"token": "a.b"}"#).unwrap(), "a.b");
        assert_eq!(token(br#"{"access_token": "c"}"#).unwrap(), "c");
        for body in [
            r#"{}"#.to_owned(),
            "<html>".to_owned(),
            r#"{"token": ""}"#.to_owned(),
            r#"{"token": "a\r\nHost: b"}"#.to_owned(),
            format!(r#"{{"token": "{}"}}"#, "a".repeat(MAX_TOKEN + 1)),
        ] {
            assert!(token(body.as_bytes()).is_err());
        }
    }
}
