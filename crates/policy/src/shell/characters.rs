//! Detects characters that make a line look like another one.

use super::Unclear;

/// Rejects characters that are invisible or reorder the display.
pub(super) fn check(line: &str) -> Result<(), Unclear> {
    match line
        .chars()
        .find_map(|character| Some((hidden(character)?, character)))
    {
        Some((what, character)) => Err(Unclear::Character {
            what,
            code: u32::from(character),
        }),
        None => Ok(()),
    }
}

/// Returns the line with invisible characters and terminal controls escaped.
pub fn visible(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for character in line.chars() {
        match character {
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\r' => text.push_str("\\r"),
            _ if hidden(character).is_some() => {
                text.push_str(&format!("\\u{{{:04x}}}", u32::from(character)));
            }
            _ => text.push(character),
        }
    }
    text
}

fn hidden(character: char) -> Option<&'static str> {
    let what = match character {
        '\n' | '\t' => return None,
        '\0' => "a NUL",
        '\r' => "a carriage return",
        '\u{0001}'..='\u{001f}' | '\u{007f}'..='\u{009f}' => "a control character",
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            "a mark that reverses text"
        }
        '\u{00a0}'
        | '\u{1680}'
        | '\u{2000}'..='\u{200a}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{202f}'
        | '\u{205f}'
        | '\u{3000}' => "a space that is none to bash",
        '\u{00ad}'
        | '\u{034f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffd}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => "an invisible character",
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' => "a character without a meaning",
        _ => return None,
    };
    Some(what)
}
