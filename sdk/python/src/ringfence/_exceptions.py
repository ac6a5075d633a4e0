"""Finds the exception in what an interpreter printed to standard error."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

# An error of syntax has no frames, and an exception group stands in a box.
_BEGINNING = re.compile(
    r'^(?:(?P<group>  \+ Exception Group )?Traceback \(most recent call last\):|  File "<cell )', re.MULTILINE
)
_UNCAUGHT = re.compile(r"^Uncaught ", re.MULTILINE)
_BOX = "  | "


class Printed(NamedTuple):
    name: str
    value: str
    traceback: str


def printed(stderr: str) -> Optional[Printed]:
    """Returns the last exception of Python or JavaScript, if one was printed."""
    beginnings = list(_BEGINNING.finditer(stderr))
    tracebacks = [each for each in beginnings if "Traceback" in each.group()]
    if beginnings:
        return _raised(stderr, (tracebacks or beginnings)[-1])
    uncaught = list(_UNCAUGHT.finditer(stderr))
    return _thrown(stderr[uncaught[-1].end() :]) if uncaught else None


def _raised(stderr: str, beginning: "re.Match[str]") -> Printed:
    traceback = stderr[beginning.start() :]
    lines = traceback.rstrip("\n").split("\n")
    if beginning["group"]:
        lines = [lines[0], *(each[len(_BOX) :] for each in lines if each.startswith(_BOX))]
    # The message may have many lines; the frames before it are indented.
    first = next((n for n, line in enumerate(lines) if n and line[:1] not in ("", " ")), len(lines) - 1)
    name, _, value = "\n".join(lines[first:]).partition(": ")
    return Printed(name, value, traceback)


def _thrown(text: str) -> Printed:
    message = text.rstrip("\n").split("\n    at ")[0]
    name, separator, value = message.partition(": ")
    # Anything can be thrown.
    return Printed(name, value, text) if separator and name.isidentifier() else Printed("Error", message, text)
