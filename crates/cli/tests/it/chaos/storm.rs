//! A hundred concurrent calls of `sandbox_exec`, and their possible fates.

use std::fs;
use std::process::Child;

use serde_json::{Value, json};

use super::{Setting, until};

const CALLS: usize = 100;
/// Number of lines that a printing call prints.
const LINES: usize = 20_000;

/// The behaviour of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallBehaviour {
    /// Prints its token.
    Quick,
    /// Prints much output, and its token.
    Printing,
    /// Waits for a file, and prints its token.
    Waiting,
    /// Sleeps beyond its timeout.
    Overdue,
}

/// The fate of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Success,
    TimedOut,
    Unknown,
    /// An error instead of a result.
    Error,
}

impl Fate {
    /// Returns `true` if the fate is normal for such a call without a kill. A call that misses its place in
    /// the queue has no result.
    pub(super) fn is_as_ever(behaviour: CallBehaviour, fate: Self) -> bool {
        match behaviour {
            CallBehaviour::Overdue => matches!(fate, Self::TimedOut | Self::Error),
            CallBehaviour::Quick | CallBehaviour::Printing | CallBehaviour::Waiting => fate == Self::Success,
        }
    }
}

/// One call, by its own process.
struct Call {
    number: usize,
    behaviour: CallBehaviour,
    client: Child,
}

/// Running calls.
pub(super) struct Storm<'a> {
    setting: &'a Setting,
    calls: Vec<Call>,
}

impl CallBehaviour {
    fn of(number: usize) -> Self {
        match number % 10 {
            0 | 5 => Self::Waiting,
            1 | 6 => Self::Printing,
            2 => Self::Overdue,
            _ => Self::Quick,
        }
    }

    fn arguments(self, number: usize) -> Value {
        let token = token(number);
        let python =
            |code: String, timeout: u32| json!({"language": "python", "code": code, "timeout": timeout});
        match self {
            Self::Quick if number.is_multiple_of(2) => {
                json!({"language": "bash", "code": format!("echo {token}")})
            }
            Self::Quick => python(format!("print('{token}')"), 60),
            Self::Printing => python(
                format!("for line in range({LINES}): print(line)\nprint('{token}')"),
                60,
            ),
            Self::Waiting => python(
                format!(
                    "import os, time\nopen('/workspace/waits-{number}', 'w')\n\
                     while not os.path.exists('/workspace/enough'): time.sleep(0.02)\nprint('{token}')"
                ),
                60,
            ),
            Self::Overdue => python(format!("import time; time.sleep(1000); print('{token}')"), 3),
        }
    }

    /// Returns the number of bytes that a completed call prints.
    fn bytes(self, number: usize) -> u64 {
        let before: usize = match self {
            Self::Printing => (0..LINES).map(|line| line.to_string().len() + 1).sum(),
            Self::Quick | Self::Waiting | Self::Overdue => 0,
        };
        (before + token(number).len() + 1) as u64
    }
}

/// Returns a call's unique output.
fn token(number: usize) -> String {
    format!("token-{}", number * 7919 + 13)
}

impl<'a> Storm<'a> {
    /// Starts all calls. On return some have ended, and some wait.
    pub(super) fn begin(setting: &'a Setting) -> Self {
        let call = |number| {
            let behaviour = CallBehaviour::of(number);
            Call {
                number,
                behaviour,
                client: setting.begin(number, &behaviour.arguments(number), &[]),
            }
        };
        let mut storm = Self {
            setting,
            calls: (0..CALLS).map(call).collect(),
        };
        until("some have ended, and some wait", || {
            storm.running() < CALLS - 5 && setting.waiting() >= 10
        });
        storm
    }

    /// Returns the number of running calls.
    pub(super) fn running(&mut self) -> usize {
        self.calls
            .iter_mut()
            .filter_map(|call| call.client.try_wait().unwrap().is_none().then_some(()))
            .count()
    }

    /// Kills the clients of calls of one kind, and forgets these calls.
    pub(super) fn kill(&mut self, behaviour: CallBehaviour) {
        let (killed, kept) = self.calls.drain(..).partition(|call| call.behaviour == behaviour);
        self.calls = kept;
        drop(Storm {
            setting: self.setting,
            calls: killed,
        });
    }

    /// Lets all calls end, and returns their fates.
    pub(super) fn ended(mut self) -> Fates {
        fs::write(self.setting.world.dir.path("shared/enough"), "").unwrap();
        until("every call has ended", || self.running() == 0);
        let fates = self
            .calls
            .iter()
            .map(|call| (call.behaviour, call.fate(self.setting)));
        Fates(fates.collect())
    }
}

/// Leftovers of a failed test would run for ever.
impl Drop for Storm<'_> {
    fn drop(&mut self) {
        for call in &mut self.calls {
            let _ = call.client.kill();
            let _ = call.client.wait();
        }
    }
}

impl Call {
    /// Returns the fate of the call, and checks it: a reported success must be complete.
    fn fate(&self, setting: &Setting) -> Fate {
        let (stdout, stderr) = setting.printed(self.number);
        let told = format!("{} {:?}: {stdout}{stderr}", self.number, self.behaviour);
        let parsed = serde_json::from_str(&stdout);
        assert!(parsed.is_ok(), "{told}");
        let printed: Value = parsed.unwrap();
        if let Some(error) = printed.get("error") {
            let words = ["message", "hint"].map(|name| error[name].as_str().unwrap_or_default());
            assert!(words.iter().all(|words| words.len() > 10), "{told}");
            return Fate::Error;
        }
        let meta = &printed["meta"];
        let fate = match meta["outcome"].as_str() {
            Some("exited") => Some(Fate::Success),
            Some("timed_out") => Some(Fate::TimedOut),
            Some("unknown") => Some(Fate::Unknown),
            _ => None,
        };
        assert!(fate.is_some(), "{told}");
        let fate = fate.unwrap();
        let stdout = printed["stdout"].as_str().unwrap();
        let whole = meta["stdout_bytes"] == self.behaviour.bytes(self.number);
        match fate {
            Fate::Success => {
                assert_eq!(printed["exit_code"], 0, "{told}");
                assert!(whole && self.behaviour != CallBehaviour::Overdue, "{told}");
                // Long output may be truncated at the end.
                let ends = format!("{}\n", token(self.number));
                assert!(
                    self.behaviour == CallBehaviour::Printing || stdout == ends,
                    "{told}"
                );
            }
            Fate::TimedOut => assert!(printed["exit_code"] == -1 && !whole, "{told}"),
            Fate::Unknown | Fate::Error => {
                let why = meta["warnings"][0].as_str().unwrap_or_default();
                assert!(printed["exit_code"] == 125 && why.len() > 10, "{told}");
            }
        }
        fate
    }
}

/// The fates of all calls.
#[derive(Debug)]
pub(super) struct Fates(Vec<(CallBehaviour, Fate)>);

impl Fates {
    pub(super) fn count(&self, wanted: impl Fn(CallBehaviour, Fate) -> bool) -> usize {
        self.0
            .iter()
            .filter(|(behaviour, fate)| wanted(*behaviour, *fate))
            .count()
    }
}
