//! Digests of settings, which decide if two backends run a request alike.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A digest of settings, which a client and its server compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Version of the serialised form. Increase it when a setting changes its meaning but not its name.
    const VERSION: u32 = 1;

    /// Digests settings. `None` if they cannot be serialised, because a path is not UTF-8.
    pub fn of(settings: &impl Serialize) -> Option<Self> {
        let serialised = serde_json::to_vec(&(Self::VERSION, settings)).ok()?;
        let digest = Sha256::digest(serialised);
        Some(Self(digest.iter().map(|byte| format!("{byte:02x}")).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_same_in_every_build() {
        let digest = "a60fed1846479e8cf64318a3eabf2c78a0742bca9922fe53c525b61be93a6dc4";
        let fingerprint = Fingerprint::of(&("/usr/bin/python3", 1)).unwrap();
        assert_eq!(fingerprint, Fingerprint(digest.to_owned()));
        assert_ne!(Some(fingerprint), Fingerprint::of(&("/usr/bin/python3", 2)));
    }
}
