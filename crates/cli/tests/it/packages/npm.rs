//! `run --with` for JavaScript: npm installs, in a fence that reaches the registry alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::index::Index;
use super::registry::{Member, Package, configure, serve};
use super::{BASE, CODE, ringfence};
use crate::api;
use crate::support::{entries, finish};
use crate::world::{World, here, play};

const LOOPBACK: &str = "private_networks = ['127.0.0.0/8']";

const LIBRARY: Package = Package {
    name: "demo-lib",
    version: "1.4.0",
    manifest: "{}",
    members: &[("package/index.js", Member::File("module.exports = 'library 1';"))],
};

const NEWER: Package = Package {
    version: "2.0.1",
    members: &[("package/index.js", Member::File("module.exports = 'library 2';"))],
    ..LIBRARY
};

/// A package with a scope that is a module, and has its own version of [`LIBRARY`].
const MODULE: Package = Package {
    name: "@demo/module",
    version: "3.0.0",
    manifest: r#"{"type": "module", "exports": "./main.js", "dependencies": {"demo-lib": "^1.2"}, "bin": {"demo-tool": "tool.js"}}"#,
    members: &[
        (
            "package/main.js",
            Member::File("import library from 'demo-lib'; export const value = `module with ${library}`;"),
        ),
        (
            "package/tool.js",
            Member::File(
                "#!/usr/bin/env node\nimport library from 'demo-lib'; console.log(process.argv[2], library);",
            ),
        ),
    ],
};

/// A package whose script says that it has run.
const SCRIPTED: Package = Package {
    name: "scripted",
    version: "1.0.0",
    manifest: r#"{"scripts": {"postinstall": "node -e \"require('fs').writeFileSync('ran', '')\""}}"#,
    members: &[("package/index.js", Member::File(""))],
};

/// The installer writes more than a pipe holds.
#[test]
fn a_large_package_of_npm_arrives_whole() {
    play(Some(World::here()), |world| {
        let text = format!("module.exports = {{}}; //{}", "x".repeat(3 << 20));
        let size = text.len();
        let members = [("package/index.js", Member::File(text.leak()))];
        let large = Package {
            name: "large",
            version: "1.0.0",
            manifest: "{}",
            members: Box::leak(Box::new(members)),
        };
        let registry = serve(world, &[large]);
        configure(world, &registry, LOOPBACK);
        let code = "console.log(require('fs').statSync(require.resolve('large')).size)";
        let output = ringfence(world, &["run", "-l", "javascript", "--with", "large", "-c", code]);
        assert_eq!(output.ok(), format!("{size}\n"));
    });
}

const PACKAGES: &str = "demo-lib,@demo/module@^3";

here!(javascript_has_packages);

crate::world::tests!(javascript_as_user, OneShot, User, javascript_has_packages);

fn javascript_has_packages(world: &World) {
    let mut registry = serve(world, &[LIBRARY, NEWER, MODULE]);
    configure(world, &registry, LOOPBACK);
    // None of these is read.
    world.dir.write("work/.npmrc", "registry=http://127.0.0.1:1/\n");
    world.dir.write("work/package-lock.json", "{");
    let both =
        "console.log(require('demo-lib')); import('@demo/module').then((found) => console.log(found.value))";
    let expected = "library 2\nmodule with library 1\n";
    let first = world
        .call(["-l", "javascript", "--with", PACKAGES, "-c", both])
        .env("npm_config_registry", "http://127.0.0.1:1/")
        .json();
    assert_eq!(first.stdout(), expected, "{first:?}");
    assert_eq!(
        *first.get("meta.packages"),
        json!(["@demo/module@3.0.0", "demo-lib@1.4.0", "demo-lib@2.0.1"])
    );

    // Nobody is asked a second time, in whatever spelling: not for a file that imports, nor for standard input.
    registry.close();
    let asked = registry.requests("/");
    let module = "import library from 'demo-lib'; import { value } from '@demo/module'; console.log(library); console.log(value);";
    world.dir.write("work/main.mjs", module);
    let spelled = ["--with", "@demo/module@ ^3 , demo-lib"];
    let file = world.run([&spelled[..], &["main.mjs"]].concat());
    assert_eq!(file.ok(), expected);
    let stdin = world
        .call([&["-l", "javascript"], &spelled[..], &["-"]].concat())
        .stdin(both)
        .output();
    assert_eq!(stdin.ok(), expected);
    assert_eq!(registry.requests("/"), asked);

    // Nearer packages come first, as Node.js has it; those of the run cannot be written.
    fs::create_dir_all(world.dir.path("work/project/node_modules/demo-lib")).unwrap();
    world.dir.write(
        "work/project/node_modules/demo-lib/index.js",
        "module.exports = 'own';",
    );
    world.dir.write(
        "work/project/use.js",
        "console.log(require('demo-lib')); try { require('fs').writeFileSync('/node_modules/demo-lib/index.js', '') } catch (error) { console.log(error.code) }",
    );
    let near = ["--workspace", "project", "-l", "javascript", "--with", PACKAGES];
    let near = world.run([&near[..], &["-c", "require('/workspace/use.js')"]].concat());
    assert_eq!(near.ok(), "own\nEROFS\n");

    let program = "require('child_process').execSync('demo-tool run', { stdio: 'inherit' })";
    let program = world.run(["-l", "javascript", "--with", PACKAGES, "-c", program]);
    assert_eq!(program.ok(), "run library 1\n");
    let without = world.run(["-l", "javascript", "-c", "require('demo-lib')"]);
    assert!(without.stderr.contains("`--with demo-lib`"), "{without:?}");
    let listed = ringfence(world, &["packages", "ls"]);
    let names = "@demo/module@3.0.0, demo-lib@1.4.0, demo-lib@2.0.1";
    assert!(listed.ok().contains(names), "{listed:?}");
    ringfence(world, &["packages", "rm", "--all"]).ok();
    assert_eq!(ringfence(world, &["packages", "ls"]).ok(), "");
}

