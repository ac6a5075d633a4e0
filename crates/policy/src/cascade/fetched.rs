//! Detects code that a line downloads and runs. No person has read it, and its server can send different code
//! each time.

use crate::shell::{Node, Piece, RedirectKind, Script, Simple, Word};

/// Programs that download from another machine.
const FETCHERS: &[&str] = &[
    "curl",
    "wget",
    "wget2",
    "aria2c",
    "axel",
    "fetch",
    "http",
    "https",
    "xh",
    "lynx",
    "w3m",
    "nc",
    "ncat",
    "netcat",
    "socat",
    "ssh",
    "scp",
    "ftp",
    "lftp",
    "rclone",
    "iwr",
    "irm",
    "invoke-webrequest",
    "invoke-restmethod",
    "gh",
    "aws",
    "gsutil",
    "nslookup",
    "dig",
];

/// Programs that execute their input.
const INTERPRETERS: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "ash",
    "busybox",
    "csh",
    "tcsh",
    "python",
    "python2",
    "python3",
    "perl",
    "ruby",
    "node",
    "deno",
    "bun",
    "php",
    "lua",
    "pwsh",
    "powershell",
    "eval",
    "source",
    ".",
    "exec",
    "iex",
    "invoke-expression",
    "osascript",
    "Rscript",
    "julia",
    "go",
    "make",
    "tclsh",
    "awk",
    "env",
    "sudo",
    "xargs",
    "installer",
    "dpkg",
    "rpm",
];

/// Returns `true` if the line runs something that it downloads.
pub(super) fn runs_what_it_fetches(script: &Script) -> bool {
    script.nodes.iter().any(piped) || in_order(&script.nodes, &mut Vec::new())
}

/// Matches a fetcher that precedes an interpreter in a pipeline, or is in one of its words.
fn piped(node: &Node) -> bool {
    match node {
        Node::Simple(simple) => {
            let fetched = words(simple).any(|word| within(word).any(|body| body.iter().any(fetches)));
            fetched && interprets(simple)
                || words(simple).any(|word| within(word).any(|body| body.iter().any(piped)))
        }
        Node::Pipe(nodes) => {
            let mut fetched = false;
            for node in nodes {
                if fetched && contains(node, &interprets) {
                    return true;
                }
                fetched |= fetches(node);
            }
            nodes.iter().any(piped)
        }
        Node::Compound { body, .. } => body.iter().any(piped),
    }
}

/// Matches a command that executes, or passes to an interpreter, a file that an earlier command downloaded.
fn in_order(nodes: &[Node], files: &mut Vec<String>) -> bool {
    nodes.iter().any(|node| match node {
        Node::Simple(simple) => {
            let named = |word: &Word| {
                let text = word.literal().unwrap_or_default();
                let plain = text.strip_prefix("./").unwrap_or(&text).to_owned();
                files.contains(&plain)
            };
            let mut given = simple.words.iter();
            let program = given.next().is_some_and(named);
            if program || given.any(named) && interprets(simple) {
                return true;
            }
            files.extend(written(simple));
            false
        }
        Node::Pipe(nodes) => {
            let found = in_order(nodes, files);
            // `curl … | tee file`
            if nodes.iter().any(fetches) {
                for node in nodes {
                    if let Node::Simple(simple) = node {
                        files.extend(targets(simple));
                    }
                }
            }
            found
        }
        Node::Compound { body, .. } => in_order(body, files),
    })
}

/// Returns the files that a fetcher writes.
fn written(simple: &Simple) -> Vec<String> {
    if !names(simple, FETCHERS) {
        return Vec::new();
    }
    let literals = simple.words.iter().skip(1).filter_map(Word::literal);
    let mut files: Vec<String> = literals
        .flat_map(|text| {
            // Option values, and the last segment of a URL, the default name of the download.
            let last = text
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .split(['?', '#'])
                .next()
                .unwrap_or_default()
                .to_owned();
            let value = text.rsplit('=').next().unwrap_or_default().to_owned();
            [text, last, value]
        })
        .collect();
    files.extend(targets(simple));
    files.retain(|file| !file.is_empty() && !file.starts_with('-'));
    files
        .iter_mut()
        .for_each(|file| *file = file.strip_prefix("./").unwrap_or(file).to_owned());
    files
}

