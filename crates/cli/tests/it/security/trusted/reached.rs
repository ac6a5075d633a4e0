//! Code that a server on the host loads from elsewhere: by links, virtual environments and editable installs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{Dir, Output, finish};
use crate::world::World;

/// A way in which code outside of the workspace loads `lib/units.py` there.
struct Way {
    name: &'static str,
    /// Prepares `opt`, and returns the command.
    prepare: fn(&Dir) -> Vec<String>,
}

const WAYS: &[Way] = &[
    Way {
        name: "a link beside the script",
        prepare: |dir| {
            symlink(dir.path("work/lib/units.py"), dir.path("opt/units.py")).unwrap();
            script(dir)
        },
    },
    Way {
        name: "a link to a link to the directory",
        prepare: |dir| {
            dir.write("opt/server.py", "import package.units\n");
            symlink(dir.path("work/lib"), dir.path("linked")).unwrap();
            symlink("../linked", dir.path("opt/package")).unwrap();
            command(&["python3", &shown(&dir.path("opt/server.py"))])
        },
    },
    Way {
        name: "a .pth file",
        prepare: |dir| {
            let lib = shown(&dir.path("work/lib"));
            environment(dir, &[("units.pth", &format!("# here\n\n{lib}\n"))])
        },
    },
    Way {
        name: "a relative .pth file",
        prepare: |dir| environment(dir, &[("units.pth", "../../../../../work/lib\n")]),
    },
    Way {
        name: "code in a .pth file",
        prepare: |dir| {
            let lib = shown(&dir.path("work/lib"));
            environment(
                dir,
                &[("units.pth", &format!("import sys; sys.path.append('{lib}')\n"))],
            )
        },
    },
    Way {
        name: "the finder of an editable install",
        prepare: |dir| {
            let lib = shown(&dir.path("work/lib"));
            let finder = format!("# don't\nMAPPING: dict[str, str] = {{'units': '{lib}'}}\n{FINDER}");
            let start = "import __editable___units_finder; __editable___units_finder.install()\n";
            environment(
                dir,
                &[
                    ("__editable___units_finder.py", &finder),
                    ("__editable__.units-1.pth", start),
                ],
            )
        },
    },
    Way {
        name: "a loader of another name",
        prepare: |dir| {
            let lib = shown(&dir.path("work/lib"));
            let finder = format!("MAPPING = {{\"units\": \"{lib}\"}}\n{FINDER}install()\n");
            environment(
                dir,
                &[
                    ("_units_loader.py", &finder),
                    ("_units.pth", "import _units_loader\n"),
                ],
            )
        },
    },
    Way {
        name: "a link among the packages",
        prepare: |dir| {
            let command = environment(dir, &[]);
            symlink(dir.path("work/lib/units.py"), site(dir).join("units.py")).unwrap();
            command
        },
    },
];

const FINDER: &str = "import sys\ndef install():\n    sys.path.extend(MAPPING.values())\n";

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn script(dir: &Dir) -> Vec<String> {
    dir.write("opt/server.py", "import units\n");
    command(&["python3", &shown(&dir.path("opt/server.py"))])
}

/// Makes a virtual environment with these files among its packages.
fn environment(dir: &Dir, files: &[(&str, &str)]) -> Vec<String> {
    let mut make = dir.program("python3");
    make.args(["-m", "venv", "--without-pip"])
        .arg(dir.path("opt/env"));
    finish(&mut make, b"").ok();
    for (name, text) in files {
        fs::write(site(dir).join(name), text).unwrap();
    }
    command(&[&shown(&dir.path("opt/env/bin/python")), "-m", "units"])
}

/// Returns the directory of packages of the virtual environment.
fn site(dir: &Dir) -> std::path::PathBuf {
    let mut versions = fs::read_dir(dir.path("opt/env/lib")).unwrap().flatten();
    versions.next().unwrap().path().join("site-packages")
}

fn configure(dir: &Dir, command: &[String], more: &str) {
    let text = format!("[skills.servers.units]\ncommand = {command:?}\nfence = 'host'\n{more}\n");
    dir.write("config/ringfence/ringfence.toml", text);
}

