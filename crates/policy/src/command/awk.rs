//! `awk`: programs that run commands or open files.

use super::analysis::Analysis;
use super::effect::Effect;
use super::options::Scanned;
use crate::shell::Word;

pub(super) fn check(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    let Some(program) = scanned.operands.first() else {
        return;
    };
    let Some(program) = args[*program].literal() else {
        return analysis.add(Effect::Code, "awk: the program is not known beforehand");
    };
    let lower = program.to_ascii_lowercase();
    if lower.contains("system") {
        return analysis.add(Effect::Code, "awk: the program runs commands");
    }
    // A single bar is a pipe to or from a command; an at sign calls a function by a computed name. Only
    // printed text goes into a pipe; without `print` the bar belongs to a regular expression.
    if program.replace("||", "").contains('|') && program.contains("print") {
        return analysis.add(Effect::Code, "awk: the program may run commands");
    }
    // A backslash joins the lines around it.
    if program.contains("\\\n") {
        return analysis.add(
            Effect::Unknown,
            "awk: a line of the program goes on in the next one",
        );
    }
    let reads = ["getline", "argv", "environ", "symtab", "functab"];
    if reads.iter().any(|word| lower.contains(word)) || program.contains('@') {
        return analysis.add(Effect::Unknown, "awk: the program may read other files");
    }
    if writes(&program) {
        analysis.add(Effect::Write, "awk: the program may write files");
    }
}

/// Returns `true` if a `>` may be a redirection. In brackets, and outside braces, it compares.
fn writes(program: &str) -> bool {
    let mut text = program.to_owned();
    for harmless in ["/dev/null", "/dev/stderr", "/dev/stdout"] {
        for sign in [">", "> ", ">>", ">> "] {
            for end in ["}", ";", " }", "\n"] {
                text = text.replace(&format!("{sign}\"{harmless}\"{end}"), end);
            }
        }
    }
    if !text.contains('>') || !text.contains("print") {
        return false;
    }
    // A regular expression may contain quotes, which makes string boundaries ambiguous.
    if text.contains(['/', '\\']) {
        return true;
    }
    let (mut braces, mut brackets, mut quoted) = (0_i32, 0_i32, false);
    for sign in text.chars() {
        match sign {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '#' => return true,
            '{' => braces += 1,
            '}' => braces -= 1,
            '(' => brackets += 1,
            ')' => brackets -= 1,
            '>' if braces > 0 && brackets <= 0 => return true,
            _ => {}
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::writes;

    #[test]
    fn comparisons_are_told_from_redirections() {
        for program in [
            "$1 > 10",
            "{print ($1 > 0 ? \"a\" : \"b\")}",
            "{print > \"/dev/null\"}",
            "{if ($3 > 5) print $1}",
            "{print \"a > b\"}",
            "NR > 1 {print $1}",
        ] {
            assert!(!writes(program), "{program}");
        }
        for program in [
            "{print > \"out\"}",
            "{print >> \"out\"}",
            "{print($1) > \"out\"}",
            "{printf \"x\" > $1}",
            "/\"/ {print > \"out\"} /\"/",
            "{print \"\\\"\" > \"x\"}",
            "{print > \"/dev/null\" \"x\"}",
            "{print > \"/dev/nullx\"}",
        ] {
            assert!(writes(program), "{program}");
        }
    }
}
