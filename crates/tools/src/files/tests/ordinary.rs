//! Tests of ordinary use of file tools.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[track_caller]
fn check_read(content: &str, offset: u64, limit: Option<u64>, expected: &str) {
    let world = World::with(Rules {
        max_read: 12,
        ..Rules::standard()
    });
    fs::write(world.inside("a.txt"), content).unwrap();
    let found = world.root.read("a.txt", offset, limit).unwrap();
    assert_eq!(found.to_string(), expected, "{found:?}");
}

#[test]
fn a_read_is_lines_and_says_where_to_go_on() {
    check_read("one\ntwo\n", 1, None, "one\ntwo\n");
    check_read("one\ntwo", 0, None, "one\ntwo");
    check_read("", 1, None, "");
    check_read("", 2, None, "[the file ends with line 0]");
    check_read("one\r\ntwo\n", 2, Some(5), "two\n");
    check_read("one\ntwo\n", 1, Some(2), "one\ntwo\n");
    check_read(
        "one\ntwo\n",
        1,
        Some(1),
        "one\n[4 of 8 bytes left out; go on with offset 2]",
    );
    check_read(
        "one\ntwo\n",
        2,
        Some(0),
        "[4 of 8 bytes left out; go on with offset 2]",
    );
    check_read("one\ntwo\n", 3, None, "[the file ends with line 2]");
    check_read("one\ntwo", 9, None, "[the file ends with line 2]");
    check_read("12345678901\n", 1, None, "12345678901\n");
    check_read(
        "1\n2\n3\n4\n5\n6\n7\n8\n",
        1,
        None,
        "1\n2\n3\n4\n5\n6\n[4 of 16 bytes left out; go on with offset 7]",
    );
    check_read(
        "first\nlonger line\n",
        1,
        None,
        "first\n[12 of 18 bytes left out; go on with offset 2]",
    );
    check_read(
        "a very long line\nx\n",
        1,
        None,
        "a very long \n[the rest of this line is left out: it is too long, read it with code]\
         \n[7 of 19 bytes left out; go on with offset 2]",
    );
    // The limit is in the middle of a character.
    check_read(
        "elevenbytesäx",
        1,
        None,
        "elevenbytes\n[the rest of this line is left out: it is too long, read it with code]\
         \n[3 of 14 bytes left out; go on with offset 2]",
    );
}

#[test]
fn reads_add_up_to_the_file_whatever_their_size() {
    let content: String = (0..40_000).map(|line| format!("line {line}\n")).collect();
    let world = World::with(Rules {
        max_read: 100_000,
        ..Rules::standard()
    });
    world
        .root
        .write("long.txt", content.as_bytes(), WriteMode::Replace)
        .unwrap();
    for limit in [None, Some(9_999)] {
        let (mut all, mut offset) = (String::new(), Some(1));
        while let Some(from) = offset {
            let Body::Text {
                text,
                next,
                left,
                lines,
                ..
            } = world.root.read("long.txt", from, limit).unwrap().body
            else {
                panic!("text is text");
            };
            all.push_str(&text);
            offset = next;
            assert_eq!(left as usize, content.len() - all.len());
            assert!(lines.is_none_or(|lines| lines == 40_000));
        }
        assert_eq!(all, content);
    }
}

#[test]
fn what_is_no_text_is_named() {
    let world = World::new();
    for (content, expected) in [
        (
            &b"\x89PNG\r\n\x1a\n\0\0"[..],
            "[PNG image, 10 bytes; not shown, read it with code]",
        ),
        (
            b"\x7fELF\0",
            "[ELF program, 5 bytes; not shown, read it with code]",
        ),
        (
            b"text\0text",
            "[binary data, 9 bytes; not shown, read it with code]",
        ),
        (
            b"caf\xe9\n",
            "[binary data, 5 bytes; not shown, read it with code]",
        ),
        (
            b"\xff\xfea\0",
            "[UTF-16 text, 4 bytes; not shown, read it with code]",
        ),
    ] {
        world.root.write("x", content, WriteMode::Replace).unwrap();
        assert_eq!(world.root.read("x", 1, None).unwrap().to_string(), expected);
    }
}

#[test]
fn a_result_has_one_shape() {
    let world = World::new();
    let shape = serde_json::to_value(world.root.read("a.txt", 1, None).unwrap()).unwrap();
    let expected = serde_json::json!({
        "bytes": 6, "kind": "text", "text": "inside", "first_line": 1, "cut": false, "next": null, "left": 0, "lines": 1
    });
    assert_eq!(shape, expected);
    world.link("/etc", "link");
    let shape = serde_json::to_value(world.root.list(".").unwrap()).unwrap();
    let expected = serde_json::json!({"more": 0, "entries": [
        {"name": "a.txt", "kind": "file", "bytes": 6},
        {"name": "d", "kind": "directory"},
        {"name": "link", "kind": "symlink", "target": "/etc"},
    ]});
    assert_eq!(shape, expected);
    let shape = serde_json::to_value(world.root.delete("a.txt").unwrap()).unwrap();
    assert_eq!(shape, serde_json::json!({"kind": "file"}));
}

