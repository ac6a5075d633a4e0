//! A request of a caller without the rights of this user: an agent, or a client of the server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    AskedTimeout, EnvName, Language, Limits, Network, Request, RuntimeKind, Scope, SessionId, Trusted,
};

/// A request of a remote caller, as it arrives.
///
/// It has no field for a path of the host, an interpreter, a network, a fence or an owner: these are the server's
/// [`Terms`]. A member of any other name is rejected, so that nobody believes to have been obeyed.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoteRequest {
    /// Source code of the program.
    pub code: String,
    /// Language of the program: python, bash or javascript.
    #[serde(default)]
    pub language: RemoteLanguage,
    /// Runtime that runs it; the configured one by default. `pyodide` imports only Python's standard library
    /// and the packages that the operator installed.
    pub runtime: Option<RuntimeKind>,
    /// Timeout in seconds above 0, or with a unit such as "500ms". Can shorten the limit, not extend it.
    pub timeout: Option<AskedTimeout>,
    /// Name of a session: a Python interpreter that keeps variables and imports between calls. Created on
    /// first use.
    pub session: Option<SessionId>,
    /// Standard input of the program.
    pub stdin: Option<String>,
    /// Files to write to the workspace before it runs: contents by path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// A language that a remote caller can choose. A command line is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemoteLanguage {
    #[default]
    Python,
    Bash,
    Javascript,
}

impl From<RemoteLanguage> for Language {
    fn from(language: RemoteLanguage) -> Self {
        match language {
            RemoteLanguage::Python => Self::Python,
            RemoteLanguage::Bash => Self::Bash,
            RemoteLanguage::Javascript => Self::Javascript,
        }
    }
}

/// The server's side of a remote request: everything that its caller cannot choose.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Owner of the request.
    pub scope: Scope,
    /// Runtime unless the caller chooses another.
    pub runtime: RuntimeKind,
    /// Limits, of which a caller can shorten the timeout.
    pub limits: Limits,
    pub network: Network,
    /// Environment variables of the program.
    pub env: Vec<(EnvName, String)>,
    /// The scope's workspace; absolute.
    pub workspace: Option<PathBuf>,
    /// Host paths that no program may change.
    pub trusted: Trusted,
}

/// A remote request under the server's terms.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteRun {
    pub request: Request,
    pub runtime: RuntimeKind,
    pub stdin: Option<Vec<u8>>,
    /// Files of the workspace: contents by path, which nobody has checked.
    pub files: BTreeMap<String, String>,
}

impl Terms {
    /// Returns a request of `language` under these terms, without code.
    pub fn request(self, language: Language) -> Request {
        // Without a workspace no program can write to the host.
        let trusted = match self.workspace {
            Some(_) => self.trusted,
            None => Trusted::none(),
        };
        Request {
            name: format!("main.{}", extension(language)),
            env: self.env,
            limits: self.limits,
            network: self.network,
            workspace: self.workspace,
            trusted,
            scope: self.scope,
            ..Request::new(language, "")
        }
    }
}

impl RemoteRequest {
    /// Returns a request that leaves everything but the code to the server.
    pub const fn new(language: RemoteLanguage, code: String) -> Self {
        Self {
            code,
            language,
            runtime: None,
            timeout: None,
            session: None,
            stdin: None,
            files: BTreeMap::new(),
        }
    }

    /// Applies the server's terms.
    ///
    /// A session has no network, and may write where its first request could: its trusted paths are kept even
    /// without a workspace.
    pub fn under(self, terms: Terms) -> RemoteRun {
        let runtime = self.runtime.unwrap_or(terms.runtime);
        let terms = match self.timeout {
            Some(AskedTimeout(timeout)) => Terms {
                limits: Limits {
                    timeout: timeout.min(terms.limits.timeout),
                    ..terms.limits
                },
                ..terms
            },
            None => terms,
        };
        let in_session = self.session.as_ref().map(|_| terms.trusted.clone());
        let mut request = Request {
            code: self.code,
            session: self.session,
            ..terms.request(self.language.into())
        };
        if let Some(trusted) = in_session {
            request.trusted = trusted;
            request.network = Network::None;
        }
        RemoteRun {
            request,
            runtime,
            stdin: self.stdin.map(String::into_bytes),
            files: self.files,
        }
    }
}

