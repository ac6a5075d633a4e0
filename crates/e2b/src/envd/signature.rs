//! Signed requests for files, which carry no header.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Query, Request};
use serde::Deserialize;

use crate::error::Error;
use crate::token::{Signed, Token, is_same};

/// The signature of a request, with what it covers.
#[derive(Debug)]
pub(crate) struct Signature {
    given: String,
    operation: &'static str,
    query: SignedQuery,
}

#[derive(Debug, Deserialize)]
struct SignedQuery {
    #[serde(default)]
    path: String,
    #[serde(default)]
    username: String,
    signature: Option<String>,
    signature_expiration: Option<String>,
}

impl Signature {
    /// Reads the signature of a request.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn of(request: &Request) -> Result<Self, Error> {
        let query: Query<SignedQuery> =
            Query::try_from_uri(request.uri()).map_err(|rejection| Error::invalid(rejection.body_text()))?;
        let Query(mut query) = query;
        let given = query.signature.take();
        Ok(Self {
            given: given.ok_or_else(|| Error::unauthenticated("missing signature query parameter"))?,
            operation: match request.method().as_str() {
                "POST" => "write",
                _ => "read",
            },
            query,
        })
    }

    /// Returns `true` if the signature was made with this token.
    pub(crate) fn is_by(&self, token: &Token) -> bool {
        let expected = token.signature(&Signed {
            path: &self.query.path,
            operation: self.operation,
            user: &self.query.username,
            expiration: self.query.signature_expiration.as_deref(),
        });
        is_same(&expected, &self.given)
    }

    /// Checks that the signature was made with this token and has not expired.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check(&self, token: &Token) -> Result<(), Error> {
        if !self.is_by(token) {
            return Err(Error::unauthenticated("invalid signature"));
        }
        let Some(expiration) = &self.query.signature_expiration else {
            return Ok(());
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match expiration.parse::<u64>() {
            Ok(expiration) if now.as_secs() <= expiration => Ok(()),
            Ok(_) => Err(Error::unauthenticated("signature is already expired")),
            Err(_) => Err(Error::invalid(
                "expected a number of seconds as `signature_expiration`",
            )),
        }
    }
}
