//! Requests, questions and answers.

use std::fmt;
use std::str::FromStr;

use ringfence_policy::{Scope, SessionId, Timeout};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use super::{Error, State};
use crate::audit::Digest;

/// The id of a request: 128 random bits, so that it cannot be guessed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Id(String);

const PREFIX: &str = "apr_";
const RANDOM_BYTES: usize = 16;

impl Id {
    /// Generates an id.
    ///
    /// # Errors
    /// If the kernel returns no random bytes.
    pub(super) fn random() -> Result<Self, Error> {
        let mut bytes = [0; RANDOM_BYTES];
        let filled =
            getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| Error::Random(errno.into()))?;
        if filled != bytes.len() {
            return Err(Error::Random(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(Self(format!("{PREFIX}{}", hex(&bytes))))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A parse error of an id or a chat's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not {0}")]
pub struct Malformed(&'static str);

impl FromStr for Id {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let digits = text.strip_prefix(PREFIX).unwrap_or_default();
        let fits = digits.len() == 2 * RANDOM_BYTES
            && digits
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.to_owned()))
            .ok_or(Malformed("the id of a request"))
    }
}

/// Destination of approval requests, such as `telegram_123456`; `local` is the person at this machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Chat(String);

impl Chat {
    /// Returns the chat of the person at this machine.
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Chat {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '@' | '+');
        let fits = (1..=128).contains(&text.len()) && text.chars().all(plain);
        fits.then(|| Self(text.to_owned())).ok_or(Malformed(
            "the name of a chat: up to 128 letters, digits and `_-.:@+`",
        ))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The kind of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// Permission to run a command on the host. The request's text is the command line.
    Command {
        /// Facts shown to the person.
        reasons: Vec<String>,
        /// From 0, only reads, to 10, destroys irreversibly; `None` if nobody scored it.
        risk: Option<u8>,
        /// The most lasting answer that is possible.
        lasting: Lasting,
        /// Working directory and files.
        #[serde(default, flatten)]
        place: CommandContext,
    },
    /// Permission for a tool to exceed its time limit.
    SoftTimeout {
        tool: String,
        /// The limit that was reached.
        limit: Timeout,
        /// Deadline that no answer extends.
        cap: Timeout,
    },
    /// Permission for a program to call a function of the host. The request's text is the call with its
    /// arguments.
    Skill {
        /// Path of the function, such as `Notes.add`.
        path: String,
        /// Digest of the function's definition. An answer is valid for this definition only.
        #[serde(default)]
        definition: Option<Digest>,
        /// Set if the definition differs from the one last approved.
        #[serde(default)]
        changed: bool,
    },
}

/// The context of a command besides its text: a remembered answer holds for the same context only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommandContext {
    /// Working directory.
    #[serde(default)]
    pub directory: String,
    /// Digest of the identities of the files that its words named when it was asked about, if it reads them.
    #[serde(default)]
    pub files: Option<Digest>,
    /// Digest of the contents of the files that it names, if it reads them: a persistent answer holds for the
    /// same contents only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Digest>,
}

/// Longest time for which a command's approval may be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasting {
    /// Persistent approval of the exact text.
    Offered,
    /// The session at most: a shell or an interpreter with code does something else tomorrow.
    Never,
    /// This request alone: the asker can change what the command runs.
    Once,
}

/// Lifetime of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remember {
    /// This request alone.
    #[default]
    Once,
    /// The same question in this session.
    Session,
    /// This many more of the same in this session; for a function, calls with any arguments.
    Uses(u32),
    /// The same text from now on, in a file that the person can read, edit and revoke.
    Always,
}

impl fmt::Display for Remember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Once => f.write_str("once"),
            Self::Session => f.write_str("session"),
            Self::Uses(uses) => write!(f, "{uses} uses"),
            Self::Always => f.write_str("always"),
        }
    }
}

