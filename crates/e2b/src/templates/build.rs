//! Builds: the steps of a template, in a sandbox that becomes a snapshot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use ringfence_policy::{Account, EnvName, Outcome, Timeout};
use ringfence_sandbox::files::{Entry, FileErrorKind, MadeDirectory, Operation};
use ringfence_sandbox::output::{Item, Stream};
use ringfence_sandbox::process::{CommandLine, NewProcess, Process};
use ringfence_sandbox::{
    Error as SandboxError, NewSandbox, NewSnapshot, Sandbox, SandboxId, SandboxImage, SandboxLimits,
    SandboxName, Sandboxes, SnapshotInfo, Tag, Template as Settings, new_tags,
};

use super::files::Archive;
use super::registry::{Status, Template, lock};
use crate::client::{BeginRun, BuildKey, Client};
use crate::envd::HOME;
use crate::error::{Error, advised};

/// Time for a whole build.
const TIME: Timeout = Timeout::seconds(15 * 60);
/// Most bytes of all variables of a template.
const MAX_ENV: usize = 32 * 1024;
/// Bytes of a template's start command, and of its ready command.
pub(super) const MAX_COMMAND: usize = 8 * 1024;

/// Returns the length of a text in JSON, as a template's record has it.
pub(super) fn in_json(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX, |json| json.len())
}
/// Longest line of output that is not cut.
const MAX_LINE: usize = 2 * 1024;
/// Last lines of a failed command that its error shows, and characters of each.
const LAST_LINES: usize = 10;
const MAX_LAST_LINE: usize = 200;

/// Makes the directory `$1` for `$2`, as `WORKDIR` of a Dockerfile does.
const MAKE_DIRECTORY: &str = r#"[ -d "$1" ] || { mkdir -p -- "$1" && chown -- "$2" "$1"; }"#;
/// Copies `$1/$2`, with another owner and mode if there are any, to `$3` as `COPY` of a Dockerfile does. The archive has the files of
/// its step alone: where the last part of the path is a pattern, what lies in its directory are the matches.
const COPY: &str = r#"set -e
from="$1/$2"; to="$3"
case "${2##*/}" in
  *'**'*) ;;
  *[*?[]*) from="${from%/*}"; to="${to%/}/" ;;
esac
if ! [ -e "$from" ] && ! [ -L "$from" ]; then
  echo "the files of the step have no \`$2\`: patterns are supported in the last part of a path alone, and no \`**\`" >&2; exit 1
fi
[ -z "$4" ] || chown -hR "$4" "$from"
[ -z "$5" ] || chmod -R "$5" "$from"
if [ -d "$from" ] && ! [ -L "$from" ]; then
  mkdir -p "$to"; cp -a "$from/." "$to"
