//! Tokens of sandboxes, and signatures made with them.

use std::hint::black_box;

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};

/// Length of a token, in random bytes.
const LENGTH: usize = 32;

/// A secret that opens one sandbox.
#[derive(Clone)]
pub(crate) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Generates a token of 256 random bits. `None` if the kernel returns no random bytes.
    pub(crate) fn random() -> Option<Self> {
        let mut bytes = [0; LENGTH];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
        (filled == LENGTH).then(|| Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares in constant time: of digests, so that no length shows.
    pub(crate) fn is(&self, given: &str) -> bool {
        is_same(&self.0, given)
    }

    /// Returns the signature of a request for a file, as E2B's clients make it.
    pub(crate) fn signature(&self, signed: &Signed<'_>) -> String {
        let Signed {
            path,
            operation,
            user,
            expiration,
        } = signed;
        let mut text = format!("{path}:{operation}:{user}:{}", self.0);
        if let Some(expiration) = expiration {
            text.push_str(&format!(":{expiration}"));
        }
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
    }
}

/// The parts of a request that a signature covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed<'a> {
    pub(crate) path: &'a str,
    /// `read` or `write`.
    pub(crate) operation: &'static str,
    pub(crate) user: &'a str,
    pub(crate) expiration: Option<&'a str>,
}

/// Compares texts in constant time.
pub(crate) fn is_same(ours: &str, theirs: &str) -> bool {
    let (ours, theirs) = (Sha256::digest(ours), Sha256::digest(theirs));
    let pairs = ours.iter().zip(theirs.iter());
    let difference = pairs.fold(0, |difference, (ours, theirs)| {
        black_box(difference | (ours ^ theirs))
    });
    black_box(difference) == 0
}

/// Returns the value of a header that is there once, as text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_compare() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.as_str().len(), 64);
        assert!(one.is(one.as_str()) && !one.is(other.as_str()) && !one.is(""));
        assert!(!format!("{one:?}").contains(one.as_str()));
    }

    #[test]
    fn signatures_are_those_of_the_clients() {
        let token = Token("secret".to_owned());
        let signed = Signed {
            path: "/a",
            operation: "read",
            user: "user",
            expiration: None,
        };
        // printf /a:read:user:secret | sha256sum | xxd -r -p | base64 | tr -d =
        assert_eq!(token.signature(&signed), SIGNATURE);
        let expiring = Signed {
            expiration: Some("10"),
            ..signed
        };
        assert_ne!(token.signature(&expiring), SIGNATURE);
    }

    const SIGNATURE: &str = "v1_/8nsfhagrrysjWi5ctOoRYzl/ELsT7BUR7ryFIPSIwY";
}
