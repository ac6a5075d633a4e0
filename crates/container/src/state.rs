//! Defines the state machine of a container: states, events and transitions.

use std::fmt;

use serde::Serialize;

/// The state of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
pub enum State {
    Creating,
    Running,
    Paused,
    /// The container is being ended on request.
    Stopping,
    /// The container ended unexpectedly, or could not be created.
    Failed(Failure),
    /// The remains of the container are being removed.
    Cleanup(Option<Failure>),
    /// Nothing is left of it.
    Destroyed(Option<Failure>),
}

/// A failure of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The container could not be created.
    NotCreated,
    /// The maximum lifetime was reached.
    TimedOut,
    /// The container exceeded its memory limit.
    OutOfMemory,
    /// The first process of the container exited unsuccessfully.
    Crashed,
    /// Another program removed the container, or the engine went away.
    Vanished,
}

/// An event in the life of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Started,
    Paused,
    Resumed,
    /// A regular end was requested, or its program succeeded.
    Stop,
    Failed(Failure),
    /// All processes have ended, and the removal begins.
    Clean,
    /// The removal is complete.
    Removed,
}

/// An event that is illegal in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a container that is {from} cannot be {event}")]
pub struct Illegal {
    pub from: State,
    pub event: Event,
}

impl State {
    /// Returns the state after an event.
    ///
    /// # Errors
    /// If the event is illegal in this state.
    pub fn next(self, event: Event) -> Result<Self, Illegal> {
        use Event as E;
        let illegal = Err(Illegal { from: self, event });
        match (self, event) {
            (Self::Creating, E::Started) | (Self::Paused, E::Resumed) => Ok(Self::Running),
            (Self::Running, E::Paused) => Ok(Self::Paused),
            (Self::Running | Self::Paused, E::Stop) => Ok(Self::Stopping),
            (Self::Creating, E::Failed(_)) => Ok(Self::Failed(Failure::NotCreated)),
            (Self::Running | Self::Paused, E::Failed(why)) => Ok(Self::Failed(why)),
            (Self::Stopping, E::Clean) => Ok(Self::Cleanup(None)),
            (Self::Failed(why), E::Clean) => Ok(Self::Cleanup(Some(why))),
            (Self::Cleanup(why), E::Removed) => Ok(Self::Destroyed(why)),
            // A second end changes nothing: the first is in progress or complete.
            (
                Self::Stopping | Self::Failed(_) | Self::Cleanup(_) | Self::Destroyed(_),
                E::Stop | E::Failed(_),
            ) => Ok(self),
            (Self::Creating, E::Paused | E::Resumed | E::Stop | E::Clean | E::Removed)
            | (Self::Running, E::Started | E::Resumed | E::Clean | E::Removed)
            | (Self::Paused, E::Started | E::Paused | E::Clean | E::Removed)
            | (Self::Stopping | Self::Failed(_), E::Started | E::Paused | E::Resumed | E::Removed)
            | (Self::Cleanup(_), E::Started | E::Paused | E::Resumed | E::Clean)
            | (Self::Destroyed(_), E::Started | E::Paused | E::Resumed | E::Clean | E::Removed) => illegal,
        }
    }

    /// Returns `true` until the end of the container has begun.
    pub const fn is_alive(self) -> bool {
        match self {
            Self::Creating | Self::Running | Self::Paused => true,
            Self::Stopping | Self::Failed(_) | Self::Cleanup(_) | Self::Destroyed(_) => false,
        }
    }

