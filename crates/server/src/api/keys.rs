//! Keys of the API, with the rights that each gives.

use std::hint::black_box;
use std::sync::Arc;

use ringfence_policy::Scope;
use ringfence_records::audit::Digest;

/// A right of a key: the routes that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    Run,
    Sandboxes,
    Tools,
    Approvals,
    Admin,
}

impl Right {
    /// All rights: those of a peer that is the server's own user.
    const ALL: &[Self] = &[
        Self::Run,
        Self::Sandboxes,
        Self::Tools,
        Self::Approvals,
        Self::Admin,
    ];

    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Sandboxes => "sandboxes",
            Self::Tools => "tools",
            Self::Approvals => "approvals",
            Self::Admin => "admin",
        }
    }
}

/// The rights of a client whose credential was right.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    rights: &'static [Right],
    /// Name of the credential in the audit log; no part of a secret.
    pub(super) client: &'static str,
}

impl Grant {
    /// The server's own user, over its private socket.
    pub(super) const OWNER: Self = Self {
        rights: Right::ALL,
        client: "socket",
    };

    /// Rights of the fixed key, which cannot be revoked without a restart: it neither asks nor answers.
    const FIXED: Self = Self {
        rights: &[Right::Run, Right::Sandboxes],
        client: "RINGFENCE_API_KEY",
    };

    /// Returns `true` for the server's own user.
    pub(super) fn is_owner(&self) -> bool {
        self.client == Self::OWNER.client
    }

    /// Returns the scope of what the holder makes: apart from that of the server's user, and of other keys.
    pub(super) fn scope(&self) -> Scope {
        let name = format!("key.{}", self.client.to_ascii_lowercase());
        name.parse().unwrap_or_else(|_| Scope::local())
    }

    pub(super) fn has(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }
}

/// The keys that the server accepts.
#[derive(Debug, Default)]
pub struct ApiKeys {
    fixed: Option<Known>,
}

/// A key, of which only the digest is kept.
#[derive(Debug)]
struct Known {
    digest: String,
    grant: Arc<Grant>,
}

impl ApiKeys {
    /// Creates the keys: at most one fixed key, of any form.
    pub fn new(fixed: Option<&str>) -> Self {
        let fixed = fixed.map(|key| Known {
            digest: digest(key),
            grant: Arc::new(Grant::FIXED),
        });
        Self { fixed }
    }

    /// Returns the rights of a key; `None` if it is unknown.
    pub(super) fn find(&self, key: &str) -> Option<Arc<Grant>> {
        let given = digest(key);
        let known = self.fixed.as_ref()?;
        is_same(&known.digest, &given).then(|| Arc::clone(&known.grant))
    }
}

fn digest(key: &str) -> String {
    Digest::of(key.as_bytes()).to_string()
}

/// Compares digests in constant time.
fn is_same(ours: &str, theirs: &str) -> bool {
    let pairs = ours.bytes().zip(theirs.bytes());
    let difference = pairs.fold(0, |difference, (ours, theirs)| {
        black_box(difference | (ours ^ theirs))
    });
    ours.len() == theirs.len() && black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_key_runs_and_neither_asks_nor_answers() {
        let keys = ApiKeys::new(Some("of any form"));
        let grant = keys.find("of any form").unwrap();
        let has = Right::ALL.iter().filter(|right| grant.has(**right));
        let has: Vec<_> = has.map(|right| right.as_str()).collect();
        assert_eq!(has, ["run", "sandboxes"]);
        for other in ["", "of any for", "of any form ", "Of any form"] {
            assert!(keys.find(other).is_none(), "{other}");
        }
        assert!(ApiKeys::new(None).find("").is_none());
        assert!(!format!("{keys:?}").contains("any form"));
    }
}
