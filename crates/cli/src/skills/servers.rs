//! MCP servers, set up from the configuration.

use std::str::FromStr;

use ringfence_policy::EnvName;
use ringfence_runtime::assessor::{Key, Secret};
use ringfence_runtime::fetch::Url;
use ringfence_runtime::local::{Fence, Local};
use ringfence_runtime::skills::{
    Credential, Reach, ServerPlan, ServerProcess, Servers, Surroundings, skill_name,
};

use crate::config::Config;
use crate::config::schema::{Server, ServerHeader};
use crate::config::values::ServerFence;
use crate::context::Context;
use crate::env::Environment;
use crate::exit::Failure;
use crate::high;

/// The configured servers; those that are started run in `local`.
///
/// # Errors
/// If the configuration cannot be used.
pub(super) fn servers(local: Local, context: &Context) -> anyhow::Result<Servers> {
    let config = context.config()?;
    let around = Surroundings {
        hidden: high::hidden(context)?,
        network: high::egress::settings(&config.egress, &context.environment)?,
        private_networks: high::egress::policy(&config.egress)?.private_networks,
        patience: config.skills.start_timeout,
        // To keep what they complain of is a convenience.
        journals: context.paths.make_state().ok().map(|state| state.join("servers")),
    };
    let plans = plans(config, &context.environment)?;
    Ok(Servers::new(plans, local, around))
}

fn plans(config: &Config, environment: &Environment) -> Result<Vec<ServerPlan>, Failure> {
    let mut plans: Vec<ServerPlan> = Vec::new();
    for (key, server) in &config.skills.servers {
        let entry = Entry { key, server };
        let name =
            skill_name(key).ok_or_else(|| entry.wrong("its name has no letter", "name it in letters"))?;
        if plans.iter().any(|plan| plan.name == name) {
            let why = format!("another one is `{name}` already");
            return Err(entry.wrong(&why, "give it another name"));
        }
        let reach = entry.reach(config, environment)?;
        plans.push(ServerPlan { name, reach });
    }
    Ok(plans)
}

/// One server of the configuration.
#[derive(Clone, Copy)]
struct Entry<'a> {
    key: &'a str,
    server: &'a Server,
}