#[test]
fn what_npm_cannot_install_is_an_error_with_advice() {
    play(Some(World::here()), refusals_have_advice);
}

fn refusals_have_advice(world: &World) {
    let forged = Package {
        name: "forged",
        ..LIBRARY
    };
    let linking = Package {
        name: "linking",
        manifest: r#"{"dependencies": {"etc": "file:/etc"}}"#,
        ..LIBRARY
    };
    let elsewhere = Package {
        name: "elsewhere",
        ..LIBRARY
    };
    let cloning = Package {
        name: "cloning",
        manifest: r#"{"dependencies": {"cloned": "git+http://127.0.0.1/cloned"}}"#,
        ..LIBRARY
    };
    let mut registry = serve(world, &[LIBRARY, NEWER, forged, linking, elsewhere, cloning]);
    let refused = |packages: &str, status: i32, what: &str| {
        let args = ["-l", "javascript", "--with", packages, "-c", "1"];
        world.run(args).refused(status, what);
    };
    configure(world, &registry, "");
    refused("demo-lib", 125, "127.0.0.1 has a loopback address");
    assert_eq!(registry.requests("/"), 0);
    configure(world, &registry, LOOPBACK);
    refused("nowhere", 125, "the registry has no package `nowhere`");
    refused("demo-lib@^9", 125, "`demo-lib@^9`, or no such version of it");
    refused("forged", 125, "a file from the registry does not match the hash");
    refused("linking", 125, "neither a file nor a directory");
    // Outside, npm starts git.
    let (git, called) = (world.dir.path("git"), world.dir.path("called"));
    fs::write(&git, format!("#!/bin/sh\ntouch {}\nexit 1\n", called.display())).unwrap();
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
    let mut npm = world.dir.program("npm");
    npm.current_dir(world.dir.path("work"))
        .env("HOME", world.dir.path("work"))
        .args(["install", "--no-update-notifier", "cloning"])
        .arg(format!("--git={}", git.display()))
        .arg(format!("--registry=http://127.0.0.1:{}", registry.port));
    assert_ne!(finish(&mut npm, b"").status, 0);
    assert!(called.exists());
    refused("cloning", 125, "git");
    refused("elsewhere", 125, "could not be reached: 127.0.0.1:1 refused");
    refused("a@https://example.invalid/a.tgz", 2, "names a place");
    refused("a@npm:b", 2, "gives a package another name");
    refused(
        "seaborn==0.13",
        2,
        "write a name with or without versions, like `lodash`",
    );
    registry.close();
    refused("demo-lib", 125, "the registry could not be reached: 127.0.0.1");
    let kept = world.dir.path("state/ringfence/packages/environments");
    assert_eq!(entries(&kept), [""; 0]);
}

#[test]
fn nothing_of_a_package_of_npm_runs_or_leaves_its_place() {
    play(Some(World::here()), |world| {
        let hostile = Package {
            name: "hostile",
            version: "1.0.0",
            manifest: "{}",
            members: &[
                ("package/../../above.js", Member::File("")),
                ("package/link", Member::Symlink("../..")),
                ("package/link/behind.js", Member::File("")),
                ("package/index.js", Member::File("module.exports = 'harmless';")),
            ],
        };
        let registry = serve(world, &[SCRIPTED, hostile]);
        configure(world, &registry, LOOPBACK);
        // Outside, the script runs.
        let outside = world.dir.path("outside");
        fs::create_dir(&outside).unwrap();
        let mut npm = world.dir.program("npm");
        npm.current_dir(&outside)
            .env("HOME", &outside)
            .args([
                "install",
                "--no-audit",
                "--no-fund",
                "--no-update-notifier",
                "scripted",
            ])
            .arg(format!("--registry=http://127.0.0.1:{}", registry.port));
        finish(&mut npm, b"").ok();
        assert!(outside.join("node_modules/scripted/ran").exists());

        // The archive puts files beside the directory.
        let archive = format!("http://127.0.0.1:{}/hostile/-/hostile-1.0.0.tgz", registry.port);
        let mut tar = world.dir.program("bash");
        let unpack = "curl -sS \"$1\" | tar -xzP";
        tar.current_dir(&outside).args(["-c", unpack, "-", &archive]);
        finish(&mut tar, b"").ok();
        for file in ["above.js", "behind.js"] {
            fs::remove_file(world.dir.path(file)).unwrap();
        }

        let code = "console.log(require('fs').readdirSync('/node_modules/scripted'), require('fs').readdirSync('/node_modules/hostile'), require('hostile'))";
        let inside = world.run(["-l", "javascript", "--with", "scripted,hostile", "-c", code]);
        let left = "[ 'index.js', 'package.json' ]";
        let files = inside.ok().replace('\n', " ");
        assert!(
            files.starts_with(left) && files.ends_with(" harmless "),
            "{inside:?}"
        );
        assert!(!files.contains("above"), "{inside:?}");
    });
}

