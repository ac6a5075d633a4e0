//! A registry of npm on the loopback address, with tarballs that the test writes.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use super::index::Index;
use crate::support::finish;
use crate::world::World;

/// A version of a package: further keys of its manifest, and the members of its tarball.
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    /// JSON.
    pub(super) manifest: &'static str,
    pub(super) members: &'static [(&'static str, Member)],
}

/// A member of a tarball.
pub(super) enum Member {
    File(&'static str),
    Symlink(&'static str),
}

/// Writes a tarball, and prints its digest as registries give it.
const WRITE: &str = "\
import base64, hashlib, io, json, sys, tarfile
with tarfile.open(sys.argv[1], 'w:gz') as archive:
    for name, kind, text in json.load(sys.stdin):
        member = tarfile.TarInfo(name)
        if kind == 'file':
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        else:
            member.type, member.linkname = tarfile.SYMTYPE, text
            archive.addfile(member)
print('sha512-' + base64.b64encode(hashlib.sha512(open(sys.argv[1], 'rb').read()).digest()).decode())
";

impl Package {
    fn manifest(&self) -> Value {
        let mut manifest: Value = serde_json::from_str(self.manifest).unwrap();
        manifest["name"] = json!(self.name);
        manifest["version"] = json!(self.version);
        manifest
    }

    /// Returns the tarball and its digest.
    fn tarball(&self, world: &World) -> (Vec<u8>, String) {
        let mut members = vec![json!([
            "package/package.json",
            "file",
            self.manifest().to_string()
        ])];
        members.extend(self.members.iter().map(|(name, member)| match member {
            Member::File(text) => json!([name, "file", text]),
            Member::Symlink(target) => json!([name, "link", target]),
        }));
        let path = world.dir.path("package.tgz");
        let mut python = world.dir.program("python3");
        python.args(["-I", "-c", WRITE]).arg(&path);
        let digest = finish(&mut python, json!(members).to_string().as_bytes());
        (fs::read(path).unwrap(), digest.ok().trim().to_owned())
    }
}

/// Serves a registry. Digests are right, but for a package with the name `forged`, and files are there, but for one with the
/// name `elsewhere`. Of packages with a scope it gives `https` URLs, as one does behind a proxy that speaks TLS.
pub(super) fn serve(world: &World, packages: &[Package]) -> Index {
    Index::serve_at(|port| {
        let mut pages = BTreeMap::new();
        let mut documents: BTreeMap<&str, Value> = BTreeMap::new();
        for package in packages {
            let Package { name, version, .. } = package;
            let (tarball, mut digest) = package.tarball(world);
            if *name == "forged" {
                digest.replace_range(7..11, "AAAA");
            }
            let file = format!("/{name}/-/{}-{version}.tgz", name.replace(['@', '/'], "-"));
            let mut manifest = package.manifest();
            let origin = match *name {
                "elsewhere" => "http://127.0.0.1:1".to_owned(),
                name if name.starts_with('@') => format!("https://127.0.0.1:{port}"),
                _ => format!("http://127.0.0.1:{port}"),
            };
            manifest["dist"] = json!({"tarball": format!("{origin}{file}"), "integrity": digest});
            pages.insert(file, tarball);
            let document = documents.entry(*name).or_insert_with(|| json!({"name": name}));
            document["dist-tags"]["latest"] = json!(version);
            document["versions"][*version] = manifest;
        }
        pages.extend(documents.into_iter().map(|(name, document)| {
            (
                format!("/{}", name.replace('/', "%2f")),
                document.to_string().into(),
            )
        }));
        pages
    })
}

/// Writes the configuration of a user of this registry, with other lines in place of `[egress]`.
pub(super) fn configure(world: &World, registry: &Index, egress: &str) {
    let config = format!(
        "[egress]\n{egress}\n[packages]\nnpm_registry = 'http://127.0.0.1:{}'\n",
        registry.port
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
}
