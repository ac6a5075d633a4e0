//! What ends the gateway, at its start or later.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::fake::TOKEN;
use super::{ANN, GROUP, Setting};

#[test]
fn a_gateway_that_anybody_could_answer_does_not_start() {
    let setting = Setting::new("");
    let (url, env) = (setting.fake.url(), [("TELEGRAM_BOT_TOKEN", TOKEN)]);
    for (config, status, words) in [
        (
            format!("chats = [{GROUP}]\nbase_url = '{url}'"),
            125,
            "no user is configured",
        ),
        (
            format!("users = [{ANN}]\nbase_url = '{url}'"),
            125,
            "no chat is configured",
        ),
        (
            format!("users = [{ANN}]\nchats = [1]\nbase_url = 'http://192.0.2.1'"),
            125,
            "`gateway.telegram.base_url` is not an https address",
        ),
        (
            format!("users = ['{ANN}']\nchats = [1]"),
            2,
            "gateway.telegram.users",
        ),
    ] {
        let file = setting
            .world
            .dir
            .write("home/other.toml", format!("[gateway.telegram]\n{config}\n"));
        setting
            .bot_with(file.to_str().unwrap(), &env)
            .ended(status, words);
    }
    // Nor does a project's file say who may answer.
    setting
        .world
        .dir
        .write("work/ringfence.toml", "[gateway.telegram]\nusers = [666]\n");
    setting
        .bot()
        .ended(2, "it would have others answer what you are asked");
    assert!(setting.fake.world().calls.is_empty());
    setting.end();
}

#[test]
fn a_token_comes_from_the_environment_or_a_file_and_is_never_shown() {
    let setting = Setting::new("");
    setting.world.start_engine();
    let told = |words: &str| format!("{words}\n");
    setting
        .bot_with("", &[])
        .ended(125, "the environment variable TELEGRAM_BOT_TOKEN is not set");
    setting
        .bot_with("", &[("TELEGRAM_BOT_TOKEN", "../getMe?")])
        .ended(125, "is not a token");
    setting
        .bot_with("", &[("TELEGRAM_BOT_TOKEN", "1:wrong")])
        .ended(125, "does not accept the bot's token");

    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), told(TOKEN)).unwrap();
    let config = format!(
        "[gateway.telegram]\ntoken_file = '{}'\nchats = [{GROUP}]\nusers = [{ANN}]\nbase_url = '{}'\n",
        secret.path().display(),
        setting.fake.url()
    );
    let file = setting.world.dir.write("home/other.toml", config);
    let file = file.to_str().unwrap();
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o622)).unwrap();
    setting.bot_with(file, &[]).ended(125, "others may write to it");
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let bot = setting.bot_with(file, &[]);
    bot.until("everybody on this machine may read it");
    bot.until("connected to the engine");
    setting.stop(bot, "INT");
    setting.end();
}

#[test]
fn two_programs_with_one_bot_are_told() {
    let (setting, bot) = Setting::running("");
    setting.fake.called("getUpdates", 1);
    setting.fake.world().contested = true;
    // The request that is held ends with a press of no effect.
    let press = setting.fake.send_press(666, 1, 1, "");
    setting.fake.told(&press);
    bot.ended(
        125,
        "telegram sends this bot's presses to somebody else: Conflict: ",
    );
    setting.end();
}

#[test]
fn a_telegram_that_cannot_be_reached_is_tried_again_and_its_address_is_not_told() {
    let setting = Setting::new("");
    setting.world.start_engine();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let config = format!("[gateway.telegram]\nchats = [1]\nusers = [1]\nbase_url = 'http://{closed}'\n");
    let file = setting.world.dir.write("home/other.toml", config);
    let bot = setting.bot_with(file.to_str().unwrap(), &[("TELEGRAM_BOT_TOKEN", TOKEN)]);
    bot.until("telegram cannot be reached: ");
    assert!(!bot.said().contains("/bot"), "{}", bot.said());
    setting.stop(bot, "TERM");
    setting.end();
}
