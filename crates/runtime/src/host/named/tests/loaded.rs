//! Files that the programs of a line load without being named in it.

use super::*;

/// Returns a project, and a home that is elsewhere.
fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write(dir.path(), name, text);
    }
    dir
}

fn look(line: &str, place: &Path) -> Named {
    examined(line, place, Some(Path::new("/home/nobody-here"))).unwrap()
}

/// Asserts that a line is bound as a whole, and that a file that is written is a change, however often a
/// line is looked at.
#[track_caller]
fn changes(line: &str, files: &[(&str, &str)], (name, text): (&str, &str)) {
    let dir = project(files);
    let before = look(line, dir.path());
    assert!(!before.is_partial(), "{line}");
    assert_eq!(look(line, dir.path()).digest(), before.digest(), "{line}");
    write(dir.path(), name, text);
    let after = look(line, dir.path());
    assert_eq!(
        after.changed_since(&before),
        Some(dir.path().join(name)),
        "{line}"
    );
    assert_ne!(after.digest(), before.digest(), "{line}");
}

#[test]
fn a_module_that_is_imported_in_any_way_is_a_change() {
    let package = [
        ("pkg/__init__.py", ""),
        ("pkg/sub/mod.py", "x"),
        ("helper.py", "x"),
    ];
    for (script, swapped) in [
        ("from pkg.sub import mod\n", "pkg/sub/mod.py"),
        ("import pkg.sub.mod\n", "pkg/__init__.py"),
        ("x=1; import helper\n", "helper.py"),
        ("import os, \\\n helper\n", "helper.py"),
        ("__import__('hel' + 'per')\n", "helper.py"),
        // A module that the library imports, one that takes the place of a source, and a compiled one.
        ("import json\n", "re.py"),
        ("import helper\n", "helper/__init__.py"),
        ("import helper\n", "__pycache__/helper.cpython-311.pyc"),
    ] {
        let files = [&package[..], &[("job.py", script)]].concat();
        changes("python3 job.py", &files, (swapped, "evil"));
    }
    for line in ["python3 -m pkg.sub.mod", "python3 -c 'import helper'", "pytest"] {
        changes(line, &package, ("conftest.py", "evil"));
    }
}

#[test]
fn what_a_build_includes_is_a_change() {
    let sub = [("Makefile", "x:\n\t$(MAKE) -C sub y\n"), ("sub/Makefile", "y:\n")];
    changes("make x", &sub, ("sub/Makefile", "evil"));
    changes("make x", &sub, ("GNUmakefile", "evil"));
    let include = [("Makefile", "include mk/*.mk\nx:\n"), ("mk/a.mk", "")];
    changes("make x", &include, ("mk/b.mk", "evil"));
    changes("make -C sub y", &sub, ("sub/more.inc", "evil"));
    changes("cargo test", &[("src/lib.rs", "x")], ("src/lib.rs", "evil"));
}

#[test]
fn what_a_script_of_a_package_finds_is_a_change() {
    let tool = [
        ("package.json", "{\"scripts\": {\"x\": \"tool\"}}"),
        ("node_modules/.bin/tool", "x"),
    ];
    changes("npm run x", &tool, ("node_modules/.bin/tool", "evil"));
    changes("npm run x", &tool, ("node_modules/.bin/ls", "evil"));
    let app = [
        ("app.js", "require('./lib')"),
        ("lib/package.json", "{\"main\":\"a.js\"}"),
        ("lib/a.js", ""),
    ];
    changes("node app.js", &app, ("lib/package.json", "{\"main\":\"b.js\"}"));
    changes("node app.js", &app, ("node_modules/left/index.js", "evil"));
}

#[test]
fn what_other_interpreters_and_hooks_load_is_a_change() {
    let perl = [("a.pl", "use lib '.'; use Helper;"), ("Helper.pm", "1;")];
    changes("perl a.pl", &perl, ("Helper.pm", "evil"));
    let reads = [("a.sql", ".read b.sql"), ("b.sql", "select 1;")];
    changes("sqlite3 x.db '.read a.sql'", &reads, ("b.sql", "evil"));
    changes("bash a.sh", &[("a.sh", ". ./$1")], ("b", "evil"));
    let hooks = [
        (".git/config", "[core]\n\thooksPath = hk\n"),
        (".git/HEAD", "x"),
        ("hk/x", ""),
    ];
    changes("git commit -m x", &hooks, ("hk/pre-commit", "evil"));
    changes("git commit -m x", &hooks, (".git/hooks/pre-commit", "evil"));
}

#[test]
fn a_script_elsewhere_is_bound_with_what_is_beside_it() {
    let (start, other) = (
        project(&[("x", "")]),
        project(&[("job.py", "import helper"), ("helper.py", "")]),
    );
    let line = format!("python3 {}/job.py", other.path().display());
    let before = look(&line, start.path());
    write(other.path(), "helper.py", "evil");
    let changed = look(&line, start.path()).changed_since(&before);
    assert_eq!(changed, Some(other.path().join("helper.py")));
    // Behind a link of the project.
    symlink(other.path(), start.path().join("lib")).unwrap();
    let before = look("node app.js", start.path());
    write(other.path(), "index.js", "evil");
    let changed = look("node app.js", start.path()).changed_since(&before);
    assert_eq!(changed, Some(start.path().join("lib/index.js")));
}

#[test]
fn records_and_logs_are_no_change_and_the_same_bytes_are_none_either() {
    let dir = project(&[
        ("job.py", "x"),
        ("lib.py", "x"),
        (".git/HEAD", "x"),
        (".git/config", ""),
    ]);
    let line = "python3 job.py";
    let before = look(line, dir.path());
    for name in [
        ".git/index",
        ".git/objects/aa/bb",
        "run.log",
        ".pytest_cache/v/cache/lastfailed",
    ] {
        write(dir.path(), name, "x");
    }
    write(dir.path(), "new", "x");
    fs::rename(dir.path().join("new"), dir.path().join("lib.py")).unwrap();
    assert_eq!(look(line, dir.path()).digest(), before.digest());
    // A log that the line names is bound.
    let before = look("bash run.log", dir.path());
    write(dir.path(), "run.log", "evil");
    let changed = look("bash run.log", dir.path()).changed_since(&before);
    assert_eq!(changed, Some(dir.path().join("run.log")));
}

#[test]
fn a_line_that_could_load_more_than_is_bound_is_partial() {
    let dir = project(&[("job.py", "x")]);
    let line = "python3 job.py";
    assert!(!look(line, dir.path()).is_partial());
    // A home and what is above it, and code among what git records.
    for home in [dir.path().to_path_buf(), dir.path().join("home/x")] {
        assert!(examined(line, dir.path(), Some(&home)).unwrap().is_partial());
    }
    write(dir.path(), ".git/x.py", "x");
    assert!(look("python3 .git/x.py", dir.path()).is_partial());
    let large = fs::File::create(dir.path().join("large")).unwrap();
    large.set_len(tree::MAX_READ).unwrap();
    assert!(look(line, dir.path()).is_partial());
    fs::remove_file(dir.path().join("large")).unwrap();
    assert!(!look(line, dir.path()).is_partial());
    for number in 0..tree::MAX_ENTRIES {
        fs::write(dir.path().join(number.to_string()), "").unwrap();
    }
    assert!(look(line, dir.path()).is_partial());
    // A line that runs no code does not look there.
    assert!(!look("cp job.py x", dir.path()).is_partial());
}
