//! Synchronizes `/output` of a container with a directory of the host.
//!
//! Programs write to a sized tmpfs: excess data fails at the write, and no program writes to a disk of the
//! host. Before a call, new files of the host are copied in; after a call, new files of the container are
//! copied out. The container's records are untrusted: all are bounded, and no link is followed or created.

mod host;
mod pipes;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringfence_jail::init::files::{Attributes, EMPTY, FilePath, Reason, Record};
use ringfence_jail::init::frames::{Program, Start};
use ringfence_policy::{Bytes, OutputFile};
use tokio::sync::Mutex;

use super::guest_paths::OUTPUT;
use super::init::{INSIDE, InitClient};
use host::{DirectoryContent, FileFingerprint, HostDirectory};

/// Timeout of a transfer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of the paths remembered of a container, in bytes.
const MAX_PATHS: usize = 4 << 20;
/// Limit of the files listed in a result.
const MAX_LISTED: usize = 1_000;
/// Resolution of file times: they may lag behind the clock by this much.
const COARSE: Duration = Duration::from_millis(20);
/// Limit of the skipped entries that are listed by name.
const MAX_NAMED: usize = 20;

/// Warning for a container that ended during a call.
pub(super) const LOST: &str =
    "the container has ended, and what the program had written to /output meanwhile has gone with it";

/// A directory of a container, synchronized with one of the host.
#[derive(Debug)]
pub(super) struct Exchange {
    inside: PathBuf,
    outside: PathBuf,
    limit: Bytes,
    users: Users,
    known: Mutex<Known>,
}

/// The programs that use a container's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// One program, which finds at most this many bytes of earlier ones.
    One { earlier: Bytes },
    /// Several, also at a time. Whose a change is only its time can tell.
    Several,
}

/// The common content of both directories at the last synchronization.
#[derive(Debug, Clone, Default)]
struct Known {
    files: BTreeMap<FilePath, Pair>,
    directories: BTreeSet<FilePath>,
    /// Fingerprint of exactly this content in the container, if it is certain. The container's directory at the
    /// end of a call may differ from what is collected later, while programs still run.
    state: Option<u64>,
}

/// A file on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    /// Identity of the file in the container; `None` if it did not fit there.
    inside: Option<u64>,
    outside: FileFingerprint,
}

/// Differences between the host's directory and the last synchronization.
#[derive(Debug, Default)]
struct Changes {
    gone: Vec<FilePath>,
    directories: Vec<FilePath>,
    files: Vec<FilePath>,
}

/// Entries that were skipped.
#[derive(Debug, Default)]
struct Skipped {
    named: Vec<String>,
    count: usize,
}

/// Result of copying files to the host.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Files written since the beginning of the call.
    pub(super) files: Vec<OutputFile>,
    pub(super) warnings: Vec<String>,
    /// Set if an error prevented some files from being copied.
    pub(super) incomplete: bool,
}

impl Exchange {
    /// Synchronizes the still empty `/output` of a container with `outside`, which holds at most `limit`.
    pub(super) fn of_output(outside: PathBuf, limit: Bytes, users: Users) -> Self {
        Self::new(Path::new(OUTPUT), outside, limit, users)
    }

    fn new(inside: &Path, outside: PathBuf, limit: Bytes, users: Users) -> Self {
        let known = Known {
            state: Some(EMPTY),
            ..Known::default()
        };
        Self {
            inside: inside.to_path_buf(),
            outside,
            limit,
            users,
            known: Mutex::new(known),
        }
    }

