//! Tests of the parser: lines that it understands like bash, and lines that it rejects.

use super::*;

/// Returns the arguments of a line that is one plain command.
fn argv(line: &str) -> Option<Vec<String>> {
    parse(line).ok()?.argv()
}

fn reads(line: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|word| (*word).to_owned()).collect();
    assert_eq!(argv(line), Some(expected), "{line:?}");
}

#[test]
fn quotes_are_taken_off_as_bash_does() {
    reads("echo 'a b' \"c d\" e\\ f", &["echo", "a b", "c d", "e f"]);
    reads("echo 'it'\\''s' \"\" ''", &["echo", "it's", "", ""]);
    reads(r#"echo "a\"b\\c\d\$e""#, &["echo", "a\"b\\c\\d$e"]);
    reads("$'r\\x6d' -r\\f", &["rm", "-rf"]);
    reads("echo $'a\\tb\\u0041\\101\\''", &["echo", "a\tbAA'"]);
    reads("r''m \"-r\"f", &["rm", "-rf"]);
    reads("echo \"$'a'\" a$ $", &["echo", "$'a'", "a$", "$"]);
    reads("echo a#b # rm -rf /", &["echo", "a#b"]);
    reads(
        "git show stash@{1} HEAD^ a~b",
        &["git", "show", "stash@{1}", "HEAD^", "a~b"],
    );
    reads("find . -exec ls {} \\;", &["find", ".", "-exec", "ls", "{}", ";"]);
    reads("[ -f x ]", &["[", "-f", "x", "]"]);
    reads("ls \\\n -l", &["ls", "-l"]);
}

#[test]
fn what_the_shell_decides_is_no_literal() {
    for word in [
        "$x", "\"$x\"", "${x%y}", "$(ls)", "`ls`", "{a,b}", "{1..3}", "*.txt", "a?", "[ab]", "~", "~/x",
        "$((1+1))", "<(ls)",
    ] {
        let script = parse(&format!("echo {word}")).expect(word);
        let [Node::Simple(simple)] = script.nodes.as_slice() else {
            panic!("{word}")
        };
        assert_eq!(simple.words.len(), 2, "{word}");
        assert_eq!(simple.words[1].literal(), None, "{word}");
    }
}

#[test]
fn directories_that_the_shell_remembers_are_not_known() {
    for word in ["~+", "~-/x", "~1", "~-2/x", "~root/x", "--x=~+", "a:~root"] {
        assert!(parse(&format!("cat {word}")).is_err(), "{word}");
    }
    for word in ["HEAD~1", "'~+'", "x~", "~", "~/x", "\\~+"] {
        assert!(parse(&format!("cat {word}")).is_ok(), "{word}");
    }
}

#[test]
fn commands_are_found_wherever_they_stand() {
    fn count(nodes: &[Node]) -> usize {
        let in_word = |word: &Word| -> usize {
            let each = word.pieces.iter().map(|piece| match piece {
                Piece::Commands(body) | Piece::Process { body, .. } => count(body),
                _ => 0,
            });
            each.sum()
        };
        let each = nodes.iter().map(|node| match node {
            Node::Simple(simple) => {
                let targets = simple.redirects.iter().map(|redirect| &redirect.target);
                let values = simple.assignments.iter().map(|assignment| &assignment.value);
                1 + simple
                    .words
                    .iter()
                    .chain(targets)
                    .chain(values)
                    .map(in_word)
                    .sum::<usize>()
            }
            Node::Pipe(body) => count(body),
            Node::Compound { words, body, .. } => count(body) + words.iter().map(in_word).sum::<usize>(),
        });
        each.sum()
    }
    for (line, expected) in [
        ("a; b && c || d | e |& f & g", 7),
        ("a\nb\n\nc", 3),
        ("(a; b) && { c; }", 3),
        ("if a; then b; elif c; then d; else e; fi", 5),
        ("while a; do b; done; until c; do d; done", 4),
        ("for x in $(a) b; do c; done", 2),
        ("case $(a) in x|y) b;; *) c;& z) d; esac", 4),
        ("f() { a; }; function g { b; }; f", 3),
        ("echo $(a $(b)) `c` \"$(d)\" ${x:-$(e)} <(f) > $(g)", 8),
        ("x=$(a) b", 2),
        ("! a; time -p b", 2),
        ("a <<X; b\ntext\nX\nc", 3),
        ("a # b\nc", 2),
    ] {
        assert_eq!(count(&parse(line).expect(line).nodes), expected, "{line:?}");
    }
}

#[test]
fn redirections_are_told_apart() {
    let kinds = |line: &str| -> Vec<RedirectKind> {
        let script = parse(line).expect(line);
        let [Node::Simple(simple)] = script.nodes.as_slice() else {
            panic!("{line}")
        };
        simple.redirects.iter().map(|redirect| redirect.kind).collect()
    };
    use RedirectKind::{Duplicate, Read, Text, Write};
    assert_eq!(kinds("a <b >c >>d >|e <>f"), [Read, Write, Write, Write, Write]);
    assert_eq!(
        kinds("a 2>&1 >&2 3<&- &>b &>>c >&d"),
        [Duplicate, Duplicate, Duplicate, Write, Write, Write]
    );
    assert_eq!(kinds("a <<<b 2>c"), [Text, Write]);
    assert_eq!(kinds("a <<'X'\n$(b)\nX\n"), [Text]);
}

#[test]
fn the_body_of_a_here_document_is_read_where_bash_expands_it() {
    assert!(parse("cat <<'X'\n$(rm x)\nX").expect("quoted").here.is_empty());
    assert_eq!(parse("cat <<X\n$(rm x)\nX").expect("plain").here.len(), 1);
    assert!(parse("cat <<-X\n\thello\n\tX\n").is_ok());
    assert!(parse("cat <<X\nno end").is_err());
    assert!(parse("cat <<X\na \\\nb\nX").is_err());
}

#[test]
fn constructs_that_bash_may_read_in_another_way_are_unclear() {
    for line in [
        "echo \"",
        "echo '",
        "echo $(",
        "echo `",
        "a |",
        "a &&",
        "; a",
        "a ;; b",
        ")",
        "if a; then b",
        "echo ${x@P}",
        "echo ${!x}",
        "echo ${x[$(a)]}",
        "a[$(b)]=1",
        "a=(b c)",
        "((x=1))",
        "[[ a -eq b ]]",
        "echo $((a))",
        "echo $((a[$(b)]))",
        "echo $[1]",
        "echo ${x:=y}",
        "echo ${x:0:1}",
        "for ((;;)); do a; done",
        "select x in a; do b; done",
        "coproc a",
        "ls !(a)",
        "ls @(a|b)",
        "exec {fd}>x",
        "echo $\"a\"",
        "echo `a \\`b\\``",
        "r\\\nm x",
        "echo \"a\\\nb\"",
        "a<(b)",
        "echo $'\\cx'",
        "echo $'\\x00'",
        "a >#b",
        "a <2>&1",
        "(a",
        "{ a; ",
        "a\\",
    ] {
        assert!(parse(line).is_err(), "{line:?}");
    }
}

#[test]
fn characters_that_are_not_seen_are_refused_and_shown_as_escapes() {
    for hidden in [
        "\0",
        "\r",
        "\u{1b}",
        "\u{7f}",
        "\u{202e}",
        "\u{2066}",
        "\u{200b}",
        "\u{feff}",
        "\u{a0}",
        "\u{3000}",
        "\u{2028}",
        "\u{e0041}",
        "\u{ad}",
        "\u{fffd}",
    ] {
        let line = format!("ls {hidden} x");
        assert!(matches!(parse(&line), Err(Unclear::Character { .. })), "{line:?}");
        assert!(!visible(&line).contains(hidden), "{line:?}");
    }
    assert!(parse("echo 你好 é 🌍").is_ok());
    assert_eq!(visible("a\u{202e}b\n"), "a\\u{202e}b\\n");
}

#[test]
fn length_depth_and_number_are_bounded() {
    assert_eq!(parse(&"a".repeat(MAX_CHARACTERS + 1)), Err(Unclear::TooLong));
    assert_eq!(parse(&"é".repeat(MAX_CHARACTERS * 3)), Err(Unclear::TooLong));
    assert_eq!(parse(&"$(".repeat(4_000)), Err(Unclear::TooDeep));
    assert_eq!(
        parse(&"(".repeat(4_000)),
        Err(Unclear::Unsupported {
            what: "arithmetic",
            at: 1
        })
    );
    assert_eq!(parse(&"( ".repeat(4_000)), Err(Unclear::TooDeep));
    assert_eq!(parse(&"if ".repeat(3_000)), Err(Unclear::TooDeep));
    assert_eq!(parse(&"${x:-".repeat(2_000)), Err(Unclear::TooDeep));
    assert_eq!(parse(&"a;".repeat(4_000)), Err(Unclear::TooMany));
    let openers = [
        "{", "`", "'", "\"", "$(", "<(", "\\\n", "! ", "time ", "a|", "a&&", "<<a ", "{a,", "case ",
    ];
    for opener in openers {
        let _ = parse(&opener.repeat(9_000 / opener.len()));
    }
}

#[test]
fn quoted_words_are_read_back() {
    let words = ["if", "a b", "it's", "", "$x", "*", "~", "-l", "x=y", "#", "é"].map(str::to_owned);
    for first in 0..words.len() {
        let line: Vec<String> = words.iter().cycle().skip(first).take(4).cloned().collect();
        assert_eq!(argv(&quote(&line)), Some(line.clone()), "{line:?}");
    }
}