/// Returns the file extension of a program's name.
const fn extension(language: Language) -> &'static str {
    match language {
        Language::Python => "py",
        Language::Bash => "sh",
        Language::Javascript => "js",
        Language::Command => "command",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EgressPolicy, Mount, Timeout};

    fn terms() -> Terms {
        Terms {
            scope: "ann".parse().unwrap(),
            runtime: RuntimeKind::Podman,
            limits: Limits {
                timeout: Timeout::seconds(10),
                ..Limits::DEFAULT
            },
            network: Network::Allowlist(EgressPolicy {
                allowed: vec!["a.test".parse().unwrap()],
                private_networks: Vec::new(),
            }),
            env: vec![("LANG".parse().unwrap(), "C".to_owned())],
            workspace: Some(PathBuf::from("/srv/ann")),
            trusted: Trusted {
                paths: vec![PathBuf::from("/usr/bin/python3")],
                ..Trusted::none()
            },
        }
    }

    fn parse(json: &str) -> Result<RemoteRequest, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn a_caller_chooses_the_program_and_the_server_the_rest() {
        let remote = parse(
            r#"{"code": "1", "language": "bash", "runtime": "docker", "timeout": "500ms", "stdin": "in", "files": {"a": "b"}}"#,
        );
        // Every field by name: a new one has to be decided about here.
        let RemoteRun {
            request,
            runtime,
            stdin,
            files,
        } = remote.unwrap().under(terms());
        let Request {
            code,
            name,
            language,
            args,
            env,
            limits,
            network,
            mounts,
            workspace,
            working_directory,
            trusted,
            scope,
            session,
            image,
        } = request;
        assert_eq!(
            (code.as_str(), name.as_str(), language, runtime),
            ("1", "main.sh", Language::Bash, RuntimeKind::Docker)
        );
        assert_eq!((stdin.as_deref(), files["a"].as_str()), (Some(&b"in"[..]), "b"));
        assert_eq!(limits.timeout.to_string(), "500ms");
        let own = terms();
        assert_eq!((env, network, workspace), (own.env, own.network, own.workspace));
        assert_eq!((trusted, scope), (own.trusted, own.scope));
        assert_eq!((args, mounts), (Vec::<String>::new(), Vec::<Mount>::new()));
        assert_eq!((working_directory, session, image), (None, None, None));
        assert_eq!(
            Limits {
                timeout: own.limits.timeout,
                ..limits
            },
            own.limits
        );
    }

    #[test]
    fn only_the_code_is_needed() {
        let RemoteRun { request, runtime, .. } = parse(r#"{"code": "1"}"#).unwrap().under(terms());
        assert_eq!(
            (request.language, runtime),
            (Language::Python, RuntimeKind::Podman)
        );
        assert_eq!(request.limits, terms().limits);
        let named = RemoteRequest::new(RemoteLanguage::Python, "1".to_owned());
        assert_eq!(parse(r#"{"code": "1"}"#).unwrap(), named);
    }

    #[test]
    fn a_timeout_is_shortened_and_never_extended() {
        let check = |asked: &str, expected: &str| {
            let json = format!(r#"{{"code": "1", "timeout": {asked}}}"#);
            let run = parse(&json).unwrap().under(terms());
            assert_eq!(run.request.limits.timeout.to_string(), expected, "{asked}");
        };
        check("3", "3s");
        check("\"2m\"", "10s");
        check("10.5", "10s");
        check("1e9", "10s");
        check("\"9999h\"", "10s");
    }

    #[test]
    fn a_session_has_no_network_and_its_trusted_paths_without_a_workspace() {
        let run = |json: &str| {
            let terms = Terms {
                workspace: None,
                ..terms()
            };
            parse(json).unwrap().under(terms).request
        };
        let session = run(r#"{"code": "1", "session": "s"}"#);
        assert_eq!(
            (session.network, session.trusted),
            (Network::None, terms().trusted)
        );
        let alone = run(r#"{"code": "1"}"#);
        assert_eq!((alone.network, alone.trusted), (terms().network, Trusted::none()));
    }

    #[test]
    fn what_only_a_local_caller_may_ask_is_rejected_by_name() {
        for (field, value) in [
            ("mounts", r#"["/etc:/data"]"#),
            ("workspace", r#""/root""#),
            ("working_directory", r#""/root""#),
            ("output_directory", r#""/root""#),
            ("python", r#""/tmp/python""#),
            ("unfenced", "true"),
            ("fence", r#""best_effort""#),
            ("isolation", r#""best-effort""#),
            ("scope", r#""root""#),
            ("env", r#"{"LD_PRELOAD": "x"}"#),
            ("network", r#""allowlist""#),
            ("trusted", "{}"),
            ("limits", "{}"),
            ("skills", r#""/root""#),
            ("args", r#"["x"]"#),
        ] {
            let error = parse(&format!(r#"{{"code": "1", "{field}": {value}}}"#)).unwrap_err();
            let expected = format!("unknown field `{field}`");
            assert!(error.to_string().contains(&expected), "{error}");
        }
        // No program of the host either: a command line is not a language.
        let error = parse(r#"{"code": "1", "language": "command"}"#).unwrap_err();
        assert!(error.to_string().contains("unknown variant `command`"), "{error}");
        // A session's name is not a path.
        assert!(parse(r#"{"code": "1", "session": "../s"}"#).is_err());
    }
}
