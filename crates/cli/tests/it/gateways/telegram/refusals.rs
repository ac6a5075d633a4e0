//! Errors that end the gateway, at its start or later.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::fake::TOKEN;
use super::{ANN, GROUP, Setting};

#[test]
fn a_gateway_that_anybody_could_answer_does_not_start() {
    let setting = Setting::new("");
    let (url, env) = (setting.fake.url(), [("TELEGRAM_BOT_TOKEN", TOKEN)]);
    for (config, status, words) in [
        (
            format!("chats = [{GROUP}]\nbase_url = '{url}'"),
            2,
            "no user is configured",
        ),
        (
            format!("users = [{ANN}]\nbase_url = '{url}'"),
            2,
            "no chat is configured",
        ),
        (
            format!("users = [{ANN}]\nchats = [1]\nbase_url = 'http://192.0.2.1'"),
            2,
            "`gateway.telegram.base_url`: expected an https address",
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
            .bot_with(&["--config", file.to_str().unwrap()], &env)
            .ended(status, words);
    }
    // A project's file may not set the users either.
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
        .bot_with(&[], &[])
        .ended(2, "the environment variable TELEGRAM_BOT_TOKEN is not set");
    setting
        .bot_with(&[], &[("TELEGRAM_BOT_TOKEN", "../getMe?")])
        .ended(2, "is not a token");
    setting
        .bot_with(&[], &[("TELEGRAM_BOT_TOKEN", "1:wrong")])
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
    setting
        .bot_with(&["--config", file], &[])
        .ended(2, "others may write to it");
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let bot = setting.bot_with(&["--config", file], &[]);
    bot.until("everybody on this machine may read it");
    bot.until("connected to the server");
    bot.stop(&setting.world, "INT");
    setting.end();
}

#[test]
fn two_programs_with_one_bot_are_told() {
    let (setting, bot) = Setting::running("");
    setting.fake.called("getUpdates", 1);
    setting.fake.world().contested = true;
    // A press without effect ends the long poll.
    let press = setting.fake.send_press(666, 1, 1, "");
    setting.fake.told(&press);
    bot.ended(
        125,
        "another program receives this bot's button presses: Conflict: ",
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
    let bot = setting.bot_with(
        &["--config", file.to_str().unwrap()],
        &[("TELEGRAM_BOT_TOKEN", TOKEN)],
    );
    bot.until("telegram cannot be reached: ");
    assert!(!bot.said().contains("/bot"), "{}", bot.said());
    bot.stop(&setting.world, "TERM");
    setting.end();
}

#[test]
fn the_ids_that_the_configuration_needs_are_told_and_nothing_is_asked() {
    let setting = Setting::new("");
    setting.world.start_engine();
    let file = setting.world.dir.write(
        "home/other.toml",
        format!("[gateway.telegram]\nbase_url = '{}'\n", setting.fake.url()),
    );
    let options = ["--ids", "--config", file.to_str().unwrap()];
    let bot = setting.bot_with(&options, &[("TELEGRAM_BOT_TOKEN", TOKEN)]);
    setting.fake.called("getUpdates", 1);
    assert_eq!(setting.fake.world().wanted, json!(["message"]));
    let from = json!({"id": ANN, "is_bot": false, "first_name": "A\u{202e}", "username": "ann"});
    let chat = json!({"id": GROUP, "type": "supergroup", "title": "\u{1b}[2J"});
    setting
        .fake
        .send(json!({"message": {"message_id": 1, "date": 1, "from": from, "chat": chat, "text": "/start"}}));
    bot.until(&format!("user {ANN} (@ann) writes in chat {GROUP}\n"));
    let calls = setting.fake.world().calls.clone();
    assert!(calls.iter().all(|call| call.starts_with("get")), "{calls:?}");
    bot.stop(&setting.world, "INT");
    setting.end();
}
