//! `ringfence gateway telegram`, with the real server, tool and bot.

mod answers;
mod fake;
mod http;
mod outages;
mod presses;
mod refusals;

use self::fake::{Fake, TOKEN};
use super::{Asking, Bot};
use crate::world::World;

/// The chat to ask in: a group, since its id is negative.
const GROUP: i64 = -1_001_234_567_890;
/// The user who may answer.
const ANN: i64 = 42;
/// A user who may not answer, although she is in the group.
const EVE: i64 = 666;

/// A server whose questions go to a group of its own fake Telegram.
struct Setting {
    world: World,
    fake: Fake,
}

impl Setting {
    /// Creates a setting with further keys of `hostExecution`, without starting anything.
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

    /// Creates a setting with a server, and a bot connected to it and to Telegram.
    fn running(host_execution: &str) -> (Self, Bot) {
        let setting = Self::new(host_execution);
        setting.world.start_engine();
        let bot = setting.bot();
        bot.until("connected to the server");
        (setting, bot)
    }

    fn bot(&self) -> Bot {
        self.bot_with(&[], &[("TELEGRAM_BOT_TOKEN", TOKEN)])
    }

    /// Starts a bot with options, and a token from the environment.
    fn bot_with(&self, options: &[&str], env: &[(&str, &str)]) -> Bot {
        let args = [&["telegram"], options].concat();
        Bot::start(&self.world, &args, env, TOKEN)
    }

    fn ask(&self, command: &str) -> Asking {
        Asking::of(&self.world, command, &["--no-engine"])
    }

    fn made(&self, name: &str) -> bool {
        self.world.dir.path(&format!("work/{name}")).exists()
    }

    /// Stops all, and asserts that nothing is left and that the token is nowhere.
    #[track_caller]
    fn close(self, bot: Bot) {
        bot.stop(&self.world, "TERM");
        self.end();
    }

    /// Stops a setting without a bot.
    #[track_caller]
    fn end(self) {
        super::close(self.world, TOKEN);
    }
}