    pub const fn failure(self) -> Option<Failure> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Cleanup(why) | Self::Destroyed(why) => why,
            Self::Creating | Self::Running | Self::Paused | Self::Stopping => None,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, why) = match self {
            Self::Creating => ("creating", None),
            Self::Running => ("running", None),
            Self::Paused => ("paused", None),
            Self::Stopping => ("stopping", None),
            Self::Failed(why) => ("failed", Some(*why)),
            Self::Cleanup(why) => ("being removed", *why),
            Self::Destroyed(why) => ("destroyed", *why),
        };
        match why {
            Some(why) => write!(f, "{word} ({why})"),
            None => f.write_str(word),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCreated => "it could not be made",
            Self::TimedOut => "its time was up",
            Self::OutOfMemory => "it used more memory than it may",
            Self::Crashed => "its first process ended",
            Self::Vanished => "it vanished",
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Stop => "stopped",
            Self::Failed(_) => "failed",
            Self::Clean => "cleaned up",
            Self::Removed => "removed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Failure::{Crashed, NotCreated, OutOfMemory, TimedOut, Vanished};

    const FAILURES: [Failure; 5] = [NotCreated, TimedOut, OutOfMemory, Crashed, Vanished];

    fn states() -> Vec<State> {
        let mut states = vec![State::Creating, State::Running, State::Paused, State::Stopping];
        states.extend(FAILURES.map(State::Failed));
        for why in FAILURES.map(Some).into_iter().chain([None]) {
            states.extend([State::Cleanup(why), State::Destroyed(why)]);
        }
        states
    }

    fn events() -> Vec<Event> {
        use Event as E;
        let mut events = vec![E::Started, E::Paused, E::Resumed, E::Stop, E::Clean, E::Removed];
        events.extend(FAILURES.map(E::Failed));
        events
    }

    /// Returns `true` for permitted transitions: the state machine, written in another way.
    fn may_lead(from: State, to: State) -> bool {
        match from {
            State::Creating => matches!(to, State::Running | State::Failed(NotCreated)),
            State::Running => matches!(to, State::Paused | State::Stopping | State::Failed(_)),
            State::Paused => matches!(to, State::Running | State::Stopping | State::Failed(_)),
            State::Stopping => to == from || to == State::Cleanup(None),
            State::Failed(why) => to == from || to == State::Cleanup(Some(why)),
            State::Cleanup(why) => to == from || to == State::Destroyed(why),
            State::Destroyed(_) => to == from,
        }
    }

    #[test]
    fn every_pair_of_state_and_event_is_decided() {
        let mut legal = 0;
        for from in states() {
            for event in events() {
                match from.next(event) {
                    Ok(to) => {
                        legal += 1;
                        assert!(may_lead(from, to), "{from} on {event} leads to {to}");
                        assert!(
                            from.failure().is_none() || from.failure() == to.failure(),
                            "{from} {event}"
                        );
                    }
                    Err(illegal) => assert_eq!(illegal, Illegal { from, event }),
                }
            }
        }
        let (creating, running, paused, stopping) = (1 + 5, 2 + 5, 2 + 5, 1 + 6);
        let (failed, cleanup, destroyed) = (5 * (1 + 6), 6 * (1 + 6), 6 * 6);
        assert_eq!(
            legal,
            creating + running + paused + stopping + failed + cleanup + destroyed
        );
    }

    #[test]
    fn every_life_ends_with_nothing_left() {
        for from in states() {
            let ended = match from {
                State::Creating => from.next(Event::Failed(NotCreated)).unwrap(),
                _ => from.next(Event::Stop).unwrap(),
            };
            assert!(!ended.is_alive(), "{from}");
            let cleaned = ended.next(Event::Clean).unwrap_or(ended);
            let removed = cleaned.next(Event::Removed).unwrap_or(cleaned);
            assert!(matches!(removed, State::Destroyed(_)), "{from}");
        }
    }

    #[test]
    fn a_failure_is_never_stopped() {
        for why in FAILURES {
            assert_eq!(State::Failed(why).next(Event::Stop), Ok(State::Failed(why)));
        }
    }

    #[test]
    fn a_second_end_changes_nothing() {
        let destroyed = State::Destroyed(Some(TimedOut));
        assert_eq!(destroyed.next(Event::Stop), Ok(destroyed));
        assert_eq!(destroyed.next(Event::Failed(Crashed)), Ok(destroyed));
    }

    #[test]
    fn what_cannot_be_says_so() {
        let illegal = State::Creating.next(Event::Paused).unwrap_err();
        assert_eq!(
            illegal.to_string(),
            "a container that is creating cannot be paused"
        );
    }
}
