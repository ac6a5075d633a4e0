"""Finds entries of a tree that programs of this machine execute or obey, as `ringfence run -o` does.

Names are compared as the most lenient file system does: see crates/trust/src/protected.rs, which has the reasons.
"""

from __future__ import annotations

import re
from typing import Dict, List, Set

from ._protected import PROTECTED

BYTECODE = ("__pycache__", "*.pyc")
"""Compiled code, which Python loads in place of the source beside it."""

# A directory with these is a git repository without a working tree, whose settings name programs.
REPOSITORY = {"head", "objects", "refs"}
NEVER = {"commondir", "config.worktree"}

_UNSEEN = re.compile(
    "[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_NARROW = {**{wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}, 0x2024: ord(".")}
_SHORT = re.compile(r"([^~]+)~[0-9]+(?:\..*)?", re.DOTALL)


def _fold(name: str) -> str:
    name = _UNSEEN.sub("", name.partition(":")[0]).translate(_NARROW)
    # Upper case first: some letters, such as the long s, only map to their plain form that way.
    return "".join(lower.lower() for character in name for lower in character.upper()).rstrip(". ")


_PATHS = [[_fold(name) for name in path.split("/")] for path in (*PROTECTED, *BYTECODE)]
_LONGEST = max(map(len, _PATHS))
_LAST = {path[-1] for path in _PATHS}
_SUFFIXES = tuple(last[1:] for last in _LAST if last.startswith("*"))


def ends_protected(names: List[bytes]) -> bool:
    """Returns `True` if a path ends with a protected one."""
    tail = [_fold(name.decode("utf-8", "replace")) for name in names[-_LONGEST:]]
    # A tree has many names, and the list is long.
    if tail[-1] not in _LAST and "~" not in tail[-1] and not tail[-1].endswith(_SUFFIXES):
        return False
    return any(len(tail) >= len(path) and all(map(_is_same, tail[-len(path) :], path)) for path in _PATHS)


def _is_same(name: str, protected: str) -> bool:
    if protected.startswith("*"):
        return name.endswith(protected[1:])
    if name == protected:
        return True
    # The short form that FAT and NTFS have, such as `git~1`.
    short = _SHORT.fullmatch(name) if "~" in name else None
    return short is not None and protected.lstrip(".").replace(".", "").startswith(short[1])


class Protection:
    """What is protected in one tree, from its root down."""

    def __init__(self) -> None:
        self._repositories: Dict[bytes, Set[str]] = {}

    def covers(self, names: List[bytes]) -> bool:
        """Returns `True` for an entry to leave out. Those above it were asked about before, and are none."""
        return ends_protected(names) or self._completes_repository(names)

    def _completes_repository(self, names: List[bytes]) -> bool:
        name = _fold(names[-1].decode("utf-8", "replace"))
        if name not in REPOSITORY:
            return name in NEVER
        there = self._repositories.setdefault(b"/".join(names[:-1]), set())
        if REPOSITORY <= {*there, name}:
            return True
        there.add(name)
        return False
