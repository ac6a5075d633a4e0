//! Renders messages for a channel, such that only our own text is markup.

use serde::Serialize;

use crate::card::{Card, Choice};
use ringfence_gateway_protocol::lines;

/// Maximum length of a message, in UTF-16 units. Discord counts characters, which are never more.
const MAX_MESSAGE: usize = 2000;
/// Part of a message reserved for the outcome.
const FOR_ENDING: usize = 200;
/// Maximum length of the notes.
const MAX_NOTES: usize = 700;
/// Maximum length of the notes' tail.
const MAX_TAIL: usize = 300;
/// Maximum length of a notice.
const MAX_NOTICE: usize = 1800;

/// Component types.
const ROW: u8 = 1;
pub(super) const BUTTON: u8 = 2;
/// Types of responses to a press: a message, and nothing that is seen.
const MESSAGE: u8 = 4;
const DEFERRED_UPDATE: u8 = 6;
/// Message flags.
const SUPPRESS_EMBEDS: u32 = 1 << 2;
const EPHEMERAL: u32 = 1 << 6;
const NOBODY: AllowedMentions = AllowedMentions { parse: [] };

/// Name of the file with a text that is too long for a message.
pub(super) const FILE: &str = "question.txt";

#[derive(Debug, Serialize)]
pub(super) struct Post {
    pub(super) content: String,
    components: Vec<Row>,
    allowed_mentions: AllowedMentions,
    flags: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<Attached>,
    /// Deduplicates a retried post.
    pub(super) nonce: String,
    enforce_nonce: bool,
    /// Content of [`FILE`].
    #[serde(skip)]
    pub(super) file: Option<String>,
}

/// A row of buttons.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(rename = "type")]
    kind: u8,
    components: Vec<Button>,
}

#[derive(Debug, Serialize)]
struct Button {
    #[serde(rename = "type")]
    kind: u8,
    style: u8,
    label: &'static str,
    custom_id: String,
}

/// The people whom a message notifies.
#[derive(Debug, Serialize)]
struct AllowedMentions {
    parse: [&'static str; 0],
}

/// A response to a press.
#[derive(Debug, Serialize)]
pub(super) struct Response {
    #[serde(rename = "type")]
    kind: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Whisper>,
}

/// A message that only the presser sees.
#[derive(Debug, Serialize)]
struct Whisper {
    content: String,
    flags: u32,
    allowed_mentions: AllowedMentions,
}

#[derive(Debug, Serialize)]
struct Attached {
    id: u8,
    filename: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct Edit {
    content: String,
    components: Vec<Row>,
    allowed_mentions: AllowedMentions,
}

/// Presentation of the requested text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// In the message.
    Inline,
    /// In a file attached to the message.
    File,
    /// Not shown, so it cannot be approved.
    Withheld,
}

impl Form {
    /// Returns the presentation that fits a request's text.
    pub(super) fn of(card: &Card) -> Self {
        if !card.is_whole() {
            Self::Withheld
        } else if units(&content(card, Self::Inline)) + FOR_ENDING <= MAX_MESSAGE {
            Self::Inline
        } else {
            Self::File
        }
    }
}

impl Post {
    /// Creates a request with its buttons; `until` is its expiry in seconds since 1970.
    pub(super) fn question(card: &Card, until: u64, nonce: String) -> Self {
        let form = Form::of(card);
        let text = format!("{}\nExpires <t:{until}:R>.", content(card, form));
        let choices = card.choices().into_iter();
        let file = (form == Form::File).then(|| card.body());
        Self {
            attachments: file
                .iter()
                .map(|_| Attached {
                    id: 0,
                    filename: FILE,
                })
                .collect(),
            components: vec![row(choices.map(|choice| button(choice, card.data(choice))))],
            file,
            ..Self::plain(text, nonce)
        }
    }

    pub(super) fn notice(text: &str, nonce: String) -> Self {
        Self::plain(block(&cut(&lines(text).join("\n"), MAX_NOTICE)), nonce)
    }

