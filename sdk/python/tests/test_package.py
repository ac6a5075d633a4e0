"""The package itself: both halves from one description, decoders, versions."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ringfence
from ringfence import AsyncClient, AsyncSandbox, Client, Sandbox, errors
from ringfence._async.approvals import AsyncApprovals
from ringfence._async.audit import AsyncAudit
from ringfence._async.images import AsyncImages
from ringfence._async.keys import AsyncKeys
from ringfence._async.ports import AsyncPorts
from ringfence._async.runs import AsyncRuns
from ringfence._async.snapshots import AsyncSnapshots
from ringfence._events import EventDecoder, Texts
from ringfence._path import segment
from ringfence._sync.approvals import Approvals
from ringfence._sync.audit import Audit
from ringfence._sync.images import Images
from ringfence._sync.keys import Keys
from ringfence._sync.ports import Ports
from ringfence._sync.runs import Runs
from ringfence._sync.snapshots import Snapshots

ROOT = Path(__file__).parent.parent


def test_the_synchronous_half_is_written_from_the_other() -> None:
    checked = subprocess.run([sys.executable, "generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    "pair",
    [
        (AsyncClient, Client),
        (AsyncSandbox, Sandbox),
        (AsyncApprovals, Approvals),
        (AsyncAudit, Audit),
        (AsyncImages, Images),
        (AsyncKeys, Keys),
        (AsyncPorts, Ports),
        (AsyncRuns, Runs),
        (AsyncSnapshots, Snapshots),
    ],
)
def test_both_halves_have_the_same_surface(pair: "tuple[type, type]") -> None:
    asynchronous, synchronous = (
        {name: inspect.signature(each) for name, each in vars(half).items() if not name.startswith("_") and callable(each)}
        for half in pair
    )
    if "aclose" in asynchronous:
        asynchronous["close"] = asynchronous.pop("aclose")
    assert list(map(str, sorted(asynchronous))) == list(map(str, sorted(synchronous)))
    for name, signature in asynchronous.items():
        assert list(signature.parameters) == list(synchronous[name].parameters), name


def test_the_types_are_right(tmp_path: Path) -> None:
    # An ignored error that there is not would be an error.
    (tmp_path / "blocks.py").write_text(
        "from ringfence import AsyncClient, AsyncSandbox, Client, Sandbox\n\n\n"
        "async def wrong() -> None:\n"
        "    async with Sandbox(), Client():  # type: ignore[attr-defined]\n        pass\n"
        "    with AsyncSandbox(), AsyncClient():  # type: ignore[attr-defined]\n        pass\n"
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir=/dev/null", "src/ringfence", str(tmp_path / "blocks.py")]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_versions_agree() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{ringfence.__version__}"' in project
    workspace = ROOT.parent.parent / "Cargo.toml"
    assert f'version = "{ringfence.__version__}"' in workspace.read_text()


def test_no_builder_packs_what_an_earlier_build_left() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    # setuptools packs whatever is in `build/lib`, also modules that the source has no more.
    assert 'build-backend = "flit_core.buildapi"' in project and "[tool.setuptools" not in project


def test_each_type_of_the_api_has_an_exception() -> None:
    reference = (ROOT.parent.parent / "docs/reference/api.md").read_text()
    rows = [line.split("|") for line in reference.splitlines() if line.startswith("| ") and "`" in line]
    types = {row[2].strip().strip("`") for row in rows if row[1].strip().isdecimal()}
    assert len(types) > 10 and types == set(errors.BY_TYPE)


def test_events_survive_any_cut() -> None:
    text = "".join(f"event: e{n}\ndata: {json.dumps({'text': 'é' * n})}\n\n:\n\n" for n in range(5)).encode()
    for size in range(1, 40):
        decoder = EventDecoder()
        found = [event for at in range(0, len(text), size) for event in decoder.feed(text[at : at + size])]
        assert [(event.name, event.data["text"]) for event in found] == [(f"e{n}", "é" * n) for n in range(5)], size


def test_characters_survive_any_cut() -> None:
    texts = Texts()
    data = "aé€𝄞".encode()
    assert "".join(texts.push("stdout", data[n : n + 1]) for n in range(len(data))) == "aé€𝄞"
    texts.push("stderr", b"\xe2")
    assert (texts.end("stdout"), texts.end("stderr")) == ("", "\ufffd")


def test_ids_stay_in_their_segment() -> None:
    assert [segment(text) for text in ("a", "a/b", "..", ".", "a.b", "?")] == [
        "a", "a%2Fb", "%2E%2E", "%2E", "a.b", "%3F",
    ]
