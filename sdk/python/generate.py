"""Writes `src/ringfence/_sync` from `src/ringfence/_async`: one description, two packages.

`python generate.py` writes, `python generate.py --check` fails if what is there differs.

A line that ends with `# async` is left out; one that begins with `# sync: ` counts without these words.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Dict

SOURCE = Path(__file__).parent / "src" / "ringfence" / "_async"
TARGET = SOURCE.parent / "_sync"

WORDS = {
    r"async def ": "def ",
    r"async with ": "with ",
    r"async for ": "for ",
    r"await ": "",
    r"`async with`": "`with`",
    r"\basynccontextmanager\b": "contextmanager",
    r"\bAsync(?=[A-Z])": "",
    r"\basync_pieces\b": "pieces",
    r"\b__aenter__\b": "__enter__",
    r"\b__aexit__\b": "__exit__",
    r"\b__aiter__\b": "__iter__",
    r"\b__anext__\b": "__next__",
    r"\baclose\b": "close",
    r"\baiter_stream\b": "iter_stream",
    r"\bhandle_async_request\b": "handle_request",
}

HEAD = "# Written by generate.py from _async: do not change it here.\n"


def synchronous(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if line.rstrip().endswith("# async"):
            continue
        lines.append(re.sub(r"^( *)# sync: ", r"\1", line))
    text = "\n".join(lines) + "\n"
    for pattern, replacement in WORDS.items():
        text = re.sub(pattern, replacement, text)
    return HEAD + text


def files() -> Dict[Path, str]:
    written = {
        TARGET / source.name: synchronous(source.read_text())
        for source in SOURCE.glob("*.py")
        if source.name != "__init__.py"
    }
    written[TARGET / "__init__.py"] = '"""Written by generate.py."""\n'
    return written


def main() -> int:
    wanted = files()
    if "--check" in sys.argv:
        there = set(TARGET.glob("*.py"))
        stale = [path for path, text in wanted.items() if path not in there or path.read_text() != text]
        for path in [*stale, *(there - set(wanted))]:
            print(f"{path.name} differs: run python generate.py")
        return 1 if stale or there - set(wanted) else 0
    TARGET.mkdir(exist_ok=True)
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
