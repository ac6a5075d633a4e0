//! The forms of results and text that may reach a front end.
//!
//! A notebook's page can write files and start kernels and terminals on the machine of its server. A script
//! that the page runs for a guest would let the guest escape. Nothing here decodes or follows the forwarded
//! data.

use std::collections::BTreeMap;

use ringfence_policy::RichResult;
use serde_json::{Map, Value, json};

use crate::media::{ANSWER, DISPLAY, ERROR};

/// The forms of results that clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forms {
    /// Forms that front ends show as text and pictures, whatever they contain.
    Inert,
    /// All forms, for clients that render nothing or trust the guest.
    All,
}

const INERT: [&str; 4] = ["text/plain", "image/png", "image/jpeg", "application/json"];

/// Ringfence's own media types, which no front end renders.
const PRIVATE: [&str; 5] = [
    ANSWER,
    DISPLAY,
    ERROR,
    "application/vnd.ringfence.data+json",
    "application/vnd.ringfence.chart+json",
];

/// Maximum length of the id of a display, in bytes.
const MAX_DISPLAY_ID: usize = 256;

/// Returns the id by which a result can be updated, and `true` for an update of an earlier cell's display.
pub(crate) fn display_of(result: &RichResult) -> Option<(&str, bool)> {
    let mark = result.data.get(DISPLAY)?;
    let id = mark.get("id")?.as_str()?;
    (id.len() <= MAX_DISPLAY_ID).then_some((id, mark.get("update")?.as_bool()?))
}

/// Length of an escape sequence that colours text, without its ends.
const MAX_SEQUENCE: usize = 64;

impl Forms {
    /// Returns the data and the metadata of a result's message; `None` if nothing is left of it.
    pub(crate) fn bundle(self, result: &RichResult) -> Option<(Map<String, Value>, Map<String, Value>)> {
        let (mut data, mut left_out) = (Map::new(), Vec::new());
        for (media, value) in &result.data {
            if PRIVATE.contains(&media.as_str()) {
                continue;
            }
            match self == Self::All || INERT.contains(&media.as_str()) {
                true => drop(data.insert(media.clone(), self.shown(media, value))),
                false => left_out.push(media),
            }
        }
        left_out.extend(result.omitted.keys());
        if data.is_empty() && left_out.is_empty() {
            return None;
        }
        let mut metadata = Map::new();
        if !left_out.is_empty() {
            metadata.insert("ringfence".to_owned(), json!({ "left_out": left_out }));
        }
        Some((data, metadata))
    }

    fn shown(self, media: &str, value: &Value) -> Value {
        match (media, value) {
            ("text/plain", Value::String(text)) => self.whole(text).into(),
            _ => value.clone(),
        }
    }

    /// Returns a text that arrived at once.
    pub(crate) fn whole(self, text: &str) -> String {
        Cleaner::new(self).push(text)
    }
}

/// Removes control characters from text that arrives in pieces, but those of lines, tabs, backspaces and colours: a terminal obeys
/// others.
#[derive(Debug)]
pub(crate) struct Cleaner {
    forms: Forms,
    state: State,
}

#[derive(Debug)]
enum State {
    Text,
    /// Behind the escape character.
    Escape,
    /// Inside a control sequence.
    Sequence(String),
}

impl Cleaner {
    pub(crate) const fn new(forms: Forms) -> Self {
        Self {
            forms,
            state: State::Text,
        }
    }

    /// Adds text, and returns the part to show.
    pub(crate) fn push(&mut self, text: &str) -> String {
        if self.forms == Forms::All {
            return text.to_owned();
        }
        let mut shown = String::with_capacity(text.len());
        for character in text.chars() {
            self.take(character, &mut shown);
        }
        shown
    }

    fn take(&mut self, character: char, shown: &mut String) {
        match (&mut self.state, character) {
            (State::Escape, '[') => self.state = State::Sequence(String::new()),
            (State::Sequence(inside), ' '..='?') if inside.len() < MAX_SEQUENCE => inside.push(character),
            (State::Sequence(inside), '@'..='~') => {
                let colours = inside
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || b";:".contains(&byte));
                if character == 'm' && colours {
                    shown.push_str(&format!("\x1b[{inside}m"));
                }
                self.state = State::Text;
            }
            (_, '\x1b') => self.state = State::Escape,
            _ => {
                self.state = State::Text;
                if !character.is_control() || "\n\r\t\x08".contains(character) {
                    shown.push(character);
                }
            }
        }
    }
}