    /// Copies new files of the host into the container. Returns warnings for the caller.
    pub(super) async fn give(&self, init: &InitClient) -> Vec<String> {
        let mut known = self.known.lock().await;
        let (mut changes, found) = match HostDirectory::open(&self.outside).and_then(|host| host.scan()) {
            Ok(found) => (known.changes(&found), found),
            Err(error) => {
                return vec![format!(
                    "the files of {} cannot be read: {error}",
                    self.outside.display()
                )];
            }
        };
        let mut warnings = match self.users {
            Users::One { earlier } => changes.leave_out(&found, earlier).warnings_of_earlier(),
            Users::Several => Vec::new(),
        };
        if changes.is_none() {
            return warnings;
        }
        // Whatever the result, the container's directory is compared after the next call.
        known.state = None;
        let inside = self.inside.display().to_string();
        let arguments = ["place", &inside];
        let (outside, changes) = (self.outside.clone(), std::sync::Arc::new(changes));
        let sent = std::sync::Arc::clone(&changes);
        let sending = move |out: &mut dyn Write| send(&HostDirectory::open(&outside)?, &sent, out);
        let ran = pipes::run(init, start(&arguments), sending, |input| answers(input)).await;
        match ran {
            Ok((outside, (inside, left))) => {
                known.given(&changes, &outside, &inside);
                warnings.extend(left.warnings("the container", self.limit));
            }
            Err(broken) => warnings.push(format!(
                "the files of {} did not reach the container: {}",
                self.outside.display(),
                broken.why
            )),
        }
        warnings
    }

    /// Copies new files of the container, whose directory has this fingerprint, to the host.
    pub(super) async fn take(&self, init: &InitClient, state: u64, since: SystemTime) -> Taken {
        let mut known = self.known.lock().await;
        let (mut warnings, mut incomplete) = (Vec::new(), false);
        let before = (self.users != Users::Several).then(|| known.files.clone());
        if known.state != Some(state) {
            match self.compare(&mut known, init).await {
                Ok(left) => warnings.extend(left),
                Err(why) => {
                    incomplete = true;
                    warnings.push(why);
                }
            }
        }
        let mut files = match before {
            Some(before) => known.changed(&before),
            None => known.written(since),
        };
        if files.len() > MAX_LISTED {
            files.truncate(MAX_LISTED);
            warnings.push(format!(
                "only {MAX_LISTED} of the files that were written are listed"
            ));
        }
        Taken {
            files,
            warnings,
            incomplete,
        }
    }

    /// Updates the host's directory to match the container's. Returns warnings about skipped entries, or the
    /// reason for an incomplete copy.
    async fn compare(&self, known: &mut Known, init: &InitClient) -> Result<Vec<String>, String> {
        let limit = self.limit.0.to_string();
        let inside = self.inside.display().to_string();
        let arguments = ["collect", &inside, &limit];
        let (outside, limit, before) = (self.outside.clone(), self.limit.0, known.clone());
        let listed = known.clone();
        let sending = move |out: &mut dyn Write| listed.list(out);
        let taking = move |input: &mut dyn Read| Ok(Taking::new(&outside, limit, before)?.run(input));
        let (transfer, why) = match pipes::run(init, start(&arguments), sending, taking).await {
            Ok(((), transfer)) => (Some(transfer), None),
            Err(broken) => (broken.received, Some(broken.why)),
        };
        // Also of a transfer that broke off: otherwise what had reached the host by then would be new there, and
        // be put back into the container.
        let left = match transfer {
            Some(transfer) => {
                *known = transfer.known;
                transfer
                    .outcome
                    .map(|()| transfer.left)
                    .map_err(|error| error.to_string())
            }
            None => Ok(Skipped::default()),
        };
        match why.map_or(left, Err) {
            Ok(left) => Ok(left.warnings("the host", self.limit)),
            Err(why) => {
                known.state = None;
                Err(format!(
                    "not all files of {} could be taken from the container: {why}",
                    self.inside.display()
                ))
            }
        }
    }
}

/// Copies a directory of the host into an empty one of the container. Returns warnings for the caller.
pub(super) async fn supply(init: &InitClient, outside: &Path, inside: &Path) -> Vec<String> {
    let exchange = Exchange::new(inside, outside.to_path_buf(), Bytes(u64::MAX), Users::Several);
    exchange.give(init).await
}

/// Returns the start frame of a transfer: the init's executable, run as another program.
fn start(arguments: &[&str]) -> Start {
    Start {
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        input: true,
        ..Start::new(Program::Command(INSIDE.to_owned()), "/", TIMEOUT)
    }
}

