//! The usage of keys, today and in total, in a file that outlives the server.
//!
//! Callers name the owner of a run or sandbox (a [`Scope`]); the file has accounts: the ids of keys, and the names of tenants.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::ops::AddAssign;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_policy::timestamp::rfc3339;
use ringfence_policy::{Bytes, ExecutionResult, Quota, Scope};
use ringfence_sandbox::Consumption;
use ringfence_tools::toolbox::EgressMeter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::key_store::{KeyStore, StoredKey};
use crate::api::tenant::{Account, FIXED, Tenant, scope_of};
use ringfence_gateway_protocol::visible;

/// Version of the file.
const VERSION: u32 = 1;

/// Maximum size of the file: some 40,000 keys.
const MAX: u64 = 16 << 20;

/// Seconds.
const DAY: u64 = 24 * 60 * 60;

const MIB: f64 = (1u64 << 20) as f64;
const GIB: f64 = (1u64 << 30) as f64;

/// The usage of all keys.
#[derive(Debug)]
pub struct Usage {
    path: PathBuf,
    keys: KeyStore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the account: the id of a key or, with a prefix, the name of a tenant.
    used: BTreeMap<String, KeyUsage>,
    /// Accounts, by the owner of their holders' runs and sandboxes.
    owners: HashMap<Scope, Account>,
    has_changed: bool,
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    version: u32,
    keys: BTreeMap<String, KeyUsage>,
}

/// The usage of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyUsage {
    /// Day of `today`, since 1970 (UTC).
    day: u64,
    pub today: Figures,
    pub total: Figures,
}

/// Sums of what was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Programs of runs and batches, calls of tools, and in sandboxes processes and pieces of code, as they begin.
    pub runs: u64,
    /// Processor time, in seconds. A run whose time nobody measures counts with its duration on all of its processors.
    pub cpu_seconds: f64,
    /// Memory in use times its duration, in GiB-seconds. For a run its largest use times its duration, which is the most that
    /// it can be, or its limit if nobody measured it; for a sandbox what was in use each time that it was measured.
    pub memory_gib_seconds: f64,
    /// Bytes that runs and tools sent to hosts and received from them. Those of a run count at its end.
    #[serde(default)]
    pub egress_bytes: u64,
}

/// The usage of keys, as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UsageReport {
    /// Time at which `today` and the quotas begin anew: the next midnight (UTC, RFC 3339).
    pub resets_at: String,
    pub keys: Vec<ReportedKey>,
}

/// The usage of a key, as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReportedKey {
    pub id: String,
    /// Its purpose, in the operator's words; null for the key of the server's environment.
    pub name: Option<String>,
    /// The tenant whose keys the figures are of, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    pub today: Figures,
    /// Since the key, or the first of the tenant's, was made, or since the file of the usage began anew.
    pub total: Figures,
    /// The most that it may use a day, and have at a time.
    pub quota: Quota,
    /// Sandboxes that the key, or its tenant, has now.
    #[serde(default)]
    pub sandboxes: usize,
}

impl ReportedKey {
    fn new(used: KeyUsage, key: Option<StoredKey>) -> Self {
        let KeyUsage { day: _, today, total } = used;
        match key {
            Some(StoredKey {
                id,
                name,
                quota,
                tenant,
                ..
            }) => Self {
                id,
                name: Some(name),
                tenant,
                today,
                total,
                quota,
                sandboxes: 0,
            },
            None => Self {
                id: FIXED.to_owned(),
                name: None,
                tenant: None,
                today,
                total,
                quota: Quota::default(),
                sandboxes: 0,
            },
        }
    }

    /// Returns the account whose usage it is.
    pub(crate) fn account(&self) -> Account {
        match &self.tenant {
            Some(tenant) => Account::of_tenant(tenant),
            None => Account::of_client(&self.id),
        }
    }

