//! Keys of the API, with the rights that each gives.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use ringfence_policy::Scope;

use super::digest::{digest, is_same};
use super::error::ApiError;
use super::extract::Owner;
use super::key_store::{EndKeyError, KeyStore, StoredKey, public_id};
use super::rights::Right;
use super::tenant::{Account, Allowance, FIXED, OWNER, scope_of};
use crate::questions::Reach;
use crate::remains::Remains;

/// The rights of a client whose credential was right.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    rights: Vec<Right>,
    /// Name of the credential in the audit log; no part of a secret.
    pub(super) client: String,
    /// Account that its use of the server counts against, and its quota.
    pub(super) allowance: Allowance,
    holder: Holder,
}

/// The holder of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// The server's own user.
    Owner,
    Key,
}

impl Grant {
    /// The server's own user, over its private socket.
    pub(super) fn of_owner() -> Self {
        Self {
            rights: Right::ALL.to_vec(),
            client: OWNER.to_owned(),
            allowance: Allowance::of_client(OWNER),
            holder: Holder::Owner,
        }
    }

    /// Rights of the fixed key, which cannot be revoked without a restart: it neither asks nor answers.
    pub(super) fn of_fixed() -> Self {
        Self {
            rights: vec![Right::Run, Right::Sandboxes],
            client: FIXED.to_owned(),
            allowance: Allowance::of_client(FIXED),
            holder: Holder::Key,
        }
    }

    /// Returns `true` for the server's own user.
    pub(super) fn is_owner(&self) -> bool {
        self.holder == Holder::Owner
    }

    /// Returns the scope of what the holder makes: apart from that of the server's user, and of other keys.
    pub(super) fn scope(&self) -> Option<Scope> {
        scope_of(&self.allowance.account)
    }

    /// Returns the records of people's and programs' doings that the holder may see: with the right `admin` all, else those of its own
    /// scope.
    pub(super) fn reach(&self) -> Result<Reach, ApiError> {
        match self.has(Right::Admin) {
            true => Ok(Reach::All),
            false => Owner::default().scope(self).map(Reach::Of),
        }
    }

    /// Returns one of its rights.
    pub(super) fn first_right(&self) -> Right {
        // No key is without a right.
        self.rights.first().copied().unwrap_or(Right::Admin)
    }

    pub(super) fn has(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }
}

/// The keys that the server accepts.
#[derive(Debug)]
pub struct ApiKeys {
    fixed: Option<Known>,
    /// Id of the stored key that was to be the fixed one.
    of_store: Option<String>,
    store: KeyStore,
    /// Files that the runs of keys leave; `None` if none are kept.
    remains: Option<Arc<Remains>>,
}

/// A key, of which only the digest is kept.
#[derive(Debug)]
struct Known {
    digest: String,
    grant: Arc<Grant>,
    strength: Strength,
}

/// The strength of the key that the operator chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strength {
    /// Nobody guesses it.
    Strong,
    /// Short, or of few characters: a peer that may be guessing is refused.
    Weak,
}

impl Strength {
    fn of(key: &str) -> Self {
        let distinct: BTreeSet<char> = key.chars().collect();
        match key.chars().count() >= 24 && distinct.len() >= 8 {
            true => Self::Strong,
            false => Self::Weak,
        }
    }
}

/// The conduct of a peer, as far as it has shown wrong keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conduct {
    Usual,
    /// The peer has shown so many that it may be guessing.
    Guessing,
}

impl ApiKeys {
    /// Creates the keys: at most one fixed key, and those of a store. A key of the store's form is none but the store's: its rights,
    /// its quotas and its end hold wherever it comes from.
    pub fn new(fixed: Option<&str>, store: KeyStore) -> Self {
        let of_store = fixed.map(public_id).filter(|id| Some(&**id) != fixed);
        let fixed = fixed.filter(|_| of_store.is_none());
        let fixed = fixed.map(|key| Known {
            digest: digest(key),
            grant: Arc::new(Grant::of_fixed()),
            strength: Strength::of(key),
        });
        Self {
            fixed,
            of_store: of_store.map(Cow::into_owned),
            store,
            remains: None,
        }
    }

    /// Sets what is removed with the last key of an account.
    #[must_use]
    pub fn with_remains(self, remains: Arc<Remains>) -> Self {
        Self {
            remains: Some(remains),
            ..self
        }
    }

    /// Returns the accounts of all keys, by the scope of what they make.
    pub(super) fn accounts(&self) -> Result<BTreeMap<Scope, Account>, EndKeyError> {
        let stored = self.store.list()?;
        let accounts = stored.iter().map(Account::of).chain([Account::fixed()]);
        Ok(accounts
            .filter_map(|account| Some((scope_of(&account)?, account)))
            .collect())
    }

    pub(super) const fn remains(&self) -> Option<&Arc<Remains>> {
        self.remains.as_ref()
    }

