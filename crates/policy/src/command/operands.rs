//! Operands that do more than name a file.

use super::effect::{Effect, Found};
use super::options::Scanned;
use crate::shell::Word;

/// `printf` of bash: `%n` sets a variable, and after `printf xx%n PATH` a command comes from the directory `2`.
pub(super) fn printf(args: &[Word], scanned: &Scanned, found: &mut Found) {
    let Some(first) = scanned.operands.first() else {
        return;
    };
    match args[*first].literal() {
        Some(format) if !sets(&format) => {}
        Some(_) => found.add(Effect::Shell, "printf: `%n` sets a variable"),
        None => found.add(Effect::Unknown, "printf: the format is not known beforehand"),
    }
}

/// Whether a per cent sign has an `n` behind it, with whatever flags, widths and sizes between them.
fn sets(format: &str) -> bool {
    let between = |sign: char| sign.is_ascii_digit() || "-+ #'.*$hlLjztq".contains(sign);
    let mut rest = format;
    while let Some((_, behind)) = rest.split_once('%') {
        if behind.trim_start_matches(between).starts_with('n') {
            return true;
        }
        rest = behind.strip_prefix('%').unwrap_or(behind);
    }
    false
}

/// `nm @file` reads options from the file, and one of them loads code.
pub(super) fn response(args: &[Word], title: &str, found: &mut Found) {
    for word in args {
        let starts = word
            .shape()
            .is_none_or(|text| text.starts_with(['@', '*', '?', '[']));
        if starts || word.text.contains("{}") {
            found.add(
                Effect::Unknown,
                format!("{title}: `{}` may name a file of options", word.text),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sets;

    #[test]
    fn formats_that_set_variables_are_told() {
        for format in ["%n", "a%n", "%5n", "%%%n", "%-*.3ln", "%s%hn"] {
            assert!(sets(format), "{format}");
        }
        for format in ["%s\n", "%%n", "%d n", "100%", "%(%Y)T\n", "", "%5.2f\n"] {
            assert!(!sets(format), "{format}");
        }
    }
}