    /// Renders the usage on a line.
    pub fn to_line(&self) -> String {
        let of = |quota: Option<u64>| quota.map(|quota| format!(" of {quota}")).unwrap_or_default();
        let egress_quota = self
            .quota
            .egress_bytes
            .map(|quota| format!(" of {:.1}", mib(quota)));
        let Figures {
            runs,
            cpu_seconds,
            memory_gib_seconds,
            egress_bytes,
        } = self.today;
        let total = &self.total;
        let sandboxes = match (self.sandboxes, self.quota.sandboxes) {
            (0, None) => String::new(),
            (1, None) => "  now: 1 sandbox".to_owned(),
            (now, most) => format!("  now: {now}{} sandboxes", of(most)),
        };
        let tenant = self
            .tenant
            .as_ref()
            .map(|tenant| format!("{}: ", tenant.as_str()));
        format!(
            "{}  today: {runs}{} runs, {cpu_seconds:.1}{} s of processor time, {memory_gib_seconds:.1} GiB-s, \
             {:.1}{} MiB of egress  in all: {} runs, {:.1} s, {:.1} GiB-s, {:.1} MiB{sandboxes}  {}{}\n",
            self.id,
            of(self.quota.runs),
            of(self.quota.cpu_seconds),
            mib(egress_bytes),
            egress_quota.unwrap_or_default(),
            total.runs,
            total.cpu_seconds,
            total.memory_gib_seconds,
            mib(total.egress_bytes),
            tenant.unwrap_or_default(),
            visible(self.name.as_deref().unwrap_or("the key of the environment")),
        )
    }
}

/// A quota is used up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum Exceeded {
    #[error("the quota of the key is used up: {used} of {quota} runs today")]
    Runs { used: u64, quota: u64 },
    #[error("the quota of the key is used up: {used:.1} of {quota} seconds of processor time today")]
    Processor { used: f64, quota: u64 },
    #[error("the quota of the key is used up: {used:.1} of {quota} GiB-seconds of memory today")]
    Memory { used: f64, quota: u64 },
    #[error("the quota of the key is used up: {used} of {} of egress today", Bytes(*.quota))]
    Egress { used: Bytes, quota: u64 },
}

/// An error of reading or writing the usage file.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("cannot {step} {}: {source}", path.display())]
    File {
        step: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is not a record of usage: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error("{} has the version {found}, and this server knows version {VERSION}", path.display())]
    Version { path: PathBuf, found: u32 },
}

impl UsageError {
    /// Returns a hint for the operator.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } => "check the state directory",
            Self::Malformed { .. } => "move the file away: usage begins at 0 without it",
            Self::Version { .. } => {
                "use the version of Ringfence that wrote it, or move the file away: usage begins at 0 without it"
            }
        }
    }
}

impl Figures {
    /// Returns the usage of a run.
    pub(crate) fn of_run(result: &ExecutionResult) -> Self {
        let limits = &result.meta.resource_limits;
        // Of what nobody measured, the most that it can be: a program may have ended what measures it.
        let peak = result.meta.peak_memory_bytes.or(limits.memory_bytes);
        let most = || result.duration * limits.cpus.unwrap_or(1.0);
        Self {
            runs: 0,
            cpu_seconds: result.meta.cpu_seconds.unwrap_or_else(most),
            memory_gib_seconds: gib_seconds(peak.unwrap_or_default() as f64 * result.duration),
            egress_bytes: result.meta.egress.as_ref().map_or(0, |egress| egress.bytes),
        }
    }

    /// Returns the usage of sandboxes.
    pub(crate) fn of_sandboxes(used: &Consumption) -> Self {
        Self {
            runs: 0,
            cpu_seconds: used.cpu_seconds,
            memory_gib_seconds: gib_seconds(used.memory_byte_seconds),
            egress_bytes: used.egress_bytes,
        }
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, more: Self) {
        // JSON has no infinity: a file with one could not be read again.
        let finite = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
        self.runs = self.runs.saturating_add(more.runs);
        self.cpu_seconds += finite(more.cpu_seconds);
        self.memory_gib_seconds += finite(more.memory_gib_seconds);
        self.egress_bytes = self.egress_bytes.saturating_add(more.egress_bytes);
    }
}