#[test]
fn a_sandbox_has_packages_of_npm_beside_those_of_python() {
    play(Some(api::world()), |world| {
        let registry = serve(world, &[LIBRARY, NEWER, MODULE]);
        let index = Index::of(world, &[BASE]);
        index.configure(
            world,
            &format!("npm_registry = 'http://127.0.0.1:{}'\n", registry.port),
        );
        let sandbox = |args: &[&str]| ringfence(world, &[&["sandbox"], args].concat());
        let all = "demo-base,npm:demo-lib,npm:@demo/module@^3";
        sandbox(&["create", "--name", "lab", "--with", all]).ok();
        let expected = "library 2 module with library 1\n";
        let code = "import { value } from '@demo/module'; console.log(require('demo-lib'), value)";
        assert_eq!(
            sandbox(&["run", "lab", "-l", "javascript", "-c", code]).ok(),
            expected
        );
        let process = ["exec", "lab", "--", "node", "--input-type=module", "-e"];
        let module = "import library from 'demo-lib'; import { value } from '@demo/module'; console.log(library, value)";
        assert_eq!(sandbox(&[&process[..], &[module]].concat()).ok(), expected);
        assert_eq!(sandbox(&["run", "lab", "-c", CODE]).ok(), "41\n");
        // Their programs come after those of the system.
        let programs = "demo-base; demo-tool \"it's\"; echo ${PATH##*/usr/bin:/bin:}";
        assert_eq!(
            sandbox(&["exec", "lab", "--", "sh", "-c", programs]).ok(),
            "program 41\nit's library 1\n/opt/ringfence/site-packages/bin:/node_modules/.bin\n"
        );
        let write = sandbox(&["exec", "lab", "--", "touch", "/node_modules/demo-lib/index.js"]);
        assert!(write.stderr.contains("Read-only file system"), "{write:?}");
        let left = ringfence(world, &["packages", "rm", "--all"]);
        assert!(left.stderr.contains("are in use and were left"), "{left:?}");

        // Over HTTP by their ids: one, or one of each ecosystem.
        let listed = ringfence(world, &["packages", "ls", "--json"]);
        let listed: serde_json::Value = serde_json::from_str(listed.ok()).unwrap();
        let ids = [&listed[0]["id"], &listed[1]["id"]];
        let create = |surface: api::Surface, headers: &[&str], packages: serde_json::Value| {
            let body = json!({"packages": packages}).to_string();
            surface.ask("POST /v1/sandboxes", headers, &body)
        };
        let socket = || api::Surface::socket(world);
        let both = create(socket(), &[], json!(ids));
        let names = both.json()["packages"].to_string();
        for name in ["demo-base==1.0", "@demo/module@3.0.0", "demo-lib@2.0.1"] {
            assert!(names.contains(name), "{both:?}");
        }
        for id in ids {
            assert_eq!(create(socket(), &[], id.clone()).status, 200);
            let twice = create(socket(), &[], json!([id, id]));
            assert_eq!(twice.status, 422, "{twice:?}");
            assert!(
                twice.body.contains("a sandbox has one set of packages for"),
                "{twice:?}"
            );
        }
        let unknown = create(socket(), &[], json!(["demo-lib"]));
        assert!(unknown.body.contains("a key of kept packages"), "{unknown:?}");
        let denied = create(api::Surface::loopback(world), &[api::BEARER], json!(ids));
        assert_eq!(denied.status, 403, "{denied:?}");

        // A session is Python's, and a name without its ecosystem, too.
        let session = |name: &str| ringfence(world, &["session", "new", "lab", "--with", name]);
        session("npm:demo-lib").refused(2, "only those for python work here");
        session("demo-lib@^2").refused(2, "names a place");
        let plain = sandbox(&["create", "--with", "demo-lib@^2"]);
        plain.refused(2, "names a place");
        assert!(plain.stderr.contains("`npm:lodash@4`"), "{plain:?}");
    });
}
