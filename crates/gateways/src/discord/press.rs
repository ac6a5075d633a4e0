//! Parses a press of a button from a Discord event; ignores unknown fields, so that additions do no harm.

use super::id::{ChannelId, InteractionId, MessageId, UserId};
use super::page::BUTTON;
use serde::Deserialize;
use serde_json::Value;

/// Interaction type of a message component.
const COMPONENT: u8 = 3;

/// An interaction with the bot.
#[derive(Debug)]
pub(super) struct Press {
    pub(super) id: InteractionId,
    pub(super) token: Token,
    /// The pressed button. `None` for any other interaction.
    pub(super) button: Option<Button>,
}

/// A secret of Discord's that is valid for minutes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Token(pub(super) String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// A pressed button, with its message and user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Button {
    pub(super) data: String,
    pub(super) channel: ChannelId,
    pub(super) message: MessageId,
    pub(super) user: User,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct User {
    pub(super) id: UserId,
    pub(super) username: String,
}

#[derive(Deserialize)]
struct Interaction {
    id: InteractionId,
    token: Token,
    #[serde(rename = "type")]
    kind: u8,
    data: Option<Value>,
    channel_id: Option<ChannelId>,
    channel: Option<WithId<ChannelId>>,
    message: Option<WithId<MessageId>>,
    /// Set in a server.
    member: Option<Member>,
    /// Set in a direct message.
    user: Option<User>,
}

#[derive(Deserialize)]
struct WithId<I> {
    id: I,
}

#[derive(Deserialize)]
struct Member {
    user: User,
}

#[derive(Deserialize)]
struct Component {
    component_type: u8,
    custom_id: String,
}

impl Press {
    /// Parses an event. `None` if it lacks the members that a response needs.
    pub(super) fn of(event: Value) -> Option<Self> {
        let mut interaction: Interaction = serde_json::from_value(event).ok()?;
        let button = interaction.button();
        Some(Self {
            id: interaction.id,
            token: interaction.token,
            button,
        })
    }
}

impl Interaction {
    fn button(&mut self) -> Option<Button> {
        let component: Component = serde_json::from_value(self.data.take()?).ok()?;
        let member = self.member.take().map(|member| member.user);
        (self.kind == COMPONENT && component.component_type == BUTTON).then_some(())?;
        Some(Button {
            data: component.custom_id,
            channel: self
                .channel
                .as_ref()
                .map(|channel| channel.id)
                .or(self.channel_id)?,
            message: self.message.as_ref()?.id,
            user: member.or_else(|| self.user.take())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event() -> Value {
        json!({
            "id": "1", "token": "t", "type": 3, "version": 1, "new": {"from": "next year"},
            "channel": {"id": "2", "type": 99}, "channel_id": "2", "message": {"id": "3", "components": "?"},
            "member": {"user": {"id": "4", "username": "ann"}},
            "data": {"component_type": 2, "custom_id": "a0"},
        })
    }

    #[test]
    fn a_press_is_understood_in_a_server_and_in_private() {
        let expected = || Button {
            data: "a0".to_owned(),
            channel: "2".parse().unwrap(),
            message: "3".parse().unwrap(),
            user: User {
                id: "4".parse().unwrap(),
                username: "ann".to_owned(),
            },
        };
        let press = Press::of(event()).unwrap();
        assert_eq!((press.id, press.token.0.as_str()), ("1".parse().unwrap(), "t"));
        assert_eq!(press.button, Some(expected()));
        assert!(!format!("{press:?}").contains("\"t\""));
        let mut private = event();
        private["user"] = private["member"]["user"].take();
        private["member"] = Value::Null;
        private["channel"] = Value::Null;
        assert_eq!(Press::of(private).unwrap().button, Some(expected()));
    }

    #[test]
    fn what_is_no_press_of_a_button_is_none() {
        for (name, value) in [
            ("type", json!(2)),
            (
                "data",
                json!({"component_type": 3, "custom_id": "a0", "values": []}),
            ),
            ("data", json!({"id": "5", "name": "approve"})),
            ("data", Value::Null),
            ("message", Value::Null),
            ("member", Value::Null),
        ] {
            let mut event = event();
            event[name] = value;
            let press = Press::of(event).unwrap();
            assert_eq!(press.button, None, "{name}");
        }
        assert!(Press::of(json!({"id": "0"})).is_none());
        assert!(Press::of(json!("x")).is_none());
    }
}