impl Entry<'_> {
    fn reach(self, config: &Config, environment: &Environment) -> Result<Reach, Failure> {
        let server = self.server;
        let is_process = !server.command.is_empty();
        match &server.url {
            None if is_process && server.headers.is_empty() => {
                self.process(config, environment).map(Reach::Process)
            }
            Some(_) if is_process => Err(self.wrong(
                "it has both `command` and `url`",
                "name the program that is started, or where the server is",
            )),
            Some(url) if *server == Self::only_reached(server) => {
                let url: Url = self.parsed("url", url)?;
                let headers = server.headers.iter();
                let credentials = headers.map(|header| self.credential(header, environment));
                let credentials = credentials.collect::<Result<_, _>>()?;
                Ok(Reach::Http { url, credentials })
            }
            Some(_) => Err(self.wrong(
                "`mounts`, `hosts`, `env` and `fence` are for a server that is started",
                "leave them out",
            )),
            None if is_process => {
                Err(self.wrong("`headers` are for a server with a `url`", "leave them out"))
            }
            None => Err(self.wrong(
                "it has neither `command` nor `url`",
                "name the program that is started, or where the server is",
            )),
        }
    }

    /// What a server with an address may say.
    fn only_reached(server: &Server) -> Server {
        Server {
            url: server.url.clone(),
            headers: server.headers.clone(),
            ..Server::default()
        }
    }

    fn process(self, config: &Config, environment: &Environment) -> Result<ServerProcess, Failure> {
        let server = self.server;
        let is_free = server.fence == ServerFence::Host;
        if is_free && !(server.mounts.is_empty() && server.hosts.is_empty()) {
            let why = "on the host it sees every file and reaches every host";
            return Err(self.wrong(why, "leave `mounts` and `hosts` out, or `fence`"));
        }
        let hosts = server.hosts.iter().map(|text| self.parsed("hosts", text));
        let env = server.env.iter().map(|text| self.variable(text, environment));
        Ok(ServerProcess {
            command: server.command.clone(),
            env: env.collect::<Result<_, _>>()?,
            mounts: server.mounts.clone(),
            hosts: hosts.collect::<Result<_, _>>()?,
            memory: config.skills.memory,
            fence: match server.fence {
                ServerFence::Fenced => high::default_fence(config).into(),
                ServerFence::Host => Fence::Host,
            },
        })
    }

    fn variable(self, text: &str, environment: &Environment) -> Result<(EnvName, String), Failure> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (text, environment.text(text).unwrap_or_default().to_owned()),
        };
        Ok((self.parsed("env", name)?, value))
    }

    fn credential(self, given: &ServerHeader, environment: &Environment) -> Result<Credential, Failure> {
        let wrong = |why: &str| {
            self.wrong(
                &format!("`headers`: {why}"),
                "name a header, and where its value is",
            )
        };
        let key = match (&given.value_env, &given.value_file) {
            (None, Some(file)) => Key::File(file.clone()),
            (Some(name), None) => match environment.text(name) {
                Some(value) => Key::Known(Secret::new(value).map_err(|error| wrong(&error.to_string()))?),
                None => Key::Missing(name.clone()),
            },
            _ => return Err(wrong("it has not one source of its value")),
        };
        let prefix = given.prefix.clone().unwrap_or_default();
        Credential::new(&given.header, prefix, key).ok_or_else(|| wrong("it cannot carry a credential"))
    }

    fn parsed<T: FromStr<Err: std::fmt::Display>>(self, key: &str, text: &str) -> Result<T, Failure> {
        let wrong = |error: T::Err| {
            self.wrong(
                &format!("`{key}`: {error}"),
                "correct it; `ringfence config schema` describes it",
            )
        };
        text.parse().map_err(wrong)
    }

    fn wrong(self, why: &str, hint: &str) -> Failure {
        Failure::usage(
            format!("`skills.servers.{}`: {why}", self.key.escape_debug()),
            hint,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entry: &str, expected: Result<(), &str>) {
        let text = format!("[skills.servers.x-y]\n{entry}");
        let config: Config = toml::from_str(&text).unwrap();
        let environment = Environment::from([("TOKEN", "secret-token")]);
        let found = plans(&config, &environment).map(drop);
        let found = found.map_err(|failure| format!("{failure:?}"));
        match expected {
            Ok(()) => assert_eq!(found, Ok(()), "{entry}"),
            Err(part) => assert!(found.is_err_and(|told| told.contains(part)), "{entry}"),
        }
    }

    #[test]
    fn a_server_is_started_or_reached() {
        check(
            "command = ['a', 'b']\nmounts = ['/a:/b']\nhosts = ['a.test:1']",
            Ok(()),
        );
        check(
            "command = ['a']\nenv = ['TOKEN', 'A=b', 'NONE']\nfence = 'host'",
            Ok(()),
        );
        check(
            "url = 'http://a.test/mcp'\nheaders = [{header = 'X-Key', value_env = 'TOKEN'}]",
            Ok(()),
        );
        for (entry, told) in [
            ("", "neither `command` nor `url`"),
            ("command = ['a']\nurl = 'http://a.test'", "both"),
            ("url = 'http://a.test'\nhosts = ['b.test']", "that is started"),
            ("url = 'ftp://a.test'", "scheme"),
            (
                "command = ['a']\nheaders = [{header = 'A', value_env = 'B'}]",
                "with a `url`",
            ),
            (
                "command = ['a']\nfence = 'host'\nhosts = ['a.test']",
                "every host",
            ),
            ("command = ['a']\nenv = ['=x']", "`env`"),
            ("command = ['a']\nhosts = ['http://a.test']", "`hosts`"),
            ("url = 'http://a.test'\nheaders = [{header = 'A'}]", "one source"),
            (
                "url = 'http://a.test'\nheaders = [{header = 'Host', value_env = 'TOKEN'}]",
                "cannot carry",
            ),
        ] {
            check(entry, Err(told));
        }
    }

    #[test]
    fn names_are_those_of_python() {
        let two = "[skills.servers.a-b]\ncommand = ['x']\n[skills.servers.a_b]\ncommand = ['x']\n";
        let plans = |text: &str| plans(&toml::from_str(text).unwrap(), &Environment::default());
        assert!(format!("{:?}", plans(two)).contains("is `a_b` already"));
        let one = plans("[skills.servers.my-files]\ncommand = ['x']\n").unwrap();
        assert_eq!(one[0].name, "my_files");
    }
}
