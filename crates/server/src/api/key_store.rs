//! Keys of the API that an operator made, stored one per file, as digests.

use std::borrow::Cow;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_policy::Scope;
use ringfence_policy::timestamp::rfc3339;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::digest::{digest, is_same};
use super::rights::{Right, Rights};
use super::tenant::{Account, Allowance, Tenant, scope_of};
use ringfence_gateway_protocol::visible;
use ringfence_http::random_hex;
use ringfence_policy::Quota;

/// Maximum size of a key's file.
const MAX: u64 = 16 * 1024;

/// Digits of the public part of a key, and of the secret one: 192 bits.
const ID_DIGITS: usize = 8;
const SECRET_DIGITS: usize = 48;

/// Seconds.
const DAY: u64 = 24 * 60 * 60;

/// Start of every key, for scanners of leaked secrets.
const PREFIX: &str = "rf_";

/// Start of a key in the form that E2B's clients take: behind it they want hexadecimal digits alone.
const E2B_PREFIX: &str = "e2b_";

/// Extensions of the files of keys that open something, and of revoked ones.
const IN_FORCE: &str = "json";
const REVOKED: &str = "revoked";

/// Directory of the keys. A revoked one has another file name, by which it opens nothing, whichever server reads it.
#[derive(Debug, Clone)]
pub struct KeyStore {
    directory: PathBuf,
}

/// A key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredKey {
    /// Public part of the key, by which it is revoked.
    pub id: String,
    /// Purpose, in the operator's words.
    pub name: String,
    pub rights: Rights,
    /// SHA-256 of the key.
    digest: String,
    /// Seconds since 1970.
    pub created: u64,
    pub expires: Option<u64>,
    /// The most that it may use a day. An older server does not know it, and opens nothing to the key.
    #[serde(default, skip_serializing_if = "Quota::is_none")]
    pub quota: Quota,
    /// The keys that it shares with what it makes, and how much it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// Set by the name of its file.
    #[serde(skip)]
    pub revoked: bool,
}

/// A key as its operator sees it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShownKey {
    pub id: String,
    /// Its purpose, in the operator's words.
    pub name: String,
    #[schemars(with = "Vec<Right>")]
    pub rights: Rights,
    /// Seconds since 1970.
    pub created: u64,
    /// Seconds since 1970; null if it does not expire.
    pub expires: Option<u64>,
    /// The most that it may use a day.
    pub quota: Quota,
    /// The tenant whose keys share what they make.
    pub tenant: Option<Tenant>,
    pub revoked: bool,
}

/// The reason why a key cannot be revoked or removed.
#[derive(Debug, thiserror::Error)]
pub enum EndKeyError {
    #[error("there is no key `{0}`")]
    Unknown(String),
    #[error("the key `{0}` is neither revoked nor expired")]
    InForce(String),
    #[error("cannot use the stored keys: {0}")]
    Store(#[from] io::Error),
}

/// Returns an id as a message shows it. Of a whole key, which somebody gave instead, the secret is left out.
pub fn shown_id(id: &str) -> String {
    match id_of(id) {
        Some(public) if public != id => format!("{public}…"),
        _ => visible(&id.chars().take(80).collect::<String>()),
    }
}

/// Returns the id in a whole key. Any other text is returned as it is.
pub fn public_id(key: &str) -> Cow<'_, str> {
    let length = match key.starts_with(E2B_PREFIX) {
        true => E2B_PREFIX.len() + ID_DIGITS + SECRET_DIGITS,
        false => PREFIX.len() + ID_DIGITS + 1 + SECRET_DIGITS,
    };
    match id_of(key) {
        Some(id) if key.len() == length => Cow::Owned(id),
        _ => Cow::Borrowed(key),
    }
}

/// Returns the public part at the beginning of a key of either form.
fn id_of(key: &str) -> Option<String> {
    let digits = key
        .strip_prefix(E2B_PREFIX)
        .or_else(|| key.strip_prefix(PREFIX))?;
    let id = format!("{PREFIX}{}", digits.get(..ID_DIGITS)?);
    is_id(&id).then_some(id)
}

impl EndKeyError {
    /// Returns the error of an id that no key has.
    pub(super) fn unknown(id: &str) -> Self {
        Self::Unknown(shown_id(id))
    }

    /// Returns a hint for the operator.
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown(_) => {
                "a key is named by its id, which is the first column of `ringfence keys ls`".to_owned()
            }
            Self::InForce(id) => format!("revoke it first: `ringfence keys revoke {id}`"),
            Self::Store(_) => "check the directory `api-keys` in the state directory".to_owned(),
        }
    }
}

