//! Good images in all forms, their names, and their removal.

use std::fs::{self, File};

use ringfence_images::{Error, Import, Removal, Selector, Store, import};
use ringfence_policy::{EntrySource, Language};
use serde_json::json;

use crate::archives::*;

fn small() -> Vec<Vec<u8>> {
    vec![tar(&[
        directory("./bin/"),
        Entry {
            mode: 0o755,
            ..file("./bin/sh", "#!shell")
        },
        directory("app"),
        symlink("sbin", "bin"),
        file("etc/os-release", "NAME=test\n"),
    ])]
}

#[test]
fn an_archive_a_layout_and_a_root_become_images() {
    let place = Place::new();
    let layers = small();
    let configuration = configuration(&layers);
    let archive = saved(place.path(), &configuration, &layers);
    let one = import(&place.store, &archive, None).unwrap();
    let blobs = [(zstd(&layers[0]), "zstd")];
    let layout = layout_of(place.path(), &configuration, &blobs);
    let two = import(&place.store, &layout.path, None).unwrap();
    // The same configuration is the same image, under two names.
    assert_eq!(one[0].digest, two[0].digest);
    let root = place.path().join("root.tar.gz");
    fs::write(&root, gzip(&layers[0])).unwrap();
    assert!(matches!(import(&place.store, &root, None), Err(Error::Unnamed)));
    let three = import(&place.store, &root, Some(&reference("own/root"))).unwrap();
    assert_ne!(three[0].digest, one[0].digest);
    let names: Vec<Vec<String>> = place
        .store
        .list()
        .unwrap()
        .iter()
        .map(|image| image.references.iter().map(ToString::to_string).collect())
        .collect();
    let expected = [
        vec!["docker.io/own/root:latest".to_owned()],
        ["1", "2"].map(|tag| format!("docker.io/test/image:{tag}")).into(),
    ];
    assert_eq!(names, expected);
    place.assert_untouched(2);
}

#[test]
fn an_import_has_no_name_with_a_digest() {
    let place = Place::new();
    let layers = small();
    let pinned = format!(
        "test/image@{}",
        ringfence_images::Digest::of(b"a manifest of a registry")
    );
    let archive = saved_as(&pinned, place.path(), &configuration(&layers), &layers);
    let root = place.path().join("root.tar");
    fs::write(&root, &layers[0]).unwrap();
    let pinned = reference(&pinned);
    for (path, name) in [
        (&archive, None),
        (&archive, Some(&pinned)),
        (&root, Some(&pinned)),
    ] {
        let error = import(&place.store, path, name).unwrap_err();
        assert!(matches!(error, Error::DigestName(_)), "{error}");
    }
    assert!(place.store.list().unwrap().is_empty());
    // With a name of the user's own the same archive is taken.
    import(&place.store, &archive, Some(&reference("test/image:1"))).unwrap();
}

