//! Directories: copies into and out of a sandbox.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Instant;

use super::{Lab, Venue, everywhere};
use crate::support::{entries, eventually, finish};

/// Writes a file in the working directory, and makes the directories above it.
fn put(lab: &Lab, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = lab.world.dir.path("work").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

/// Creates the directory `work/tree`: two levels, an executable file and a link.
fn plant(lab: &Lab) {
    put(lab, "tree/deep/file", "text");
    let run = put(lab, "tree/run", "#!/bin/sh\necho ran\n");
    fs::set_permissions(&run, Permissions::from_mode(0o755)).unwrap();
    symlink("deep/file", lab.world.dir.path("work/tree/link")).unwrap();
}

#[test]
fn directories_are_copied_both_ways() {
    everywhere(|lab| {
        plant(lab);
        let work = |name: &str| lab.world.dir.path("work").join(name);
        // Into a directory under its name, to a path that is missing with that name, and its entries.
        lab.sandbox(&["cp", "-r", "tree", "lab:/workspace"]).ok();
        lab.sandbox(&["cp", "tree/", "lab:/workspace/made/here"]).ok();
        lab.sandbox(&["cp", "tree/.", "lab:/output/"]).ok();
        let seen =
            "cd /workspace; cat tree/link made/here/deep/file /output/deep/file; tree/run; echo * made/*";
        assert_eq!(lab.bash(seen).ok(), "texttexttextran\nmade tree made/here\n");
        lab.sandbox(&["cp", "tree", "lab:/workspace/made/here"]).ok();
        assert_eq!(lab.bash("cd made/here; echo *").ok(), "deep link run tree\n");
        lab.sandbox(&["cp", "lab:/workspace/tree", "out"]).ok();
        lab.sandbox(&["cp", "lab:/workspace/tree/", "out/"]).ok();
        lab.sandbox(&["cp", "lab:/workspace/tree/.", "new/parents"]).ok();
        assert_eq!(entries(&work("out")), ["deep", "link", "run", "tree"]);
        assert_eq!(entries(&work("new/parents")), ["deep", "link", "run"]);
        for copy in ["out", "out/tree", "new/parents"] {
            assert_eq!(fs::read_to_string(work(copy).join("link")).unwrap(), "text");
            let mode = fs::metadata(work(copy).join("run")).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o755, "{copy}");
        }
        // What is there is replaced, and what the copy has not stays.
        lab.bash("echo new > tree/deep/file").ok();
        fs::write(work("out/tree/mine"), "mine").unwrap();
        let told = lab.json(&["cp", "lab:/workspace/tree", "out"]);
        assert_eq!(
            (&told["entries"], &told["skipped"]),
            (&4.into(), &0.into()),
            "{told}"
        );
        assert_eq!(fs::read_to_string(work("out/tree/link")).unwrap(), "new\n");
        assert_eq!(fs::read_to_string(work("out/tree/mine")).unwrap(), "mine");
        // A file goes into a directory that is there.
        lab.sandbox(&["cp", "tree/run", "lab:/workspace/made"]).ok();
        assert_eq!(lab.bash("made/run").ok(), "ran\n");
    });
}

#[test]
fn a_directory_is_a_tar_archive_in_a_pipe() {
    everywhere(|lab| {
        plant(lab);
        lab.sandbox(&["cp", "tree", "lab:/workspace"]).ok();
        let listed = |from: &str| {
            let archive = lab.sandbox(&["cp", from, "-"]).ok().to_owned();
            let listed = finish(lab.world.dir.program("tar").arg("-t"), archive.as_bytes());
            (archive, listed.ok().to_owned())
        };
        let (archive, names) = listed("lab:/workspace/tree");
        assert_eq!(names, "tree/\ntree/deep/\ntree/deep/file\ntree/link\ntree/run\n");
        assert_eq!(listed("lab:/workspace/tree/.").1, "deep/\ndeep/file\nlink\nrun\n");
        for place in ["lab:/tmp/new/", "lab:/output"] {
            lab.sandbox_with(&["cp", "-", place], archive.as_bytes()).ok();
        }
        assert_eq!(
            lab.bash("cat /tmp/new/tree/link /output/tree/link").ok(),
            "texttext"
        );
        lab.sandbox_with(&["cp", "-", "lab:/output"], b"no archive")
            .refused(125, "archive");
    });
}