/// Outcome of revoking a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    Now,
    /// The key was revoked before.
    Before,
    /// No key has this id.
    Unknown,
}

/// A key to create.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub name: String,
    pub rights: Rights,
    /// Lifetime; `None` for a key that does not expire.
    pub days: Option<u32>,
    /// The most that it may use a day.
    pub quota: Quota,
    /// The tenant whose key it is; `None` for a key of its own.
    pub tenant: Option<Tenant>,
    pub form: KeyForm,
}

/// The form of a key's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyForm {
    /// `rf_`, the public part and the secret one.
    Own,
    /// The same as E2B's clients take it: `e2b_` and hexadecimal digits.
    E2b,
}

impl StoredKey {
    /// Returns the key as its operator sees it: nothing of it opens anything.
    pub fn shown(self) -> ShownKey {
        let Self {
            id,
            name,
            rights,
            digest: _,
            created,
            expires,
            quota,
            tenant,
            revoked,
        } = self;
        ShownKey {
            id,
            name,
            rights,
            created,
            expires,
            quota,
            tenant,
            revoked,
        }
    }

    /// Renders keys below a header.
    pub fn table(keys: &[Self]) -> String {
        let header = format!(
            "{:<11}  {:<16}  {:<10}  {:<18}  {}\n",
            "ID", "RIGHTS", "CREATED", "STATE", "NAME, QUOTA"
        );
        header + &keys.iter().map(Self::to_line).collect::<String>()
    }

    fn to_line(&self) -> String {
        let now = now();
        let ends = match self.expires {
            _ if self.revoked => "revoked".to_owned(),
            None => "does not expire".to_owned(),
            Some(expires) if expires <= now => "expired".to_owned(),
            Some(expires) => format!("expires in {} days", (expires - now).div_ceil(DAY)),
        };
        let (rights, name) = (self.rights.to_text(), visible(&self.name));
        let tenant = self
            .tenant
            .as_ref()
            .map(|tenant| format!("{}: ", tenant.as_str()));
        let tenant = tenant.unwrap_or_default();
        let quota = self.quota.to_text();
        let created = rfc3339(UNIX_EPOCH + Duration::from_secs(self.created));
        let day = created.split('T').next().unwrap_or_default();
        format!(
            "{}  {rights:<16}  {day}  {ends:<18}  {tenant}{name}{quota}\n",
            self.id
        )
    }

    fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= now())
    }
}

impl Account {
    /// Returns the account of a key.
    pub(crate) fn of(key: &StoredKey) -> Self {
        match &key.tenant {
            Some(tenant) => Self::of_tenant(tenant),
            None => Self::of_client(&key.id),
        }
    }
}

impl Allowance {
    /// Returns the allowance of a key.
    pub(super) fn of(key: &StoredKey) -> Self {
        Self {
            account: Account::of(key),
            quota: key.quota,
        }
    }
}

impl KeyStore {
    /// Returns the keys below a state directory.
    pub fn below(state: &Path) -> Self {
        Self {
            directory: state.join("api-keys"),
        }
    }

    /// Creates a key, which is returned once and stored as a digest.
    ///
    /// # Errors
    /// If the kernel returns no random bytes, or it cannot be stored.
    pub fn create(&self, new: NewKey) -> io::Result<(String, StoredKey)> {
        let (public, secret) = (random_hex(ID_DIGITS)?, random_hex(SECRET_DIGITS)?);
        let id = format!("{PREFIX}{public}");
        let key = match new.form {
            KeyForm::Own => format!("{id}_{secret}"),
            KeyForm::E2b => format!("{E2B_PREFIX}{public}{secret}"),
        };
        let created = now();
        let stored = StoredKey {
            id,
            name: new.name,
            rights: new.rights,
            digest: digest(&key),
            created,
            expires: new.days.map(|days| created + u64::from(days) * DAY),
            quota: new.quota,
            tenant: new.tenant,
            revoked: false,
        };
        // By chance, once in four billion: it would be the owner of what another key has made.
        if self.find_any(&stored.id)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        // Written under another name first: a reader never meets half a key.
        let path = self.path(&stored.id, IN_FORCE);
        let begun = path.with_extension("new");
        let mut file = options.write(true).create_new(true).mode(0o600).open(&begun)?;
        file.write_all(&serde_json::to_vec(&stored)?)?;
        file.sync_all()?;
        fs::rename(begun, path)?;
        Ok((key, stored))
    }

