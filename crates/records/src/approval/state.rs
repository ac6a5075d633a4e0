//! The state machine of a request.

use serde::{Deserialize, Serialize};

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Unanswered.
    Pending,
    /// Approved, and not yet consumed by the asker.
    Approved,
    Rejected,
    /// Unanswered at its deadline.
    Expired,
    /// The asker died or withdrew the request.
    Abandoned,
    /// The asker took the approval, once, to act on it.
    Consumed,
}

/// An event of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Approve,
    Reject,
    /// The deadline has passed.
    Expire,
    /// The asker died or withdrew the request.
    Abandon,
    /// The asker is about to act.
    Consume,
}

impl State {
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Approved,
        Self::Rejected,
        Self::Expired,
        Self::Abandoned,
        Self::Consumed,
    ];

    /// Returns the next state, or `None` if the event comes too late or too early and changes nothing.
    pub const fn next(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Pending, Event::Approve) => Some(Self::Approved),
            (Self::Pending, Event::Reject) => Some(Self::Rejected),
            (Self::Pending, Event::Expire) => Some(Self::Expired),
            (Self::Pending | Self::Approved, Event::Abandon) => Some(Self::Abandoned),
            (Self::Approved, Event::Consume) => Some(Self::Consumed),
            (Self::Pending, Event::Consume)
            | (Self::Approved, Event::Approve | Event::Reject | Event::Expire)
            | (Self::Rejected | Self::Expired | Self::Abandoned | Self::Consumed, _) => None,
        }
    }

    /// Returns the name used in the store and in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Abandoned => "abandoned",
            Self::Consumed => "consumed",
        }
    }

    /// Describes the state in a sentence.
    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::Pending => "it is pending",
            Self::Approved => "it is approved",
            Self::Rejected => "it is rejected",
            Self::Expired => "it is expired",
            Self::Abandoned => "it is abandoned",
            Self::Consumed => "it was approved, and the approval was used",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_meets_every_event() {
        use Event as E;
        use State as S;
        let events = [E::Approve, E::Reject, E::Expire, E::Abandon, E::Consume];
        let table = [
            (
                S::Pending,
                [
                    Some(S::Approved),
                    Some(S::Rejected),
                    Some(S::Expired),
                    Some(S::Abandoned),
                    None,
                ],
            ),
            (
                S::Approved,
                [None, None, None, Some(S::Abandoned), Some(S::Consumed)],
            ),
            (S::Rejected, [None; 5]),
            (S::Expired, [None; 5]),
            (S::Abandoned, [None; 5]),
            (S::Consumed, [None; 5]),
        ];
        assert_eq!(table.map(|(state, _)| state), S::ALL);
        for (state, expected) in table {
            assert_eq!(events.map(|event| state.next(event)), expected, "{state:?}");
        }
    }

    #[test]
    fn nothing_leads_twice_to_the_same_state_or_back_to_pending() {
        let events = [
            Event::Approve,
            Event::Reject,
            Event::Expire,
            Event::Abandon,
            Event::Consume,
        ];
        for (state, event) in State::ALL
            .into_iter()
            .flat_map(|state| events.map(|event| (state, event)))
        {
            let next = state.next(event);
            assert!(
                next != Some(state) && next != Some(State::Pending),
                "{state:?} {event:?}"
            );
            // The same event a second time changes nothing.
            assert_eq!(
                next.and_then(|next| next.next(event)),
                None,
                "{state:?} {event:?}"
            );
        }
    }

    #[test]
    fn names_come_back() {
        for state in State::ALL {
            assert_eq!(State::named(state.as_str()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!(State::named("Pending"), None);
    }
}
