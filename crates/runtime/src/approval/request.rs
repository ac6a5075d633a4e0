//! What is asked, and what may be answered.

use std::fmt;
use std::str::FromStr;

use ringfence_policy::{Scope, SessionId, Timeout};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use super::{Error, State};
use crate::audit::Digest;

/// A request's id: 128 bits that nobody can guess.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Id(String);

const PREFIX: &str = "apr_";
const RANDOM_BYTES: usize = 16;

impl Id {
    /// A new one.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub(super) fn random() -> Result<Self, Error> {
        let mut bytes = [0; RANDOM_BYTES];
        let filled =
            getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| Error::Random(errno.into()))?;
        if filled != bytes.len() {
            return Err(Error::Random(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(Self(format!("{PREFIX}{}", hex(&bytes))))
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no id, or no name of a chat.
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

/// Where a person is asked, such as `telegram_123456`; the person at this machine is in `local`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Chat(String);

impl Chat {
    /// The chat of the person at this machine.
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    /// As it is written.
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

/// What kind of thing is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// Whether a command may run on the host. Its line is the request's text.
    Command {
        /// What is to be known about it.
        reasons: Vec<String>,
        /// From 0, reads only, to 10, destroys for good; none where nobody said.
        risk: Option<u8>,
        /// Whether it may be allowed for good.
        lasting: Lasting,
        /// Where it runs, and on what.
        #[serde(default, flatten)]
        place: Place,
    },
    /// Whether a tool may go on beyond its time limit.
    SoftTimeout {
        /// Which.
        tool: String,
        /// The limit that it has reached.
        limit: Timeout,
        /// When it is ended in any case.
        cap: Timeout,
    },
    /// Whether a program may call a function of the host. The function and its arguments are the request's text.
    Skill {
        /// Which, such as `Notes.add`.
        path: String,
        /// Digest of its definition; an answer holds for no other.
        #[serde(default)]
        definition: Option<Digest>,
        /// The definition is another than at the last approval.
        #[serde(default)]
        changed: bool,
    },
}

/// What a command means besides its text: a remembered answer holds for the same only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// The directory where it starts.
    #[serde(default)]
    pub directory: String,
    /// What stood behind its words when it was asked about, if it reads that.
    #[serde(default)]
    pub files: Option<Digest>,
    /// What was in the files that it names, if it reads them: a lasting answer holds for the same contents only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Digest>,
}

/// Whether an answer may hold from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasting {
    /// The exact text may be allowed for good.
    Offered,
    /// Never: a shell or an interpreter with code does something else tomorrow.
    Never,
    /// Not even in this session: whoever asks can change what it runs.
    Once,
}

/// How long an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remember {
    /// For this request.
    #[default]
    Once,
    /// For the same in this session.
    Session,
    /// For so many more of the same in this session; of a function, for calls with any arguments.
    Uses(u32),
    /// For the same text from now on, in a file that the person can read, edit and revoke.
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
    /// Its name in every interface.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Command { .. } => "command",
            Self::SoftTimeout { .. } => "soft_timeout",
            Self::Skill { .. } => "skill",
        }
    }

    /// Whether an answer may be remembered so.
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

    /// The directory where what is asked about starts; empty where there is none.
    pub fn directory(&self) -> &str {
        match self {
            Self::Command { place, .. } => &place.directory,
            Self::SoftTimeout { .. } | Self::Skill { .. } => "",
        }
    }

    /// What was in the files that are named, if that counts.
    pub fn contents(&self) -> Option<Digest> {
        match self {
            Self::Command { place, .. } => place.contents,
            Self::SoftTimeout { .. } | Self::Skill { .. } => None,
        }
    }

    /// What is to be known besides the text.
    pub fn reasons(&self) -> Vec<String> {
        match self {
            Self::Command { reasons, .. } => reasons.clone(),
            Self::SoftTimeout { .. } => Vec::new(),
            Self::Skill { path, changed, .. } => {
                let differs = format!(
                    "{path} is not what it was when it was last approved: its name, description, arguments or code changed; \
                     `ringfence skills describe {path}` shows what it says of itself"
                );
                let scope = format!(
                    "an approval for the session holds for exactly this call; one for more calls holds for {path} with any \
                     arguments"
                );
                changed.then_some(differs).into_iter().chain([scope]).collect()
            }
        }
    }

    /// The approvals that a person is offered, and what protocols call them.
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

    /// The subjects under which an answer to the same question may have been remembered, the closest first.
    pub(super) fn subjects(&self, text: &str) -> Vec<String> {
        let mut subjects = vec![
            self.subject(Remember::Session, text),
            self.subject(Remember::Uses(1), text),
        ];
        subjects.dedup();
        subjects
    }

    /// What a refusal for the session is about: the text and where it starts, whatever its files hold by then.
    pub(super) fn refusal(&self, text: &str) -> String {
        let directory = Digest::of(self.directory().as_bytes());
        format!("refused:{}:{directory}", Digest::of(text.as_bytes()))
    }

    /// What an answer is about that is remembered so: the same subject is the same question.
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
                    // A budget is for a loop, in which each call is another.
                    Remember::Uses(_) => format!("calls:{path}:{definition}"),
                    Remember::Once | Remember::Session | Remember::Always => {
                        format!("call:{path}:{definition}:{}", Digest::of(text.as_bytes()))
                    }
                }
            }
        }
    }
}

/// A question for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What kind of thing is asked.
    pub kind: Kind,
    /// The exact text that is asked about; it is shown in full.
    pub text: String,
    /// For whom.
    pub scope: Scope,
    /// In which conversation.
    pub session: Option<SessionId>,
    /// Where the person is.
    pub chat: Chat,
    /// How long the person has.
    pub patience: Timeout,
}

/// A question as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
    /// What it is known by.
    pub id: Id,
    /// What kind of thing is asked.
    #[serde(flatten)]
    pub kind: Kind,
    /// The exact text that is asked about.
    pub text: String,
    /// For whom.
    pub scope: String,
    /// In which conversation.
    pub session: Option<String>,
    /// Where the person is.
    pub chat: Chat,
    /// The process that waits for the answer.
    pub asker: String,
    /// When it was asked, in milliseconds since 1970.
    pub created: u64,
    /// When it is too late to answer, likewise.
    pub expires: u64,
    /// Where it stands.
    pub state: State,
    /// Who answered.
    pub by: Option<String>,
    /// When it left the state `pending`.
    pub ended: Option<u64>,
}

impl Request {
    /// The digest that an answer must carry.
    pub fn digest(&self) -> Digest {
        Digest::of(self.text.as_bytes())
    }
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// To which request.
    pub id: Id,
    /// Yes or no.
    pub verdict: Verdict,
    /// How long it holds.
    pub remember: Remember,
    /// The chat that it was given in.
    pub chat: Chat,
    /// The digest of the text that the person was shown.
    pub digest: Digest,
    /// Who answered, as others will be told.
    pub by: String,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Approve,
    /// No.
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
            place: Place::default(),
        };
        assert_eq!(names(&command), ["once", "session", "always"]);
    }

    #[test]
    fn a_limit_is_never_lifted_for_good_and_a_shell_never_allowed_for_good() {
        let command = |lasting| Kind::Command {
            reasons: Vec::new(),
            risk: None,
            lasting,
            place: Place::default(),
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
