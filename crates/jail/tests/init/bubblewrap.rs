//! A pid namespace like a container's, for tests that play the container engine.

use std::path::Path;
use std::process::Command;

/// Returns a command that runs an init as the first process of namespaces of its own, without privileges.
pub(crate) fn bubblewrap(init: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command
        .args(["--unshare-all", "--as-pid-1", "--die-with-parent", "--clearenv"])
        .args(["--cap-drop", "ALL", "--uid", "65534", "--gid", "65534"])
        .args(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"])
        .args(["--tmpfs", "/tmp", "--ro-bind"])
        .arg(init)
        .args(["/tmp/init", "/tmp/init"]);
    command
}
