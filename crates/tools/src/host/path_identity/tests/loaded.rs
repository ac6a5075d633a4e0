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

fn look(line: &str, place: &Path) -> PathIdentity {
    examined(line, place, Some(Path::new("/home/nobody-here"))).unwrap()
}

/// Asserts that a line is bound as a whole, and that a file that is written is a change, however often a
/// line is looked at.
#[track_caller]
fn changes(line: &str, files: &[(&str, &str)], name: &str, text: &str) {
    let dir = project(files);
    let before = look(line, dir.path());
    assert!(!before.is_partial(), "{line}");
    assert_eq!(look(line, dir.path()).digest(), before.digest(), "{line}");
    write(dir.path(), name, text);
    let after = look(line, dir.path());
    let changed = after.changed_since(&before).unwrap_or_default();
    let new = dir.path().join(name);
    // The directory of a file can be new as well.
    assert!(
        new.starts_with(&changed) && changed != dir.path(),
        "{line}: {changed:?}"
    );
    assert!(changed.starts_with(dir.path()), "{line}: {changed:?}");
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
        changes("python3 job.py", &files, swapped, "evil");
    }
    for line in ["python3 -m pkg.sub.mod", "python3 -c 'import helper'", "pytest"] {
        changes(line, &package, "conftest.py", "evil");
    }
}

#[test]
fn what_a_build_includes_is_a_change() {
    let sub = [("Makefile", "x:\n\t$(MAKE) -C sub y\n"), ("sub/Makefile", "y:\n")];
    changes("make x", &sub, "sub/Makefile", "evil");
    changes("make x", &sub, "GNUmakefile", "evil");
    let include = [("Makefile", "include mk/*.mk\nx:\n"), ("mk/a.mk", "")];
    changes("make x", &include, "mk/b.mk", "evil");
    changes("make -C sub y", &sub, "sub/more.inc", "evil");
    changes("cargo test", &[("src/lib.rs", "x")], "src/lib.rs", "evil");
}

#[test]
fn what_a_script_of_a_package_finds_is_a_change() {
    let tool = [
        ("package.json", "{\"scripts\": {\"x\": \"tool\"}}"),
        ("node_modules/.bin/tool", "x"),
    ];
    changes("npm run x", &tool, "node_modules/.bin/tool", "evil");
    changes("npm run x", &tool, "node_modules/.bin/ls", "evil");
    let app = [
        ("app.js", "require('./lib')"),
        ("lib/package.json", "{\"main\":\"a.js\"}"),
        ("lib/a.js", ""),
    ];
    changes("node app.js", &app, "lib/package.json", "{\"main\":\"b.js\"}");
    changes("node app.js", &app, "node_modules/left/index.js", "evil");
}