else
  case "$to" in
    */) mkdir -p "$to" ;;
    */*) mkdir -p "${to%/*}/" ;;
  esac
  cp -a "$from" "$to"
fi"#;
/// Adds the user `$1` with a group and a home of that name, unless it is there, as E2B does. It gets an id of the box that is free.
const ADD_USER: &str = r#"set -e
has() { while IFS=: read -r name _ id _; do
  case "$2" in name) found=$name ;; *) found=$id ;; esac
  [ "$found" != "$1" ] || return 0
done < "$3" 2>/dev/null; return 1; }
has "$1" name /etc/passwd && exit 0
case "$1" in *[!a-z0-9_-]* | [!a-z_]*) echo "a user has a name of a-z, 0-9, _ and -" >&2; exit 1 ;; esac
free=1000
while has "$free" id /etc/passwd || has "$free" id /etc/group; do
  free=$((free + 1)); [ $free -le 1007 ] || { echo "there are no more ids for users than 1000 to 1007" >&2; exit 1; }
done
printf '%s:x:%s:%s::/home/%s:/bin/sh\n' "$1" $free $free "$1" >> /etc/passwd
printf '%s:x:%s:\n' "$1" $free >> /etc/group
mkdir -p "/home/$1"; chown "$free:$free" "/home/$1""#;
/// The user that every box has.
const ROOT: &str = Account::Root.name();
/// Directory in which the files of a step arrive.
const STAGING: &str = "/tmp/.ringfence-files";

/// The beginning of a build.
#[derive(Debug)]
pub(super) enum Base {
    /// The root file system of this machine, as sandboxes of the template `base` have it.
    Machine,
    Image(Arc<SandboxImage>),
    Template(Box<SnapshotInfo>),
}

/// A build to carry out.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) sandboxes: Arc<Sandboxes>,
    pub(super) all: Arc<Mutex<BTreeMap<String, Template>>>,
    pub(super) client: Client,
    pub(super) id: SandboxId,
    pub(super) name: SandboxName,
    pub(super) tags: BTreeSet<Tag>,
    pub(super) build: String,
    pub(super) limits: SandboxLimits,
    pub(super) base: Base,
    pub(super) steps: Vec<Step>,
    pub(super) start: Option<String>,
    pub(super) ready: Option<String>,
}

/// A step of a build.
#[derive(Debug)]
pub(super) enum Step {
    Run {
        command: String,
        /// `None`: that of the steps.
        user: Option<String>,
    },
    Env(Vec<(String, String)>),
    Directory(String),
    /// The user of the steps from here on, and of the template's sandboxes.
    User(String),
    Copy {
        source: String,
        target: String,
        owner: String,
        mode: String,
        archive: Archive,
    },
}

/// Defaults that the steps so far have set for those after them, and for the template's sandboxes.
#[derive(Debug, Default)]
struct Defaults {
    settings: Settings,
    /// User of what names none; root by default.
    user: Option<String>,
}

/// The reason why a build failed, and its step.
struct Failure {
    message: String,
    step: Option<usize>,
}

impl From<ringfence_sandbox::Error> for Failure {
    fn from(error: ringfence_sandbox::Error) -> Self {
        Self {
            message: advised(&error),
            step: None,
        }
    }
}

impl Step {
    /// Returns a step of E2B's.
    ///
    /// # Errors
    /// If it is unknown, not supported, or lacks its files.
    pub(super) fn new(kind: &str, arguments: &[String], archive: Option<Archive>) -> Result<Self, Error> {
        let text = |index: usize| arguments.get(index).map_or("", String::as_str);
        match kind {
            "RUN" => {
                let user = Some(text(1)).filter(|user| !user.is_empty());
                Ok(Self::Run {
                    command: text(0).to_owned(),
                    user: user.map(str::to_owned),
                })
            }
            "USER" if text(1) == "true" => Err(Error::not_supported(
                "`sudo` for a user",
                "run a command as `root`: `user=\"root\"`",
            )),
            "USER" if text(0).is_empty() => Err(Error::invalid("`USER`: the name is missing")),
            "USER" => Ok(Self::User(text(0).to_owned())),
            "WORKDIR" => Ok(Self::Directory(text(0).to_owned())),
            "ENV" => {
                let pairs = arguments.chunks_exact(2);
                let pairs: Vec<_> = pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect();
                for (name, _) in &pairs {
                    name.parse::<EnvName>()
                        .map_err(|error| Error::invalid(format!("`ENV`: {error}")))?;
                }
                Ok(Self::Env(pairs))
            }
            "COPY" => {
                let source = text(0);
                if source.starts_with('/') || source.split('/').any(|part| part == "..") {
                    return Err(Error::invalid(
                        "`COPY`: the source must be a path below the context",
                    ));
                }
                Ok(Self::Copy {
                    source: source.to_owned(),
                    target: text(1).to_owned(),
                    owner: text(2).to_owned(),
                    mode: text(3).to_owned(),
                    archive: archive.ok_or_else(|| Error::invalid("`COPY`: its files were not sent"))?,
                })
            }
            other => {
                let other: String = other.chars().take(20).collect();
                Err(Error::not_supported(
                    &format!("the step `{other}`"),
                    "use RUN, COPY, ENV, WORKDIR and USER",
                ))
            }
        }
    }

    /// Returns `true` if the step starts programs in the sandbox, and so is a run.
    const fn runs(&self) -> bool {
        match self {
            Self::Run { .. } | Self::Copy { .. } | Self::User(_) => true,
            Self::Env(_) | Self::Directory(_) => false,
        }
    }

    /// Returns the step as its log names it.
    fn described(&self) -> String {
        match self {
            Self::Run { command, .. } => format!("RUN {command}"),
            Self::Env(pairs) => {
                let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
                format!("ENV {}", names.join(" "))
            }
            Self::Directory(path) => format!("WORKDIR {path}"),
            Self::User(user) => format!("USER {user}"),
            Self::Copy { source, target, .. } => format!("COPY {source} {target}"),
        }
    }
}

impl Build {
    /// Carries the build out, and notes its end.
    pub(super) async fn run(self, key: BuildKey) {
        let ended = self.carry_out(key).await;
        self.note(|template| {
            template.status = match ended {
                Ok(()) => Status::Ready,
                Err(Failure { message, step }) => {
                    template.log("error", &message, step);
                    Status::Failed { message, step }
                }
            };
            // Their archives are not needed any more.
            template.uploads.clear();
        });
    }

    fn note(&self, act: impl FnOnce(&mut Template)) {
        if let Some(template) = lock(&self.all).get_mut(self.id.as_str()) {
            act(template);
        }
    }

    fn log(&self, message: &str, step: Option<usize>) {
        self.note(|template| template.log("info", message, step));
    }

    async fn carry_out(&self, key: BuildKey) -> Result<(), Failure> {
        let scope = &self.client.scope;
        let (new, defaults) = self.sandbox();
        let new = NewSandbox {
            most: self.client.most_sandboxes,
            ..new
        };
        let sandbox = self.sandboxes.create(scope, new).await?;
        let built = tokio::select! {
            built = self.build(&sandbox, defaults, key.begin_run) => built,
            () = key.end => Err(failed("the key of the build is revoked or has expired".to_owned())),
        };
        // It may have ended by itself.
        let _ = self.sandboxes.remove(scope, sandbox.id().as_str()).await;
        built
    }

    /// Returns the sandbox in which it is built, and the defaults that it begins with.
    fn sandbox(&self) -> (NewSandbox, Defaults) {
        let new = NewSandbox {
            limits: self.limits,
            account: Account::Root,
            timeout: Some(TIME),
            metadata: [("template".to_owned(), self.name.to_string())].into(),
            ..NewSandbox::default()
        };
        let settings = Settings {
            directory: Some(HOME.to_owned()),
            ..Settings::default()
        };
        let defaults = Defaults { settings, user: None };
        match &self.base {
            Base::Machine => (new, defaults),
            Base::Image(image) => {
                let image = Some(Arc::clone(image));
                (NewSandbox { image, ..new }, defaults)
            }
            Base::Template(snapshot) => {
                let (least, limits) = (snapshot.limits(), self.limits);
                let new = NewSandbox {
                    limits: SandboxLimits {
                        memory: least.memory.max(limits.memory),
                        disk: least.disk.max(limits.disk),
                        ..limits
                    },
                    snapshot: Some(snapshot.id.to_string()),
                    ..new
                };
                let defaults = Defaults {
                    settings: snapshot.template.clone().unwrap_or_default(),
                    user: snapshot.user.clone(),
                };
                (new, defaults)
            }
        }
    }

    async fn build(
        &self,
        sandbox: &Sandbox,
        mut defaults: Defaults,
        begin_run: BeginRun,
    ) -> Result<(), Failure> {
        let home = HOME.to_owned();
        sandbox
            .change::<MadeDirectory>(&Operation::MakeDirectory { path: home })
            .await?;
        for (index, step) in self.steps.iter().enumerate() {
            let number = Some(index + 1);
            self.log(&step.described(), number);
            let begun = match step.runs() {
                true => begin_run().map_err(failed),
                false => Ok(()),
            };
            let done = match begun {
                Ok(()) => self.step(sandbox, step, index + 1, &mut defaults).await,
                Err(refused) => Err(refused),
            };
            done.map_err(|failure| Failure {
                step: number,
                ..failure
            })?;
        }
        let Defaults { mut settings, user } = defaults;
        settings.build = Some(self.build.clone());
        settings.tags = new_tags(self.tags.clone())?;
        settings.start = self.start.clone().or(settings.start);
        settings.ready = self.ready.clone().or(settings.ready);
        self.log("Keeping the files of the template", None);
        let new = NewSnapshot {
            id: Some(self.id.clone()),
            name: Some(self.name.clone()),
            replaces: true,
            user,
            template: Some(settings),
        };
        let id = sandbox.id().as_str();
        self.sandboxes.snapshot_as(&self.client.scope, id, new).await?;
        Ok(())
    }

    async fn step(
        &self,
        sandbox: &Sandbox,
        step: &Step,
        number: usize,
        defaults: &mut Defaults,
    ) -> Result<(), Failure> {
        let Defaults { settings, user } = defaults;
        match step {
            Step::User(name) => {
                self.make_user(sandbox, name, number).await?;
                *user = Some(name.clone());
                Ok(())
            }
            Step::Env(pairs) => {
                settings.env.extend(pairs.iter().cloned());
                let length: usize = settings
                    .env
                    .iter()
                    .map(|(name, value)| name.len() + in_json(value))
                    .sum();
                match length > MAX_ENV {
                    true => Err(failed(format!(
                        "the variables of a template have at most {MAX_ENV} bytes"
                    ))),
                    false => Ok(()),
                }
            }
            Step::Directory(path) => {
                let path = below(settings, path);
                self.make_directory(sandbox, &path, user.as_deref(), number)
                    .await?;
                settings.directory = Some(path);
                Ok(())
            }
            Step::Run { command, user: own } => {
                let new = NewProcess {
                    user: own.clone().or(user.clone()),
                    ..new_process(CommandLine::Shell(command.clone()), settings)
                };
                let started = sandbox.start(new).await;
                let process = started.map_err(|error| not_started(error, command))?;
                self.follow(&process, number).await
            }
            Step::Copy {
                source,
                target,
                owner,
                mode,
                archive,
            } => {
                unpack(sandbox, archive).await?;
                // With its own group, which `chown` takes from the sandbox's files.
                let of_steps = user.as_ref().map(|user| format!("{user}:"));
                let owner = Some(owner.clone()).filter(|owner| !owner.is_empty());
                let owner = owner.or(of_steps).unwrap_or_default();
                let words = ["sh", "-c", COPY, "sh", STAGING, source, target, &owner, mode];
                let command = CommandLine::Words(words.map(str::to_owned).to_vec());
                let process = sandbox.start(new_process(command, settings)).await?;
                self.follow(&process, number).await?;
                Ok(sandbox.remove_file(STAGING.to_owned()).await?)
            }
        }
    }

    /// Makes a directory for a user, by root where the user may not.
    async fn make_directory(
        &self,
        sandbox: &Sandbox,
        path: &str,
        user: Option<&str>,
        number: usize,
    ) -> Result<(), Failure> {
        let operation = Operation::MakeDirectory {
            path: path.to_owned(),
        };
        let made = sandbox.files_of(user).change::<MadeDirectory>(&operation).await;
        let is_denied =
            matches!(&made, Err(SandboxError::File(error)) if error.kind == FileErrorKind::Denied);
        let (true, Some(user)) = (is_denied, user) else {
            return Ok(made.map(drop)?);
        };
        let words = ["sh", "-c", MAKE_DIRECTORY, "sh", path, &format!("{user}:")].map(str::to_owned);
        let new = NewProcess {
            command: CommandLine::Words(words.to_vec()),
            user: Some(ROOT.to_owned()),
            ..NewProcess::default()
        };
        let process = sandbox.start(new).await?;
        self.follow(&process, number).await
    }

    /// Makes a user, unless it is there or a number, and checks that a process can become it.
    async fn make_user(&self, sandbox: &Sandbox, name: &str, number: usize) -> Result<(), Failure> {
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        if name != ROOT && !is_number {
            let words = ["sh", "-c", ADD_USER, "sh", name].map(str::to_owned);
            let new = NewProcess {
                command: CommandLine::Words(words.to_vec()),
                ..NewProcess::default()
            };
            let process = sandbox.start(new).await?;
            self.follow(&process, number).await?;
        }
        let path = "/".to_owned();
        let files = sandbox.files_of(Some(name));
        files.change::<Entry>(&Operation::Stat { path }).await?;
        Ok(())
    }

    /// Logs the output of a step's process until its success.
    async fn follow(&self, process: &Process, number: usize) -> Result<(), Failure> {
        let mut reader = process.output.read_from(0);
        let (mut lines, mut last) = (Lines::default(), LastLines::default());
        let mut log = |line: &str| {
            self.log(line, Some(number));
            last.add(line);
        };
        while let Some(item) = reader.next().await {
            match item {
                Item::Chunk { chunk, .. } => {
                    lines.add(chunk.stream, &chunk.bytes, &mut log);
                }
                Item::Lost(_) => {}
                Item::End(end) => {
                    lines.finish(&mut log);
                    return match (end.outcome, end.exit_code) {
                        (Outcome::Exited, 0) => Ok(()),
                        (Outcome::Exited, status) => {
                            let message = format!("the command failed with exit status {status}");
                            Err(failed(last.after(message)))
                        }
                        (Outcome::MemoryExceeded, _) => Err(failed(
                            last.after("the command was killed for lack of memory: ask for more".to_owned()),
                        )),
                        _ => Err(failed(
                            last.after("the command was killed, or did not start".to_owned()),
                        )),
                    };
                }
            }
        }
        Err(failed("the sandbox of the build has ended".to_owned()))
    }
}

/// Output as lines, of which long ones are cut.
#[derive(Debug, Default)]
struct Lines {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Lines {
    fn add(&mut self, stream: Stream, bytes: &[u8], mut log: impl FnMut(&str)) {
        let line = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        for byte in bytes {
            if *byte == b'\n' || line.len() >= MAX_LINE {
                log(&String::from_utf8_lossy(line));
                line.clear();
            }
            if *byte != b'\n' {
                line.push(*byte);
            }
        }
    }

    fn finish(self, mut log: impl FnMut(&str)) {
        for line in [self.stdout, self.stderr] {
            if !line.is_empty() {
                log(&String::from_utf8_lossy(&line));
            }
        }
    }
}

/// The last lines of a command's output.
#[derive(Debug, Default)]
struct LastLines(VecDeque<String>);

impl LastLines {
    fn add(&mut self, line: &str) {
        if self.0.len() == LAST_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line.chars().take(MAX_LAST_LINE).collect());
    }

    /// Returns a message with the lines, if there are any.
    fn after(self, message: String) -> String {
        match self.0.is_empty() {
            true => message,
            false => format!("{message}:\n{}", Vec::from(self.0).join("\n")),
        }
    }
}

fn failed(message: String) -> Failure {
    Failure { message, step: None }
}

/// Returns a process in the working directory and with the variables of the steps before.
fn new_process(command: CommandLine, settings: &Settings) -> NewProcess {
    NewProcess {
        command,
        cwd: settings.directory.clone(),
        env: settings.env.clone(),
        ..NewProcess::default()
    }
}

/// Converts the error of a command that could not be started.
fn not_started(error: ringfence_sandbox::Error, command: &str) -> Failure {
    match error {
        // E2B's words.
        ringfence_sandbox::Error::NoUser(user) => failed(format!(
            "failed to run command '{command}': command failed: unauthenticated: invalid username: '{user}'"
        )),
        other => other.into(),
    }
}

/// Returns a path as a command in the working directory means it.
fn below(settings: &Settings, path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{}/{path}", settings.directory.as_deref().unwrap_or(HOME)),
    }
}

/// Unpacks the files of a step, in the sandbox.
async fn unpack(sandbox: &Sandbox, archive: &Archive) -> Result<(), Failure> {
    let path = STAGING.to_owned();
    let operating = sandbox.operate(&Operation::Extract { path }).await?;
    let broken = |error: Error| failed(error.message().to_owned());
    let mut content = archive.content(sandbox.disk().0).await.map_err(broken)?;
    while let Some(piece) = content.next().await.map_err(broken)? {
        let piece: Bytes = piece;
        if !operating.write(piece.to_vec()).await {
            break;
        }
    }
    operating.whole().await?;
    Ok(())
}