impl Known {
    /// Returns the files of the container that were written since this time.
    fn written(&self, since: SystemTime) -> Vec<OutputFile> {
        self.listed(|_, pair| pair.outside.modified + COARSE >= since)
    }

    /// Returns the files of the container that are new or changed, given those of before.
    fn changed(&self, before: &BTreeMap<FilePath, Pair>) -> Vec<OutputFile> {
        self.listed(|path, pair| before.get(path) != Some(pair))
    }

    /// Returns the files of the container that are selected.
    fn listed(&self, is_selected: impl Fn(&FilePath, &Pair) -> bool) -> Vec<OutputFile> {
        let files = self.files.iter().filter(|(_, pair)| pair.inside.is_some());
        let selected = files.filter(|(path, pair)| is_selected(path, pair));
        selected
            .map(|(path, pair)| OutputFile {
                path: path.as_path().display().to_string(),
                bytes: pair.outside.size,
            })
            .collect()
    }

    /// Returns `true` if a file of the host also exists in the container.
    fn has_inside(&self, path: &FilePath) -> bool {
        self.files.get(path).is_some_and(|pair| pair.inside.is_some())
    }

    /// Sends the identities of the container's files.
    fn list(self, out: &mut dyn Write) -> io::Result<()> {
        for (path, pair) in self.files {
            if let Some(identity) = pair.inside {
                Record::Known { path, identity }.write(out)?;
            }
        }
        Record::End { complete: true }.write(out)
    }

    fn changes(&self, found: &DirectoryContent) -> Changes {
        let is_new = |path: &FilePath, outside: u64| {
            self.files
                .get(path)
                .is_none_or(|pair| pair.outside.identity != outside)
        };
        let files = self.files.keys().filter(|path| !found.files.contains_key(path));
        let directories = self.directories.difference(&found.directories);
        Changes {
            gone: files.chain(directories).cloned().collect(),
            directories: found.directories.difference(&self.directories).cloned().collect(),
            files: found
                .files
                .iter()
                .filter(|(path, file)| is_new(path, file.identity))
                .map(|(path, _)| path.clone())
                .collect(),
        }
    }

    /// Records the copied files: their state when sent and, if they fit, their identity in the container.
    fn given(
        &mut self,
        changes: &Changes,
        outside: &BTreeMap<FilePath, FileFingerprint>,
        inside: &BTreeMap<FilePath, u64>,
    ) {
        for path in &changes.gone {
            self.files.remove(path);
            self.directories.remove(path);
        }
        self.directories.extend(changes.directories.iter().cloned());
        for (path, seen) in outside {
            let pair = Pair {
                inside: inside.get(path).copied(),
                outside: *seen,
            };
            self.files.insert(path.clone(), pair);
        }
    }
}

impl Changes {
    /// Leaves out the files beyond a limit of their bytes, and returns them.
    fn leave_out(&mut self, found: &DirectoryContent, limit: Bytes) -> Skipped {
        let (mut room, mut left) = (limit.0, Skipped::default());
        self.files.retain(|path| {
            let size = found.files.get(path).map_or(0, |file| file.size);
            let rest = room.checked_sub(size);
            match rest {
                Some(rest) => room = rest,
                None => left.name(format!(
                    "{} exceeds the limit of {limit} together with the others",
                    path.as_path().display().to_string().escape_debug()
                )),
            }
            rest.is_some()
        });
        left
    }

    fn is_none(&self) -> bool {
        self.gone.is_empty() && self.directories.is_empty() && self.files.is_empty()
    }
}

/// Sends the changes; returns the files as they were sent.
fn send(
    host: &HostDirectory,
    changes: &Changes,
    out: &mut dyn Write,
) -> io::Result<BTreeMap<FilePath, FileFingerprint>> {
    let mut sent = BTreeMap::new();
    for path in &changes.gone {
        Record::Gone(path.clone()).write(out)?;
    }
    for path in &changes.directories {
        Record::Directory(path.clone()).write(out)?;
    }
    for path in &changes.files {
        // The file may be gone by now.
        if let Ok(seen) = host.send(path, out)? {
            sent.insert(path.clone(), seen);
        }
    }
    Record::End { complete: true }.write(out)?;
    Ok(sent)
}

