//! Everything in a line that could be the name of a file.

use std::collections::BTreeSet;
use std::path::Path;

/// How often a word may be a line in its turn, as in `bash -c "sh -c 'x'"`.
const MAX_DEPTH: usize = 4;

/// The words of a line, as they are written and as a shell would hand them on, and what follows signs such as `=` in them.
pub(in crate::host) fn of(line: &str, home: Option<&Path>) -> BTreeSet<String> {
    let line = line.replace("${HOME}", "$HOME");
    let mut words = BTreeSet::new();
    let separates = |c: char| c.is_whitespace() || "'\"`$(){}[];&|<>\\".contains(c);
    for word in line.split(separates) {
        add(&mut words, word, home);
    }
    let mut lines = vec![line];
    for _ in 0..MAX_DEPTH {
        let found: BTreeSet<String> = lines.iter().flat_map(|line| unquoted(line)).collect();
        for word in &found {
            add(&mut words, word, home);
        }
        let again = |word: &&String| word.contains(|c: char| c.is_whitespace() || "'\"\\;&|<>()".contains(c));
        lines = found.iter().filter(again).cloned().collect();
    }
    words
}

/// A word, what stands behind the signs in it, and what an option of one letter says.
fn add(words: &mut BTreeSet<String>, word: &str, home: Option<&Path>) {
    let behind_option = word.strip_prefix('-').and_then(|rest| {
        let mut letters = rest.chars();
        letters.next().map(|_| letters.as_str())
    });
    let pieces = word.split(['=', ',', ':', '@']);
    for text in pieces.chain([word]).chain(behind_option) {
        if text.is_empty() {
            continue;
        }
        words.insert(text.to_owned());
        let below_home = ["~", "HOME", "$HOME"]
            .into_iter()
            .find_map(|name| text.strip_prefix(name));
        if let (Some(home), Some(rest)) = (home, below_home)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            words.insert(format!("{}{rest}", home.display()));
        }
    }
}

/// The words of a line as a shell hands them on, its quotes and backslashes taken away.
fn unquoted(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        let is_open = quote.is_none() && (c.is_whitespace() || ";&|<>()`".contains(c));
        let Some(word) = words.last_mut().filter(|_| !is_open) else {
            words.push(String::new());
            continue;
        };
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            // A line that goes on: both are gone.
            ('\\', None | Some('"')) => word.extend(characters.next().filter(|next| *next != '\n')),
            (c, _) => word.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_way_a_name_is_written_it_is_found() {
        let check = |line: &str, expected: &str| {
            let found = of(line, Some(Path::new("/home/ann")));
            assert!(found.contains(expected), "{line}: {found:?}");
        };
        for line in [
            "bash job.sh",
            "bash 'job.sh'",
            "bash jo'b'.sh",
            "bash jo\"b.\"sh",
            "bash jo\\b.sh",
            "bash jo\\\nb.sh",
            "cat <job.sh",
            "env A=job.sh x",
            "curl -d @job.sh x",
            "make -fjob.sh",
            "make --file=job.sh",
            "x -- a:job.sh",
            "ls;bash job.sh&",
            "bash -c 'bash job.sh'",
            "bash -c \"bash -c 'bash jo\\\\b.sh'\"",
            "echo $(cat job.sh) `x job.sh`",
            "bash {job.sh,x}",
            "bash 'job.sh",
        ] {
            check(line, "job.sh");
        }
        check("bash 'my job.sh'", "my job.sh");
        check("bash my\\ job.sh", "my job.sh");
        for line in ["~/x", "$HOME/x", "\"${HOME}/x\"", "cat <~/x", "PATH=a:~/x"] {
            check(line, "/home/ann/x");
        }
        check("x \"$HOME/my x\"", "/home/ann/my x");
        check("cd ~; cd $HOME", "/home/ann");
    }

    #[test]
    fn a_long_line_is_no_trouble() {
        for line in [
            "\\".repeat(10_000),
            "'a b\\ ".repeat(1_700),
            "-=~/:".repeat(2_000),
        ] {
            assert!(of(&line, Some(Path::new("/"))).len() < 20_000);
        }
    }
}