    fn plain(content: String, nonce: String) -> Self {
        Self {
            content,
            components: Vec::new(),
            allowed_mentions: NOBODY,
            flags: SUPPRESS_EMBEDS,
            attachments: Vec::new(),
            nonce,
            enforce_nonce: true,
            file: None,
        }
    }
}

impl Edit {
    /// Replaces a request's buttons by its outcome.
    pub(super) fn settled(card: &Card, ending: &str) -> Self {
        let ending = cut(&plain(ending), FOR_ENDING - 10);
        Self {
            content: format!("{}\n**{ending}**", content(card, Form::of(card))),
            components: Vec::new(),
            allowed_mentions: NOBODY,
        }
    }
}

/// Creates a response to a press that only the presser sees.
pub(super) fn whisper(text: &str) -> Response {
    Response {
        kind: MESSAGE,
        data: Some(Whisper {
            content: plain(text),
            flags: EPHEMERAL,
            allowed_mentions: NOBODY,
        }),
    }
}

/// Creates a response to a press that shows nothing.
pub(super) fn taken() -> Response {
    Response {
        kind: DEFERRED_UPDATE,
        data: None,
    }
}

/// Renders a request's message without its expiry or outcome.
fn content(card: &Card, form: Form) -> String {
    let text = match form {
        Form::Inline => block(&card.body()),
        Form::File => format!(
            "Its text is too long for a message. The file `{FILE}` below holds all of it, {} characters: read it \
             before you answer.",
            card.words().command.chars().count()
        ),
        Form::Withheld => "Its text is in none of the messages here.".to_owned(),
    };
    let notes = block(&without_middle(&card.notes().join("\n")));
    format!("**{}**\n{text}\n{notes}", plain(&card.headline()))
}

fn row(buttons: impl Iterator<Item = Button>) -> Row {
    Row {
        kind: ROW,
        components: buttons.collect(),
    }
}

fn button(choice: Choice, custom_id: String) -> Button {
    Button {
        kind: BUTTON,
        // Green, grey, red.
        style: match choice {
            Choice::Approve => 3,
            Choice::Session | Choice::More | Choice::Always => 2,
            Choice::Deny => 4,
        },
        label: choice.label(),
        custom_id,
    }
}

/// Renders a code block that its text cannot close, and keeps all its lines.
fn block(text: &str) -> String {
    // Discord drops empty lines at both ends, and takes a block without text for an opening fence.
    let first = if text.starts_with('\n') || text.is_empty() {
        "\\u{a}"
    } else {
        ""
    };
    let last = if text.ends_with('\n') { "\\u{a}" } else { "" };
    format!(
        "```\n{first}{}{last}\n```",
        text.replace("```", "\\u{60}\\u{60}\\u{60}")
    )
}

/// Escapes markup, mentions and links.
fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        // Discord treats a backslash before anything but letters, digits and spaces as an escape.
        if c.is_ascii_punctuation() && !matches!(c, '(' | ')' | ',' | ';') {
            shown.push('\\');
        }
        shown.push(c);
    }
    shown
}

/// Truncates to a number of UTF-16 units, with an ellipsis.
fn cut(text: &str, max: usize) -> String {
    if units(text) <= max {
        return text.to_owned();
    }
    let mut left = max.saturating_sub(1);
    let fits = |c: &char| {
        let rest = left.checked_sub(c.len_utf16());
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    let mut shown: String = text.chars().take_while(fits).collect();
    shown.push('\u{2026}');
    shown
}

/// Truncates the middle of the notes: warnings about the text are at the start, scope and expiry at the end.
fn without_middle(notes: &str) -> String {
    let all = units(notes);
    if all <= MAX_NOTES {
        return notes.to_owned();
    }
    let mut left_out = all - MAX_TAIL;
    let tail = notes.chars().skip_while(|c| {
        let skips = left_out > 0;
        left_out = left_out.saturating_sub(c.len_utf16());
        skips
    });
    format!(
        "{}\n\u{2026}{}",
        cut(notes, MAX_NOTES - MAX_TAIL),
        tail.collect::<String>()
    )
}

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_ended_by_nothing_in_it() {
        let check = |text: &str, expected: &str| {
            let block = block(text);
            assert_eq!(block, format!("```\n{expected}\n```"));
            assert_eq!(block.matches("```").count(), 2, "{block}");
        };
        check("ls", "ls");
        check("``` ````", "\\u{60}\\u{60}\\u{60} \\u{60}\\u{60}\\u{60}`");
        check("a``\n`b", "a``\n`b");
        check("", "\\u{a}");
        check("\n\nx\n", "\\u{a}\n\nx\n\\u{a}");
    }

    #[test]
    fn plain_text_has_no_markup_in_it() {
        let check = |text: &str, expected: &str| assert_eq!(plain(text), expected);
        check("Approved by ann on Discord", "Approved by ann on Discord");
        check(
            "**x** @everyone <@1> [a](http://b) `c` _d_ \\",
            "\\*\\*x\\*\\* \\@everyone \\<\\@1\\> \\[a\\](http\\:\\/\\/b) \\`c\\` \\_d\\_ \\\\",
        );
    }

    #[test]
    fn what_is_cut_fits_and_says_so() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab\u{2026}");
        // A character of two units is not split.
        assert_eq!(cut("a\u{1d11e}\u{1d11e}", 3), "a\u{2026}");
        let notes = format!("first{}last", "\u{1d11e}".repeat(MAX_NOTES));
        let shown = without_middle(&notes);
        assert!(units(&shown) <= MAX_NOTES + 2, "{shown}");
        assert!(shown.starts_with("first") && shown.ends_with("last"), "{shown}");
    }
}