/// The numbers of a notebook's cells, by those of the context, which counts questions as well.
#[derive(Debug, Default)]
pub(crate) struct Numbers(BTreeMap<u32, u32>);

/// Maximum number of cells whose numbers are kept.
const MAX_NUMBERS: usize = 1000;

impl Numbers {
    pub(crate) fn insert(&mut self, execution: u32, cell: u32) {
        self.0.insert(execution, cell);
        while self.0.len() > MAX_NUMBERS {
            self.0.pop_first();
        }
    }

    /// Returns a traceback with the numbers of cells.
    pub(crate) fn translate(&self, text: &str) -> String {
        const NAME: &str = "<cell ";
        let (mut translated, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(NAME) {
            let (before, behind) = rest.split_at(at + NAME.len());
            translated.push_str(before);
            let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
            let cell = behind[..digits]
                .parse()
                .ok()
                .and_then(|execution| self.0.get(&execution));
            match cell {
                Some(cell) => translated.push_str(&cell.to_string()),
                None => translated.push_str(&behind[..digits]),
            }
            rest = &behind[digits..];
        }
        translated + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(media: &[(&str, &str)]) -> RichResult {
        RichResult {
            main: true,
            data: media
                .iter()
                .map(|(media, data)| ((*media).to_owned(), json!(data)))
                .collect(),
            omitted: BTreeMap::default(),
        }
    }

    #[test]
    fn what_can_act_in_a_page_is_left_out_and_named() {
        let rich = result(&[
            ("application/javascript", "alert()"),
            ("application/vnd.ringfence.data+json", "1"),
            ("image/png", "AA=="),
            ("image/svg+xml", "<svg onload=x>"),
            ("text/html", "<script>"),
            ("text/plain", "a\x1b]0;title\x07"),
        ]);
        let (data, metadata) = Forms::Inert.bundle(&rich).unwrap();
        assert_eq!(
            json!(data),
            json!({"image/png": "AA==", "text/plain": "a]0;title"})
        );
        let left_out = &metadata["ringfence"]["left_out"];
        assert_eq!(
            *left_out,
            json!(["application/javascript", "image/svg+xml", "text/html"])
        );
        let (data, metadata) = Forms::All.bundle(&rich).unwrap();
        assert_eq!(data["text/html"], "<script>");
        assert!(metadata.is_empty() && !data.contains_key("application/vnd.ringfence.data+json"));
        assert_eq!(Forms::All.bundle(&result(&[(ERROR, "")])), None);
    }

    #[test]
    fn marks_of_displays_are_checked() {
        let mut rich = result(&[("text/plain", "1")]);
        let mut check = |mark: Value, expected| {
            rich.data.insert(DISPLAY.to_owned(), mark);
            assert_eq!(display_of(&rich), expected);
            assert!(Forms::All.bundle(&rich).unwrap().0.keys().eq(["text/plain"]));
        };
        check(json!({"id": "a", "update": true}), Some(("a", true)));
        check(json!({"id": "", "update": false}), Some(("", false)));
        check(json!({"id": "a".repeat(257), "update": true}), None);
        for mark in [
            json!({"id": 1, "update": true}),
            json!({"id": "a"}),
            json!({"id": "a", "update": 1}),
            json!(["id"]),
        ] {
            check(mark, None);
        }
        assert_eq!(display_of(&result(&[])), None);
    }

    #[test]
    fn of_escape_sequences_only_colours_stay_however_they_arrive() {
        let text = "a\x1b[1;31mred\x1b[0m\x1b[2J\x1b]52;c;AA\x07\x1bc\u{9b}b\r\n\tc\x08\x1b[";
        let expected = "a\x1b[1;31mred\x1b[0m]52;c;AAcb\r\n\tc\x08";
        for size in [1, 3, 1000] {
            let mut cleaner = Cleaner::new(Forms::Inert);
            let characters: Vec<char> = text.chars().collect();
            let pieces = characters
                .chunks(size)
                .map(|piece| piece.iter().collect::<String>());
            let shown: String = pieces.map(|piece| cleaner.push(&piece)).collect();
            assert_eq!(shown, expected, "{size}");
        }
        assert_eq!(Cleaner::new(Forms::All).push(text), text);
    }

    #[test]
    fn tracebacks_name_the_cells_of_the_notebook() {
        let mut numbers = Numbers::default();
        numbers.insert(7, 2);
        assert_eq!(
            numbers.translate("<cell 7>, <cell 8>, <cell x"),
            "<cell 2>, <cell 8>, <cell x"
        );
    }
}
