//! Renders approval requests as Telegram messages: without markup; untrusted text is marked by entities.

use super::methods::{Button, Entity, EntityKind, Keyboard};
use crate::card::Card;

/// Maximum length of a message in UTF-16 units, without the part reserved for the outcome.
const MAX_UNITS: usize = 4096 - 196;
/// Part of a message for the first line.
const HEAD_UNITS: usize = 100;
/// Maximum length of a request's text: about ten messages.
pub(super) const ROOM: usize = 36_000;
/// Maximum length of the notes.
const MAX_NOTES: usize = 6_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) text: String,
    pub(super) entities: Vec<Entity>,
}

/// Renders a request as messages; the last one is for the buttons.
pub(super) fn pages(card: &Card) -> Vec<Page> {
    let mut notes = card.notes().join("\n");
    if units(&notes) > MAX_NOTES {
        // Scope and expiry are at the end.
        let (start, end) = (split_at(&notes, MAX_NOTES - 500), tail_of(&notes, 400));
        notes = format!("{}\n(\u{2026})\n{}", &notes[..start], &notes[end..]);
    }
    laid_out(&card.headline(), &card.body(), &notes)
}

/// Renders a notice as one message.
pub(super) fn notice(text: &str) -> Page {
    let shown = &text[..split_at(text, MAX_UNITS)];
    let more = if shown.len() < text.len() { " \u{2026}" } else { "" };
    Page {
        text: format!("{shown}{more}"),
        entities: vec![entity(EntityKind::Code, 0, units(shown))],
    }
}

/// Adds the outcome above the last page.
pub(super) fn ended(page: &Page, ending: &str) -> Page {
    let ending = &ending[..split_at(ending, 180)];
    let above = format!("{ending}\n\n");
    let shift = u16::try_from(units(&above)).unwrap_or(u16::MAX);
    let mut entities = vec![entity(EntityKind::Bold, 0, units(ending))];
    entities.extend(page.entities.iter().map(|entity| Entity {
        offset: entity.offset.saturating_add(shift),
        ..entity.clone()
    }));
    Page {
        text: format!("{above}{}", page.text),
        entities,
    }
}

/// Returns the buttons of a request.
pub(super) fn keyboard(card: &Card) -> Keyboard {
    let button = |choice: &crate::card::Choice| Button {
        text: choice.label(),
        callback_data: card.data(*choice),
    };
    let buttons: Vec<Button> = card.choices().iter().map(button).collect();
    Keyboard {
        inline_keyboard: buttons.chunks(2).map(<[Button]>::to_vec).collect(),
    }
}

fn laid_out(headline: &str, body: &str, notes: &str) -> Vec<Page> {
    let (mut pieces, room) = (Vec::new(), MAX_UNITS - HEAD_UNITS);
    for (kind, text) in [(EntityKind::Pre, body), (EntityKind::Code, notes)] {
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, left) = rest.split_at(split_at(rest, room));
            pieces.push((kind, piece));
            rest = left;
        }
    }
    let mut pages: Vec<Vec<(EntityKind, &str)>> = Vec::new();
    for piece in pieces {
        let taken = |page: &Vec<(_, &str)>| page.iter().map(|(_, text)| 1 + units(text)).sum::<usize>();
        match pages.last_mut() {
            Some(page) if taken(page) + 1 + units(piece.1) <= room => page.push(piece),
            _ => pages.push(vec![piece]),
        }
    }
    let all = pages.len();
    let written = |(index, pieces): (usize, Vec<(EntityKind, &str)>)| {
        let part = if all > 1 {
            format!(", part {} of {all}", index + 1)
        } else {
            String::new()
        };
        let headline = &headline[..split_at(headline, HEAD_UNITS - 30)];
        page(&format!("{headline}{part}"), &pieces)
    };
    pages.into_iter().enumerate().map(written).collect()
}

fn page(headline: &str, pieces: &[(EntityKind, &str)]) -> Page {
    let mut text = headline.to_owned();
    let mut entities = Vec::new();
    for (kind, piece) in pieces {
        text.push('\n');
        entities.push(entity(*kind, units(&text), units(piece)));
        text.push_str(piece);
    }
    Page { text, entities }
}

fn entity(kind: EntityKind, offset: usize, length: usize) -> Entity {
    let short = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
    Entity {
        kind,
        offset: short(offset),
        length: short(length),
    }
}

fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Returns the end of the longest prefix of `most` UTF-16 units; after a line break, if one is near.
fn split_at(text: &str, most: usize) -> usize {
    let mut units = 0;
    let beyond = |(_, c): &(usize, char)| {
        units += c.len_utf16();
        units > most
    };
    let Some((end, _)) = text.char_indices().find(beyond) else {
        return text.len();
    };
    match text[..end].rfind('\n') {
        Some(line) if line > end / 2 => line + 1,
        _ => end,
    }
}

/// Returns the start of the last `most` characters.
fn tail_of(text: &str, most: usize) -> usize {
    text.char_indices()
        .rev()
        .take(most)
        .last()
        .map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text marked by entities of this kind.
    fn marked(page: &Page, kind: EntityKind) -> String {
        let text: Vec<u16> = page.text.encode_utf16().collect();
        let of_kind = page.entities.iter().filter(|entity| entity.kind == kind);
        of_kind
            .map(|entity| {
                let start = usize::from(entity.offset);
                String::from_utf16(&text[start..start + usize::from(entity.length)]).unwrap()
            })
            .collect()
    }

    #[test]
    fn a_short_question_is_one_message_and_what_others_wrote_is_marked_by_position() {
        let pages = laid_out("A command", "echo \u{1d11e} </pre> `*_[", "\u{2022} why\nuntil");
        let [page] = &pages[..] else {
            panic!("{pages:?}");
        };
        assert_eq!(
            page.text,
            "A command\necho \u{1d11e} </pre> `*_[\n\u{2022} why\nuntil"
        );
        assert_eq!(marked(page, EntityKind::Pre), "echo \u{1d11e} </pre> `*_[");
        assert_eq!(marked(page, EntityKind::Code), "\u{2022} why\nuntil");
        let ended = ended(page, "Approved by ann");
        assert!(ended.text.starts_with("Approved by ann\n\nA command\n"));
        assert_eq!(marked(&ended, EntityKind::Pre), "echo \u{1d11e} </pre> `*_[");
        assert_eq!(marked(&ended, EntityKind::Bold), "Approved by ann");
    }

    #[test]
    fn a_long_question_is_shown_in_full_over_messages_that_fit() {
        for body in [
            "x".repeat(9_000),
            "\u{1d11e}".repeat(9_000),
            "line\n".repeat(2_000),
            "x".repeat(ROOM),
            "y".repeat(MAX_UNITS - HEAD_UNITS),
        ] {
            let pages = laid_out(&"h".repeat(300), &body, &"n".repeat(MAX_NOTES));
            assert!(pages.len() > 1);
            let shown: String = pages.iter().map(|page| marked(page, EntityKind::Pre)).collect();
            assert!(shown == body, "{} of {}", shown.len(), body.len());
            for page in &pages {
                let ended = ended(page, &"e".repeat(500));
                assert!(units(&ended.text) <= 4096, "{}", units(&ended.text));
            }
            let last = pages.last().unwrap();
            assert!(marked(last, EntityKind::Code).contains('n'));
            assert!(last.text.contains(&format!(", part {0} of {0}", pages.len())));
        }
    }

    #[test]
    fn a_notice_is_cut_to_what_fits() {
        assert_eq!(notice("ran `ls`").text, "ran `ls`");
        assert!(units(&notice(&"x".repeat(10_000)).text) <= 4096);
    }
}
