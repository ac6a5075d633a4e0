//! Layers on each other.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ringfence_tar::Kind;

use crate::archives::*;

/// Returns all paths below a directory, sorted.
fn paths(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            found.push(
                entry
                    .path()
                    .strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            );
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn whiteouts_hide_what_is_below_and_nothing_of_their_own_layer() {
    let place = Place::new();
    place
        .import(&[
            vec![
                file("gone", ""),
                file("stays", "1"),
                file("d/old", ""),
                file("d/deep/old", ""),
                file("tree/a/b", ""),
                symlink("link", "d"),
                file("kind/x", ""),
            ],
            vec![
                file(".wh.gone", ""),
                file("d/new", ""),
                file("d/deep/new", ""),
                file("d/.wh..wh..opq", ""),
                file(".wh.tree", ""),
                file(".wh.missing", ""),
                file("no/.wh.missing", ""),
                file(".wh..wh.aufs", ""),
                file("stays", "2"),
                // A directory becomes a file, a link a directory.
                file("kind", "file"),
                directory("link"),
                file("link/inside", ""),
            ],
        ])
        .unwrap();
    let root = place.root();
    let expected = [
        "d",
        "d/deep",
        "d/deep/new",
        "d/new",
        "kind",
        "link",
        "link/inside",
        "stays",
    ];
    assert_eq!(paths(&root), expected);
    assert_eq!(fs::read(root.join("stays")).unwrap(), b"2");
}

#[test]
fn a_path_through_a_link_of_a_lower_layer_stays_in_the_tree() {
    let place = Place::new();
    place
        .import(&[
            vec![
                directory("usr/lib"),
                symlink("lib", "/usr/lib"),
                symlink("up", "../../usr"),
            ],
            vec![file("lib/x", "x"), file("up/y", "y"), file("lib/.wh.x", "")],
        ])
        .unwrap();
    let root = place.root();
    assert_eq!(fs::read(root.join("usr/lib/x")).unwrap(), b"x");
    assert_eq!(fs::read(root.join("usr/y")).unwrap(), b"y");
}

#[test]
fn owners_set_ids_and_special_files_are_left_out() {
    let place = Place::new();
    let with = |entry: Entry, mode| Entry { mode, ..entry };
    place
        .import(&[vec![
            with(file("su", "x"), 0o4711),
            with(file("shadow", "x"), 0o600),
            with(directory("private"), 0o700),
            entry("null", Kind::Device, ""),
            entry("fifo", Kind::Fifo, ""),
            hard_link("again", "/su"),
            hard_link("su", "./su"),
            symlink("link", "/etc/passwd"),
            hard_link("to-link", "link"),
        ]])
        .unwrap();
    let root = place.root();
    let mode = |name: &str| fs::symlink_metadata(root.join(name)).unwrap().mode() & 0o7777;
    assert_eq!(
        [mode("su"), mode("shadow"), mode("private")],
        [0o755, 0o644, 0o755]
    );
    assert!(fs::symlink_metadata(root.join("to-link")).unwrap().is_symlink());
    assert_eq!(fs::metadata(root.join("again")).unwrap().nlink(), 2);
    let content = place.store.list().unwrap()[0].content;
    assert_eq!((content.special, content.set_ids), (2, 1));
    assert!(!root.join("null").exists() && !root.join("fifo").exists());
}