/// Reads the container's replies about files it received.
fn answers(input: &mut dyn Read) -> io::Result<(BTreeMap<FilePath, u64>, Skipped)> {
    let (mut placed, mut left) = (BTreeMap::new(), Skipped::default());
    let mut room = MAX_PATHS;
    loop {
        match Record::read(input)? {
            Record::Known { path, identity } => {
                room = room.checked_sub(length(&path)).ok_or_else(too_many)?;
                placed.insert(path, identity);
            }
            Record::Left { path, why } => left.add(&path, why),
            Record::End { .. } => return Ok((placed, left)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Result of a transfer from a container to the host.
struct Transfer {
    /// The new common content.
    known: Known,
    left: Skipped,
    /// Error of a transfer that was interrupted.
    outcome: io::Result<()>,
}

/// A transfer from a container to the host.
struct Taking {
    host: HostDirectory,
    before: Known,
    /// Content seen so far.
    after: Known,
    left: Skipped,
    /// Sizes of the files on the host before the transfer.
    sizes: BTreeMap<FilePath, u64>,
    /// Bytes on the host after the transfer: files of others, and files that the container still has.
    used: u64,
    limit: u64,
    paths: usize,
}

impl Taking {
    fn new(outside: &Path, limit: u64, before: Known) -> io::Result<Self> {
        let host = HostDirectory::locked(outside)?;
        let found = host.scan()?;
        let sizes: BTreeMap<FilePath, u64> = found
            .files
            .into_iter()
            .map(|(path, file)| (path, file.size))
            .collect();
        let others = sizes.iter().filter(|(path, _)| !before.has_inside(path));
        Ok(Self {
            used: others.map(|(_, size)| size).sum(),
            sizes,
            host,
            before,
            after: Known::default(),
            left: Skipped::default(),
            limit,
            paths: MAX_PATHS,
        })
    }

    /// Receives all records. One that is invalid or missing leaves everything else as it was.
    fn run(mut self, input: &mut dyn Read) -> Transfer {
        let received = self.receive(input);
        if let Ok(true) = received {
            self.remove_gone();
        } else {
            self.after.state = None;
            self.keep_rest();
            self.left.count += 1;
        }
        Transfer {
            known: self.after,
            left: self.left,
            outcome: received.map(drop),
        }
    }

    /// Receives records up to the last; returns `true` if every entry of the container was reported.
    fn receive(&mut self, input: &mut dyn Read) -> io::Result<bool> {
        loop {
            match Record::read(input)? {
                Record::Directory(path) => self.directory(path)?,
                Record::Same(path) => {
                    let pair = self.before.files.get(&path).ok_or(io::ErrorKind::InvalidData)?;
                    self.used += self.sizes.get(&path).copied().unwrap_or(0);
                    self.after.files.insert(path, *pair);
                }
                Record::File {
                    path,
                    identity,
                    size,
                    attributes,
                } => {
                    let mut content = input.take(size);
                    self.file(path, identity, attributes, &mut content)?;
                    io::copy(&mut content, &mut io::sink())?;
                }
                Record::Left { path, why } => {
                    if let Some(path) = FilePath::new(&path).filter(|_| why == Reason::Changed) {
                        self.forget(&path);
                    }
                    self.left.add(&path, why);
                }
                Record::State(state) => self.after.state = Some(state),
                Record::End { complete } => return Ok(complete),
                Record::Known { .. } | Record::Gone(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    fn remembers(&mut self, path: &FilePath) -> io::Result<()> {
        self.paths = self.paths.checked_sub(length(path)).ok_or_else(too_many)?;
        Ok(())
    }

    fn directory(&mut self, path: FilePath) -> io::Result<()> {
        self.remembers(&path)?;
        match self.host.make_directory(&path) {
            Ok(()) => drop(self.after.directories.insert(path)),
            Err(error) => self.left.name(format!("{}: {error}", path.as_path().display())),
        }
        Ok(())
    }

    fn file(
        &mut self,
        path: FilePath,
        inside: u64,
        attributes: Attributes,
        content: &mut io::Take<impl Read>,
    ) -> io::Result<()> {
        let size = content.limit();
        self.remembers(&path)?;
        let replaced = self.sizes.get(&path).filter(|_| !self.before.has_inside(&path));
        let others = self.used.saturating_sub(replaced.copied().unwrap_or(0));
        let Some(used) = others.checked_add(size).filter(|used| *used <= self.limit) else {
            self.left.add(path.as_path(), Reason::Room);
            return Ok(());
        };
        match self.host.put(&path, content, attributes) {
            Ok(outside) => {
                self.used = used;
                let inside = Some(inside);
                self.after.files.insert(path, Pair { inside, outside });
            }
            Err(error) => self.left.name(format!("{}: {error}", path.as_path().display())),
        }
        Ok(())
    }

    /// Removes a file that was copied incompletely. The next call does not take it for one that the host removed.
    fn forget(&mut self, path: &FilePath) {
        self.before.files.remove(path);
        if self.after.files.remove(path).is_some() {
            self.host.remove(path);
        }
    }

    /// Removes files that programs have removed, unless they were rewritten on the host.
    fn remove_gone(&mut self) {
        let before = std::mem::take(&mut self.before);
        for (path, pair) in before.files {
            match pair.inside {
                // It never existed in the container.
                None => drop(self.after.files.insert(path, pair)),
                Some(_) if self.after.files.contains_key(&path) => {}
                Some(_) => self.host.remove_if(&path, pair.outside.identity),
            }
        }
        for path in before.directories.iter().rev() {
            if !self.after.directories.contains(path) {
                self.host.remove_empty(path);
            }
        }
    }

    /// Keeps the state of entries that were not reported, unless a reported entry replaced them on the host.
    fn keep_rest(&mut self) {
        let (host, before) = (&self.host, std::mem::take(&mut self.before));
        for (path, pair) in before.files {
            if pair.inside.is_none() || host.holds_file(&path, pair.outside.identity) {
                self.after.files.entry(path).or_insert(pair);
            }
        }
        let directories = before.directories.into_iter();
        let kept = directories.filter(|path| host.holds_directory(path));
        self.after.directories.extend(kept);
    }
}

impl Skipped {
    fn add(&mut self, path: &Path, why: Reason) {
        let why = match why {
            Reason::Kind => "is not a regular file",
            Reason::Denied => "cannot be read or written",
            Reason::Path => "has a path that is too long or too deep",
            Reason::Room => "does not fit in",
            Reason::Changed => "was changed while it was read",
        };
        self.name(format!("{} {why}", path.display().to_string().escape_debug()));
    }

    fn name(&mut self, text: String) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(text);
        }
    }

    /// Formats files of earlier programs that were left out as warnings.
    fn warnings_of_earlier(self) -> Vec<String> {
        let more = self.count - self.named.len();
        let more = (more > 0).then(|| format!("{more} more files"));
        let whys = self.named.into_iter().chain(more);
        whys.map(|why| format!("not all files of `/output` are there: {why}"))
            .collect()
    }

    /// Formats the skipped entries as warnings.
    fn warnings(self, place: &str, limit: Bytes) -> Vec<String> {
        let more = self.count - self.named.len();
        let named = self
            .named
            .iter()
            .map(|what| format!("/output, which holds {limit}, is not all on {place}: {what}"));
        let more = (more > 0).then(|| format!("/output is not all on {place}: {more} more entries"));
        named.chain(more).collect()
    }
}

fn length(path: &FilePath) -> usize {
    path.as_path().as_os_str().len() + size_of::<FilePath>()
}

fn too_many() -> io::Error {
    io::Error::other("there are more files than can be taken along")
}

#[cfg(test)]
mod tests;
