//! `ringfence gateway telegram`, with the engine, the tool and the bot as people run them.

mod answers;
mod fake;
mod http;
mod outages;
mod presses;
mod refusals;

use self::fake::{Fake, TOKEN};
use super::{Asking, Bot};
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
        let args = [&["telegram"], options].concat();
        Bot::start(&self.world, &args, env, TOKEN)
    }

    fn ask(&self, command: &str) -> Asking {
        Asking::of(&self.world, command, &["--no-engine"])
    }

    fn made(&self, name: &str) -> bool {
        self.world.dir.path(&format!("work/{name}")).exists()
    }

    /// Ends all, shows that nothing is left, and that the token is nowhere.
    #[track_caller]
    fn close(self, bot: Bot) {
        bot.stop(&self.world, "TERM");
        self.end();
    }

    /// The same without a bot.
    #[track_caller]
    fn end(self) {
        super::close(self.world, TOKEN);
    }
}
