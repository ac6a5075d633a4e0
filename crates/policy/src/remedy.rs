//! Remedies that errors and warnings name, with the words for them.
//!
//! Flags, configuration keys, variables and commands are named here, and not in the crates that fail, which know neither a
//! command line nor a configuration file.

mod container;
mod pyodide;
mod run;
mod session;
mod tool;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use container::Container;
pub use pyodide::Pyodide;
pub use run::Run;
pub use session::Session;
pub use tool::Tool;

/// A remedy for an error: a value that a server passes to its client, and that each reader gets in words of his own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// One that names nothing of a command line or a configuration file.
    Plain(Cow<'static, str>),
    Run(Run),
    Session(Session),
    Pyodide(Pyodide),
    Container(Container),
    Tool(Tool),
}

impl Remedy {
    /// Returns the words for a person at a command line.
    pub fn person(&self) -> Cow<'_, str> {
        match self {
            Self::Plain(text) => Cow::Borrowed(text),
            Self::Run(remedy) => remedy.person().into(),
            Self::Session(remedy) => remedy.person().into(),
            Self::Pyodide(remedy) => remedy.person().into(),
            Self::Container(remedy) => remedy.person(),
            Self::Tool(remedy) => remedy.person(),
        }
    }

    /// Returns the words for a model, which are for its user if the model cannot act itself.
    pub fn model(&self) -> Cow<'_, str> {
        match self {
            Self::Run(remedy) => remedy.model().into(),
            Self::Plain(_) | Self::Session(_) | Self::Pyodide(_) | Self::Container(_) | Self::Tool(_) => {
                self.person()
            }
        }
    }
}

impl From<&'static str> for Remedy {
    fn from(text: &'static str) -> Self {
        Self::Plain(Cow::Borrowed(text))
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Self {
        Self::Plain(Cow::Owned(text))
    }
}

/// The words for a person.
impl From<Remedy> for String {
    fn from(remedy: Remedy) -> Self {
        remedy.person().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineKind;

    #[test]
    fn a_remedy_survives_the_way_to_a_client() {
        for remedy in [
            Remedy::from("name a program"),
            Run::RepairFence.into(),
            Container::StartEngine(EngineKind::Docker).into(),
        ] {
            let text = serde_json::to_string(&remedy).unwrap();
            assert_eq!(serde_json::from_str::<Remedy>(&text).unwrap(), remedy, "{text}");
        }
    }

    #[test]
    fn a_model_is_offered_what_it_can_do() {
        let remedy = Remedy::from(Run::UseLocal);
        assert!(remedy.person().contains("`--runtime local`"));
        assert_eq!(remedy.model(), "use the runtime `local`");
        assert_eq!(Remedy::from("name a program").model(), "name a program");
    }
}
