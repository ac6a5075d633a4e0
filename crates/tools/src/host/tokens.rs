//! Words of a line that could be names of files.

use std::collections::BTreeSet;
use std::path::Path;

/// Maximum nesting of lines within words, as in `bash -c "sh -c 'x'"`.
const MAX_DEPTH: usize = 4;

/// Returns the words of a line, both as written and unquoted, and their parts behind separators such as `=`.
pub(super) fn of(line: &str, home: Option<&Path>) -> BTreeSet<String> {
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

/// Returns `true` if a word of a line could be this program or one of its subprograms (`cargo-clippy`).
/// Quotes are removed, as bash does.
pub(super) fn names(line: &str, program: &str) -> bool {
    // The escapes in such quotes are not parsed here.
    if line.contains("$'") {
        return true;
    }
    let bare: String = line
        .replace("\\\n", "")
        .chars()
        .filter(|c| !"'\"\\".contains(*c))
        .collect();
    let separates = |c: char| c.is_whitespace() || "`$(){};&|<>=,".contains(c);
    bare.split(separates).any(|word| {
        let name = word.rsplit('/').next().unwrap_or_default();
        name.strip_prefix(program)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// Maximum number of words that the braces of one word expand to.
const MAX_BRACES: usize = 64;

/// Returns the globs that a word with a glob, a variable or braces can expand to; none for a plain word or
/// one of variables alone.
pub(super) fn patterns(word: &str) -> Vec<String> {
    if !word.contains(['*', '?', '[', '{', '$']) || word.contains(char::is_whitespace) || word.len() > 200 {
        return Vec::new();
    }
    let mut all = vec![without_variables(word)];
    for _ in 0..4 {
        let next: Vec<String> = all
            .iter()
            .flat_map(|word| unbraced(word))
            .take(MAX_BRACES)
            .collect();
        if next == all {
            break;
        }
        all = next;
    }
    all.retain(|pattern| pattern.contains(|sign: char| !"*?/.".contains(sign)) || word.contains(['*', '?']));
    all
}

/// Replaces each variable in a word with a star.
fn without_variables(word: &str) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some((before, behind)) = rest.split_once('$') {
        text.push_str(before);
        text.push('*');
        rest = match behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((_, after)) => after,
            None => behind.trim_start_matches(|sign: char| sign.is_ascii_alphanumeric() || sign == '_'),
        };
    }
    text + rest
}

/// Expands the first braces of a word.
fn unbraced(word: &str) -> Vec<String> {
    let Some((before, inner, after)) = word
        .split_once('{')
        .and_then(|(before, rest)| rest.split_once('}').map(|(inner, after)| (before, inner, after)))
    else {
        return vec![word.to_owned()];
    };
    match inner.contains(',') {
        true => inner
            .split(',')
            .map(|part| format!("{before}{part}{after}"))
            .collect(),
        // A range, such as `{1..9}`.
        false => vec![format!("{before}*{after}")],
    }
}

/// Adds a word, its parts behind separators, and the value attached to a one-letter option.
fn add<'a>(words: &mut BTreeSet<String>, word: &'a str, home: Option<&Path>) {
    let behind_option = |word: &'a str| {
        let mut letters = word.strip_prefix('-')?.chars();
        letters.next().map(|_| letters.as_str())
    };
    let pieces = word.split(['=', ',', ':', '@']);
    let all = pieces.clone().chain([word]);
    for text in all.clone().chain(all.filter_map(behind_option)) {
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

/// Splits a line into words like a shell, removing quotes and backslashes.
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
            // A line continuation: backslash and newline are removed.
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
            "RUBYOPT=-rjob.sh x",
            "NODE_OPTIONS='--max-old-space-size=9 -rjob.sh' x",
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
    fn patterns_variables_and_braces_become_patterns() {
        for (word, expected) in [
            ("*.sh", &["*.sh"][..]),
            ("$f.sh", &["*.sh"]),
            ("${f}/x", &["*/x"]),
            ("{a,b}.sh", &["a.sh", "b.sh"]),
            ("s{1..3}.sh", &["s*.sh"]),
            ("[ab].sh", &["[ab].sh"]),
            ("$f", &[]),
            ("plain", &[]),
            ("*", &["*"]),
        ] {
            assert_eq!(patterns(word), expected, "{word}");
        }
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
