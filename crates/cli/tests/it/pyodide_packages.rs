//! Wheels that programs in Pyodide import.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::pyodide::{Pyodide, UNCHECKED, installed};
use crate::support::{Output, finish};
use crate::world::repository;

/// Creates a reproducible wheel of contents by path: `"text"`, `{"zeros": n}`, `{"hex": "…"}` or `{"link":
/// "to"}`.
const ZIP: &str = "\
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
    for path, content in json.loads(sys.stdin.read()):
        member = zipfile.ZipInfo(path)
        member.compress_type = zipfile.ZIP_DEFLATED
        if isinstance(content, dict) and 'link' in content:
            member.external_attr = 0o120777 << 16
            content = content['link']
        elif isinstance(content, dict):
            content = bytes(content['zeros']) if 'zeros' in content else bytes.fromhex(content['hex'])
        archive.writestr(member, content)
";

/// Pyodide with a directory of wheels.
struct Packages(Pyodide);

impl Packages {
    fn new() -> Self {
        let pyodide = Pyodide::new();
        fs::create_dir(pyodide.0.path("work/wheels")).unwrap();
        Self(pyodide)
    }

    fn wheel(&self, name: &str, members: &Value) {
        let mut zip = self.0.0.program("/usr/bin/python3");
        let zip = zip.args(["-c", ZIP, &format!("wheels/{name}")]);
        finish(zip, members.to_string().as_bytes()).ok();
    }

    /// Adds wheels of the package index; `cargo xtask setup` fetches them.
    fn real(&self) {
        let there = fs::read_dir(repository("target/pyodide-wheels"));
        assert!(there.is_ok(), "no wheels (`cargo xtask setup` fetches them)");
        for entry in there.unwrap().flatten() {
            if entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "whl")
            {
                let copy = self.0.0.path("work/wheels").join(entry.file_name());
                fs::copy(entry.path(), copy).unwrap();
            }
        }
    }

    /// Records the digests of its files.
    fn vouch(&self) {
        let mut sums = self.0.0.program("sh");
        finish(
            sums.args(["-c", "cd wheels && sha256sum *.whl > SHA256SUMS"]),
            b"",
        )
        .ok();
    }

    /// Returns a Pyodide directory whose package list contains an archive of the wheels' directory.
    fn pyodide_that_lists(&self, archive: &str) -> PathBuf {
        let dir = &self.0.0;
        let own = dir.path("own/pyodide-314.0.7");
        fs::create_dir_all(&own).unwrap();
        let files = fs::read_dir(installed().join("pyodide-314.0.7")).unwrap();
        for entry in files.flatten() {
            fs::copy(entry.path(), own.join(entry.file_name())).unwrap();
        }
        let digest = finish(dir.program("sha256sum").arg(format!("wheels/{archive}")), b"");
        let list = own.join("pyodide-lock.json");
        let mut lock: Value = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
        let mut listed = lock["packages"]["libopenblas"].clone();
        listed["name"] = json!("listed");
        listed["file_name"] = json!(archive);
        listed["sha256"] = json!(digest.ok().split(' ').next());
        lock["packages"]["listed"] = listed;
        fs::write(&list, lock.to_string()).unwrap();
        dir.path("own")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(args);
        command.env("RINGFENCE_SKILLS_SANDBOX_PACKAGES", "wheels");
        command.env(UNCHECKED.0, UNCHECKED.1);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        finish(&mut self.command(args), b"")
    }
}

#[test]
fn packages_of_a_directory_can_be_imported() {
    let packages = Packages::new();
    let members = json!([
        ["greet/", ""],
        [
            "greet/__init__.py",
            "from pathlib import Path\ndef hello():\n    return Path(__file__).with_name('word').read_text()\n"
        ],
        ["greet/word", "hello"],
        ["greet-1.0.data/purelib/more.py", "x = 'more'\n"],
        ["greet/broken.py", "no Python ("],
        ["greet-1.0.data/scripts/greet", "not installed"],
        [
            "greet-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n"
        ],
    ]);
    packages.wheel("greet-1.0-py3-none-any.whl", &members);
    let code = "import greet, more, os\nfrom importlib.metadata import version\n\
                print(greet.hello(), more.x, version('greet'), sorted(os.listdir('/packages')))\n\
                print(os.listdir('/packages/greet/__pycache__'), more.__cached__)\nimport greet.broken";
    let without = packages.0.run(&["-c", "import greet"]);
    assert!(without.stderr.contains("No module named 'greet'"), "{without:?}");
    for hint in [
        "no module `greet`",
        "`skills.sandbox.packages`",
        "runtime `local`, `docker`",
    ] {
        assert!(without.stderr.contains(hint), "{hint}: {without:?}");
    }
    let ran = packages.run(&["-c", code]);
    let expected = "hello more 1.0 ['__pycache__', 'greet', 'greet-1.0.dist-info', 'more.py']\n\
                    ['__init__.cpython-314.pyc'] /packages/__pycache__/more.cpython-314.pyc\n";
    assert_eq!(ran.stdout, expected, "{ran:?}");
    assert!(ran.stderr.contains("SyntaxError"), "{ran:?}");
}