impl Figures {
    /// Compares what was used today with a quota.
    fn check(&self, most: &Quota) -> Result<(), Exceeded> {
        if let Some(quota) = most.runs
            && self.runs >= quota
        {
            let used = self.runs;
            return Err(Exceeded::Runs { used, quota });
        }
        if let Some(quota) = most.cpu_seconds
            && self.cpu_seconds >= quota as f64
        {
            let used = self.cpu_seconds;
            return Err(Exceeded::Processor { used, quota });
        }
        if let Some(quota) = most.memory_gib_seconds
            && self.memory_gib_seconds >= quota as f64
        {
            let used = self.memory_gib_seconds;
            return Err(Exceeded::Memory { used, quota });
        }
        if let Some(quota) = most.egress_bytes
            && self.egress_bytes >= quota
        {
            let used = Bytes(self.egress_bytes);
            return Err(Exceeded::Egress { used, quota });
        }
        Ok(())
    }
}

impl KeyUsage {
    /// Begins a new day, if it is one.
    fn roll(&mut self, day: u64) {
        if self.day != day {
            (self.day, self.today) = (day, Figures::default());
        }
    }
}

impl Usage {
    /// Opens the file below a state directory, which exists once something was used. One server at a time may have it open.
    ///
    /// # Errors
    /// If it cannot be read, or a later version wrote it.
    pub fn open(state: &Path) -> Result<Self, UsageError> {
        let path = state.join("usage.json");
        let used = read(&path)?;
        Ok(Self {
            path,
            keys: KeyStore::below(state),
            state: Mutex::new(State {
                used,
                ..State::default()
            }),
        })
    }

    /// Begins a run of an account, if a key's quota allows one more.
    pub(crate) fn begin(&self, account: &Account, quota: &Quota) -> Result<(), Exceeded> {
        self.change(account, |used| {
            used.today.check(quota)?;
            used.add(Figures {
                runs: 1,
                ..Figures::default()
            });
            Ok(())
        })
    }

    /// Subtracts a run that did not take place.
    pub(crate) fn take_back(&self, account: &Account) {
        self.change(account, |used| {
            used.today.runs = used.today.runs.saturating_sub(1);
            used.total.runs = used.total.runs.saturating_sub(1);
        });
    }

    /// Checks that an account has not used up a key's quota.
    pub(crate) fn check(&self, account: &Account, quota: &Quota) -> Result<(), Exceeded> {
        self.of(account).today.check(quota)
    }

    /// Adds usage to the account of its owner. Usage without a key is not counted.
    pub(crate) fn add(&self, owner: &Scope, more: Figures) {
        if let Some(account) = self.account_of(owner) {
            self.change(&account, |used| used.add(more));
        }
    }

    /// Returns the usage of an account.
    pub(crate) fn of(&self, account: &Account) -> KeyUsage {
        let mut used = self
            .lock()
            .used
            .get(account.as_str())
            .copied()
            .unwrap_or_default();
        used.roll(today());
        used
    }

    /// Returns the usage of all accounts that have used something.
    pub(crate) fn all(&self) -> BTreeMap<String, KeyUsage> {
        self.lock().used.clone()
    }

    /// Reports the usage of one key, or of all that are stored.
    ///
    /// # Errors
    /// If the stored keys cannot be read.
    pub fn report(&self, only: Option<&str>) -> io::Result<UsageReport> {
        let stored = self.keys.list()?.into_iter();
        let stored = stored.map(|key| (Account::of(&key), Some(key)));
        let has_fixed = only == Some(FIXED) || self.lock().used.contains_key(FIXED);
        let fixed = has_fixed.then(|| (Account::fixed(), None));
        let keys = stored
            .chain(fixed)
            .map(|(account, key)| ReportedKey::new(self.of(&account), key))
            .filter(|shown| only.is_none_or(|only| only == shown.id));
        Ok(UsageReport {
            resets_at: rfc3339(next_day()),
            keys: keys.collect(),
        })
    }

    /// Removes the usage of a removed key's account, unless other keys have the same account.
    ///
    /// # Errors
    /// If the file cannot be written, or the keys cannot be read.
    pub fn remove_with(&self, key: &StoredKey) -> Result<(), UsageError> {
        let closed = self
            .keys
            .closed_with(key)
            .map_err(|error| self.failed("read the keys for", error))?;
        closed.map_or(Ok(()), |account| self.remove(&account))
    }

