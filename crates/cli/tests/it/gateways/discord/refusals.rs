//! Errors that keep the bot from starting.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::fake::{Fake, TOKEN};
use super::{ANN, CHANNEL, Setting};
use crate::support::{Dir, Output, finish};

fn run(dir: &Dir, config: &str, token: Option<&str>) -> Output {
    dir.write(
        "config/ringfence/ringfence.toml",
        format!("[gateway.discord]\n{config}"),
    );
    let mut command = dir.command(["gateway", "discord"]);
    if let Some(token) = token {
        command.env("DISCORD_BOT_TOKEN", token);
    }
    let output = finish(&mut command, b"");
    assert!(!format!("{output:?}").contains(TOKEN), "{output:?}");
    output
}

#[test]
fn without_channels_users_or_a_token_it_does_not_start() {
    let dir = Dir::new();
    let both = format!("channels = [{CHANNEL}]\nusers = [{ANN}]\n");
    run(&dir, &format!("users = [{ANN}]"), Some(TOKEN)).refused(2, "no channel is configured");
    run(&dir, &format!("channels = [{CHANNEL}]"), Some(TOKEN)).refused(2, "no user is configured");
    run(&dir, &both, None).refused(2, "the environment variable DISCORD_BOT_TOKEN is not set");
    run(&dir, &both, Some("two words")).refused(2, "DISCORD_BOT_TOKEN: it is not a token");
    run(&dir, &format!("{both}token_file = 'none'"), None)
        .refused(2, "expected a file with a token, found none");
    run(
        &dir,
        &format!("{both}base_url = 'http://example.org/api'"),
        Some(TOKEN),
    )
    .refused(2, "neither encrypted nor on this machine");
    run(
        &dir,
        &format!("{both}gateway_url = 'https://example.org'"),
        Some(TOKEN),
    )
    .refused(2, "does not begin with `wss://`");
    run(&dir, "users = [0]", Some(TOKEN)).refused(2, "an id of Discord's is a number");
}

#[test]
fn a_projects_file_decides_nothing_about_it() {
    let dir = Dir::new();
    dir.write("work/ringfence.toml", "[gateway.discord]\nusers = [1]\n");
    run(&dir, &format!("channels = [{CHANNEL}]\n"), Some(TOKEN)).refused(2, "gateway.discord.users");
}

#[test]
fn a_wrong_token_and_a_channel_that_it_does_not_see_are_told() {
    let fake = Fake::new(&[CHANNEL]);
    let dir = Dir::new();
    let config = |channel: u64| format!("channels = [{channel}]\nusers = [{ANN}]\n{}", fake.config());
    let wrong = TOKEN.replace("ZnCjm1", "aaaaaa");
    run(&dir, &config(CHANNEL), Some(&wrong)).refused(125, "discord rejects the token");
    run(&dir, &config(CHANNEL + 1), Some(TOKEN)).refused(125, "cannot see the channel");
    // The token may come from a file.
    let file = dir.write("token", format!("{wrong}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let from_file = format!("{}token_file = '{}'\n", config(CHANNEL), file.display());
    run(&dir, &from_file, None).refused(125, "discord rejects the token");
}

#[test]
fn a_token_that_is_echoed_is_not_told() {
    let fake = Fake::new(&[CHANNEL]);
    fake.state().echoes = true;
    let config = format!("channels = [{CHANNEL}]\nusers = [{ANN}]\n{}", fake.config());
    let output = run(&Dir::new(), &config, Some(TOKEN));
    output.refused(125, "discord rejects the request: Bot [token] xxx");
    assert!(!output.stderr.contains(&TOKEN[..4]), "{output:?}");
}

#[test]
fn a_bot_that_may_not_listen_ends() {
    for (code, words) in [
        (4004, "rejects the token"),
        (4014, "closed the connection permanently"),
        (4010, "code 4010"),
    ] {
        let setting = Setting::new("");
        setting.fake.state().close_with = Some(code);
        setting.bot().ended(125, words);
        assert_eq!(setting.fake.state().hellos.len(), 1, "{code}");
    }
}

#[test]
fn a_discord_that_cannot_be_reached_is_told_at_once() {
    let setting = Setting::new("");
    setting.world.start_engine();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let config = format!(
        "[gateway.discord]\nchannels = [{CHANNEL}]\nusers = [{ANN}]\nbase_url = 'http://{address}'\n"
    );
    let file = setting.world.dir.write("home/other.toml", config);
    let started = Instant::now();
    let bot = setting.bot_with(&["--config", file.to_str().unwrap()]);
    bot.until(&format!("(http://{address}); trying again"));
    assert!(started.elapsed() < Duration::from_secs(10), "{}", bot.said());
    setting.close(bot);
}
