"""Packs built programs as wheel, deb, npm packages and archive. `cargo xtask dist` runs it; Python's library is enough.

The same programs and the same SOURCE_DATE_EPOCH give the same bytes: entries are sorted, belong to root, and have that time.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import re
import struct
import subprocess
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Dict, NamedTuple, Tuple

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAM, DATA = 0o755, 0o644

# e_machine of an ELF file: names in wheels, in Debian and in npm.
MACHINES = {62: ("x86_64", "amd64", "x64"), 183: ("aarch64", "arm64", "arm64")}

SUMMARY = "Runs untrusted code in the strongest fence that this machine supports"


class File(NamedTuple):
    data: bytes
    mode: int = DATA


Files = Dict[str, File]


class Build(NamedTuple):
    version: str
    epoch: int
    level: int
    machine: Tuple[str, str, str]
    glibc: int
    """Minor number of the oldest C library that has every symbol."""
    programs: Files
    completions: Dict[str, bytes]
    manual: bytes
    licence: bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True, help="the program; `ringfence-gateway` lies beside it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--level", type=int, default=9, help="of compression")
    arguments = parser.parse_args()
    build = read(arguments.binary, arguments.level)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, data in [wheel(build), deb(build), npm(build), npm_program(build), archive(build)]:
        (arguments.out / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        (arguments.out / f"{name}.sha256").write_text(f"{digest}  {name}\n")
        print(f"{name}  {len(data) / 1e6:.1f} MB")


def read(binary: Path, level: int) -> Build:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())
    data = binary.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        raise SystemExit(f"{binary} is no program for 64-bit Linux")
    machine = struct.unpack_from("<H", data, 18)[0]
    if machine not in MACHINES:
        raise SystemExit(f"{binary} is for the machine {machine} of ELF; known are {sorted(MACHINES)}")
    programs = {"ringfence": File(data, PROGRAM)}
    gateway = binary.with_name("ringfence-gateway")
    if gateway.exists():
        programs["ringfence-gateway"] = File(gateway.read_bytes(), PROGRAM)

    def printed(*words: str) -> bytes:
        return subprocess.run([binary.resolve(), *words], check=True, capture_output=True, cwd="/").stdout

    return Build(
        version=workspace["workspace"]["package"]["version"],
        epoch=int(os.environ["SOURCE_DATE_EPOCH"]),
        level=level,
        machine=MACHINES[machine],
        glibc=max(int(minor) for file in programs.values() for minor in re.findall(rb"\0GLIBC_2\.(\d+)", file.data)),
        programs=programs,
        completions={shell: printed("completions", shell) for shell in ("bash", "zsh", "fish")},
        manual=printed("man"),
        licence=(ROOT / "LICENSE").read_bytes(),
    )


# The wheel: the package, and the program among its scripts.


def wheel(build: Build) -> Tuple[str, bytes]:
    project = tomllib.loads((ROOT / "sdk/python/pyproject.toml").read_text())["project"]
    if project["version"] != build.version:
        raise SystemExit(f"the Python package has the version {project['version']}, the program {build.version}")
    source = ROOT / "sdk/python/src"
    files: Files = {
        str(path.relative_to(source)): File(path.read_bytes())
        for path in sorted(source.rglob("*"))
        if path.suffix == ".py" or path.name == "py.typed"
    }
    name = f"ringfence-{build.version}"
    files[f"{name}.data/scripts/ringfence"] = build.programs["ringfence"]
    # manylinux promises a C library that is new enough, and nothing else that is linked.
    tag = f"py3-none-manylinux_2_{max(build.glibc, 17)}_{build.machine[0]}"
    info = f"{name}.dist-info"
    readme = (ROOT / "sdk/python" / project["readme"]).read_text()
    extras = project["optional-dependencies"]
    metadata = [
        "Metadata-Version: 2.4",
        "Name: ringfence",
        f"Version: {build.version}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        *(f"Requires-Dist: {each}" for each in project["dependencies"]),
        *(f"Provides-Extra: {extra}" for extra in extras),
        *(f'Requires-Dist: {each}; extra == "{extra}"' for extra, needed in extras.items() for each in needed),
        *(f"Classifier: {each}" for each in project["classifiers"]),
        "Description-Content-Type: text/markdown",
    ]
    files[f"{info}/METADATA"] = File(("\n".join(metadata) + "\n\n" + readme).encode())
    files[f"{info}/WHEEL"] = File(
        f"Wheel-Version: 1.0\nGenerator: ringfence-xtask\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    files[f"{info}/licenses/LICENSE"] = File(build.licence)
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    files[f"{info}/entry_points.txt"] = File("\n".join(points).encode())
    record = [f"{path},sha256={_digest(file.data)},{len(file.data)}" for path, file in sorted(files.items())]
    files[f"{info}/RECORD"] = File("".join(line + "\n" for line in [*record, f"{info}/RECORD,,"]).encode())
    written = io.BytesIO()
    # Archives of this kind begin in 1980.
    moment = time.gmtime(max(build.epoch, 315532800))[:6]
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=build.level) as into:
        # The records of a wheel come last.
        for path in sorted(files, key=lambda path: (path.startswith(info), path)):
            entry = zipfile.ZipInfo(path, moment)
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | files[path].mode) << 16
            into.writestr(entry, files[path].data, compresslevel=build.level)
    return f"{name}-{tag}.whl", written.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


# The Debian package: an `ar` archive of two tar archives.


def deb(build: Build) -> Tuple[str, bytes]:
    documents = "usr/share/doc/ringfence"
    files: Files = {f"usr/bin/{name}": file for name, file in build.programs.items()}
    files["usr/share/bash-completion/completions/ringfence"] = File(build.completions["bash"])
    files["usr/share/zsh/vendor-completions/_ringfence"] = File(build.completions["zsh"])
    files["usr/share/fish/vendor_completions.d/ringfence.fish"] = File(build.completions["fish"])
    files["usr/share/man/man1/ringfence.1.gz"] = File(_gzip(build.manual, build))
    files["usr/lib/systemd/user/ringfence.service"] = File((HERE / "ringfence.service").read_bytes())
    files[f"{documents}/copyright"] = File(_copyright(build.licence))
    files[f"{documents}/changelog.gz"] = File(_gzip((ROOT / "CHANGELOG.md").read_bytes(), build))
    size = sum(len(file.data) for file in files.values())
    control = [
        "Package: ringfence",
        f"Version: {build.version}",
        f"Architecture: {build.machine[1]}",
        "Maintainer: The Ringfence contributors <contributors@ringfence.invalid>",
        f"Installed-Size: {(size + 1023) // 1024}",
        f"Depends: libc6 (>= 2.{build.glibc}), libgcc-s1",
        "Recommends: python3",
        "Suggests: nodejs, docker.io | podman",
        "Section: utils",
        "Priority: optional",
        f"Description: {SUMMARY[0].lower()}{SUMMARY[1:]}",
        " Programs that a language model or a stranger wrote run without access to your",
        " files, processes and network. It is a command, a server with an HTTP API, and a",
        " server of tools for agents.",
    ]
    sums = "".join(f"{hashlib.md5(file.data).hexdigest()}  {path}\n" for path, file in sorted(files.items()))
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _tar({"control": File("\n".join([*control, ""]).encode()), "md5sums": File(sums.encode())}, build),
        "data.tar.gz": _tar(files, build),
    }
    packed = b"!<arch>\n"
    for name, data in members.items():
        packed += f"{name:<16}{build.epoch:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        packed += data + b"\n" * (len(data) % 2)
    return f"ringfence_{build.version}_{build.machine[1]}.deb", packed


def _copyright(licence: bytes) -> bytes:
    text = "".join(f" {line}\n" if line.strip() else " .\n" for line in licence.decode().splitlines())
    head = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
    return f"{head}Files: *\nCopyright: The Ringfence contributors\nLicense: Apache-2.0\n{text}".encode()


# The packages of npm: the client with a launcher of a few lines, and the program for this machine alone.


def npm(build: Build) -> Tuple[str, bytes]:
    source = ROOT / "sdk/typescript"
    manifest = _manifest(build)
    for name in ("scripts", "files"):
        del manifest[name]
    program = _npm_program(build)
    manifest["bin"] = {"ringfence": "bin/ringfence.js"}
    # Of this version and no other; where the machine is another one, npm leaves it out.
    manifest["optionalDependencies"] = {program: build.version}
    # Whoever owns that name in a registry: no other program is started.
    manifest["programs"] = {program: hashlib.sha256(build.programs["ringfence"].data).hexdigest()}
    files: Files = {
        "package/package.json": _json(manifest),
        "package/bin/ringfence.js": File((HERE / "launcher.js").read_bytes(), PROGRAM),
        "package/README.md": File((source / "README.md").read_bytes()),
        "package/LICENSE": File(build.licence),
    }
    for path in sorted((source / "src").iterdir()):
        files[f"package/src/{path.name}"] = File(path.read_bytes())
    return f"ringfence-{build.version}.tgz", _tar(files, build)


def npm_program(build: Build) -> Tuple[str, bytes]:
    """As `npm pack` names it."""
    name = _npm_program(build)
    manifest = {
        "name": name,
        "version": build.version,
        "description": f"The program of the package `ringfence`, for Linux ({build.machine[2]}, glibc 2.{build.glibc})",
        "license": _manifest(build)["license"],
        "os": ["linux"],
        "cpu": [build.machine[2]],
        "libc": ["glibc"],
        "preferUnplugged": True,
    }
    files: Files = {
        "package/package.json": _json(manifest),
        "package/bin/ringfence": build.programs["ringfence"],
        "package/LICENSE": File(build.licence),
    }
    return f"{name[1:].replace('/', '-')}-{build.version}.tgz", _tar(files, build)


def _npm_program(build: Build) -> str:
    return f"@ringfence/linux-{build.machine[2]}"


def _manifest(build: Build) -> Dict[str, Any]:
    manifest: Dict[str, Any] = json.loads((ROOT / "sdk/typescript/package.json").read_text())
    if manifest["version"] != build.version:
        raise SystemExit(f"the npm package has the version {manifest['version']}, the program {build.version}")
    return manifest


def _json(value: Dict[str, Any]) -> File:
    return File((json.dumps(value, indent=2) + "\n").encode())


def archive(build: Build) -> Tuple[str, bytes]:
    name = f"ringfence-{build.version}-linux-{build.machine[0]}"
    files: Files = {f"{name}/{program}": file for program, file in build.programs.items()}
    files.update({f"{name}/completions/ringfence.{shell}": File(text) for shell, text in build.completions.items()})
    files[f"{name}/man/ringfence.1"] = File(build.manual)
    files[f"{name}/systemd/ringfence.service"] = File((HERE / "ringfence.service").read_bytes())
    files[f"{name}/README.md"] = File((ROOT / "README.md").read_bytes())
    files[f"{name}/LICENSE"] = File(build.licence)
    return f"{name}.tar.gz", _tar(files, build)


def _tar(files: Files, build: Build) -> bytes:
    written = io.BytesIO()
    directories = {str(parent) for path in files for parent in Path(path).parents if str(parent) != "."}
    with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT) as into:
        for path in sorted([*files, *directories]):
            entry = tarfile.TarInfo(f"./{path}" if path.startswith("usr") else path)
            entry.mtime, entry.uname, entry.gname = build.epoch, "root", "root"
            if path in directories:
                entry.type, entry.mode = tarfile.DIRTYPE, PROGRAM
                into.addfile(entry)
            else:
                entry.size, entry.mode = len(files[path].data), files[path].mode
                into.addfile(entry, io.BytesIO(files[path].data))
    return _gzip(written.getvalue(), build)


def _gzip(data: bytes, build: Build) -> bytes:
    return gzip.compress(data, compresslevel=build.level, mtime=build.epoch)


if __name__ == "__main__":
    main()
