//! JSON escapes of characters that could control a terminal.

use std::io;

use serde_json::ser::Formatter;

/// A JSON formatter that also escapes invisible and bidirectional characters, so that a line cannot control a
/// terminal.
pub(super) struct Plain;

impl Formatter for Plain {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        if text.bytes().all(|byte| byte < 0x7f) {
            return writer.write_all(text.as_bytes());
        }
        let mut shown = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| is_hidden(*c)) {
            writer.write_all(&text.as_bytes()[shown..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            shown = at + c.len_utf8();
        }
        writer.write_all(&text.as_bytes()[shown..])
    }
}

/// Returns `true` for control, invisible and bidirectional characters.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns the number of bytes that `c` takes within a line.
pub(super) fn width(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if is_hidden(c) => 6 * c.len_utf16(),
        c => c.len_utf8(),
    }
}
