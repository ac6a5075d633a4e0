//! Wheels that programs in Pyodide import.

use std::fs;

use serde_json::{Value, json};

use crate::pyodide::{Pyodide, UNCHECKED};
use crate::support::{Output, finish};
use crate::world::repository;

/// Makes a wheel of contents by path, the same for the same: `"text"`, `{"zeros": n}`, `{"hex": "…"}` or `{"link": "to"}`.
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

    /// Wheels as a package index has them; `cargo xtask setup` fetches them.
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

    /// Vouches for what lies there.
    fn vouch(&self) {
        let mut sums = self.0.0.program("sh");
        finish(
            sums.args(["-c", "cd wheels && sha256sum *.whl > SHA256SUMS"]),
            b"",
        )
        .ok();
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = self.0.command(args);
        command.env("RINGFENCE_SKILLS_SANDBOX_PACKAGES", "wheels");
        finish(command.env(UNCHECKED.0, UNCHECKED.1), b"")
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
    let ran = packages.run(&["-c", code]);
    let expected = "hello more 1.0 ['__pycache__', 'greet', 'greet-1.0.dist-info', 'more.py']\n\
                    ['__init__.cpython-314.pyc'] /packages/__pycache__/more.cpython-314.pyc\n";
    assert_eq!(ran.stdout, expected, "{ran:?}");
    assert!(ran.stderr.contains("SyntaxError"), "{ran:?}");
}

/// pydantic, whose core is written in Rust, and msgpack, as they are on the index of packages.
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
    // The index has another build of this one than Pyodide's distribution.
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

/// Emscripten makes code of what a library exports by such names, which V8 is told not to do.
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

#[test]
fn what_packages_take_is_taken_from_the_programs_memory() {
    let packages = Packages::new();
    packages.wheel("big-1.0-py3-none-any.whl", &json!([["big", {"zeros": 60 << 20}]]));
    let code = "x = bytearray(60 << 20)\nprint(len(x) >> 20)";
    assert_eq!(packages.0.run(&["--memory", "128MiB", "-c", code]).ok(), "60\n");
    let less = packages.run(&["--memory", "128MiB", "-c", code]);
    assert_eq!(less.status, 1, "{less:?}");
    assert!(less.stderr.ends_with("MemoryError\n"), "{less:?}");
    assert_eq!(packages.run(&["--memory", "192MiB", "-c", code]).ok(), "60\n");
    packages
        .run(&["--memory", "100MiB", "-c", code])
        .refused(125, "the packages take 629145");
}
