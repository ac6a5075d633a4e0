//! MCP servers of the configuration.

use std::path::Path;
use std::str::FromStr;

use ringfence_exec::key::Key;
use ringfence_exec::local::Fence;
use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::NamedPaths;
use ringfence_network::fetch::Url;
use ringfence_network::secret::Secret;
use ringfence_policy::{EnvName, Mount};
use ringfence_tools::skills::{Credential, Reach, ServerPlan, ServerProcess, skill_name};

use super::checks::{CORRECT, Checks, Wrong};
use crate::config::Config;
use crate::config::schema::{Server, ServerHeader};
use crate::config::values::ServerFence;
use crate::env::Environment;
use crate::mount_guard;

pub(super) fn plans(checks: &mut Checks<'_>) -> Option<Vec<ServerPlan>> {
    let (config, environment) = (checks.config(), checks.environment);
    let named = checks.named_paths();
    let hidden = checks.hidden();
    let mut plans: Vec<ServerPlan> = Vec::new();
    let mut complete = true;
    for (key, server) in &config.skills.servers {
        let entry = Entry { key, server };
        let plan = entry.plan(
            &plans,
            Given {
                config,
                environment,
                named: &named,
            },
        );
        let plan = plan.and_then(|plan| entry.check_mounts(&hidden).map(|()| plan));
        match checks.keep(plan) {
            Some(plan) => plans.push(plan),
            None => complete = false,
        }
    }
    complete.then_some(plans)
}

/// Inputs of a plan besides its entry.
#[derive(Clone, Copy)]
struct Given<'a> {
    config: &'a Config,
    environment: &'a Environment,
    named: &'a NamedPaths,
}

/// One server of the configuration.
#[derive(Clone, Copy)]
struct Entry<'a> {
    key: &'a str,
    server: &'a Server,
}

impl Entry<'_> {
    /// Returns the connection plan of the server, under a name not used by `others`.
    fn plan(self, others: &[ServerPlan], given: Given<'_>) -> Result<ServerPlan, Wrong> {
        let name =
            skill_name(self.key).ok_or_else(|| self.wrong("its name has no letter", "name it in letters"))?;
        if others.iter().any(|plan| plan.name == name) {
            let why = format!("another one is `{name}` already");
            return Err(self.wrong(&why, "give it another name"));
        }
        let reach = self.reach(given)?;
        Ok(ServerPlan { name, reach })
    }

    /// Rejects a malformed mount, and one that exposes a hidden path. A missing path is reported when the
    /// server starts.
    fn check_mounts(self, hidden: &DeniedPaths) -> Result<(), Wrong> {
        for text in &self.server.mounts {
            let mount: Mount = self.parsed("mounts", text)?;
            let host = mount_guard::nearest_resolved(&Path::new("/").join(&mount.host));
            hidden.check(&host).map_err(|why| {
                let message = format!("`mounts`: refusing to show `{text}`: {why}");
                self.wrong(&message, "name a directory that holds only what the server needs")
            })?;
        }
        Ok(())
    }

    fn reach(self, given: Given<'_>) -> Result<Reach, Wrong> {
        let Given {
            config,
            environment,
            named,
        } = given;
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
                let credentials = headers.map(|header| self.credential(header, environment, named));
                let credentials = credentials.collect::<Result<_, _>>()?;
                Ok(Reach::Http { url, credentials })
            }
            Some(_) => Err(self.wrong(
                "`mounts`, `hosts`, `env`, `fence` and `data` are for a server that is started",
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

    /// Returns the server with only the fields that may accompany a URL.
    fn only_reached(server: &Server) -> Server {
        Server {
            url: server.url.clone(),
            headers: server.headers.clone(),
            ..Server::default()
        }
    }

    fn process(self, config: &Config, environment: &Environment) -> Result<ServerProcess, Wrong> {
        let server = self.server;
        let is_free = server.fence == ServerFence::Host;
        if is_free && !(server.mounts.is_empty() && server.hosts.is_empty()) {
            let why = "on the host it sees every file and reaches every host";
            return Err(self.wrong(why, "leave `mounts` and `hosts` out, or `fence`"));
        }
        if !is_free && !server.data.is_empty() {
            let why = "`data` is for a server on the host";
            return Err(self.wrong(why, "leave it out: in a fence it has its `mounts`"));
        }
        if let Some(path) = server.data.iter().find(|path| !path.is_absolute()) {
            let why = format!("`data`: expected absolute paths, found `{}`", path.display());
            return Err(self.wrong(&why, "write the path from the root directory"));
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
                ServerFence::Fenced => config.sandbox.isolation.fence(),
                ServerFence::Host => Fence::Host,
            },
        })
    }

    fn variable(self, text: &str, environment: &Environment) -> Result<(EnvName, String), Wrong> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (text, environment.text(text).unwrap_or_default().to_owned()),
        };
        Ok((self.parsed("env", name)?, value))
    }

    fn credential(
        self,
        given: &ServerHeader,
        environment: &Environment,
        named: &NamedPaths,
    ) -> Result<Credential, Wrong> {
        let wrong = |why: &str| {
            self.wrong(
                &format!("`headers`: {why}"),
                "name a header, and where its value is",
            )
        };
        let key = match (&given.value_env, &given.value_file) {
            (None, Some(file)) => Key::File(file.clone(), named.clone()),
            (Some(name), None) => match environment.text(name) {
                Some(value) => Key::Known(Secret::new(value).map_err(|error| wrong(&error.to_string()))?),
                None => Key::Missing(name.clone()),
            },
            _ => return Err(wrong("set exactly one of `value_env` and `value_file`")),
        };
        let prefix = given.prefix.clone().unwrap_or_default();
        Credential::new(&given.header, prefix, key)
            .ok_or_else(|| wrong("a credential must not be sent in this header"))
    }

    fn parsed<T: FromStr<Err: std::fmt::Display>>(self, key: &str, text: &str) -> Result<T, Wrong> {
        let wrong = |error: T::Err| self.wrong(&format!("`{key}`: {error}"), CORRECT);
        text.parse().map_err(wrong)
    }

    fn wrong(self, why: &str, hint: &str) -> Wrong {
        Wrong::new(format!("skills.servers.{}", self.key.escape_debug()), why, hint)
    }
}
