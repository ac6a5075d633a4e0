//! Parameters of the Bot API's methods.

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct GetUpdates {
    pub(super) offset: i64,
    pub(super) limit: u32,
    pub(super) timeout: u64,
    pub(super) allowed_updates: [&'static str; 1],
}

#[derive(Debug, Serialize)]
pub(super) struct SendMessage {
    pub(super) chat_id: i64,
    pub(super) text: String,
    pub(super) entities: Vec<Entity>,
    pub(super) link_preview_options: LinkPreview,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reply_markup: Option<Keyboard>,
}

#[derive(Debug, Serialize)]
pub(super) struct EditMessageText {
    pub(super) chat_id: i64,
    pub(super) message_id: i32,
    pub(super) text: String,
    pub(super) entities: Vec<Entity>,
    pub(super) link_preview_options: LinkPreview,
}

#[derive(Debug, Serialize)]
pub(super) struct AnswerCallbackQuery {
    pub(super) callback_query_id: String,
    pub(super) text: String,
}

/// Markup by position, in UTF-16 units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Entity {
    #[serde(rename = "type")]
    pub(super) kind: EntityKind,
    pub(super) offset: u16,
    pub(super) length: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EntityKind {
    Bold,
    Code,
    Pre,
}

#[derive(Debug, Serialize)]
pub(super) struct LinkPreview {
    is_disabled: bool,
}

impl LinkPreview {
    pub(super) const DISABLED: Self = Self { is_disabled: true };
}

/// Rows of buttons below a message.
#[derive(Debug, Serialize)]
pub(super) struct Keyboard {
    pub(super) inline_keyboard: Vec<Vec<Button>>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Button {
    pub(super) text: &'static str,
    pub(super) callback_data: String,
}
