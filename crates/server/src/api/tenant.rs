//! Tenants: keys that share what they make, and how much of the server they use.

use std::str::FromStr;

use ringfence_policy::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::digest::digest;
use ringfence_policy::Quota;

/// The name of a tenant: 1 to 32 lowercase letters, digits and hyphens, of which the first is a letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Tenant(String);

/// An error returned when parsing a [`Tenant`] from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to 32 lowercase letters, digits and hyphens, of which the first is a letter, got `{0}`")]
pub struct ParseTenantError(String);

impl Tenant {
    /// Maximum length.
    const MAX: usize = 32;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the scope of what keys of the tenant do.
    pub fn scope(&self) -> Option<Scope> {
        scope_of(&Account::of_tenant(self))
    }
}

impl FromStr for Tenant {
    type Err = ParseTenantError;

    fn from_str(text: &str) -> Result<Self, ParseTenantError> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for Tenant {
    type Error = ParseTenantError;

    fn try_from(text: String) -> Result<Self, ParseTenantError> {
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_name = text.len() <= Self::MAX
            && text.bytes().all(is_allowed)
            && text.starts_with(|first: char| first.is_ascii_lowercase());
        match is_name {
            true => Ok(Self(text)),
            false => Err(ParseTenantError(text)),
        }
    }
}

impl From<Tenant> for String {
    fn from(tenant: Tenant) -> Self {
        tenant.0
    }
}

/// Name of the server's own user as a client.
pub(super) const OWNER: &str = "socket";
/// Name of the fixed key as a client.
pub const FIXED: &str = "RINGFENCE_API_KEY";

/// The party that what a key makes and uses belongs to: its tenant, or the key itself if it has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Account(String);

impl Account {
    /// Returns the account of a client without a tenant.
    pub(crate) fn of_client(client: &str) -> Self {
        Self(client.to_owned())
    }

    /// Returns the account of a tenant.
    pub(crate) fn of_tenant(tenant: &Tenant) -> Self {
        // No id of a key has a colon.
        Self(format!("tenant:{}", tenant.as_str()))
    }

    /// Returns the account of the key in the server's environment.
    pub(crate) fn fixed() -> Self {
        Self::of_client(FIXED)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The account that a key's use of the server counts against, with the key's daily quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allowance {
    pub(super) account: Account,
    pub(super) quota: Quota,
}

impl Allowance {
    /// Returns the allowance of a client without a tenant or a quota.
    pub(super) fn of_client(client: &str) -> Self {
        Self {
            account: Account::of_client(client),
            quota: Quota::default(),
        }
    }

    /// Returns the number of sandboxes that the account may have at a time.
    pub(super) fn most_sandboxes(&self) -> Option<usize> {
        let most = self.quota.sandboxes?;
        Some(usize::try_from(most).unwrap_or(usize::MAX))
    }
}

/// Returns the owner of what the clients of an account make, other than the server's user.
pub(crate) fn scope_of(account: &Account) -> Option<Scope> {
    let digits = digest(account.as_str());
    // Of another form than a digest no scope is made, and none is shared.
    let name = digits.get(..32).map(|digits| format!("key-{digits}"));
    name.and_then(|name| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_named_by_letters_digits_and_hyphens() {
        for name in ["a", "team-a", "t2", &"a".repeat(32)] {
            assert_eq!(name.parse::<Tenant>().unwrap().as_str(), name);
        }
        for text in ["", "2a", "-a", "Team", "a b", "a:b", "ä", "rf_1", &"a".repeat(33)] {
            assert!(text.parse::<Tenant>().is_err(), "{text}");
        }
    }
}