    /// Returns a warning for the operator about the key that was to be the fixed one.
    pub fn warning(&self) -> Option<String> {
        match &self.of_store {
            Some(id) => Some(format!(
                "{FIXED} is the key {id} of `ringfence keys create`: it has the rights and quotas of that key, and ends with it"
            )),
            None => self.has_weak_key().then(|| {
                format!(
                    "{FIXED} can be guessed, so peers with many wrong keys are refused for a minute: take 24 random characters or \
                     more, such as `e2b_$(openssl rand -hex 20)`, or `ringfence keys create`"
                )
            }),
        }
    }

    /// Returns `true` if the fixed key is so short, or of so few characters, that it can be guessed.
    pub(super) fn has_weak_key(&self) -> bool {
        let fixed = self.fixed.as_ref();
        fixed.is_some_and(|fixed| fixed.strength == Strength::Weak)
    }

    pub(super) const fn store(&self) -> &KeyStore {
        &self.store
    }

    /// Returns `true` if the credential of this client can be revoked or expire while the server runs.
    pub(super) fn can_end(client: &str) -> bool {
        client != OWNER && client != FIXED
    }

    /// Returns the allowance of the client of this name.
    pub(super) fn allowance_of(&self, client: &str) -> Allowance {
        let stored = self.store.find_by_id(client);
        stored.map_or_else(|| Allowance::of_client(client), |stored| Allowance::of(&stored))
    }

    /// Returns `true` while the credential of this client has a right: until it is revoked or expires.
    pub(super) fn still_has(&self, client: &str, right: Right) -> bool {
        match client {
            OWNER => true,
            FIXED => self.fixed.as_ref().is_some_and(|known| known.grant.has(right)),
            id => {
                let stored = self.store.find_by_id(id);
                stored.is_some_and(|stored| Vec::from(stored.rights).contains(&right))
            }
        }
    }

    /// Returns `true` once the credential of this client has lost a right for good. While it cannot be read for want of
    /// descriptors or memory it has not: whoever uses all of them would end what every key has open.
    pub(super) fn has_lost(&self, client: &str, right: Right) -> bool {
        match client {
            OWNER | FIXED => !self.still_has(client, right),
            id => has_lost(self.store.look_up(id), right),
        }
    }

    /// Returns the rights of a key; `None` if it is unknown, revoked or expired. The store is asked for each request,
    /// so that a revocation holds for the next.
    pub(super) fn find(&self, key: &str, conduct: Conduct) -> Option<Arc<Grant>> {
        // Stored keys are random: whoever guesses finds none, and is not slowed.
        let is_refused = |fixed: &Known| (fixed.strength, conduct) == (Strength::Weak, Conduct::Guessing);
        if let Some(fixed) = &self.fixed
            && !is_refused(fixed)
            && is_same(&fixed.digest, &digest(key))
        {
            return Some(Arc::clone(&fixed.grant));
        }
        let stored = self.store.find(key)?;
        Some(Arc::new(Grant {
            allowance: Allowance::of(&stored),
            rights: stored.rights.into(),
            client: stored.id,
            holder: Holder::Key,
        }))
    }
}

fn has_lost(read: io::Result<Option<StoredKey>>, right: Right) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match read {
        Ok(stored) => !stored.is_some_and(|stored| Vec::from(stored.rights).contains(&right)),
        Err(error) => !matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_key_runs_and_neither_asks_nor_answers() {
        let store = || KeyStore::below(std::path::Path::new("/nonexistent"));
        let keys = ApiKeys::new(Some("of any form"), store());
        let grant = keys.find("of any form", Conduct::Usual).unwrap();
        let has = Right::ALL.iter().filter(|right| grant.has(**right));
        let has: Vec<_> = has.map(|right| right.as_str()).collect();
        assert_eq!(has, ["run", "sandboxes"]);
        for other in ["", "of any for", "of any form ", "Of any form"] {
            assert!(keys.find(other, Conduct::Usual).is_none(), "{other}");
        }
        assert!(ApiKeys::new(None, store()).find("", Conduct::Usual).is_none());
        // One of the store may have been revoked, or removed.
        let of_store = format!("rf_{}_{}", "0".repeat(8), "1".repeat(48));
        let keys_of_store = ApiKeys::new(Some(&of_store), store());
        assert!(keys_of_store.find(&of_store, Conduct::Usual).is_none());
        assert!(keys_of_store.warning().unwrap().contains("rf_00000000 of"));
        // Whoever may be guessing does not find it, unless nobody could.
        assert!(keys.has_weak_key() && keys.find("of any form", Conduct::Guessing).is_none());
        let key = format!("e2b_{}", "0123456789abcdef".repeat(2));
        let keys_of_all = ApiKeys::new(Some(&key), store());
        assert!(!keys_of_all.has_weak_key() && keys_of_all.find(&key, Conduct::Guessing).is_some());
        assert!(ApiKeys::new(Some(&"a".repeat(40)), store()).has_weak_key());
        assert!(!format!("{keys:?}").contains("any form"));
    }

    #[test]
    fn a_key_is_not_lost_for_want_of_descriptors() {
        let check = |code: i32, expected: bool| {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(has_lost(Err(error), Right::Run), expected, "{code}");
        };
        // EMFILE and ENFILE; EACCES and EIO.
        check(24, false);
        check(23, false);
        check(13, true);
        check(5, true);
        assert!(has_lost(Ok(None), Right::Run));
    }
}
