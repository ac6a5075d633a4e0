//! Sandboxes whose programs are root over the users of their cell, and may change its root file system: the fence `box`.

use std::path::{Path, PathBuf};

use ringfence_jail::protocol::{LandlockRules, Template, WritableRoot};
use ringfence_policy::Account;

use super::extra::Extra;

/// Directories that programs expect at a root, and which the view of this machine lacks.
const DIRECTORIES: &[&str] = &[
    "/root",
    "/home",
    "/mnt",
    "/opt",
    "/srv",
    "/var/cache",
    "/var/lib",
    "/var/log",
];

/// Adapts the template of a sandbox with root: an image becomes a layer of its root instead of mounts.
pub(super) fn adapt(template: &mut Template, extra: &Extra) {
    let Some(ids) = &extra.root_ids else { return };
    template.host_ids = Some(ids.range());
    template.writable_root = Some(WritableRoot {
        image: extra.image.as_ref().map(|image| image.root.clone()),
    });
    let missing = DIRECTORIES.iter().filter(|_| extra.image.is_none());
    template.directories.extend(missing.map(PathBuf::from));
}

/// Returns `/etc/passwd` and `/etc/group` of an account.
pub(super) fn users(account: Account) -> (String, String) {
    const NOBODY: &str = "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n";
    let (user, home) = (account.name(), account.home());
    if account.is_root() {
        let passwd = format!("root:x:0:0:root:{home}:/bin/bash\n{NOBODY}");
        return (passwd, "root:x:0:\nnogroup:x:65534:\n".to_owned());
    }
    let passwd =
        format!("root:x:0:0:root:/:/usr/sbin/nologin\n{user}:x:1000:1000:{user}:{home}:/bin/bash\n{NOBODY}");
    (passwd, format!("root:x:0:\n{user}:x:1000:\nnogroup:x:65534:\n"))
}

/// Returns the rules of such a sandbox: everything in its root is its own, and mounts restrict the rest.
pub(super) fn rules(rules: LandlockRules) -> LandlockRules {
    LandlockRules {
        readable: Vec::new(),
        writable: vec![Path::new("/").to_path_buf()],
        entries: Vec::new(),
        ..rules
    }
}