#[test]
fn a_write_replaces_all_and_keeps_the_mode() {
    let world = World::new();
    fs::set_permissions(world.inside("a.txt"), PermissionsExt::from_mode(0o6751)).unwrap();
    assert_eq!(world.root.write("a.txt", b"new", WriteMode::Replace).unwrap(), 3);
    assert_eq!(world.text("a.txt"), "new");
    let mode = fs::metadata(world.inside("a.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o751, "the rights of its owner are not handed on");
    fs::write(world.inside("by-the-system"), "").unwrap();
    world.root.write("by-us", b"", WriteMode::Replace).unwrap();
    let [system, us] =
        ["by-the-system", "by-us"].map(|name| fs::metadata(world.inside(name)).unwrap().permissions());
    assert_eq!(us, system);
    assert_eq!(names(&world.inside("")), ["a.txt", "by-the-system", "by-us", "d"]);
}

#[test]
fn directories_on_the_way_are_made() {
    let world = World::new();
    world
        .root
        .write("new/deep/er.txt", b"x", WriteMode::Append)
        .unwrap();
    assert_eq!(world.text("new/deep/er.txt"), "x");
    denied(
        world.root.write("a.txt/x", b"x", WriteMode::Replace),
        Kind::WrongKind,
    );
    for path in ["d", "d/", "new/", ".", "/workspace", "d/.."] {
        denied(world.root.write(path, b"x", WriteMode::Replace), Kind::WrongKind);
    }
    denied(world.root.write("d", b"x", WriteMode::Append), Kind::WrongKind);
    denied(world.root.read("a.txt/", 1, None), Kind::WrongKind);
    denied(world.root.read("d", 1, None), Kind::WrongKind);
    denied(world.root.list("a.txt"), Kind::WrongKind);
    denied(world.root.read("missing", 1, None), Kind::NotFound);
    denied(world.root.list("missing"), Kind::NotFound);
}

#[test]
fn limits_hold() {
    let world = World::with(Rules {
        max_write: 8,
        max_entries: 3,
        ..Rules::standard()
    });
    denied(
        world.root.write("big", b"123456789", WriteMode::Replace),
        Kind::TooLarge,
    );
    assert!(!world.inside("big").exists());
    world.root.write("a.txt", b"++", WriteMode::Append).unwrap();
    denied(world.root.write("a.txt", b"+", WriteMode::Append), Kind::TooLarge);
    assert_eq!(world.text("a.txt"), "inside++");
    world.root.write("third", b"", WriteMode::Replace).unwrap();
    for path in ["fourth", "fourth/x"] {
        denied(world.root.write(path, b"", WriteMode::Replace), Kind::Limit);
    }
    world
        .root
        .write("third", b"replaced", WriteMode::Replace)
        .unwrap();
    fs::write(world.inside("0"), "").unwrap();
    fs::write(world.inside("z"), "").unwrap();
    let listing = world.root.list(".").unwrap();
    let found: Vec<_> = listing.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!((found, listing.more), (vec!["0", "a.txt", "d"], 2));
}

#[test]
fn a_name_that_is_no_text_is_listed_and_marked() {
    let world = World::new();
    fs::write(world.inside("").join(OsStr::from_bytes(b"caf\xe9")), "").unwrap();
    let listing = world.root.list(".").unwrap();
    let marked: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry.lossy))
        .collect();
    assert_eq!(marked, [("a.txt", false), ("caf\u{fffd}", true), ("d", false)]);
}

#[test]
fn a_delete_takes_one_thing_away() {
    let world = World::new();
    denied(world.root.delete("d"), Kind::WrongKind);
    assert_eq!(world.root.delete("d/b.txt").unwrap().kind, EntryKind::File);
    assert_eq!(world.root.delete("d/").unwrap().kind, EntryKind::Directory);
    denied(world.root.delete("d"), Kind::NotFound);
    for path in [".", "/workspace", "d/..", world.root.path().to_str().unwrap()] {
        denied(world.root.delete(path), Kind::Protected);
    }
    world.root.delete("a.txt").unwrap();
    denied(world.root.delete("."), Kind::Protected);
    assert_eq!(names(&world.inside("")), [""; 0]);
}

#[test]
fn a_root_is_made_for_its_owner_alone() {
    let world = World::new();
    let path = world.directory.path().join("data/users/ann");
    let root = Root::create(&path, Rules::standard(), None).unwrap();
    for made in ["data", "data/users", "data/users/ann"] {
        let mode = fs::metadata(world.directory.path().join(made))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o700, "{made}");
    }
    assert_eq!(root.path(), path);
    root.write("x", b"kept", WriteMode::Replace).unwrap();
    assert_eq!(
        text_of(&Root::create(&path, Rules::standard(), None).unwrap(), "x"),
        "kept"
    );
}
