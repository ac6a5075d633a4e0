//! `ringfence gateway discord`, with the real server, tool and bot.

mod answers;
mod fake;
mod outages;
mod refusals;

use self::fake::{Fake, TOKEN};
use super::{Asking, Bot};
use crate::world::World;

const CHANNEL: u64 = 200_000_000_000_000_001;
const ANN: u64 = 300_000_000_000_000_001;
const EVE: u64 = 300_000_000_000_000_666;

/// A server whose questions go to a channel of its own fake Discord.
struct Setting {
    world: World,
    fake: Fake,
}

impl Setting {
    /// Creates a setting with further keys of `hostExecution`.
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

    /// Creates a setting with a server and a connected bot.
    fn running(host_execution: &str) -> (Self, Bot) {
        let setting = Self::new(host_execution);
        setting.world.start_engine();
        let bot = setting.bot();
        setting.fake.greeted(1);
        (setting, bot)
    }

    fn bot(&self) -> Bot {
        self.bot_with(&[])
    }

    fn bot_with(&self, options: &[&str]) -> Bot {
        let env = [("DISCORD_BOT_TOKEN", TOKEN)];
        Bot::start(&self.world, &[&["discord"], options].concat(), &env, TOKEN)
    }

    fn ask(&self, command: &str) -> Asking {
        Asking::of(&self.world, command, &[])
    }

    fn made(&self, name: &str) -> bool {
        self.world.dir.path(&format!("work/{name}")).exists()
    }

    /// Stops all, and asserts that nothing is left and that the token is nowhere.
    #[track_caller]
    fn close(self, bot: Bot) {
        bot.stop(&self.world, "TERM");
        super::close(self.world, TOKEN);
    }
}
