//! Skills that a program planted, or changed, before their directory was known to hold skills.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::skills::{SKILL, put};
use crate::support::finish;
use crate::world::{World, everywhere, own_uid};

/// A skill whose manifest grants it a directory of the host.
const EVIL: &str = "class Evil:\n    def read(self) -> str:\n        return open('/v/key').read()\n";

everywhere!(what_a_program_planted_gets_nothing);

/// Planted before anybody knew that it would be a directory of skills.
fn what_a_program_planted_gets_nothing(world: &World) {
    put(&world.dir);
    fs::create_dir(world.dir.path("secret")).unwrap();
    world.dir.write("secret/key", "s3cret");
    for name in ["work", "work/skills"] {
        let open = Permissions::from_mode(0o777);
        fs::set_permissions(world.dir.path(name), open).unwrap();
    }
    let secret = world.dir.path("secret");
    let plant = format!(
        "open('skills/evil.py', 'w').write({EVIL:?})\n\
         open('skills/evil.toml', 'w').write(\"mounts = ['{}:/v:rw']\")",
        secret.display()
    );
    world.run(["--workspace", ".", "-c", &plant]).ok();
    let call = ["--skills", "skills", "-c", "print(device.Evil.read())"];
    let run = world.run(call);
    assert_ne!(run.status, 0, "{run:?}");
    assert!(
        run.stderr
            .contains("evil.py: you have not agreed to what it asks for"),
        "{run:?}"
    );
    assert!(
        run.stderr
            .contains(&format!("mounts `{}:/v:rw`", secret.display())),
        "{run:?}"
    );
    assert!(!run.stdout.contains("s3cret"), "{run:?}");
    if world.container() {
        // Manifests grant no files there.
        return;
    }
    // With consent the skill gets what it asks for. The message has the whole command.
    let accept = "ringfence skills accept --skills skills";
    assert!(run.stderr.contains(&format!("run `{accept}`")), "{run:?}");
    let accept = accept.split(' ').skip(1);
    let accepted = finish(&mut world.command(&[], accept), b"");
    assert!(accepted.ok().contains("evil.py: mounts `"), "{accepted:?}");
    if world.uid() == own_uid() {
        fs::set_permissions(world.dir.path("secret"), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(world.run(call).ok(), "s3cret\n");
    }
}

#[test]
fn what_changed_is_asked_about_again() {
    let world = World::here();
    put(&world.dir);
    world.dir.write(
        "work/skills/one.toml",
        "hosts = ['a.test']\n[policy]\n'One.get' = 'notify'\n",
    );
    let call = ["--skills", "skills", "-c", "print(device.One.get())"];
    let works = || assert_eq!(world.run(call).ok(), "1\n");
    let asks = || {
        let run = world.run(call);
        assert_ne!(run.status, 0, "{run:?}");
        let told = "one.py: it has changed, or what it asks for has, since you agreed";
        assert!(run.stderr.contains(told), "{run:?}");
    };
    let accept = || {
        let accept = ["skills", "accept", "--skills", "skills"];
        finish(&mut world.command(&[], accept), b"").ok();
    };
    works();
    // Files that exist before the first program are the user's.
    world
        .run(["--skills", "skills", "--workspace", ".", "-c", "1"])
        .ok();
    works();
    let changes = [
        ("one.py", format!("{SKILL}\n# changed")),
        (
            "one.toml",
            "hosts = ['b.test']\n[policy]\n'One.get' = 'notify'\n".to_owned(),
        ),
        ("one.toml", "hosts = ['b.test']\n".to_owned()),
    ];
    for (name, text) in changes {
        let code = format!("open('skills/{name}', 'w').write({text:?})");
        world.run(["--workspace", ".", "-c", &code]).ok();
        asks();
        accept();
        works();
    }
    world
        .run([
            "--workspace",
            ".",
            "-c",
            "import os; os.remove('skills/one.toml')",
        ])
        .ok();
    asks();
    accept();
    works();
    world.close();
}