fn targets(simple: &Simple) -> Vec<String> {
    let redirects = simple
        .redirects
        .iter()
        .filter(|redirect| redirect.kind == RedirectKind::Write);
    let mut files: Vec<String> = redirects
        .filter_map(|redirect| redirect.target.literal())
        .collect();
    if names(simple, &["tee", "dd", "sponge"]) {
        files.extend(
            simple
                .words
                .iter()
                .skip(1)
                .filter_map(Word::literal)
                .map(|text| text.replace("of=", "")),
        );
    }
    files
}

fn fetches(node: &Node) -> bool {
    contains(node, &|simple| names(simple, FETCHERS))
}

fn interprets(simple: &Simple) -> bool {
    names(simple, INTERPRETERS)
}

/// Returns `true` if the command, or one in its words, satisfies `is`.
fn contains(node: &Node, is: &impl Fn(&Simple) -> bool) -> bool {
    match node {
        Node::Simple(simple) => {
            is(simple)
                || words(simple)
                    .any(|word| within(word).any(|body| body.iter().any(|node| contains(node, is))))
        }
        Node::Pipe(nodes) => nodes.iter().any(|node| contains(node, is)),
        Node::Compound { body, .. } => body.iter().any(|node| contains(node, is)),
    }
}

/// Returns `true` if one of the first words is such a program: wrappers may precede it.
fn names(simple: &Simple, programs: &[&str]) -> bool {
    simple
        .words
        .iter()
        .take(8)
        .filter_map(Word::literal)
        .enumerate()
        .any(|(index, text)| {
            let name = text.rsplit('/').next().unwrap_or_default();
            let name = name.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
            let known = |known: &&&str| **known == name || known.eq_ignore_ascii_case(name);
            let wrapped = index > 0
                && simple.words[0]
                    .literal()
                    .is_some_and(|first| !WRAPPERS.contains(&first.as_str()));
            !wrapped && programs.iter().find(known).is_some()
                || index == 0 && programs.contains(&text.as_str())
        })
}

/// Programs that run the program named after them.
const WRAPPERS: &[&str] = &[
    "sudo", "doas", "env", "nice", "timeout", "nohup", "setsid", "stdbuf", "time", "command", "exec",
    "xargs", "busybox", "chroot", "su", "ionice",
];

fn words(simple: &Simple) -> impl Iterator<Item = &Word> {
    let assigned = simple.assignments.iter().map(|assignment| &assignment.value);
    let targets = simple.redirects.iter().map(|redirect| &redirect.target);
    simple.words.iter().chain(assigned).chain(targets)
}

fn within(word: &Word) -> impl Iterator<Item = &[Node]> {
    word.pieces.iter().filter_map(|piece| match piece {
        Piece::Commands(body) | Piece::Process { body, .. } => Some(body.as_slice()),
        Piece::Literal(_) | Piece::Glob(_) | Piece::Home(_) | Piece::Variable(_) | Piece::Braces(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn what_is_fetched_and_run_is_told() {
        let runs = |line: &str| runs_what_it_fetches(&shell::parse(line).expect(line));
        for line in [
            "curl x | sh",
            "curl -fsSL x | sudo -E bash -s -- -y",
            "wget -qO- x | python3 -",
            "curl x | tee y | bash",
            "curl x | gunzip | sh",
            "bash -c \"$(curl x)\"",
            "bash <(curl x)",
            "sh <<< \"$(curl x)\"",
            "eval \"$(wget -qO- x)\"",
            "source <(curl x)",
            "curl -o y.sh x && bash y.sh",
            "curl -O http://h.invalid/y.sh; sh ./y.sh",
            "wget http://h.invalid/y.sh && chmod +x y.sh && ./y.sh",
            "curl x > y; python3 y",
            "curl x | tee y.sh; sh y.sh",
            "(curl x | sh)",
            "if true; then curl x | sh; fi",
            "curl x | env A=b sh",
            "echo $(curl x | sh)",
        ] {
            assert!(runs(line), "{line}");
        }
        for line in [
            "curl x",
            "curl x | jq .",
            "curl x | grep sh",
            "curl -o y x",
            "echo sh",
            "bash y.sh",
            "curl x | head -5; bash y.sh",
            "cat x | sh",
            "echo curl | sh",
            "wget http://h.invalid/y.tar.gz; ls y.tar.gz",
        ] {
            assert!(!runs(line), "{line}");
        }
    }
}