#[test]
fn what_other_interpreters_and_hooks_load_is_a_change() {
    let perl = [("a.pl", "use lib '.'; use Helper;"), ("Helper.pm", "1;")];
    changes("perl a.pl", &perl, "Helper.pm", "evil");
    let reads = [("a.sql", ".read b.sql"), ("b.sql", "select 1;")];
    changes("sqlite3 x.db '.read a.sql'", &reads, "b.sql", "evil");
    changes("bash a.sh", &[("a.sh", ". ./$1")], "b", "evil");
    let hooks = [
        (".git/config", "[core]\n\thooksPath = hk\n"),
        (".git/HEAD", "x"),
        ("hk/x", ""),
    ];
    changes("git commit -m x", &hooks, "hk/pre-commit", "evil");
    changes("git commit -m x", &hooks, ".git/hooks/pre-commit", "evil");
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
fn what_a_project_takes_from_elsewhere_is_a_change() {
    let check = |line: &str, files: &[(&str, &str)], (name, text): (&str, &str)| {
        let dir = project(files);
        let start = dir.path().join("work");
        let before = look(line, &start);
        assert!(!before.is_partial(), "{line}: {files:?}");
        write(dir.path(), name, text);
        let changed = look(line, &start).changed_since(&before);
        let changed = changed.and_then(|path| path.canonicalize().ok());
        assert_eq!(changed, Some(dir.path().join(name)), "{line}: {files:?}");
    };
    let outside = [("dep/Cargo.toml", ""), ("dep/build.rs", "")];
    for manifest in [
        ("work/a/Cargo.toml", "[dependencies]\nd = {path = '../../dep'}"),
        ("work/Cargo.toml", "workspace.members = ['../dep']"),
        ("work/Cargo.toml", "workspace.members = ['../d*']"),
        ("work/Cargo.toml", "[patch.crates-io]\nd = {path = '../dep'}"),
        ("work/.cargo/config.toml", "paths = ['../dep']"),
    ] {
        let files = [&outside[..], &[("work/Cargo.toml", ""), manifest]].concat();
        check("cargo test", &files, ("dep/build.rs", "evil"));
        check("make test", &files, ("dep/src/lib.rs", "evil"));
    }
    for (line, name, text, swapped) in [
        (
            "cargo test",
            "work/src/lib.rs",
            "#[path = \"../../dep/x.rs\"] mod x;",
            "dep/x.rs",
        ),
        ("go test", "work/go.mod", "replace a => ../dep", "dep/x.go"),
        (
            "npm test",
            "work/package.json",
            "{\"a\": \"file:../dep\"}",
            "dep/index.js",
        ),
        ("node .", "work/lib/a.js", "require('../../dep/x')", "dep/x.js"),
        (
            "pytest",
            "work/t/conftest.py",
            "exec(open('../dep/a.txt'))",
            "dep/a.txt",
        ),
        ("make x", "work/sub/any.inc", "include ../../dep/*.mk", "dep/x.mk"),
        // Settings above.
        (
            "cargo test",
            "Cargo.toml",
            "workspace.members = ['work']",
            "Cargo.toml",
        ),
        ("pytest", "conftest.py", "", "conftest.py"),
        ("node .", "node_modules/x.js", "", "node_modules/left/index.js"),
    ] {
        let files = [&outside[..], &[("work/x", ""), (name, text)]].concat();
        check(line, &files, (swapped, "evil"));
    }
    // By way of another one, and one that is not there yet.
    let more = [
        ("work/Cargo.toml", "d = {path = '../dep'}"),
        ("dep/Cargo.toml", "e = {path = '../more/e'}"),
        ("more/e/Cargo.toml", ""),
    ];
    check("cargo test", &more, ("more/e/build.rs", "evil"));
    check("cargo test", &more[..2], ("more/e", "evil"));
}

#[test]
fn what_lies_beside_the_target_of_a_link_is_a_change() {
    let dir = project(&[
        ("other/a.js", "require('./b')"),
        ("other/b.js", ""),
        ("work/x", ""),
    ]);
    symlink("../other/a.js", dir.path().join("work/a.js")).unwrap();
    let start = dir.path().join("work");
    let before = look("node a.js", &start);
    assert!(!before.is_partial());
    write(dir.path(), "other/b.js", "evil");
    let changed = look("node a.js", &start).changed_since(&before);
    assert_eq!(changed, Some(dir.path().join("other/b.js")));
}

#[test]
fn what_the_environment_leads_to_is_a_change() {
    for line in [
        "PYTHONPATH=../dep python3 -m x",
        "PYTHONPATH=a:../dep python3 -m x",
        "NODE_PATH=../dep node .",
        "NODE_OPTIONS=--require=../dep/x node .",
        "NODE_OPTIONS='--require ../dep/x' node .",
        "NODE_OPTIONS=-r../dep/x node .",
        "MAKEFILES=../dep/x make y",
        "BASH_ENV=../dep/x bash -c :",
        "PERL5LIB=../dep perl a.pl",
        "PERL5OPT=-I../dep perl a.pl",
        "RUBYOPT=-r../dep/x ruby a.rb",
        "RUBYLIB=../dep ruby a.rb",
        "GIT_EXTERNAL_DIFF=../dep/x git diff",
        "GIT_CONFIG_GLOBAL=../dep/x git status",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.pager GIT_CONFIG_VALUE_0=../dep/x git log",
        "LD_PRELOAD=../dep/x ls",
        "CARGO_HOME=../dep cargo test",
        "RUSTC_WRAPPER=../dep/x cargo test",
        "GOFLAGS=-toolexec=../dep/x go build",
        "JAVA_TOOL_OPTIONS=-javaagent:../dep/x java A",
        "pytest --rootdir ../dep",
        "pytest --rootdir=../dep",
        "pytest -c../dep/x",
        "gcc -I../dep a.c",
        "export BASH_ENV=../dep/x; bash a.sh",
    ] {
        let dir = project(&[("dep/z", ""), ("work/a.sh", "")]);
        let start = dir.path().join("work");
        let before = look(line, &start);
        assert!(!before.is_partial(), "{line}");
        write(dir.path(), "dep/x.js", "evil");
        let changed = look(line, &start).changed_since(&before);
        let changed = changed.and_then(|path| path.canonicalize().ok());
        assert_eq!(changed, Some(dir.path().join("dep/x.js")), "{line}");
    }
}

/// A loader takes code from a file of any name.
#[test]
fn no_name_of_a_file_is_left_out() {
    for name in [
        "run.log",
        "deep/run.log",
        ".pytest_cache/v/cache/lastfailed",
        ".mypy_cache/x.json",
        ".ruff_cache/1",
        "__pycache__/a.cpython-311.pyc",
        "node_modules/.cache/x",
        ".git/x.py",
        ".git/rebase-merge/git-rebase-todo",
        "sub/.git/index",
    ] {
        let files = [("job.py", "x"), (".git/HEAD", "x"), (".git/config", "")];
        changes("python3 job.py", &files, name, "evil");
    }
}

#[test]
fn what_git_records_counts_for_git_and_where_it_is_named() {
    let files = [("job.py", "x"), ("lib.py", "x"), (".git/config", "")];
    let records = [
        ".git/index",
        ".git/HEAD",
        ".git/refs/heads/main",
        ".git/objects/aa/bb",
    ];
    let dir = project(&files);
    let before = look("python3 job.py", dir.path());
    for name in records {
        write(dir.path(), name, "x");
        for line in ["git rebase --continue", "python3 job.py; git bisect run x"] {
            changes(line, &files, name, "evil");
        }
    }
    // The same bytes are no change, either.
    write(dir.path(), "new", "x");
    fs::rename(dir.path().join("new"), dir.path().join("lib.py")).unwrap();
    assert_eq!(look("python3 job.py", dir.path()).digest(), before.digest());
    for text in ["exec(open('.git/index').read())", "open('../w/.git/index')"] {
        let files = [&files[..], &[("lib/a.py", ""), (".git/index", "x")]].concat();
        let dir = project(&files);
        let text = text.replace("w", &dir.path().file_name().unwrap().to_string_lossy());
        write(dir.path(), "a.py", &text);
        let before = look("python3 job.py", dir.path());
        write(dir.path(), ".git/index", "evil");
        assert!(
            look("python3 job.py", dir.path())
                .changed_since(&before)
                .is_some(),
            "{text}"
        );
    }
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
    write(dir.path(), ".git/objects/x.py", "x");
    assert!(look("python3 .git/objects/x.py", dir.path()).is_partial());
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
