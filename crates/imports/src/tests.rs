//! Tests of the import check.

use proptest::prelude::*;

use super::*;

fn blocklist() -> Vec<String> {
    DEFAULT_BLOCKLIST.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the modules found, as `name:line`.
fn found(source: &str) -> String {
    match check(source, &blocklist()).unwrap() {
        Findings::Clear => "clear".to_owned(),
        Findings::Unparsed => "unparsed".to_owned(),
        Findings::Blocked(blocked) => blocked
            .iter()
            .map(|b| format!("{}:{}", b.module, b.line))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

#[track_caller]
fn expect(source: &str, expected: &str) {
    assert_eq!(found(source), expected, "{source}");
}

#[test]
fn import_statements_in_every_place() {
    expect("import os", "os:1");
    expect("import os.path", "os:1");
    expect("import json, os as system, shutil", "os:1 shutil:1");
    expect("from os import path", "os:1");
    expect("from os.path import join as j", "os:1");
    expect("from os import *", "os:1");
    expect("x = 1; import os", "os:1");
    expect(
        "def f():\n  class C:\n    try:\n      import socket\n    except ImportError:\n      pass\n",
        "socket:4",
    );
    expect(
        "if 1:\n pass\nelif 2:\n pass\nelse:\n from subprocess import run\n",
        "subprocess:6",
    );
    expect("async def f():\n  async with g() as h:\n    import os\n", "os:3");
    expect("match x:\n  case [1, *_] if y:\n    import os\n", "os:3");
    expect("\u{feff}import os", "os:1");
    expect("import ｏs", "os:1");
}

#[test]
fn imports_by_literal_name() {
    expect("__import__('os')", "os:1");
    expect("__import__('os.path').join", "os:1");
    expect("__import__(name='os')", "os:1");
    expect("__import__('o' 's')", "os:1");
    expect("__import__('\\x6fs')", "os:1");
    expect("import importlib\nimportlib.import_module('os')", "os:2");
    expect(
        "import importlib as i; i.import_module(package=None, name=\"os\")",
        "os:1",
    );
    expect(
        "from importlib import import_module as im\nim('socket')",
        "socket:2",
    );
    expect("from importlib import *\nimport_module('socket')", "socket:2");
    expect("import builtins as b\nb.__import__('os')", "os:2");
    expect("__builtins__.__import__('os')", "os:1");
    expect("f = lambda: __import__('os')", "os:1");
    expect(
        "@g(__import__('os'))\ndef f(x: __import__('shutil') = __import__('socket')): ...",
        "os:1 shutil:2 socket:2",
    );
    expect(
        "f'{__import__(\"os\").getcwd()!r:>{__import__(\"shutil\")}}'",
        "os:1 shutil:1",
    );
}

#[test]
fn imports_through_another_name() {
    expect("f = __import__\nf('os')", "os:2");
    expect(
        "def g(): return f('os')\nimport importlib as i\nh = i\nf = h.import_module\n",
        "os:1",
    );
    expect("(f := __import__)('os')\nf('os')", "os:2");
    expect("from builtins import __import__ as f\nf('os')", "os:2");
}

#[test]
fn what_is_not_blocked() {
    expect("import json, ossify, osx.os", "clear");
    expect("from . import os", "clear");
    expect("from .os import path", "clear");
    expect("# import os\nx = 'import os'\n\"\"\"import os\"\"\"", "clear");
    expect(
        "__import__(name)\n__import__()\n__import__('json')\n__import__(b'os')",
        "clear",
    );
    expect("importlib.import_module('.os', 'package')", "clear");
    expect("self.__import__('os')\nother.import_module('os')", "clear");
    expect("", "clear");
}

#[test]
fn a_dotted_entry_blocks_only_what_lies_below() {
    let list = ["urllib.request".to_owned()];
    let blocked = |source| matches!(check(source, &list).unwrap(), Findings::Blocked(_));
    assert!(blocked("import urllib.request"));
    assert!(blocked("from urllib import parse, request"));
    assert!(blocked("from urllib.request import urlopen"));
    assert!(!blocked("import urllib.parse"));
    assert!(!blocked("from urllib import parse"));
}

#[test]
fn broken_code_is_left_to_python() {
    expect("import os\ndef", "unparsed");
    expect("import os\n(", "unparsed");
    expect("import os\n)", "unparsed");
    expect("import os\n'abc", "unparsed");
    expect("import os\nprint 'x'", "unparsed");
}

#[test]
fn lines_and_columns_count_from_one() {
    let Findings::Blocked(blocked) = check("x = 1\r\ny = 2\rz = 'ä'; import os\n", &blocklist()).unwrap()
    else {
        panic!("nothing found");
    };
    assert_eq!((blocked[0].line, blocked[0].column), (3, 10));
}

#[test]
fn the_message_names_module_line_alternative_and_way_out() {
    let Findings::Blocked(blocked) = check("import os\nimport socket", &blocklist()).unwrap() else {
        panic!("nothing found");
    };
    let text = message(&blocked, "set `sandbox.block_dangerous_imports` to false");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].starts_with("import of `os` is blocked (line 1): use pathlib"),
        "{text}"
    );
    assert!(
        lines[1].starts_with("import of `socket` is blocked (line 2): the run has no network"),
        "{text}"
    );
    assert!(lines[2].contains("`sandbox.block_dangerous_imports`"), "{text}");
}

#[test]
fn a_long_list_of_findings_is_shortened() {
    let Findings::Blocked(blocked) = check(&"import os\n".repeat(50), &blocklist()).unwrap() else {
        panic!("nothing found");
    };
    assert_eq!(blocked.len(), 50);
    assert!(
        message(&blocked, "set `sandbox.block_dangerous_imports` to false")
            .contains("and 30 more blocked imports")
    );
}

/// Checks `import os`, followed by `count` nested `unit`s between `before` and `after`.
fn nested(count: usize, before: &str, unit: &str, middle: &str, after: &str) -> Result<Findings, Error> {
    check(
        &format!(
            "import os\n{before}{}{middle}{}\n",
            unit.repeat(count),
            after.repeat(count)
        ),
        &blocklist(),
    )
}

#[test]
fn absurd_nesting_is_refused_without_a_crash() {
    let cases = [
        ("", "(", "1", ")"),
        ("", "[", "", "]"),
        ("", "{1:", "1", "}"),
        ("x = ", "not ", "1", ""),
        ("x = ", "-", "1", ""),
        ("x = ", "1+", "1", ""),
        ("x = ", "1**", "1", ""),
        ("x = ", "lambda a, b: ", "1", ""),
        ("x = ", "1 if 1 else ", "1", ""),
        ("x", ".a", "", ""),
        ("x", "[0]", "", ""),
        ("x", "(a, b)", "", ""),
        ("x = ", "await ", "1", ""),
        ("x = ", "a, *yield ", "1", ""),
        ("", "if a, b: ", "pass", ""),
        ("", "async ", "pass", ""),
        ("x = (", "\nif a, b:\n", "pass", ""),
    ];
    for (before, unit, middle, after) in cases {
        let outcome = nested(100_000, before, unit, middle, after);
        assert_eq!(outcome, Err(Error::TooDeep), "{unit}");
    }
}

#[test]
fn deep_indentation_is_refused_without_a_crash() {
    let mut source = "import os\n".to_owned();
    for depth in 0..2_500 {
        source.push_str(&" ".repeat(depth));
        source.push_str("if 1:\n");
    }
    assert_eq!(found(&format!("{source}{}pass\n", " ".repeat(2_500))), "os:1");
    // Deepest indentation that fits into 4 MiB of source.
    assert!(source.len() > MAX_SOURCE / 2);
}

#[test]
fn nesting_up_to_the_limit_is_checked() {
    // The number is the depth that one unit adds.
    let cases = [
        (1, "", "(", "1", ")"),
        (2, "", "f(x=", "1", ")"),
        (2, "", "{1:", "1", "}"),
        (3, "", "[x for x in ", "1", "]"),
        (1, "x = ", "not ", "1", ""),
        (1, "x = ", "1+", "1", ""),
        (1, "x = ", "1**", "1", ""),
        (1, "x = ", "lambda a, b: ", "1", ""),
        (2, "x = ", "1 if 1 else ", "1", ""),
        (1, "x", ".a", "", ""),
        (1, "x", "[0]", "", ""),
    ];
    for (adds, before, unit, middle, after) in cases {
        let outcome = nested(MAX_DEPTH / adds - 5, before, unit, middle, after);
        assert!(matches!(outcome, Ok(Findings::Blocked(_))), "{unit}: {outcome:?}");
        assert_eq!(
            nested(MAX_DEPTH / adds + 5, before, unit, middle, after),
            Err(Error::TooDeep),
            "{unit}"
        );
    }
}

#[test]
fn nesting_hidden_behind_a_repaired_f_string_is_refused() {
    let deep = "(".repeat(100_000);
    for source in [
        format!("import os\nf'{{x'\n:{deep}}}'"),
        format!("import os\nf\"{{x!r\"{deep}\n}}\""),
        format!("import os\nf'{{x' # c\n:{deep}}}'"),
    ] {
        assert!(!matches!(check(&source, &blocklist()), Ok(Findings::Clear)));
    }
}

#[test]
fn flat_code_of_any_width_is_checked() {
    let row = "{'a': [1, -2, (3, 4)], 'b': x.y(z)['k'] + 1},\n".repeat(20_000);
    expect(&format!("rows = [\n{row}]\nimport os\n"), "os:20003");
    expect(
        &format!("text = ({})\nimport os\n", "'line\\n'\n".repeat(20_000)),
        "os:20002",
    );
}

#[test]
fn a_source_beyond_the_limit_is_refused() {
    let source = format!("import os\n{}", "x = 1\n".repeat(1_000_000));
    assert_eq!(
        check(&source, &blocklist()),
        Err(Error::TooLong { length: source.len() })
    );
}

proptest! {
    #[test]
    fn no_text_breaks_the_check(text in "\\PC{0,200}") {
        _ = check(&format!("import os\n{text}"), &blocklist());
    }

    #[test]
    fn no_tokens_break_the_check(tokens in prop::collection::vec(prop::sample::select(vec![
        "import", " os", ",", "(", ")", "[", "]", "{", "}", "f'", "'", "\"\"\"", "f\"\"\"", "!r", ":", "\n", "\n  ", "\n    ",
        "if ", "lambda ", "x", "=", "1", ".", "*", "\\\n", "#", "__import__", "'os'", "from ", "async ", "match ", "case ", "\t",
    ]), 0..60)) {
        _ = check(&format!("import os\n{}", tokens.concat()), &blocklist());
    }

    #[test]
    fn an_import_is_found_below_any_valid_prefix(blocks in 0usize..60, spaces in 1usize..8) {
        let mut source = String::new();
        for depth in 0..blocks {
            source.push_str(&format!("{}while x:\n", " ".repeat(depth * spaces)));
        }
        source.push_str(&format!("{}import os\n", " ".repeat(blocks * spaces)));
        prop_assert_eq!(found(&source), format!("os:{}", blocks + 1));
    }
}
