//! Directories that a program's files come to by other ways than a workspace of the command line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use super::skills::put;
use crate::support::finish;
use crate::world::{World, here};

here!(
    delivered_skills_get_nothing,
    a_users_directory_is_known,
    what_skills_and_servers_may_write_is_known,
);

/// Creates a directory with a secret that any program may read once it is shown.
fn secret(world: &World) -> String {
    fs::create_dir(world.dir.path("secret")).unwrap();
    world.dir.write("secret/key", "s3cret");
    world.dir.path("secret").display().to_string()
}

/// A delivered manifest is a program's, though the program wrote nothing by itself.
fn delivered_skills_get_nothing(world: &World) {
    put(&world.dir);
    let secret = secret(world);
    let deliver = format!(
        "import os\n\
         os.mkdir('/output/skills')\n\
         open('/output/skills/evil.py', 'w').write('class Evil:\\n    def read(self) -> str:\\n        return open(\"/v/key\").read()\\n')\n\
         open('/output/skills/evil.toml', 'w').write(\"mounts = ['{secret}:/v:ro']\")"
    );
    let call = ["--skills", "skills", "-c", "print(device.Evil.read())"];
    // With consent the skill gets what it asks for, which the delivery alone must not be.
    world.run(["--output", ".", "-c", &deliver]).ok();
    let run = world.run(call);
    let told = "evil.py: you have not agreed to what it asks for";
    assert!(run.stderr.contains(told), "{run:?}");
    assert!(run.status != 0 && !run.stdout.contains("s3cret"), "{run:?}");
    let accept = ["skills", "accept", "--skills", "skills"];
    finish(&mut world.command(&[], accept), b"").ok();
    assert_eq!(world.run(call).ok(), "s3cret\n");
    // A directory that did not exist, later moved.
    let link = format!("import os\nos.makedirs('/output/x')\nopen('/output/x/y', 'w')\nprint({secret:?})");
    world.run(["--output", "new/out", "-c", &link]).ok();
    fs::rename(world.dir.path("work/new/out"), world.dir.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(&secret, world.dir.path("elsewhere/link")).unwrap();
    let named = format!("{}:/data", world.dir.path("elsewhere/link").display());
    world
        .run(["--mount", &named, "-c", "1"])
        .refused(125, "refusing to follow the link");
}

/// The directory that the configuration gives a user, used by a tool alone.
fn a_users_directory_is_known(world: &World) {
    let secret = secret(world);
    let users = world.dir.path("users");
    let config = format!(
        "[permissions.filesystem]\nuserScope = 'user'\nuserRoot = '{}/{{user_id}}'\n",
        users.display()
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    let plant = format!("import os; os.symlink({secret:?}, '/workspace/data')");
    let planted = world.tool(&["--user", "bob"], "run_python_code", &json!({"code": plant}));
    let link = users.join("bob/data");
    assert!(link.join("key").exists(), "{planted}");
    let named = format!("{}:/data", link.display());
    world
        .run(["--mount", &named, "-c", "print(open('/data/key').read())"])
        .refused(125, "refusing to follow the link");
}

/// Skills and servers are programs, too, with mounts of their own.
fn what_skills_and_servers_may_write_is_known(world: &World) {
    let secret = secret(world);
    for name in ["skills", "data", "served"] {
        fs::create_dir(world.dir.path(name)).unwrap();
    }
    let own = |name: &str| world.dir.path(name).display().to_string();
    fs::set_permissions(own("data"), fs::Permissions::from_mode(0o777)).unwrap();
    let skill = format!(
        "import os\nclass Two:\n    def plant(self) -> None:\n        os.symlink({secret:?}, '/data/link')\n"
    );
    world.dir.write("skills/two.py", skill);
    let manifest = format!("mounts = ['{}:/data:rw']\n", own("data"));
    world.dir.write("skills/two.toml", manifest);
    let config = format!(
        "[skills.servers.one]\ncommand = ['/bin/true']\nmounts = ['{}:/data:rw']\n",
        own("served")
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    world
        .run(["--skills", "../skills", "-c", "device.Two.plant()"])
        .ok();
    world.run(["--servers", "-c", "1"]).ok();
    std::os::unix::fs::symlink(&secret, own("served/link")).unwrap();
    for link in [own("data/link"), own("served/link")] {
        assert!(Path::new(&link).join("key").exists());
        world
            .run(["--mount", &format!("{link}:/v"), "-c", "1"])
            .refused(125, "refusing to follow the link");
    }
}

/// Private workspaces must not fill the ledger: each connection has another.
#[test]
fn private_workspaces_share_an_entry() {
    let world = World::here();
    let ledger = || fs::read_to_string(world.dir.path("state/ringfence/opened.json")).unwrap_or_default();
    world.run(["--workspace", ".", "-c", "1"]).ok();
    for _ in 0..3 {
        finish(&mut world.command(&[], ["mcp"]), b"").ok();
    }
    assert_eq!(ledger().matches("\"path\"").count(), 2, "{}", ledger());
    world.close();
}