/// pydantic, with a core in Rust, and msgpack, as on the package index.
#[test]
fn compiled_wheels_of_the_index_work() {
    let packages = Packages::new();
    packages.real();
    packages.vouch();
    let code = "import msgpack, msgpack._cmsgpack\nfrom pydantic import BaseModel, ValidationError\n\
                class Point(BaseModel):\n    x: int\n    tags: list[str] = []\n\
                try:\n    Point(x='far')\nexcept ValidationError as error:\n    print(error.errors()[0]['type'])\n\
                point = Point.model_validate_json('{\"x\": \"3\", \"tags\": [\"a\"]}')\n\
                print(msgpack.unpackb(msgpack.packb(point.model_dump())))";
    let without = packages.0.run(&["-c", code]);
    assert!(
        without.stderr.contains("No module named 'msgpack'"),
        "{without:?}"
    );
    let expected = "int_parsing\n{'x': 3, 'tags': ['a']}\n";
    assert_eq!(packages.run(&["--timeout", "10m", "-c", code]).ok(), expected);
}

#[test]
fn wheels_that_are_not_what_they_are_called_are_refused() {
    let packages = Packages::new();
    packages.real();
    // The index has another build of this package than Pyodide's distribution.
    packages
        .run(&["-c", "1"])
        .refused(125, "annotated_types-0.7.0-py3-none-any.whl");
    packages.vouch();
    let wheel = "work/wheels/msgpack-1.2.4-cp314-cp314-pyemscripten_2026_0_wasm32.whl";
    let mut bytes = fs::read(packages.0.0.path(wheel)).unwrap();
    bytes[100] ^= 1;
    packages.0.0.write(wheel, &bytes);
    packages
        .run(&["-c", "1"])
        .refused(125, "not the wheel that SHA256SUMS names");
    let elsewhere = wheel.replace("pyemscripten_2026_0_wasm32", "manylinux_2_28_x86_64");
    fs::rename(packages.0.0.path(wheel), packages.0.0.path(&elsewhere)).unwrap();
    packages
        .run(&["-c", "1"])
        .refused(125, "it is for cp314-cp314-manylinux_2_28_x86_64");
}

#[test]
fn hostile_wheels_are_not_unpacked() {
    let refused = |members: &Value, why: &str| {
        let packages = Packages::new();
        packages.wheel("evil-1.0-py3-none-any.whl", members);
        let output = packages.run(&["-c", "print('ran')"]);
        output.refused(125, "evil-1.0-py3-none-any.whl: ");
        assert!(output.stderr.contains(why), "{output:?}");
    };
    refused(&json!([["../x.py", ""]]), "leads elsewhere");
    refused(&json!([["/lib/x.py", ""]]), "leads elsewhere");
    refused(
        &json!([["a", ""], ["a/b", ""]]),
        "what is a directory in it is a file",
    );
    refused(
        &json!([["x.py", {"link": "/etc/passwd"}]]),
        "neither a file nor a directory",
    );
    let bomb = json!([["a", {"zeros": 100 << 20}], ["b", {"zeros": 100 << 20}], ["c", {"zeros": 100 << 20}]]);
    refused(&bomb, "more than 20000 files, or 268435456 bytes");
    let many: Vec<_> = (0..20_001).map(|i| json!([format!("f{i}"), ""])).collect();
    refused(&json!(many), "more than 20000 files");
    let not_a_zip = Packages::new();
    not_a_zip
        .0
        .0
        .write("work/wheels/evil-1.0-py3-none-any.whl", "no archive");
    not_a_zip.run(&["-c", "1"]).refused(125, "File is not a zip file");
}

/// Emscripten compiles exports of such names as code, which V8 is configured to reject.
#[test]
fn libraries_that_bring_javascript_are_refused() {
    let library = |export: &str| {
        let name: String = export.bytes().map(|byte| format!("{byte:02x}")).collect();
        let (section, length) = (export.len() + 4, export.len());
        json!({"hex": format!("0061736d01000000 0606017f0041000b 07{section:02x}01{length:02x}{name}0300")})
    };
    let packages = Packages::new();
    let wheel = "fast-1.0-cp314-cp314-pyemscripten_2026_0_wasm32.whl";
    packages.wheel(wheel, &json!([["fast.so", library("__start_em_asm")]]));
    let refused = packages.run(&["-c", "print('ran')"]);
    refused.refused(125, "fast.so holds JavaScript");
    packages.wheel(wheel, &json!([["fast.so", library("PyInit_fast")]]));
    assert_eq!(packages.run(&["-c", "print('ran')"]).ok(), "ran\n");
}

