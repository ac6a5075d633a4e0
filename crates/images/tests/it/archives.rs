//! Images as files, made here.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use ringfence_images::{Bounds, Digest, Error, Import, Reference, Store, import};
use ringfence_tar::{Kind, Member, Writer};
use serde_json::{Value, json};

/// A member of a layer: path, type with its text, mode.
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    /// Content of a file, target of a link.
    pub(crate) text: Vec<u8>,
    pub(crate) mode: u32,
}

pub(crate) fn file(path: &str, content: &str) -> Entry {
    entry(path, Kind::File, content)
}

pub(crate) fn directory(path: &str) -> Entry {
    entry(path, Kind::Directory, "")
}

pub(crate) fn symlink(path: &str, target: &str) -> Entry {
    entry(path, Kind::Symlink, target)
}

pub(crate) fn hard_link(path: &str, target: &str) -> Entry {
    entry(path, Kind::HardLink, target)
}

pub(crate) fn entry(path: &str, kind: Kind, text: &str) -> Entry {
    Entry {
        path: path.to_owned(),
        kind,
        text: text.into(),
        mode: 0o644,
    }
}

pub(crate) fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for entry in entries {
        let is_file = entry.kind == Kind::File;
        let content: &[u8] = if is_file { &entry.text } else { b"" };
        let member = Member {
            path: entry.path.clone().into(),
            target: if is_file { Vec::new() } else { entry.text.clone() },
            kind: entry.kind,
            mode: entry.mode,
            uid: 0,
            gid: 0,
            size: content.len() as u64,
            modified: 7,
        };
        writer.member(&member).unwrap();
        writer.content(member.size, &mut &content[..]).unwrap();
    }
    writer.finish().unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

pub(crate) fn configuration(layers: &[Vec<u8>]) -> Value {
    let ids: Vec<String> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
    json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Env": ["A=b"], "WorkingDir": "/app", "User": "nobody", "Cmd": null},
        "rootfs": {"type": "layers", "diff_ids": ids},
    })
}

/// Writes an archive as `docker save` does, with layers that are not compressed.
pub(crate) fn saved(directory: &Path, configuration: &Value, layers: &[Vec<u8>]) -> PathBuf {
    saved_as("test/image:1", directory, configuration, layers)
}

/// Writes such an archive of an image with this name.
pub(crate) fn saved_as(name: &str, directory: &Path, configuration: &Value, layers: &[Vec<u8>]) -> PathBuf {
    let mut members = vec![file("c.json", &configuration.to_string())];
    let names: Vec<String> = (0..layers.len())
        .map(|number| format!("{number}/layer.tar"))
        .collect();
    for (name, layer) in names.iter().zip(layers) {
        members.push(Entry {
            text: layer.clone(),
            ..file(name, "")
        });
    }
    let table = json!([{"Config": "c.json", "RepoTags": [name], "Layers": names}]);
    members.push(file("manifest.json", &table.to_string()));
    let path = directory.join("saved.tar");
    fs::write(&path, tar(&members)).unwrap();
    path
}

/// A layout whose blobs can be exchanged.
pub(crate) struct Layout {
    pub(crate) path: PathBuf,
    pub(crate) manifest: Digest,
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Writes the directory of an OCI layout with layers that gzip compressed.
pub(crate) fn layout(directory: &Path, configuration: &Value, layers: &[Vec<u8>]) -> Layout {
    let layers: Vec<_> = layers.iter().map(|layer| (gzip(layer), "gzip")).collect();
    layout_of(directory, configuration, &layers)
}

/// Writes the directory of an OCI layout with these blobs as its layers, each with its compression.
pub(crate) fn layout_of(directory: &Path, configuration: &Value, layers: &[(Vec<u8>, &str)]) -> Layout {
    let path = directory.join("layout");
    fs::create_dir_all(path.join("blobs/sha256")).unwrap();
    let blob = |bytes: &[u8], kind: &str| -> Value {
        let digest = Digest::of(bytes);
        fs::write(path.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest, "size": bytes.len()})
    };
    let layers: Vec<Value> = layers
        .iter()
        .map(|(layer, compression)| blob(layer, &format!("layer.v1.tar+{compression}")))
        .collect();
    let config = blob(configuration.to_string().as_bytes(), "config.v1+json");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers}).to_string();
    let mut described = blob(manifest.as_bytes(), "manifest.v1+json");
    described["annotations"] = json!({"org.opencontainers.image.ref.name": "test/image:2"});
    let index = json!({"schemaVersion": 2, "manifests": [described]});
    fs::write(path.join("index.json"), index.to_string()).unwrap();
    fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    Layout {
        path,
        manifest: Digest::of(manifest.as_bytes()),
    }
}

/// A store with a canary beside it.
pub(crate) struct Place {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) store: Store,
}

pub(crate) const SMALL: Bounds = Bounds {
    layers: 4,
    document: 16 << 10,
    blob: 1 << 20,
    members: 20,
    entries: 40,
    image: 256 << 10,
    store: 400 << 10,
    ratio: 20,
    window: 1 << 20,
    free: 256 << 10,
};

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("state")).unwrap();
        fs::write(directory.path().join("canary"), "canary").unwrap();
        let store = Store::below(&directory.path().join("state"), SMALL, |_| Ok(())).unwrap();
        Self { directory, store }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Imports an image of these layers.
    pub(crate) fn import(&self, layers: &[Vec<Entry>]) -> Result<Vec<Import>, Error> {
        let layers: Vec<Vec<u8>> = layers.iter().map(|layer| tar(layer)).collect();
        let path = saved(self.path(), &configuration(&layers), &layers);
        import(&self.store, &path, None)
    }

    /// Returns the root of the only image.
    pub(crate) fn root(&self) -> PathBuf {
        let mut trees = fs::read_dir(self.path().join("state/images/trees")).unwrap();
        trees.next().unwrap().unwrap().path().join("root")
    }

    /// Checks that nothing was written outside, and that the store has nothing new.
    pub(crate) fn assert_untouched(&self, images: usize) {
        assert_eq!(fs::read(self.path().join("canary")).unwrap(), b"canary");
        let count = |below: &str| fs::read_dir(self.path().join(below)).unwrap().count();
        assert_eq!(self.store.list().unwrap().len(), images);
        assert_eq!(count("state/images/trees"), images);
        assert_eq!(count("state/images/staging"), 0);
        assert_eq!(count("state/images/trash"), 0);
    }
}

pub(crate) fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}