/// Removes what the last way left.
fn again(dir: &Dir) {
    for name in ["opt", "linked", "work/lib"] {
        let path = dir.path(name);
        if path.is_symlink() {
            fs::remove_file(path).unwrap();
        } else if path.exists() {
            fs::remove_dir_all(path).unwrap();
        }
    }
    fs::create_dir_all(dir.path("opt")).unwrap();
    fs::create_dir_all(dir.path("work/lib")).unwrap();
    dir.write("work/lib/units.py", "");
    dir.write("config/ringfence/ringfence.toml", "");
}

fn plant(world: &World, workspace: &str) -> Output {
    const PLANT: &str = "open('units.py', 'w').write('print(\"planted\")'); print('wrote')";
    world.run(["--workspace", workspace, "-c", PLANT])
}

#[track_caller]
fn runs_what_was_planted(dir: &Dir, command: &[String], planted: bool, name: &str) {
    let mut server = dir.program(&command[0]);
    server.args(&command[1..]).env("PYTHONDONTWRITEBYTECODE", "1");
    let printed = finish(&mut server, b"").stdout;
    assert_eq!(printed.contains("planted"), planted, "{name}: {printed}");
}

#[test]
fn no_program_writes_what_its_code_leads_to() {
    let world = World::here();
    let dir = &world.dir;
    for Way { name, prepare } in WAYS {
        again(dir);
        let command = prepare(dir);
        // Without the server a program writes there, and what it wrote is run.
        assert_eq!(plant(&world, "lib").ok(), "wrote\n", "{name}");
        runs_what_was_planted(dir, &command, true, name);
        dir.write("work/lib/units.py", "");
        configure(dir, &command, "");
        for workspace in [".", "lib"] {
            plant(&world, workspace).refused(125, "the MCP server `units` runs on the host");
        }
        runs_what_was_planted(dir, &command, false, name);
        fs::create_dir_all(dir.path("work/other")).unwrap();
        assert_eq!(plant(&world, "other").ok(), "wrote\n", "{name}");
    }
    world.close();
}

/// Packages of Node.js that are linked into place, as by `npm link` and workspaces.
#[test]
fn linked_packages_count() {
    let world = World::here();
    let dir = &world.dir;
    for modules in [
        "opt/app/dist/node_modules",
        "opt/app/node_modules",
        "opt/node_modules/@me",
    ] {
        again(dir);
        fs::create_dir_all(dir.path("opt/app/dist")).unwrap();
        fs::create_dir_all(dir.path(modules)).unwrap();
        let script = dir.write("opt/app/dist/server.js", "");
        symlink(dir.path("work/lib"), dir.path(modules).join("units")).unwrap();
        assert_eq!(plant(&world, "lib").ok(), "wrote\n");
        configure(dir, &command(&["node", &shown(&script)]), "");
        plant(&world, "lib").refused(125, &format!("leads to {}", dir.path("work/lib").display()));
    }
    world.close();
}

#[test]
fn a_person_declares_data() {
    let world = World::here();
    let dir = &world.dir;
    again(dir);
    let command = script(dir);
    symlink(dir.path("work/lib"), dir.path("opt/notes")).unwrap();
    configure(dir, &command, "");
    plant(&world, "lib").refused(125, "the MCP server `units` runs");
    configure(
        dir,
        &command,
        &format!("data = [{:?}]", shown(&dir.path("work/lib"))),
    );
    assert_eq!(plant(&world, "lib").ok(), "wrote\n");
    world.close();
}

/// A file that cannot be searched may lead anywhere.
#[test]
fn what_is_not_searched_is_refused() {
    let world = World::here();
    let dir = &world.dir;
    again(dir);
    let long = format!("#{}\n", "x".repeat(1 << 20));
    let command = environment(dir, &[("units.pth", &long)]);
    assert_eq!(plant(&world, "lib").ok(), "wrote\n");
    configure(dir, &command, "");
    let refused = plant(&world, "lib");
    refused.refused(125, "too many to search for the code");
    assert!(refused.stderr.contains("units.pth"), "{refused:?}");
    world.close();
}
