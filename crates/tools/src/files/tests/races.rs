//! Races: the tree changes while file tools use it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::fs::{RenameFlags, renameat_with};

use super::resolve::Last;
use super::*;

/// Safety limit: beyond it, the other thread does not run at all.
const TRIES: usize = 2_000_000;

/// Stops the other thread even if this one panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Exchanges `root/swap`, a directory, with a link to the directory outside, while `attempt` is made at least
/// `least` times and until it has met both. `attempt` returns `true` if it met the directory.
fn while_swapping(world: &World, least: usize, mut attempt: impl FnMut() -> bool) {
    fs::rename(world.inside("d"), world.inside("swap")).unwrap();
    world.link("../outside/d", "link");
    let (done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (one, other) = (world.inside("swap"), world.inside("link"));
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let end = End(&done);
        let (mut met, mut refused) = (0, 0);
        for tried in 0..TRIES {
            if tried >= least && met > 0 && refused > 0 {
                break;
            }
            *(if attempt() { &mut met } else { &mut refused }) += 1;
        }
        drop(end);
        assert!(
            met > 0 && refused > 0,
            "{met} met the directory, {refused} the link"
        );
    });
    assert!(swaps.into_inner() > 1);
    world.is_whole();
}

/// Returns the value if an attempt met the directory; asserts the expected error otherwise.
#[track_caller]
fn met<T: Debug>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Outside { .. } | Error::Changing { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The same race at the decisive moment: after links are resolved, before anything is opened.
#[test]
fn a_place_that_has_become_a_link_is_refused() {
    let world = World::new();
    let places = ["d/b.txt", "d", "d/new/x"].map(|path| world.root.resolve(path, Last::Target).unwrap());
    let [file, directory, new] = &places;
    fs::rename(world.inside("d"), world.inside("old")).unwrap();
    world.link("../outside/d", "d");
    assert_eq!(
        fs::read_to_string(world.inside("d/b.txt")).unwrap(),
        SECRET,
        "works outside"
    );
    #[track_caller]
    fn changing<T: Debug>(result: Result<T, Error>) {
        assert!(matches!(result, Err(Error::Changing { .. })), "{result:?}");
    }
    changing(world.root.regular(file, OFlags::RDONLY));
    changing(world.root.list_at(directory));
    for place in [file, new] {
        changing(world.root.replace(place, b"broken in"));
        changing(world.root.append(place, b"broken in"));
        changing(world.root.delete_at(place));
    }
    // A link at the end of the path is deleted itself, without its target.
    world.root.delete_at(directory).unwrap();
    world.is_whole();
}

#[test]
fn no_read_escapes() {
    let world = World::new();
    while_swapping(&world, 20_000, || {
        met(world.root.read("swap/b.txt", 1, None)).is_some_and(|found| {
            assert_eq!(found.to_string(), "below");
            true
        })
    });
}

#[test]
fn no_listing_escapes() {
    let world = World::new();
    fs::write(world.inside("d/mark"), "").unwrap();
    while_swapping(&world, 20_000, || {
        met(world.root.list("swap")).is_some_and(|found| {
            assert_eq!(found.entries.len(), 2);
            true
        })
    });
}

#[test]
fn no_write_escapes() {
    let world = World::new();
    while_swapping(&world, 3_000, || {
        met(world.root.write("swap/b.txt", b"broken in", WriteMode::Replace)).is_some()
    });
}

#[test]
fn no_append_escapes() {
    let world = World::new();
    while_swapping(&world, 3_000, || {
        met(world.root.write("swap/b.txt", b"+", WriteMode::Append)).is_some()
    });
}

#[test]
fn no_new_directory_escapes() {
    let world = World::new();
    let mut number = 0;
    while_swapping(&world, 3_000, || {
        number += 1;
        met(world
            .root
            .write(&format!("swap/{number}/x"), b"", WriteMode::Replace))
        .is_some()
    });
}

#[test]
fn no_delete_escapes() {
    let world = World::new();
    while_swapping(&world, 20_000, || match world.root.delete("swap/b.txt") {
        Err(Error::NotFound { .. }) => {
            // Restored where it was deleted, for the next attempt.
            for name in ["swap", "link"] {
                let directory = world.inside(name);
                if fs::symlink_metadata(&directory).is_ok_and(|found| found.is_dir()) {
                    let _ = Root::open(&directory, Rules::standard())
                        .and_then(|root| root.write("b.txt", b"below", WriteMode::Replace));
                }
            }
            true
        }
        result => met(result).is_some(),
    });
}

#[test]
fn a_file_is_seen_whole_or_not_at_all() {
    const SIZE: usize = 300_000;
    let world = World::with(Rules {
        max_read: SIZE,
        ..Rules::standard()
    });
    let write = |letter: u8| {
        world
            .root
            .write("x", &[letter; SIZE], WriteMode::Replace)
            .unwrap()
    };
    write(b'a');
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _end = End(&done);
            for letter in b"abcdefghijklmnopqrstuvwxyz" {
                write(*letter);
            }
        });
        while !done.load(Ordering::Relaxed) {
            let text = world.text("x");
            assert_eq!(text.len(), SIZE);
            assert!(text.bytes().all(|byte| byte == text.as_bytes()[0]));
        }
    });
    assert!(world.text("x").starts_with('z'));
}
