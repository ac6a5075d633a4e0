//! `ringfence gateway discord`, with the engine, the tool and the bot as people run them.

mod answers;
mod fake;
mod outages;
mod refusals;

use std::fs::{self, File};
use std::io::Read;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use self::fake::{Fake, TOKEN};
use crate::support::eventually;
use crate::world::World;

const CHANNEL: u64 = 200_000_000_000_000_001;
const ANN: u64 = 300_000_000_000_000_001;
const EVE: u64 = 300_000_000_000_000_666;

/// An engine whose questions go to a channel of a Discord of its own.
struct Setting {
    world: World,
    fake: Fake,
}

/// A bot that runs.
struct Bot {
    child: Child,
    log: std::path::PathBuf,
}

/// A use of `host_exec` that waits for its answer.
struct Asking(Child);

impl Setting {
    /// With more of `hostExecution`, and more of `gateway.discord`.
    fn new(host_execution: &str) -> Self {
        let fake = Fake::new(&[CHANNEL]);
        let world = World::before_engine();
        let config = format!(
            "[hostExecution]\nenabled = true\n{host_execution}\n[gateway]\nchats = ['discord_{CHANNEL}']\n\
             [gateway.discord]\nchannels = [{CHANNEL}]\nusers = ['{ANN}']\n{}",
            fake.config()
        );
        world.dir.write("config/ringfence/ringfence.toml", config);
        Self { world, fake }
    }

    /// With an engine and a bot that listens.
    fn running(host_execution: &str) -> (Self, Bot) {
        let setting = Self::new(host_execution);
        setting.world.start_engine();
        let bot = setting.bot();
        setting.fake.greeted(1);
        (setting, bot)
    }

    fn bot(&self) -> Bot {
        let log = self
            .world
            .dir
            .path(&format!("bot{}.log", self.fake.state().hellos.len()));
        let file = File::create(&log).unwrap();
        let child = self
            .world
            .command(
                &[("DISCORD_BOT_TOKEN".into(), TOKEN.into())],
                ["gateway", "discord"],
            )
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
        let mut tool = self
            .world
            .command(&[], ["tool", "host_exec", &arguments, "--json"]);
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
        self.stop(bot);
        for file in files(&self.world.dir.path("")) {
            let contents = fs::read(&file).unwrap_or_default();
            let found = contents.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes());
            assert!(!found, "the token is in {}", file.display());
        }
        self.world.close();
    }

    #[track_caller]
    fn stop(&self, mut bot: Bot) {
        self.world.signal(&bot.child, "TERM");
        assert_eq!(bot.child.wait().unwrap().code(), Some(0), "{}", bot.said());
        assert!(!bot.said().contains(TOKEN), "{}", bot.said());
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

    /// That it has ended by itself, for this reason.
    #[track_caller]
    fn ended(mut self, status: i32, words: &str) {
        let ended = self.child.wait().unwrap().code();
        let said = self.said();
        assert_eq!(ended, Some(status), "{said}");
        assert!(said.contains(words) && said.contains("\nhint: "), "{said}");
        assert!(!said.contains(TOKEN), "{said}");
    }
}

/// What a failed test leaves would go on for ever.
impl Drop for Bot {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Asking {
    fn end(mut self) -> Value {
        let mut printed = String::new();
        let mut stdout = self.0.stdout.take().unwrap();
        stdout.read_to_string(&mut printed).unwrap();
        self.0.wait().unwrap();
        serde_json::from_str(&printed).unwrap()
    }
}

/// All regular files below a directory.
fn files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
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
