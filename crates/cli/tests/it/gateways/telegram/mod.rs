//! `ringfence gateway telegram`, with the engine, the tool and the bot as people run them.

mod answers;
mod fake;
mod http;
mod outages;
mod presses;
mod refusals;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use self::fake::{Fake, TOKEN};
use crate::support::eventually;
use crate::world::World;

/// The chat that is asked: a group, for its id is negative.
const GROUP: i64 = -1_001_234_567_890;
/// Who may answer.
const ANN: i64 = 42;
/// Who may not, though she is in the group.
const EVE: i64 = 666;

/// An engine whose questions go to a group of a Telegram of its own.
struct Setting {
    world: World,
    fake: Fake,
}

/// A gateway that runs.
struct Bot {
    child: Child,
    log: PathBuf,
}

/// A use of `host_exec` that waits for its answer.
struct Asking(Child);

impl Setting {
    /// With more of `hostExecution`; nothing runs yet.
    fn new(host_execution: &str) -> Self {
        let (world, fake) = (World::before_engine(), Fake::new());
        let config = format!(
            "[hostExecution]\nenabled = true\n{host_execution}\n[gateway]\nchats = ['telegram_{GROUP}']\n\
             [gateway.telegram]\nchats = [{GROUP}]\nusers = [{ANN}]\nbase_url = '{}'\n",
            fake.url()
        );
        world.dir.write("config/ringfence/ringfence.toml", config);
        Self { world, fake }
    }

    /// With an engine, and a bot that is connected to it and to Telegram.
    fn running(host_execution: &str) -> (Self, Bot) {
        let setting = Self::new(host_execution);
        setting.world.start_engine();
        let bot = setting.bot();
        bot.until("connected to the engine");
        (setting, bot)
    }

    fn bot(&self) -> Bot {
        self.bot_with(&[], &[("TELEGRAM_BOT_TOKEN", TOKEN)])
    }

    /// With options, and a token from elsewhere.
    fn bot_with(&self, options: &[&str], env: &[(&str, &str)]) -> Bot {
        let env: Vec<_> = env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let args = [&["gateway", "telegram"], options].concat();
        let logs = || fs::read_dir(self.world.dir.path("home")).unwrap().count();
        let log = self.world.dir.path(&format!("home/bot{}.log", logs()));
        let file = File::create(&log).unwrap();
        let mut command = self.world.command(&env, args);
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        self.world.watch(child.id());
        Bot { child, log }
    }

    fn ask(&self, command: &str) -> Asking {
        let arguments = json!({ "command": command }).to_string();
        let args = ["tool", "host_exec", &arguments, "--json", "--no-engine"];
        let mut tool = self.world.command(&[], args);
        let child = tool.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        self.world.watch(child.id());
        Asking(child)
    }

    fn made(&self, name: &str) -> bool {
        self.world.dir.path(&format!("work/{name}")).exists()
    }

    /// Ends all, shows that nothing is left, and that the token is nowhere.
    #[track_caller]
    fn close(self, bot: Bot) {
        self.stop(bot, "TERM");
        self.end();
    }

    /// The same without a bot.
    #[track_caller]
    fn end(self) {
        for file in files(&self.world.dir.path("")) {
            let contents = fs::read(&file).unwrap_or_default();
            let found = contents.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes());
            assert!(!found, "the token is in {}", file.display());
        }
        self.world.close();
    }

    #[track_caller]
    fn stop(&self, mut bot: Bot, signal: &str) {
        self.world.signal(&bot.child, signal);
        let status = bot.child.wait().unwrap().code();
        assert_eq!(status, (signal != "KILL").then_some(0), "{}", bot.said());
    }
}

impl Bot {
    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    #[track_caller]
    fn until(&self, words: &str) {
        eventually(words, || self.said().contains(words));
    }

    /// That it ends by itself, for this reason, with a word on what to do.
    #[track_caller]
    fn ended(mut self, status: i32, words: &str) {
        let ended = self.child.wait().unwrap().code();
        let said = self.said();
        assert_eq!(ended, Some(status), "{said}");
        assert!(said.contains(words) && said.contains("\nhint: "), "{said}");
    }
}

impl Asking {
    /// Whoever asked no longer wants to know.
    fn killed(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn end(mut self) -> Value {
        let mut printed = String::new();
        let mut stdout = self.0.stdout.take().unwrap();
        stdout.read_to_string(&mut printed).unwrap();
        self.0.wait().unwrap();
        serde_json::from_str(&printed).unwrap()
    }
}

/// All regular files below a directory, but the binary.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() && entry.file_name() != "ringfence" => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