impl Kind {
    /// Returns the name used in every interface.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Command { .. } => "command",
            Self::SoftTimeout { .. } => "soft_timeout",
            Self::Skill { .. } => "skill",
        }
    }

    /// Returns `true` if an answer may be remembered this way.
    pub const fn allows(&self, remember: Remember) -> bool {
        match (self, remember) {
            (_, Remember::Once) => true,
            (
                Self::Command {
                    lasting: Lasting::Once,
                    ..
                },
                _,
            ) => false,
            (_, Remember::Session) => true,
            (_, Remember::Uses(uses)) => uses > 0 && uses <= super::MAX_USES,
            (Self::Command { lasting, .. }, Remember::Always) => matches!(lasting, Lasting::Offered),
            (Self::SoftTimeout { .. } | Self::Skill { .. }, Remember::Always) => false,
        }
    }

    /// Returns the working directory; empty for other kinds than commands.
    pub fn directory(&self) -> &str {
        match self {
            Self::Command { place, .. } => &place.directory,
            Self::SoftTimeout { .. } | Self::Skill { .. } => "",
        }
    }

    /// Returns the digest of the named files' contents, if it matters.
    pub fn contents(&self) -> Option<Digest> {
        match self {
            Self::Command { place, .. } => place.contents,
            Self::SoftTimeout { .. } | Self::Skill { .. } => None,
        }
    }

    /// Returns the facts shown to the person besides the text.
    pub fn reasons(&self) -> Vec<String> {
        match self {
            Self::Command { reasons, .. } => reasons.clone(),
            Self::SoftTimeout { .. } => Vec::new(),
            Self::Skill { path, changed, .. } => {
                let differs = format!(
                    "{path} is not what it was when it was last approved: its name, description, arguments or code changed; \
                     `ringfence skills describe {path}` shows its description (add `--skills DIR` if the program was run with it)"
                );
                let scope = format!(
                    "an approval for the session holds for exactly this call; one for more calls holds for {path} with any \
                     arguments"
                );
                changed.then_some(differs).into_iter().chain([scope]).collect()
            }
        }
    }

    /// Returns the approvals offered to a person, with their names in protocols.
    pub fn offers(&self) -> impl Iterator<Item = (Remember, &'static str)> {
        let further = matches!(self, Self::Skill { .. });
        let offers = [
            (Remember::Once, "once"),
            (Remember::Session, "session"),
            (Remember::Uses(super::BATCH), "uses"),
            (Remember::Always, "always"),
        ];
        let offered = move |remember: Remember| {
            self.allows(remember) && (further || !matches!(remember, Remember::Uses(_)))
        };
        offers.into_iter().filter(move |(remember, _)| offered(*remember))
    }

    /// Returns the keys under which an answer to the same question may have been remembered, the most
    /// specific first.
    pub(super) fn subjects(&self, text: &str) -> Vec<String> {
        let mut subjects = vec![
            self.subject(Remember::Session, text),
            self.subject(Remember::Uses(1), text),
        ];
        subjects.dedup();
        subjects
    }

    /// Returns the key of a denial for the session: the text and its working directory, with any content of
    /// the directory's files.
    pub(super) fn refusal(&self, text: &str) -> String {
        let directory = Digest::of(self.directory().as_bytes());
        format!("refused:{}:{directory}", Digest::of(text.as_bytes()))
    }

    /// Returns the key under which an answer of this lifetime is remembered: equal keys are the same
    /// question.
    pub(super) fn subject(&self, remember: Remember, text: &str) -> String {
        match self {
            Self::Command { place, .. } => {
                let directory = Digest::of(place.directory.as_bytes());
                let files = place.files.map(|files| files.to_string()).unwrap_or_default();
                format!("command:{}:{directory}:{files}", Digest::of(text.as_bytes()))
            }
            Self::SoftTimeout { tool, .. } => format!("soft_timeout:{tool}"),
            Self::Skill { path, definition, .. } => {
                let definition = definition.map(|digest| digest.to_string()).unwrap_or_default();
                match remember {
                    // A budget is for a loop, in which each call has other arguments.
                    Remember::Uses(_) => format!("calls:{path}:{definition}"),
                    Remember::Once | Remember::Session | Remember::Always => {
                        format!("call:{path}:{definition}:{}", Digest::of(text.as_bytes()))
                    }
                }
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub kind: Kind,
    /// Exact text, shown in full.
    pub text: String,
    pub scope: Scope,
    /// Session that the question belongs to.
    pub session: Option<SessionId>,
    /// Chat in which the question is asked.
    pub chat: Chat,
    /// Time until the question expires.
    pub patience: Timeout,
}

/// A stored question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
    pub id: Id,
    #[serde(flatten)]
    pub kind: Kind,
    /// Exact text of the question.
    pub text: String,
    pub scope: String,
    /// Session that the question belongs to.
    pub session: Option<String>,
    /// Chat in which the question is asked.
    pub chat: Chat,
    /// Process that waits for the answer.
    pub asker: String,
    /// Time of asking, in milliseconds since 1970.
    pub created: u64,
    /// Deadline for an answer, in milliseconds since 1970.
    pub expires: u64,
    pub state: State,
    /// Person who answered.
    pub by: Option<String>,
    /// Time at which the question left the state `pending`.
    pub ended: Option<u64>,
}

impl Request {
    /// Returns the digest that an answer must carry.
    pub fn digest(&self) -> Digest {
        Digest::of(self.text.as_bytes())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Request that is answered.
    pub id: Id,
    pub verdict: Verdict,
    /// Lifetime of the answer.
    pub remember: Remember,
    /// Chat in which the answer was given.
    pub chat: Chat,
    /// Digest of the text that the person was shown.
    pub digest: Digest,
    /// Person who answered, as displayed to others.
    pub by: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Approve,
    Reject,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_long_and_never_the_same() {
        let ids: HashSet<Id> = (0..1000).map(|_| Id::random().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        for id in &ids {
            assert_eq!(id.as_str().parse(), Ok(id.clone()));
            assert_eq!(id.as_str().len(), 36);
        }
    }

    #[test]
    fn what_is_no_id_or_chat_is_refused() {
        let id = Id::random().unwrap();
        for text in [
            "",
            "apr_",
            "apr_001",
            &id.as_str()[..35],
            &format!("{id}0"),
            &id.as_str().to_uppercase(),
        ] {
            assert!(text.parse::<Id>().is_err(), "{text}");
        }
        for text in ["", "a b", "a\u{202e}", "a\n", &"x".repeat(129)] {
            assert!(text.parse::<Chat>().is_err(), "{text}");
        }
        assert_eq!(
            "telegram_-100:7".parse::<Chat>().unwrap().as_str(),
            "telegram_-100:7"
        );
    }

    #[test]
    fn a_person_is_offered_a_budget_for_the_calls_of_a_function_alone() {
        let names = |kind: &Kind| kind.offers().map(|(_, name)| name).collect::<Vec<_>>();
        let path = "Notes.drop".to_owned();
        let skill = Kind::Skill {
            path,
            definition: None,
            changed: false,
        };
        assert_eq!(names(&skill), ["once", "session", "uses"]);
        let command = Kind::Command {
            reasons: Vec::new(),
            risk: None,
            lasting: Lasting::Offered,
            place: CommandContext::default(),
        };
        assert_eq!(names(&command), ["once", "session", "always"]);
    }

    #[test]
    fn a_limit_is_never_lifted_for_good_and_a_shell_never_allowed_for_good() {
        let command = |lasting| Kind::Command {
            reasons: Vec::new(),
            risk: None,
            lasting,
            place: CommandContext::default(),
        };
        let timeout = Kind::SoftTimeout {
            tool: "a".to_owned(),
            limit: Timeout::seconds(1),
            cap: Timeout::seconds(2),
        };
        for (kind, always) in [
            (command(Lasting::Offered), true),
            (command(Lasting::Never), false),
            (timeout, false),
        ] {
            assert_eq!(kind.allows(Remember::Always), always, "{kind:?}");
            assert!(
                kind.allows(Remember::Once)
                    && kind.allows(Remember::Session)
                    && kind.allows(Remember::Uses(3))
            );
            assert!(!kind.allows(Remember::Uses(0)) && !kind.allows(Remember::Uses(u32::MAX)));
        }
    }
}