    /// Returns all keys, oldest first. A file that is none is passed over: it opens nothing either.
    ///
    /// # Errors
    /// If the directory or a key cannot be read.
    pub fn list(&self) -> io::Result<Vec<StoredKey>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let ids = entries
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
            .filter(|id| is_id(id));
        let found = ids.filter_map(|id| self.find_any(&id).transpose());
        let mut keys: Vec<StoredKey> = found.collect::<io::Result<_>>()?;
        keys.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        keys.dedup();
        Ok(keys)
    }

    /// Revokes a key, if it is not revoked yet.
    ///
    /// # Errors
    /// If its file cannot be renamed or read.
    pub fn revoke(&self, id: &str) -> io::Result<Revoked> {
        if !is_id(id) {
            return Ok(Revoked::Unknown);
        }
        // A rename works on a full disk, too.
        match fs::rename(self.path(id, IN_FORCE), self.path(id, REVOKED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(match self.read(id, REVOKED)? {
                Some(_) => Revoked::Before,
                None => Revoked::Unknown,
            }),
            renamed => renamed.map(|()| Revoked::Now),
        }
    }

    /// Returns a key that is revoked or has expired.
    ///
    /// # Errors
    /// If there is none with this id, it still opens something, or it cannot be read.
    pub fn ended(&self, id: &str) -> Result<StoredKey, EndKeyError> {
        let stored = self.find_any(id)?.ok_or_else(|| EndKeyError::unknown(id))?;
        match stored.revoked || stored.has_expired() {
            true => Ok(stored),
            false => Err(EndKeyError::InForce(stored.id)),
        }
    }

    /// Returns the account that has no key left once this one is removed.
    ///
    /// # Errors
    /// If the other keys cannot be read.
    pub(crate) fn closed_with(&self, ended: &StoredKey) -> io::Result<Option<Account>> {
        let account = Account::of(ended);
        let others = self.list()?.into_iter().filter(|key| key.id != ended.id);
        let has_others = others.into_iter().any(|key| Account::of(&key) == account);
        Ok((!has_others).then_some(account))
    }

    /// Returns the owner of what is removed with a key, as [`KeyStore::remove`] needs it: nothing, while other keys of its tenant
    /// are stored.
    ///
    /// # Errors
    /// If the other keys cannot be read.
    pub fn removed_with(&self, ended: &StoredKey) -> io::Result<Option<Scope>> {
        Ok(self.closed_with(ended)?.as_ref().and_then(scope_of))
    }

    /// Removes a key, of which nothing else is kept any more.
    ///
    /// # Errors
    /// If its files cannot be removed.
    pub fn remove(&self, ended: &StoredKey) -> io::Result<()> {
        for extension in [IN_FORCE, REVOKED] {
            match fs::remove_file(self.path(&ended.id, extension)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the stored form of a key, if it is right and has not expired.
    pub(super) fn find(&self, key: &str) -> Option<StoredKey> {
        let stored = self.find_by_id(&id_of(key)?)?;
        is_same(&stored.digest, &digest(key)).then_some(stored)
    }

    /// Returns the stored form of the key with this public part, if it has not expired.
    pub(super) fn find_by_id(&self, id: &str) -> Option<StoredKey> {
        self.look_up(id).ok().flatten()
    }

    /// Like [`KeyStore::find_by_id`], but fails if the key could not be read.
    pub(super) fn look_up(&self, id: &str) -> io::Result<Option<StoredKey>> {
        if !is_id(id) {
            return Ok(None);
        }
        let stored = self.read(id, IN_FORCE)?;
        Ok(stored.filter(|stored| !stored.has_expired()))
    }

    /// Returns the key with this public part, whether it opens anything or not.
    fn find_any(&self, id: &str) -> io::Result<Option<StoredKey>> {
        if !is_id(id) {
            return Ok(None);
        }
        match self.read(id, IN_FORCE)? {
            Some(stored) => Ok(Some(stored)),
            None => self.read(id, REVOKED),
        }
    }

    fn read(&self, id: &str, extension: &str) -> io::Result<Option<StoredKey>> {
        let path = self.path(id, extension);
        let read = fs::symlink_metadata(&path).and_then(|found| match found.len() > MAX {
            true => Ok(Vec::new()),
            false => fs::read(&path),
        });
        let bytes = match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let stored = serde_json::from_slice(&bytes).ok();
        let stored = stored.filter(|stored: &StoredKey| stored.id == id);
        Ok(stored.map(|stored| StoredKey {
            revoked: extension == REVOKED,
            ..stored
        }))
    }

    fn path(&self, id: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("{id}.{extension}"))
    }
}

/// Returns `true` if a text has the public part of a key, or what has the form of a whole key for E2B's clients.
pub(super) fn has_id(text: &str) -> bool {
    const DIGITS: usize = ID_DIGITS + SECRET_DIGITS;
    let id = |at: usize| text.get(at..at + PREFIX.len() + ID_DIGITS);
    let all = |at: usize| text.get(at + E2B_PREFIX.len()..at + E2B_PREFIX.len() + DIGITS);
    let mut ids = text.match_indices(PREFIX);
    let mut wholes = text.match_indices(E2B_PREFIX);
    ids.any(|(at, _)| id(at).is_some_and(is_id))
        || wholes.any(|(at, _)| all(at).is_some_and(|all| all.bytes().all(is_digit)))
}

const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Returns `true` for the public part of a key. Nothing else becomes a file's name.
fn is_id(text: &str) -> bool {
    let digits = text.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == ID_DIGITS && digits.bytes().all(is_digit)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, KeyStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::below(dir.path());
        (dir, store)
    }

    fn new(days: Option<u32>) -> NewKey {
        NewKey {
            name: "ci".to_owned(),
            rights: "run,tools".parse().unwrap(),
            days,
            quota: Quota::default(),
            tenant: None,
            form: KeyForm::Own,
        }
    }

    #[test]
    fn a_key_opens_until_it_is_revoked_and_is_stored_as_a_digest() {
        let (dir, store) = store();
        let (key, stored) = store.create(new(None)).unwrap();
        let (other, _) = store.create(new(Some(1))).unwrap();
        assert_eq!(store.find(&key).unwrap(), stored);
        assert_eq!(store.list().unwrap().len(), 2);
        let secret = key.rsplit('_').next().unwrap();
        let file = fs::read_to_string(dir.path().join(format!("api-keys/{}.json", stored.id))).unwrap();
        assert!(secret.len() == 48 && !file.contains(secret));
        let revoked = [(); 2].map(|()| store.revoke(&stored.id).unwrap());
        assert_eq!(revoked, [Revoked::Now, Revoked::Before]);
        assert!(store.find(&key).is_none());
        assert!(store.find(&other).is_some());
    }

    #[test]
    fn only_the_whole_key_is_the_key_and_no_id_is_a_path() {
        let (dir, store) = store();
        let (key, stored) = store.create(new(None)).unwrap();
        let swapped = key.replace(&key[key.len() - 1..], "x");
        for wrong in [
            "",
            "rf_",
            &stored.id,
            &key[..key.len() - 1],
            &format!("{key}0"),
            &swapped,
        ] {
            assert!(store.find(wrong).is_none(), "{wrong}");
        }
        fs::write(dir.path().join("x.json"), "{}").unwrap();
        assert_eq!(shown_id(&stored.id), stored.id);
        assert_eq!(shown_id(&key), format!("{}…", stored.id));
        assert_eq!([public_id(&key), public_id(&stored.id)], [&*stored.id; 2]);
        for no_key in ["", "x", "ä", &key[1..], &format!("{key}0"), &key[..key.len() - 1]] {
            assert_eq!(public_id(no_key), no_key);
        }
        for id in ["", "../x", "rf_../../x", "rf_ABCDEF01", "x"] {
            assert_eq!(store.revoke(id).unwrap(), Revoked::Unknown, "{id}");
        }
        assert!(dir.path().join("x.json").exists());
    }

    #[test]
    fn a_key_for_e2bs_clients_is_found_by_its_whole_text_alone() {
        let (_dir, store) = store();
        let of_e2b = NewKey {
            form: KeyForm::E2b,
            ..new(None)
        };
        let (key, stored) = store.create(of_e2b).unwrap();
        let digits = key.strip_prefix("e2b_").unwrap();
        assert!(digits.len() == 56 && digits.bytes().all(is_digit), "{key}");
        assert_eq!(store.find(&key), Some(stored.clone()));
        let own = format!("{}_{}", stored.id, &digits[8..]);
        for wrong in [own.as_str(), &key[..key.len() - 1], &format!("{key}0"), digits] {
            assert!(store.find(wrong).is_none(), "{wrong}");
        }
        assert_eq!(public_id(&key), &*stored.id);
        assert_eq!(shown_id(&key), format!("{}…", stored.id));
        assert!(has_id(&format!("x {key}")) && !has_id(&key[..key.len() - 1]));
    }

    #[test]
    fn a_key_expires() {
        let (_dir, store) = store();
        let (key, _) = store.create(new(Some(0))).unwrap();
        assert!(store.find(&key).is_none());
        assert_eq!(store.list().unwrap().len(), 1);
    }
}
