//! Executes lines that the preset allows, in a temporary directory: nothing in it changes, and nothing
//! outside it is created.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use ringfence_policy::cascade::{Authority, Confinement, Decision, Rules, Verdict, decide};

/// Any effect of the canary proves that a program executed it.
const CANARY: &str = "xtouch canary";

fn decided(line: &str) -> Decision {
    let confinements: Arc<[Confinement]> = Arc::new([Confinement {
        program: "yq",
        words: "-L /var/empty",
    }]);
    let rules = Rules {
        allow: "@read-only".parse().into_iter().collect(),
        confinements,
        ..Rules::default()
    };
    decide(line, &rules)
}

/// Creates a directory with files that do something if a program takes them for code.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let write = |name: &str, content: &str| {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it is below")).expect("a directory");
        std::fs::write(path, content).expect("a file");
    };
    for name in [
        "x",
        "y",
        "notes.txt",
        "file.txt",
        "a.txt",
        "b.txt",
        "src/main.rs",
        "src/lib.rs",
        "README.md",
        "app.log",
        "s",
    ] {
        write(name, &format!("{CANARY}\nab\nxab\ntouch canary\n"));
    }
    for name in ["package.json", "data.json", "notes.json"] {
        write(
            name,
            "{\"scripts\": {\"a\": \"touch canary\"}, \"items\": [{\"id\": 3, \"name\": \"x\"}]}",
        );
    }
    write("data.csv", "a,b,c\n1,2,3\n");
    place
}

/// Returns every file below, with its contents.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(next) = pending.pop() {
        for entry in std::fs::read_dir(&next).expect("a directory").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => pending.push(path),
                false => {
                    let content = std::fs::read(&path).unwrap_or_default();
                    found.insert(path.display().to_string(), content);
                }
            }
        }
    }
    found
}

/// Runs a line like the host would, and returns the changes it made.
#[expect(clippy::disallowed_methods, reason = "a test of what is let run must run it")]
fn changes(line: &str, place: &Path) -> Vec<String> {
    let before = contents(place);
    let status = Command::new("timeout")
        .args([
            "--kill-after=1",
            "10",
            "/bin/bash",
            "--noprofile",
            "--norc",
            "-c",
            line,
        ])
        .current_dir(place)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", place)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.expect("bash is there");
    let after = contents(place);
    let names = before.keys().chain(after.keys());
    let mut changed: Vec<String> = names
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
        .collect();
    changed.dedup();
    changed
}

/// Reproducible pseudo-random numbers (a linear congruential generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % bound
    }
}

const PIECES: &[&str] = &[
    "s",
    "y",
    "a",
    "b",
    "x",
    "e",
    "w",
    "W",
    "r",
    "R",
    "p",
    ":",
    ";",
    "}",
    "{",
    " ",
    "  ",
    "/",
    "\n",
    "1",
    "$",
    "!",
    ",",
    "\\",
    "[",
    "]",
    "t",
    "T",
    "g",
    "I",
    "M",
    "#",
    "touch canary",
    "canary",
    "s/x//",
    "/x/",
    "i",
    "c",
    "n",
    "=",
    "|",
    "ba",
    ":a",
    "\t",
];

/// Tests the script parser and sed's own option separately: either alone must be enough.
#[test]
fn scripts_of_sed_that_are_let_run_change_nothing() {
    let place = place();
    let mut numbers = Numbers(12);
    let (mut run, mut tried) = (0, 0);
    while run < 100 && tried < 200_000 {
        tried += 1;
        let length = 1 + numbers.below(9);
        let script: String = (0..length).map(|_| PIECES[numbers.below(PIECES.len())]).collect();
        let line = format!("sed '{script}' x");
        let decision = decided(&line);
        if decision.verdict == Verdict::Review {
            continue;
        }
        run += 1;
        let (confined, _) = decision.executed(&line, Authority::Policy);
        assert!(confined.starts_with("sed --sandbox "), "{confined}");
        assert_eq!(
            changes(confined, place.path()),
            Vec::<String>::new(),
            "{confined}"
        );
        assert_eq!(changes(&line, place.path()), Vec::<String>::new(), "{line}");
    }
    assert_eq!(run, 100, "of {tried}");
}

/// Programs installed on this machine that need no service.
const LOCAL: &[&str] = &[
    "ls",
    "dir",
    "vdir",
    "pwd",
    "cat",
    "head",
    "tail",
    "nl",
    "wc",
    "stat",
    "file",
    "du",
    "df",
    "find",
    "realpath",
    "readlink",
    "basename",
    "dirname",
    "which",
    "type",
    "command",
    "md5sum",
    "sha256sum",
    "cksum",
    "b2sum",
    "cmp",
    "diff",
    "comm",
    "test",
    "[",
    "[[",
    "xxd",
    "od",
    "hexdump",
    "strings",
    "base64",
    "echo",
    "printf",
    "seq",
    "expr",
    "date",
    "true",
    "grep",
    "egrep",
    "fgrep",
    "sort",
    "uniq",
    "cut",
    "tr",
    "sed",
    "jq",
    "yq",
    "sqlite3",
    "column",
    "paste",
    "join",
    "fold",
    "fmt",
    "rev",
    "tac",
    "expand",
    "git",
    "ps",
    "id",
    "uname",
    "env",
    "timeout",
    "nice",
    "bash",
    "sh",
    "for",
    "if",
    "case",
    "cd",
    "xargs",
    "time",
    "stdbuf",
    "numfmt",
    "factor",
    "shuf",
    "tar",
    "gzip",
    "zcat",
    "zgrep",
    "awk",
];

#[test]
fn lines_that_are_let_run_change_nothing() {
    let place = place();
    let lists = [
        include_str!("heldout/read_only.txt"),
        include_str!("heldout/dangerous.txt"),
        include_str!("heldout/third_read_only.txt"),
        include_str!("heldout/third_dangerous.txt"),
        include_str!("everyday.txt"),
    ];
    let mut run = 0;
    for line in lists.iter().flat_map(|list| list.lines()) {
        let first = line.split([' ', ';']).next().unwrap_or_default();
        let waits = line.contains("-f ") || line.contains("while true");
        if !LOCAL.contains(&first) || waits {
            continue;
        }
        let decision = decided(line);
        if decision.verdict == Verdict::Review {
            continue;
        }
        run += 1;
        let (executed, _) = decision.executed(line, Authority::Policy);
        assert_eq!(changes(executed, place.path()), Vec::<String>::new(), "{line}");
    }
    assert!(run > 200, "{run}");
}