#[test]
fn an_archive_of_a_layout_is_one_too() {
    let place = Place::new();
    let layers = small();
    let made = layout(place.path(), &configuration(&layers), &layers);
    let mut members = Vec::new();
    for name in ["index.json", "oci-layout"] {
        members.push(file(name, &fs::read_to_string(made.path.join(name)).unwrap()));
    }
    for blob in fs::read_dir(made.path.join("blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        let name = format!("blobs/sha256/{}", path.file_name().unwrap().to_str().unwrap());
        members.push(Entry {
            text: fs::read(&path).unwrap(),
            ..file(&name, "")
        });
    }
    let archive = place.path().join("layout.tar.gz");
    fs::write(&archive, gzip(&tar(&members))).unwrap();
    let imported = import(&place.store, &archive, Some(&reference("other:3"))).unwrap();
    assert_eq!(imported[0].references, [reference("other:3")]);
    assert_eq!(fs::read(place.root().join("sbin/sh")).unwrap(), b"#!shell");
}

#[test]
fn equal_layers_of_an_old_archive_are_links() {
    let place = Place::new();
    let layer = small().remove(0);
    let text = configuration(&[layer.clone(), layer.clone()]).to_string();
    let table = json!([{"Config": "c.json", "RepoTags": ["a:1"], "Layers": ["x/layer.tar", "y/layer.tar"]}]);
    let members = [
        file("c.json", &text),
        Entry {
            text: layer,
            ..file("x/layer.tar", "")
        },
        symlink("y/layer.tar", "../x/layer.tar"),
        file("manifest.json", &table.to_string()),
    ];
    let archive = place.path().join("old.tar");
    fs::write(&archive, tar(&members)).unwrap();
    import(&place.store, &archive, None).unwrap();
    assert_eq!(place.store.list().unwrap()[0].layers, 2);
}

#[test]
fn a_root_shows_what_the_fence_has_not_itself() {
    let place = Place::new();
    place
        .import(&[vec![
            directory("app"),
            directory("proc"),
            file("dev/sda", ""),
            file("tmp/x", ""),
            symlink("bin", "usr/bin"),
            symlink("usr/bin/python3", "/usr/lib/python3.99"),
            Entry {
                mode: 0o755,
                ..file("usr/lib/python3.99", "")
            },
            // Outside, this leads to a program; inside, to nothing.
            symlink("usr/bin/bash", "/bin/sh"),
            file("usr/bin/node", "no program"),
            // Nor is what a guest may have written later.
            Entry {
                mode: 0o755,
                ..file("workspace/node", "")
            },
            symlink("usr/bin/nodejs", "/workspace/node"),
        ]])
        .unwrap();
    let selector = Selector::Reference(reference("test/image:1"));
    let lease = place.store.lease(&selector).unwrap();
    let image = lease.image(&selector, Language::Python).unwrap();
    let shown: Vec<_> = image
        .entries
        .iter()
        .map(|entry| entry.guest.to_str().unwrap())
        .collect();
    assert_eq!(shown, ["/app", "/bin", "/usr"]);
    assert_eq!(image.entries[1].source, EntrySource::Link("usr/bin".into()));
    assert_eq!(image.interpreter, Some("/usr/bin/python3".into()));
    assert_eq!(image.working_directory, Some("/app".into()));
    assert_eq!(image.env[0].1, "b");
    for language in [Language::Bash, Language::Javascript] {
        let error = lease.image(&selector, language).unwrap_err();
        assert!(error.to_string().starts_with("the image has no "), "{error}");
    }
}

#[test]
fn an_image_is_removed_with_its_last_name_and_its_last_run() {
    let place = Place::new();
    let by = |text: &str| text.parse::<Selector>().unwrap();
    place.import(&[vec![file("a", "a")]]).unwrap();
    let archive = place.path().join("saved.tar");
    import(&place.store, &archive, Some(&reference("second"))).unwrap();
    assert_eq!(
        place.store.remove(&by("test/image:1")).unwrap(),
        Removal::StillNamed
    );
    let error = place.store.remove(&by("test/image:1")).unwrap_err();
    assert_eq!(error.hint(), "`ringfence image ls` lists the images");
    let error = place.store.lease(&by("test/image:1")).unwrap_err();
    assert!(
        error.hint().contains("image pull docker.io/test/image:1`"),
        "{}",
        error.hint()
    );
    let lease = place.store.lease(&by("second")).unwrap();
    assert_eq!(place.store.remove(&by("second")).unwrap(), Removal::InUse);
    place.store.collect().unwrap();
    assert!(place.root().join("a").exists());
    assert!(matches!(
        place.store.lease(&by("second")),
        Err(Error::NotFound(_))
    ));
    drop(lease);
    place.store.collect().unwrap();
    place.assert_untouched(0);
    let [Import { digest, .. }] = &place.import(&[vec![file("b", "b")]]).unwrap()[..] else {
        panic!("one image was imported");
    };
    place.assert_untouched(1);
    assert_eq!(
        place.store.remove(&Selector::Digest(*digest)).unwrap(),
        Removal::Removed
    );
    place.assert_untouched(0);
}

#[test]
fn what_a_dead_process_left_is_swept() {
    let place = Place::new();
    let staging = place.path().join("state/images/staging");
    for name in ["dead", "alive", "unlocked"] {
        fs::create_dir(staging.join(name)).unwrap();
    }
    File::create(staging.join("dead/lock")).unwrap();
    let alive = File::create(staging.join("alive/lock")).unwrap();
    alive.lock().unwrap();
    place.import(&[vec![file("a", "a")]]).unwrap();
    let left: Vec<_> = fs::read_dir(&staging)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["alive"]);
}

#[test]
fn an_image_that_cannot_be_read_is_replaced_or_removed() {
    let place = Place::new();
    let damage = || fs::write(place.root().with_file_name("image.json"), "").unwrap();
    place.import(&[vec![file("a", "a")]]).unwrap();
    damage();
    let selector = Selector::Reference(reference("test/image:1"));
    assert!(place.store.lease(&selector).is_err());
    place.import(&[vec![file("a", "a")]]).unwrap();
    place.store.lease(&selector).unwrap();
    place.assert_untouched(1);
    damage();
    assert_eq!(place.store.remove(&selector).unwrap(), Removal::Removed);
    place.assert_untouched(0);
}

#[test]
fn two_processes_import_the_same_image() {
    let place = Place::new();
    let layers = small();
    let archive = saved(place.path(), &configuration(&layers), &layers);
    let state = place.path().join("state");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = Store::below(&state, SMALL, |_| Ok(())).unwrap();
                import(&store, &archive, None).unwrap();
            });
        }
    });
    place.assert_untouched(1);
}