#[test]
fn neither_takes_the_place_of_the_other() {
    everywhere(|lab| {
        plant(lab);
        put(lab, "file", "mine");
        put(lab, "in/deep", "a file");
        lab.bash("echo theirs > file; mkdir -p tree/run").ok();
        lab.sandbox(&["cp", "tree", "lab:/workspace/file"]).refused(
            125,
            "`tree` is a directory, and `/workspace/file` in the sandbox is none",
        );
        lab.sandbox(&["cp", "tree", "lab:/workspace"]).refused(125, "run");
        lab.sandbox(&["cp", "lab:/workspace/tree", "file"])
            .refused(125, "`/workspace/tree` is a directory in the sandbox, and");
        lab.sandbox(&["cp", "lab:/workspace/tree/.", "in"])
            .refused(125, "deep is a directory in the sandbox, and something else here");
        lab.sandbox(&["cp", "lab:/workspace/tree/.", "tree"])
            .refused(125, "run is a directory in the sandbox, and something else here");
        lab.sandbox(&["cp", "nosuch/.", "lab:/workspace"])
            .refused(2, "cannot read nosuch/.");
        lab.sandbox(&["cp", "lab:/workspace/nosuch/.", "new"])
            .refused(125, "nosuch");
        assert_eq!(lab.bash("cat file").ok(), "theirs\n");
        assert_eq!(
            fs::read_to_string(lab.world.dir.path("work/file")).unwrap(),
            "mine"
        );
        assert!(!lab.world.dir.path("work/new").exists());
    });
}

#[test]
fn what_is_left_out_is_named_and_no_success() {
    everywhere(|lab| {
        let dir = &lab.world.dir;
        put(lab, "tree/file", "text");
        finish(dir.program("mkfifo").arg("tree/fifo"), b"").ok();
        let sent = lab.sandbox(&["cp", "tree", "lab:/workspace"]);
        assert_eq!(sent.status, 125, "{sent:?}");
        assert!(
            sent.stderr
                .contains("error: not everything was copied: 1 left out\n"),
            "{sent:?}"
        );
        assert!(sent.stderr.contains("left out fifo: it is a FIFO"), "{sent:?}");
        assert_eq!(lab.bash("cat tree/file; cd tree; echo *").ok(), "textfile\n");
        // Written by the sandbox's programs: a link out, a FIFO, a name that moves a terminal's cursor, rights for all.
        lab.bash(
            r"mkdir -p /output/t/d; cd /output/t; echo x > d/s; chmod 6777 d/s; ln -s d/s in; ln -s /etc/passwd out
              ln -s ../../up up; mkfifo $'f\e[2J'; chmod 777 d",
        )
        .ok();
        let got = lab.sandbox(&["cp", "lab:/output/t", "."]);
        assert_eq!(got.status, 125, "{got:?}");
        assert!(
            got.stderr
                .contains("error: not everything was copied: 3 left out\n"),
            "{got:?}"
        );
        for named in [
            "left out out: it is a link",
            "left out up: it is a link",
            "left out f",
        ] {
            assert!(got.stderr.contains(named), "{named}: {got:?}");
        }
        assert!(!got.stderr.contains('\u{1b}'), "{got:?}");
        assert_eq!(entries(&dir.path("work/t")), ["d", "in"]);
        let found = fs::metadata(dir.path("work/t/in")).unwrap();
        assert_eq!(
            (found.mode() & 0o7022, found.uid()),
            (0, fs::metadata(dir.path("work")).unwrap().uid())
        );
    });
}

#[test]
fn no_copy_leaves_its_directory() {
    let lab = Lab::with_sandbox();
    let work = |name: &str| lab.world.dir.path("work").join(name);
    fs::create_dir_all(work("to")).unwrap();
    fs::create_dir(work("outside")).unwrap();
    symlink("../outside", work("to/d")).unwrap();
    // By its path, the link leads there.
    fs::write(work("to/d/precious"), "precious").unwrap();
    lab.bash("mkdir -p t/d; echo theirs > t/d/precious; echo theirs > t/z")
        .ok();
    lab.sandbox(&["cp", "lab:/workspace/t/.", "to"])
        .refused(125, "d is a directory in the sandbox, and something else here");
    // A link in the working directory may be a program's.
    lab.sandbox(&["cp", "lab:/workspace/t/.", "to/d"])
        .refused(125, "refusing to follow the link");
    assert_eq!(entries(&work("outside")), ["precious"]);
    assert_eq!(fs::read_to_string(work("to/d/precious")).unwrap(), "precious");
    // A link of the caller's that leads out goes in as a link, and what it leads to does not.
    symlink(work("outside/precious"), work("outside/link")).unwrap();
    lab.sandbox(&["cp", "outside", "lab:/workspace/in"]).ok();
    assert_eq!(
        lab.bash("test -L in/link; cat in/link 2> /dev/null || echo nowhere")
            .ok(),
        "nowhere\n"
    );
    lab.close();
}

