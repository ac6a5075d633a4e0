//! Hostile images: each is refused, nothing is written outside of its tree, and the store is as before.

use std::error::Error as _;
use std::fs;
use std::slice::from_ref;

use ringfence_images::{Digest, Error, Store, import};
use serde_json::json;

use crate::archives::*;

/// Renders an error with its causes.
fn explained(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// Checks that an image of these layers is refused, with these words.
fn check(layers: &[Vec<Entry>], words: &str) {
    let place = Place::new();
    let error = place.import(layers).unwrap_err();
    assert!(explained(&error).contains(words), "{}", explained(&error));
    place.assert_untouched(0);
}

#[test]
fn no_path_leads_upwards() {
    for path in ["../canary", "a/../../canary", "/../canary", ".."] {
        check(&[vec![file(path, "x")]], "leads upwards");
    }
    check(
        &[vec![hard_link("x", "../../../../../canary")]],
        "is a link to nothing",
    );
}

#[test]
fn nothing_is_written_or_removed_through_a_link() {
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("canary");
    fs::write(&canary, "canary").unwrap();
    let out = outside.path().to_str().unwrap();
    // Each way is tried from a first layer with the link, by a second one, and within one.
    for attack in [
        vec![file("link/new", "x")],
        vec![file("link/canary", "x")],
        vec![hard_link("mine", "link/canary")],
        vec![file("link/.wh.canary", "")],
        vec![file("link/.wh..wh..opq", "")],
        vec![directory("link/new")],
        vec![symlink("link/new", "x")],
        vec![file("file-link", "x")],
        vec![directory("dir-link")],
    ] {
        let links = || {
            vec![
                symlink("link", out),
                symlink("file-link", canary.to_str().unwrap()),
                symlink("dir-link", &format!("{}{out}", "../".repeat(30))),
            ]
        };
        let place = Place::new();
        let _ = place.import(&[links(), attack]);
        assert_eq!(fs::read(&canary).unwrap(), b"canary");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_name_of_a_whiteout_is_one_name() {
    for path in [".wh.", ".wh...", "a/.wh.."] {
        check(
            &[vec![file("a/x", "")], vec![file(path, "")]],
            "is no valid whiteout",
        );
    }
}

#[test]
fn limits_are_kept() {
    let many = (0..41).map(|number| file(&format!("f{number}"), "")).collect();
    check(&[many], "more than 40 entries");
    // Directories that only paths imply count, too.
    check(&[vec![file(&"d/".repeat(45), "")]], "more than 40 entries");
    check(&[vec![file(&"d/".repeat(200), "")]], "too long or too deep");
    check(&[vec![file("big", &"x".repeat(300 << 10))]], "more than 256KiB");
    let layers: Vec<_> = (0..5).map(|_| vec![file("a", "")]).collect();
    check(&layers, "more than 4 layers");
}

#[test]
fn whiteouts_that_hide_nothing_have_a_limit() {
    let layer = |count| {
        let files = (0..count).map(|number| file(&format!("d/{number}"), ""));
        let whiteouts = (0..count).map(|_| file("d/.wh..wh..opq", ""));
        vec![files.chain(whiteouts).collect::<Vec<_>>()]
    };
    // 100 and 225 entries that are looked at and left, of 160.
    Place::new().import(&layer(10)).unwrap();
    check(&layer(15), "hide too little for their number");
}

#[test]
fn an_import_takes_no_name_of_another_image() {
    let place = Place::new();
    place.import(&[vec![file("a", "first")]]).unwrap();
    let first = place.store.list().unwrap();
    let error = place.import(&[vec![file("a", "second")]]).unwrap_err();
    assert!(matches!(error, Error::NameTaken { .. }), "{error}");
    assert_eq!(
        error.hint(),
        "free it with `ringfence image rm docker.io/test/image:1`, or give another with --name"
    );
    assert_eq!(place.store.list().unwrap(), first);
    // The same image may come again.
    place.import(&[vec![file("a", "first")]]).unwrap();
}

#[test]
fn the_store_has_a_limit() {
    let place = Place::new();
    place.import(&[vec![file("a", &"a".repeat(250 << 10))]]).unwrap();
    let error = place
        .import(&[vec![file("b", &"b".repeat(250 << 10))]])
        .unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(error.hint().contains("image rm"));
    place.assert_untouched(1);
}

#[test]
fn nothing_is_unpacked_in_a_thread_that_cannot_be_confined() {
    let place = Place::new();
    let confine = |root: &std::path::Path| {
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
        Err(std::io::ErrorKind::Unsupported.into())
    };
    let store = Store::below(&place.path().join("state"), SMALL, confine).unwrap();
    let layers = [tar(&[file("a", "a")])];
    let archive = saved(place.path(), &configuration(&layers), &layers);
    let error = import(&store, &archive, None).unwrap_err();
    assert!(explained(&error).contains("cannot confine"), "{error}");
    place.assert_untouched(0);
}

#[test]
fn a_bomb_is_defused() {
    let place = Place::new();
    let root = place.path().join("bomb");
    // Beyond the free part: a long member, which the tree has no room for, and the rest of an archive.
    let bomb = [tar(&[file("a", "a")]), vec![0; 4 << 20]].concat();
    // A frame of zstd with a window of 1 GiB, and nothing in it.
    let greedy = b"\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00".to_vec();
    for (bytes, words) in [
        (gzip(&bomb), "decompression bomb"),
        (zstd(&bomb), "decompression bomb"),
        (greedy, "takes 1GiB of memory"),
    ] {
        fs::write(&root, bytes).unwrap();
        let error = import(&place.store, &root, Some(&reference("bomb"))).unwrap_err();
        assert!(explained(&error).contains(words), "{}", explained(&error));
    }
    place.assert_untouched(0);
}

#[test]
fn a_layer_that_is_not_the_configured_one_is_refused() {
    let place = Place::new();
    let layer = tar(&[file("a", "good")]);
    let other = tar(&[file("a", "evil")]);
    let archive = saved(place.path(), &configuration(from_ref(&layer)), from_ref(&other));
    let error = import(&place.store, &archive, None).unwrap_err();
    assert!(
        matches!(error, Error::Digest { expected, .. } if expected == Digest::of(&layer)),
        "{error}"
    );
    let archive = saved(place.path(), &configuration(&[]), from_ref(&other));
    assert!(import(&place.store, &archive, None).is_err());
    let archive = saved(place.path(), &configuration(&[other.clone(), layer]), &[other]);
    let error = import(&place.store, &archive, None).unwrap_err();
    assert!(error.to_string().contains("disagree"), "{error}");
    place.assert_untouched(0);
}

#[test]
fn a_blob_that_is_not_its_digest_is_refused() {
    let place = Place::new();
    let layers = [tar(&[file("a", "a")])];
    let made = layout(place.path(), &configuration(&layers), &layers);
    for blob in fs::read_dir(made.path.join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap().path();
        let content = fs::read(&blob).unwrap();
        let mut changed = content.clone();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        for (wrong, words) in [
            (changed, "has the digest"),
            (content[..last].to_vec(), "has not the length"),
        ] {
            fs::write(&blob, wrong).unwrap();
            let error = import(&place.store, &made.path, None).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        fs::write(&blob, content).unwrap();
    }
    place.assert_untouched(0);
    import(&place.store, &made.path, None).unwrap();
}

#[test]
fn a_cut_archive_leaves_nothing() {
    let place = Place::new();
    let layers = [tar(&[file("a", &"a".repeat(4000))])];
    let archive = saved(place.path(), &configuration(&layers), &layers);
    let whole = fs::read(&archive).unwrap();
    for length in [700, 2000, whole.len() - 1200] {
        fs::write(&archive, &whole[..length]).unwrap();
        let error = import(&place.store, &archive, Some(&reference("x"))).unwrap_err();
        assert!(
            explained(&error).contains("cut off"),
            "{length}: {}",
            explained(&error)
        );
    }
    place.assert_untouched(0);
}

#[test]
fn documents_that_mean_no_image_for_us_are_refused() {
    let place = Place::new();
    let layers = [tar(&[file("a", "a")])];
    let good = configuration(&layers);
    let check = |configuration: &serde_json::Value, words: &str| {
        let archive = saved(place.path(), configuration, &layers);
        let error = import(&place.store, &archive, None).unwrap_err();
        assert!(explained(&error).contains(words), "{}", explained(&error));
    };
    let with = |key: &str, value: serde_json::Value| {
        let mut changed = good.clone();
        changed[key] = value;
        changed
    };
    check(&with("architecture", json!("s390x")), "only for linux/s390x");
    check(&with("os", json!("windows")), "only for windows/");
    check(
        &with("rootfs", json!({"diff_ids": ["sha256:../../x"]})),
        "expected a digest",
    );
    check(
        &with("config", json!({"Env": vec!["A=b"; 300]})),
        "more than 256 variables",
    );
    check(&with("x", json!("x".repeat(20 << 10))), "too long");
    let made = layout(place.path(), &good, &layers);
    let blob = made.path.join("blobs/sha256").join(made.manifest.hex());
    let index = |manifest: &serde_json::Value, words: &str| {
        let bytes = manifest.to_string();
        let digest = Digest::of(bytes.as_bytes());
        fs::write(blob.with_file_name(digest.hex()), &bytes).unwrap();
        let index = json!({"manifests": [{"digest": digest, "size": bytes.len()}]});
        fs::write(made.path.join("index.json"), index.to_string()).unwrap();
        let error = import(&place.store, &made.path, Some(&reference("x"))).unwrap_err();
        assert!(explained(&error).contains(words), "{}", explained(&error));
    };
    index(&json!({"schemaVersion": 1, "fsLayers": []}), "schema version 1");
    index(
        &json!({"schemaVersion": 2, "layers": [], "manifests": []}),
        "or both",
    );
    let of = |layer: &str| {
        let descriptor = json!({"digest": made.manifest, "size": 1, "mediaType": layer});
        json!({"config": descriptor, "layers": [descriptor]})
    };
    index(
        &of("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"),
        "foreign",
    );
    index(&of("application/x-squashfs"), "is not supported");
    place.assert_untouched(0);
}
