"""Packages that a sandbox is given by their names, from an index on the loopback address."""

from __future__ import annotations

import base64
import hashlib
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Dict, Iterator

import pytest

from conftest import KEY, Server, World
from ringfence import Client, RingfenceError, Sandbox


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _wheel(directory: Path) -> None:
    """Writes a wheel of `tidbit` 1.0, and its page in the index."""
    info = "tidbit-1.0.dist-info"
    files: Dict[str, str] = {
        "tidbit.py": "VALUE = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tidbit\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode() for name, text in files.items()
    }
    records = [f"{name},sha256={digests[name]},{len(text)}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,", ""])
    name = "tidbit-1.0-py3-none-any.whl"
    with zipfile.ZipFile(directory / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    page = directory / "simple/tidbit/index.html"
    page.parent.mkdir(parents=True)
    digest = hashlib.sha256((directory / name).read_bytes()).hexdigest()
    page.write_text(f'<a href="/{name}#sha256={digest}">{name}</a>')


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A user whose index has one package."""
    root = tmp_path / "index"
    root.mkdir()
    _wheel(root)
    index = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root)))
    thread = threading.Thread(target=index.serve_forever)
    thread.start()
    world = World(tmp_path / "u")
    with (world.root / "config/ringfence/ringfence.toml").open("a") as config:
        config.write("[egress]\nprivate_networks = ['127.0.0.0/8']\n")
        config.write(f"[packages]\nindex = 'http://127.0.0.1:{index.server_port}/simple'\n")
        config.write("npm_registry = 'http://127.0.0.1:1'\n")
    yield world
    index.shutdown()
    thread.join()
    index.server_close()


PROGRAM = """
import asyncio, json, subprocess, os
from ringfence import AsyncSandbox, RingfenceError, Sandbox

with Sandbox(packages=["tidbit"]) as sandbox:
    print(sandbox.run_code("import tidbit; tidbit.VALUE").text)

async def again():
    async with AsyncSandbox(packages=["tidbit==1.0"]) as sandbox:
        print((await sandbox.run_code("import tidbit; tidbit.VALUE + 1")).text)

asyncio.run(again())
kept = json.loads(subprocess.check_output([os.environ["RINGFENCE_BIN"], "packages", "ls", "--json"]))
with Sandbox(packages=kept[0]["id"]) as sandbox:
    print(sandbox.run_code("import tidbit; tidbit.VALUE + 2").text)
with Sandbox(packages=[kept[0]["id"]]) as sandbox:
    print(*sandbox.get_info().packages)
for names in (["nonesuch"], ["--index-url=x"], ["tidbit", "npm:morsel"]):
    try:
        Sandbox(packages=names)
    except RingfenceError as error:
        print(error)
print(Sandbox.list())
"""


def test_packages_are_installed_by_their_names(world: World) -> None:
    user = world.python(PROGRAM)
    out, _ = user.communicate()
    assert user.returncode == 0, out
    *values, missing, option, closed, left = out.splitlines()
    assert values == ["42", "43", "44", "tidbit==1.0"]
    assert missing.startswith("the packages cannot be installed: the index has no package `nonesuch`")
    assert option.startswith("the packages cannot be installed: --with: `--index-url=x` is not a package")
    # No registry listens there.
    assert closed.startswith("the packages cannot be installed: the registry could not be reached: 127.0.0.1:1")
    assert left == "[]"


def test_where_no_packages_can_be_installed_the_way_is_told(server: Server, client: Client) -> None:
    for options, told in [
        ({"packages": "tidbit"}, r"pass `packages=\['tidbit'\]`"),
        ({"packages": ["tidbit", "numpy"]}, "run `ringfence run --with tidbit,numpy -c pass`"),
        (
            {"packages": ["npm:zod", "tidbit"]},
            "run `ringfence run --with tidbit -c pass` and `ringfence run -l javascript --with npm:zod -c 0`",
        ),
    ]:
        with pytest.raises(RingfenceError, match=told):
            Sandbox(client=client, **options)  # type: ignore[arg-type]
    with pytest.raises(RingfenceError, match="packages.default"):
        Sandbox(url=server.url, api_key=KEY, packages=["tidbit"])
