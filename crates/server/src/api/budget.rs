//! Bounds the bodies of requests, or of answers, that are in memory at once, of each client and of all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{ApiError, Reason};
use super::keys::Grant;
use super::tenant::Account;

/// Maximum size of the bodies of one client: the largest that a route keeps in memory.
pub(super) const MAX_OF_CLIENT: usize = 64 << 20;

/// Maximum size of the bodies of all keys. The server's own user is not among them, and is never locked out.
const MAX_OF_KEYS: usize = 3 * MAX_OF_CLIENT;

/// Size of the bodies that each client may always have, whatever others have.
const OWN: usize = 1 << 20;

/// Bytes of the bodies in memory, by account.
#[derive(Debug, Default)]
pub(super) struct BodyBudget(Mutex<BTreeMap<Account, usize>>);

/// A part of the budget, returned on drop.
#[derive(Debug)]
pub(super) struct BodyShare {
    budget: Arc<BodyBudget>,
    account: Account,
    size: usize,
}

impl BodyBudget {
    /// Takes a body's part before it is read.
    pub(super) fn take(self: &Arc<Self>, grant: &Grant, size: usize) -> Result<BodyShare, ApiError> {
        self.take_for(&grant.allowance.account, size)
    }

    /// Like [`BodyBudget::take`], for an account.
    pub(super) fn take_for(self: &Arc<Self>, account: &Account, size: usize) -> Result<BodyShare, ApiError> {
        self.take_within(account, size, |own, all| {
            let fits = size <= MAX_OF_CLIENT.saturating_sub(own) && size <= MAX_OF_KEYS.saturating_sub(all);
            fits || size <= OWN.saturating_sub(own)
        })
    }

    /// Like [`BodyBudget::take_for`], for what a client is not to lose because of others: whoever has nothing gets it.
    pub(super) fn take_or_first(
        self: &Arc<Self>,
        account: &Account,
        size: usize,
    ) -> Result<BodyShare, ApiError> {
        self.take_within(account, size, |own, all| {
            own == 0 || (size <= MAX_OF_CLIENT.saturating_sub(own) && size <= MAX_OF_KEYS.saturating_sub(all))
        })
    }

    /// Takes a part if it fits, by the sizes of the account's bodies and of those of all keys. No key takes of the owner's.
    fn take_within(
        self: &Arc<Self>,
        account: &Account,
        size: usize,
        fits: impl Fn(usize, usize) -> bool,
    ) -> Result<BodyShare, ApiError> {
        let owner = Grant::of_owner().allowance.account;
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(account).copied().unwrap_or(0);
        let all: usize = taken
            .iter()
            .filter(|(account, _)| **account != owner)
            .map(|(_, size)| size)
            .sum();
        let all = if *account == owner { 0 } else { all };
        if !fits(own, all) {
            return Err(ApiError::new(
                Reason::Busy,
                "other requests and answers use the memory for bodies",
                "send it again after `Retry-After`, fewer large bodies at once, and read answers at once",
            ));
        }
        if size > 0 {
            taken.insert(account.clone(), own + size);
        }
        Ok(BodyShare {
            budget: Arc::clone(self),
            account: account.clone(),
            size,
        })
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        let mut taken = self.budget.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(size) = taken.get_mut(&self.account) {
            *size -= self.size;
            if *size == 0 {
                taken.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tenant::Allowance;

    fn key(client: &str) -> Grant {
        let mut grant = Grant::of_fixed();
        grant.allowance = Allowance::of_client(client);
        grant
    }

    #[test]
    fn a_client_has_its_own_share_and_returns_it() {
        let budget = Arc::new(BodyBudget::default());
        let (one, other) = (key("one"), key("other"));
        let taken = budget.take(&one, MAX_OF_CLIENT - 1).unwrap();
        let last = budget.take(&one, 1).unwrap();
        assert!(budget.take(&one, 1).is_err());
        let empty = budget.take(&one, 0).unwrap();
        assert!(budget.take(&other, MAX_OF_CLIENT).is_ok());
        drop((taken, last, empty));
        assert!(budget.0.lock().unwrap().is_empty());
        assert!(budget.take(&one, MAX_OF_CLIENT).is_ok());
    }

    #[test]
    fn a_client_that_has_nothing_loses_no_answer_to_others() {
        let budget = Arc::new(BodyBudget::default());
        let names = ["one", "two", "three"];
        let _taken = names.map(|name| budget.take(&key(name), MAX_OF_CLIENT).unwrap());
        let four = key("four").allowance.account;
        let first = budget.take_or_first(&four, 1000).unwrap();
        assert!(budget.take_or_first(&four, 1).is_err());
        drop(first);
        assert!(budget.take_or_first(&four, 1).is_ok());
    }

    #[test]
    fn keys_together_lock_nobody_out() {
        let budget = Arc::new(BodyBudget::default());
        let taken = ["one", "two", "three"].map(|name| budget.take(&key(name), MAX_OF_CLIENT).unwrap());
        let small = budget.take(&key("four"), OWN).unwrap();
        assert!(budget.take(&key("four"), 1).is_err());
        assert!(budget.take(&key("five"), OWN + 1).is_err());
        drop(small);
        let owner = budget.take(&Grant::of_owner(), MAX_OF_CLIENT).unwrap();
        drop(taken);
        // What the owner has counts to no key.
        let _again = ["one", "two", "three"].map(|name| budget.take(&key(name), MAX_OF_CLIENT).unwrap());
        drop(owner);
    }
}