/// Two handwritten WebAssembly libraries: one returns 42, the other calls it.
const ANSWER: &str = "0061736d01000000000f0864796c696e6b2e300104000000000105016000017f0302010007\
                      0a0106616e7377657200000a06010400412a0b";
const ASK: &str = "0061736d01000000001f0864796c696e6b2e30010400000000020e010c6c6962616e737765722e736f0105016000017f\
                   020e0103656e7606616e737765720000030201000707010361736b00010a0601040010000b";

/// Wheels of Pyodide's distribution share libraries in separate archives.
#[test]
fn libraries_that_wheels_share_are_found() {
    let packages = Packages::new();
    packages.wheel("libanswer-1.0.zip", &json!([["libanswer.so", {"hex": ANSWER}]]));
    let wheel = "ask-1.0-cp314-cp314-pyemscripten_2026_0_wasm32.whl";
    let init = "from ctypes import CDLL\nfrom pathlib import Path\n\
                print(CDLL(str(Path(__file__).with_name('ask.so'))).ask())";
    packages.wheel(
        wheel,
        &json!([["ask/__init__.py", init], ["ask/ask.so", {"hex": ASK}]]),
    );
    packages
        .run(&["-c", "import ask"])
        .refused(125, "not an archive of libraries of Pyodide's distribution");

    let own = packages.pyodide_that_lists("libanswer-1.0.zip");
    let run = || {
        let mut command = packages.command(&["-c", "import ask"]);
        let deno = installed().join("deno-linux-x64-glibc-2.9.6/deno");
        let chosen = [("DENO_PATH", &deno), ("DIRECTORY", &own)];
        let chosen = chosen.map(|(name, value)| (format!("RINGFENCE_SKILLS_SANDBOX_{name}"), value));
        finish(command.envs(chosen), b"")
    };
    assert_eq!(run().ok(), "42\n");
    packages.wheel("libanswer-1.0.zip", &json!([["another.so", {"hex": ANSWER}]]));
    run().refused(125, "not the wheel of this name that belongs to Pyodide");
    fs::remove_file(packages.0.0.path("work/wheels/libanswer-1.0.zip")).unwrap();
    let without = run();
    assert!(without.stderr.contains("libanswer.so"), "{without:?}");
}

#[test]
fn what_packages_take_is_taken_from_the_programs_memory() {
    let packages = Packages::new();
    packages.wheel("big-1.0-py3-none-any.whl", &json!([["big", {"zeros": 60 << 20}]]));
    let code = "x = bytearray(60 << 20)\nprint(len(x) >> 20)";
    assert_eq!(packages.0.run(&["--memory", "128MiB", "-c", code]).ok(), "60\n");
    let less = packages.run(&["--memory", "128MiB", "-c", code]);
    assert_eq!(less.status, 1, "{less:?}");
    assert!(
        less.stderr
            .contains("MemoryError\nhint: allow more with `--memory "),
        "{less:?}"
    );
    assert_eq!(packages.run(&["--memory", "192MiB", "-c", code]).ok(), "60\n");
    packages
        .run(&["--memory", "100MiB", "-c", code])
        .refused(125, "the packages take 629145");
}

/// Fetches from a directory in the place of an index, as pip's own variables say.
#[test]
fn wheels_are_fetched_with_their_digests() {
    let packages = Packages::new();
    let setup = |name: &str| {
        let mut command = packages.0.0.command(["setup", "deno", "--packages", name]);
        command
            .env("RINGFENCE_SKILLS_SANDBOX_DIRECTORY", installed())
            .env("RINGFENCE_SKILLS_SANDBOX_PACKAGES", "wheels")
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", repository("target/test-venv/bin").display()),
            )
            .env("PIP_NO_INDEX", "1")
            .env("PIP_FIND_LINKS", repository("target/pyodide-wheels"));
        finish(&mut command, b"")
    };
    let fetched = setup("msgpack,typing-extensions");
    assert!(fetched.ok().contains("pyodide"), "{fetched:?}");
    assert!(fetched.stderr.contains("work/wheels: 2\n"), "{fetched:?}");
    let list = fs::read_to_string(packages.0.0.path("work/wheels/SHA256SUMS")).unwrap();
    assert_eq!(list.lines().count(), 2, "{list}");
    let ran = packages.run(&["-c", "import msgpack; print(msgpack.unpackb(msgpack.packb([1])))"]);
    assert_eq!(ran.ok(), "[1]\n");
    // Nothing is lost where a package cannot be had.
    for names in ["no-such-package", "msgpack,--index-url=x"] {
        let refused = setup(names);
        let error = format!("error: cannot fetch wheels of {}: ", names.replace(',', ", "));
        assert!(
            refused.status == 125 && refused.stderr.contains(&error),
            "{refused:?}"
        );
        assert!(refused.stderr.contains("hint: install pip;"), "{refused:?}");
        assert!(packages.0.0.path("work/wheels/SHA256SUMS").exists());
    }
}
