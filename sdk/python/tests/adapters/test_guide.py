"""The programs of the adapters' page, their types, and their absence."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import World

ROOT = Path(__file__).parents[4]
PACKAGE = ROOT / "sdk/python"


def test_the_guide_prints_what_it_says(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guide/adapters.md").read_text()
    blocks = [block.split("```")[0] for block in guide.split("```python\n")[1:]]
    assert blocks
    program = "\n".join(blocks)
    expected = [line.strip()[3:] for line in program.splitlines() if line.strip().startswith("#> ")]
    user = World(tmp_path).python(program)
    out, _ = user.communicate()
    assert user.returncode == 0
    assert [line for line in out.splitlines() if line] == expected


def test_the_types_are_right() -> None:
    # Modules that are named are checked, though the package excludes them elsewhere.
    modules = sorted(str(path) for folder in (".", "jupyter") for path in PACKAGE.glob(f"src/ringfence/{folder}/*.py"))
    command = [sys.executable, "-m", "mypy", "--cache-dir=/dev/null", "--python-version", "3.11", *modules]
    checked = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("module", tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["optional-dependencies"])
def test_an_extra_that_is_missing_is_named(module: str) -> None:
    needed = {"inspect": "inspect_ai", "jupyter": "ipykernel"}.get(module, module)
    code = f"import sys\nsys.modules[{needed!r}] = None\nimport ringfence\nimport ringfence.{module}"
    failed = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE / "src", capture_output=True, text=True)
    last = failed.stderr.splitlines()[-1]
    assert last == f"ImportError: ringfence.{module} needs the package {needed}: install ringfence[{module}]"
