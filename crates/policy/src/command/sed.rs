//! `sed`: scripts that write files, read others or run commands.

use super::analysis::Analysis;
use super::effect::Effect;
use super::options::Scanned;
use crate::shell::Word;

pub(super) fn check(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    let mut scripts: Vec<Option<String>> = scanned
        .values
        .iter()
        .filter(|(name, _)| matches!(*name, "-e" | "--expression"))
        .map(|(_, value)| value.clone())
        .collect();
    if scripts.is_empty() {
        match scanned.operands.first() {
            Some(first) => scripts.push(args[*first].literal()),
            None => return,
        }
    }
    for script in scripts {
        if !script.is_some_and(|script| is_harmless(&script)) {
            analysis.add(
                Effect::Unknown,
                "sed: the script may write, run or read, or is not understood",
            );
        }
    }
}

/// Returns `true` if every command of the script affects only the output.
fn is_harmless(script: &str) -> bool {
    let mut reader = Reader {
        rest: script.chars().collect::<Vec<_>>(),
        at: 0,
    };
    reader.script().is_some()
}

struct Reader {
    rest: Vec<char>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn skip(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
    }

    fn script(&mut self) -> Option<()> {
        loop {
            self.skip(|sign| sign.is_whitespace() || sign == ';' || sign == '}');
            let Some(sign) = self.peek() else { return Some(()) };
            if sign == '#' {
                self.skip(|sign| sign != '\n');
                continue;
            }
            self.address()?;
            self.skip(|sign| sign == ' ');
            if self.peek() == Some(',') {
                self.at += 1;
                self.skip(|sign| sign == ' ');
                self.address()?;
            }
            self.skip(|sign| sign == ' ' || sign == '!');
            self.command()?;
        }
    }

    /// Parses a number, `$`, `+n`, `~n`, or a regular expression between slashes.
    fn address(&mut self) -> Option<()> {
        match self.peek()? {
            '/' => {
                self.at += 1;
                self.until('/')?;
                self.skip(|sign| matches!(sign, 'I' | 'M'));
            }
            '\\' => return None,
            _ => self.skip(|sign| sign.is_ascii_digit() || matches!(sign, '$' | '+' | '~')),
        }
        Some(())
    }

    fn command(&mut self) -> Option<()> {
        let command = self.peek()?;
        self.at += 1;
        match command {
            '{' => return Some(()),
            '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' => {}
            'l' | 'q' | 'Q' => self.skip(|sign| sign.is_ascii_digit() || sign == ' '),
            'y' => {
                self.two_parts()?;
            }
            's' => {
                self.two_parts()?;
                self.skip(|sign| sign.is_ascii_digit() || matches!(sign, 'g' | 'p' | 'i' | 'I' | 'M'));
            }
            'b' | 't' | 'T' => {
                self.skip(|sign| sign == ' ');
                return self.label();
            }
            ':' => return self.label(),
            // One line of text; a backslash would continue it.
            'a' | 'i' | 'c' => {
                self.skip(|sign| sign != '\n' && sign != '\\');
                if self.peek() == Some('\\') {
                    return None;
                }
            }
            _ => return None,
        }
        self.skip(|sign| sign == ' ');
        matches!(self.peek(), None | Some(';' | '\n' | '}')).then_some(())
    }

    /// Parses a label that ends right after its name: GNU sed ends it at a blank and reads a command after
    /// that.
    fn label(&mut self) -> Option<()> {
        self.skip(|sign| sign.is_ascii_alphanumeric() || sign == '_');
        matches!(self.peek(), None | Some(';' | '\n' | '}')).then_some(())
    }

    /// Parses two texts delimited by three equal characters. A blank delimiter would make the end invisible.
    fn two_parts(&mut self) -> Option<()> {
        let sign = self.peek()?;
        if sign.is_alphanumeric() || sign.is_whitespace() || matches!(sign, '\\' | ';' | '}' | '#') {
            return None;
        }
        self.at += 1;
        self.until(sign)?;
        self.until(sign)
    }

    /// Advances past the next delimiter. Brackets do not hide it, so that a doubt ends in "not understood".
    fn until(&mut self, end: char) -> Option<()> {
        loop {
            let sign = self.peek()?;
            self.at += 1;
            match sign {
                '\\' => self.at += 1,
                // Inside brackets the delimiter would be literal: sed and this parser could disagree about
                // the end.
                '[' if self.bracket_holds(end) => return None,
                sign if sign == end => return Some(()),
                '\n' => return None,
                _ => {}
            }
        }
    }

    fn bracket_holds(&self, end: char) -> bool {
        let rest = &self.rest[self.at..];
        let close = rest.iter().skip(1).position(|sign| *sign == ']').map(|at| at + 1);
        let inside = &rest[..close.unwrap_or(rest.len())];
        let odd = |at: usize| match inside[at] {
            // `\t` hides neither the end of the brackets nor the delimiter.
            '\\' => !inside.get(at + 1).is_some_and(|next| next.is_ascii_alphabetic()),
            sign => sign == end || sign == '[',
        };
        (0..inside.len()).any(odd)
    }
}

#[cfg(test)]
mod tests {
    use super::is_harmless;

    #[test]
    fn scripts_that_only_print_are_harmless() {
        for script in [
            "1,10d",
            "s/foo/bar/g",
            "s|a|b|",
            "1!G;h;$!d",
            "y/abc/xyz/",
            "/x/,/y/p",
            "$p",
            "10q",
            "s/[a-z]*/x/2p",
            "/^#/d;/^$/d",
            "1~2p",
            "/a/I,+3p",
            "$!N;s/\\n/ /",
            "/x/{p;q}",
            ":a;N;$!ba;s/\\n/,/g",
            "5i hello",
            "/x/bend;s/a/b/;:end",
            "$!{N;ba}",
            "/x/b end",
            "2,4!d",
            "s/^[ \\t]*//;s/[\\n\\r]$//",
        ] {
            assert!(is_harmless(script), "{script}");
        }
    }

    #[test]
    fn scripts_that_write_run_or_read_are_not() {
        for script in [
            "w /tmp/x",
            "1e rm -rf /",
            "e",
            "s/x/y/e",
            "s/x/y/w f",
            "s/x/y/gw f",
            "r /etc/shadow",
            "R f",
            "W f",
            "F;w x",
            "1,3w out",
            "/x/w out",
            "$!e id",
            "s/[/]/x/;e",
            "s/a[/b/;e id #/",
            "a\\\ntext\ne id",
            "p;e id",
            "{e id}",
            "s/a/b\ne id/",
            "\\,x,e id",
            "v",
            "y/a/b/e",
            "s,a,b,e",
            "s/[[]/]/e id;#]/x/",
            "s/[\\]/x/;e id",
            "s/[a\\/]/x/;e id",
            ":a s x  e",
            ":a w zz",
            ": a",
            "ba w zz",
            "b a e id",
            "t e id",
            "s a b e",
            "s  a bew zz",
            "y a b e",
            "s;a;b;;e id",
        ] {
            assert!(!is_harmless(script), "{script}");
        }
    }
}