    /// Forgets the usage of an account.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn remove(&self, account: &Account) -> Result<(), UsageError> {
        let mut state = self.lock();
        state.owners.retain(|_, known| known != account);
        if state.used.remove(account.as_str()).is_none() {
            return Ok(());
        }
        state.has_changed = true;
        drop(state);
        self.save()
    }

    /// Writes the file, if something has changed, and leaves out accounts without a key.
    ///
    /// # Errors
    /// If it cannot be written. The next attempt writes all.
    pub fn save(&self) -> Result<(), UsageError> {
        if !self.lock().has_changed {
            return Ok(());
        }
        // An error keeps all.
        let stored = self.keys.list().ok();
        let keys = {
            let mut state = self.lock();
            if let Some(stored) = stored {
                let stored: Vec<Account> = stored.iter().map(Account::of).collect();
                let is_stored =
                    |name: &str| name == FIXED || stored.iter().any(|account| account.as_str() == name);
                state.used.retain(|name, _| is_stored(name));
            }
            state.has_changed = false;
            state.used.clone()
        };
        let written = write(
            &self.path,
            &Stored {
                version: VERSION,
                keys,
            },
        );
        written.map_err(|source| {
            self.lock().has_changed = true;
            self.failed("write", source)
        })
    }

    fn failed(&self, step: &'static str, source: io::Error) -> UsageError {
        let path = self.path.clone();
        UsageError::File { step, path, source }
    }

    fn change<T>(&self, account: &Account, change: impl FnOnce(&mut KeyUsage) -> T) -> T {
        let mut state = self.lock();
        state.has_changed = true;
        let used = state.used.entry(account.as_str().to_owned()).or_default();
        used.roll(today());
        change(used)
    }

    /// Returns the account whose holder this owner is.
    fn account_of(&self, owner: &Scope) -> Option<Account> {
        // The owners of others are found at every run.
        if !owner.as_str().starts_with("key-") {
            return None;
        }
        if let Some(account) = self.lock().owners.get(owner) {
            return Some(account.clone());
        }
        let stored = self.keys.list().ok()?;
        let accounts = stored.iter().map(Account::of).chain([Account::fixed()]);
        let owners = accounts.filter_map(|account| Some((scope_of(&account)?, account)));
        let mut state = self.lock();
        state.owners = owners.collect();
        state.owners.get(owner).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EgressMeter for Usage {
    fn count(&self, owner: &Scope, bytes: u64) {
        let more = Figures {
            egress_bytes: bytes,
            ..Figures::default()
        };
        self.add(owner, more);
    }
}

impl KeyUsage {
    fn add(&mut self, more: Figures) {
        self.today += more;
        self.total += more;
    }
}

/// Returns the number of seconds until the quotas are reset.
pub(crate) fn seconds_left() -> u64 {
    DAY - now() % DAY
}

/// Returns the time at which the quotas are reset.
pub(crate) fn next_day() -> SystemTime {
    UNIX_EPOCH + std::time::Duration::from_secs((today() + 1) * DAY)
}

fn today() -> u64 {
    now() / DAY
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

fn gib_seconds(byte_seconds: f64) -> f64 {
    byte_seconds / GIB
}

fn read(path: &Path) -> Result<BTreeMap<String, KeyUsage>, UsageError> {
    let failed = |source: io::Error| UsageError::File {
        step: "read",
        path: path.to_owned(),
        source,
    };
    let malformed = |why: String| UsageError::Malformed {
        path: path.to_owned(),
        why,
    };
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    file.take(MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX {
        return Err(malformed(format!("it is longer than {MAX} bytes")));
    }
    // Another version may have another form.
    let parsed: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    match parsed["version"].as_u64() {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(UsageError::Version {
                path: path.to_owned(),
                found: u32::try_from(version).unwrap_or(u32::MAX),
            });
        }
        None => return Err(malformed("it has no version".to_owned())),
    }
    let stored: Stored = serde_json::from_value(parsed).map_err(|error| malformed(error.to_string()))?;
    Ok(stored.keys)
}

/// Replaces the file: a reader meets the old one or the new one.
fn write(path: &Path, stored: &Stored) -> io::Result<()> {
    let begun = path.with_extension("new");
    // What an interrupted server has left.
    match fs::remove_file(&begun) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&begun)?;
    file.write_all(&serde_json::to_vec(stored)?)?;
    file.sync_all()?;
    fs::rename(begun, path)
}

#[cfg(test)]
mod tests;