#[test]
fn a_copy_brings_nothing_that_programs_of_the_host_obey_unless_it_is_told_to() {
    let lab = Lab::with_sandbox();
    let work = |name: &str| lab.world.dir.path("work").join(name);
    fs::create_dir_all(work("repo/.git")).unwrap();
    fs::write(work("repo/.git/config"), "mine").unwrap();
    lab.bash("mkdir -p t/.git; echo theirs > t/.git/config; echo theirs | tee t/.envrc > t/code")
        .ok();
    let copied = lab.sandbox(&["cp", "lab:/workspace/t/.", "repo"]);
    assert_eq!(copied.status, 125, "{copied:?}");
    for name in [".git", ".envrc"] {
        let told = format!("{name}: programs of this machine execute or obey files of that name");
        assert!(copied.stderr.contains(&told), "{copied:?}");
    }
    let config = || fs::read_to_string(work("repo/.git/config")).unwrap();
    assert_eq!(
        (entries(&work("repo")), config()),
        (vec![".git".to_owned(), "code".to_owned()], "mine".to_owned())
    );
    // Nor into a protected directory, which names in the archive do not show.
    for (from, to) in [("t/.git/.", "repo/.git"), ("t/.git", "repo")] {
        lab.sandbox(&["cp", &format!("lab:/workspace/{from}"), to])
            .refused(125, ".git` is protected");
    }
    assert_eq!(config(), "mine");
    lab.sandbox(&["cp", "--include-protected", "lab:/workspace/t/.", "repo"])
        .ok();
    assert_eq!(
        (entries(&work("repo")).len(), config()),
        (3, "theirs\n".to_owned())
    );
    lab.close();
}

#[test]
fn a_directory_has_a_bound_and_an_interruption_leaves_whole_files() {
    let lab = Lab::on(Venue::plain("local"), &["--memory", "1GiB", "--disk", "512MiB"]);
    let out = lab.world.dir.path("work/out");
    lab.bash(
        "set -e; mkdir big t; truncate -s 400M big/holes; for n in {1..8}; do head -c 50M /dev/zero > t/$n; done",
    )
    .ok();
    lab.sandbox(&["cp", "--max-size", "100MiB", "lab:/workspace/big", "big"])
        .refused(125, "has more than 104857600 bytes");
    lab.sandbox(&["cp", "--max-size", "120MiB", "lab:/workspace/t", "some"])
        .refused(
            125,
            "has more than 125829120 bytes; the files that were complete before remain",
        );
    assert_eq!(entries(&lab.world.dir.path("work/some")), ["1", "2"]);
    let is_partial = || {
        let names = if out.exists() { entries(&out) } else { Vec::new() };
        names.iter().any(|name| name.starts_with(".ringfence-"))
    };
    for signal in ["INT", "TERM", "HUP"] {
        let mut copy = lab.start(&["cp", "lab:/workspace/t", "out"]);
        eventually("it has begun", is_partial);
        lab.world.signal(&copy, signal);
        assert_eq!(copy.wait().unwrap().code(), Some(130), "{signal}");
        for name in entries(&out) {
            assert_eq!(
                fs::metadata(out.join(&name)).unwrap().len(),
                50 << 20,
                "{signal} {name}"
            );
        }
        fs::remove_dir_all(&out).unwrap();
    }
    // What goes in is whole or missing, too.
    let large = lab.world.dir.path("work/in");
    fs::create_dir(&large).unwrap();
    File::create(large.join("file"))
        .unwrap()
        .set_len(300 << 20)
        .unwrap();
    let mut copy = lab.start(&["cp", "in", "lab:/tmp"]);
    lab.appears("/tmp/in");
    lab.world.signal(&copy, "KILL");
    copy.wait().unwrap();
    eventually("it is removed", || {
        matches!(lab.bash("ls -A /tmp/in").ok(), "" | "file\n")
    });
    assert!(matches!(
        lab.bash("find /tmp/in -type f -printf %s").ok(),
        "" | "314572800"
    ));
    lab.close();
}

/// Prints the time of a thousand files beside that of one file with their bytes.
#[test]
fn a_thousand_files_go_in_and_out() {
    let lab = Lab::with_sandbox();
    for number in 0..1000 {
        put(&lab, &format!("many/{}/{number}", number % 10), "x".repeat(1000));
    }
    put(&lab, "one", "x".repeat(1_000_000));
    let timed = |args: &[&str]| {
        let began = Instant::now();
        lab.sandbox(args).ok();
        println!("{args:?}: {} ms", began.elapsed().as_millis());
    };
    timed(&["cp", "one", "lab:/workspace"]);
    timed(&["cp", "many", "lab:/workspace"]);
    timed(&["cp", "lab:/workspace/one", "out"]);
    timed(&["cp", "lab:/workspace/many", "back"]);
    let back = lab.world.dir.path("work/back");
    let count: usize = entries(&back)
        .iter()
        .map(|name| entries(&back.join(name)).len())
        .sum();
    assert_eq!(count, 1000);
    lab.close();
}
