"""Checks of arguments, before anything is sent. A mistake in a call is `InvalidArguments`, which is a `TypeError` and a `ValueError`."""

from __future__ import annotations

import difflib
import math
import operator
import os
import re
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional, Union

from .errors import InvalidArguments

StrPath = Union[str, "os.PathLike[str]"]
"""A path as text, or one of pathlib."""

MAX_SHOWN = 60
"""Characters of a value in a message."""

# As the command line has them, and `ts`.
_LANGUAGES = {"py": "python", "python3": "python", "sh": "bash", "shell": "bash", "js": "javascript", "node": "javascript", "ts": "typescript"}

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tib": 1 << 40}
_UNITS.update(kb=10**3, mb=10**6, gb=10**9, tb=10**12)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def unexpected(expected: str, name: str, found: Any, hint: str = "") -> InvalidArguments:
    """Returns the exception for an argument. Of a value that is no short text or number it names the type alone."""
    shown = repr(found) if isinstance(found, (str, int, float)) else ""
    if not shown or len(shown) > MAX_SHOWN:
        shown = "None" if found is None else type(found).__name__
    return InvalidArguments(f"expected {expected} for `{name}`, got {shown}", hint)


def path_text(path: Any, name: str = "path") -> str:
    """Returns a path of a sandbox, or a local one, as text."""
    if isinstance(path, PurePath):
        # A sandbox's paths have slashes, whatever system this is.
        return path.as_posix()
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if not isinstance(path, str):
        raise unexpected("a path as text, or one of pathlib,", name, path)
    return path


def items(values: Any, name: str, expected: str, hint: str = "") -> List[Any]:
    """Returns the items of a list. A text is refused, which would be split into its characters, and so is a mapping."""
    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(values, Iterable):
        raise unexpected(expected, name, values, hint)
    return list(values)


def texts(values: Any, name: str) -> List[str]:
    """Returns a list of texts."""
    is_short_text = isinstance(values, str) and len(values) <= MAX_SHOWN
    found = items(values, name, "a list of texts", f"pass `{name}=[{values!r}]`" if is_short_text else "")
    for each in found:
        if not isinstance(each, str):
            raise unexpected("texts", name, each)
    return found


def named(values: Any, name: str) -> Optional[Dict[str, Any]]:
    """Returns a mapping as a dictionary; `None` if there is nothing in it."""
    if values is None:
        return None
    if not hasattr(values, "keys"):
        raise unexpected("a mapping of names to texts", name, values, f'write it like `{name}={{"NAME": "text"}}`')
    return dict(values) or None


def command_of(command: Any) -> Union[str, List[str]]:
    """Returns a line for the shell, or a program and its arguments."""
    if isinstance(command, str):
        return command
    expected = "a line for the shell, or a list of a program and its arguments,"
    if isinstance(command, (set, frozenset)):
        # It has no order.
        raise unexpected(expected, "command", command)
    found = items(command, "command", expected)
    return texts([path_text(each, "command") if isinstance(each, os.PathLike) else each for each in found], "command")


def number(value: Any, name: str, *, least: int = 0) -> int:
    """Returns a whole number, also of other libraries."""
    found = operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else least - 1
    if found < least:
        raise unexpected(f"a whole number of at least {least}", name, value)
    return found


def size(value: Any, name: str) -> int:
    """Returns a number of bytes or characters, given as such or as a text such as `1MiB`."""
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None and found[2].lower() in _UNITS:
        return int(float(found[1]) * _UNITS[found[2].lower()])
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise unexpected("a number, or a text such as `10KiB` or `256MiB`,", name, value)
    return value


def positive_seconds(value: Any, name: str = "timeout") -> float:
    """Returns a number of seconds that ends a wait."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise unexpected("a number of seconds above 0", name, value)
    return value


def language_of(language: Any) -> Any:
    """Returns the API's name of a language. The server has the last word on others."""
    return _LANGUAGES.get(language.lower(), language) if isinstance(language, str) else language


def check_callbacks(**callbacks: Any) -> None:
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise unexpected("a function", name, callback)


def check_known(owner: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuses arguments that a call has not, with the name that was probably meant."""
    for name in given:
        if name not in known:
            near = [each for each in known if each.startswith(name) or name.startswith(each)]
            near = near or difflib.get_close_matches(name, list(known), 1)
            hint = f"use `{near[0]}`" if near else f"it has {', '.join(f'`{each}`' for each in sorted(known))}"
            raise InvalidArguments(f"`{owner}` has no argument `{name}`", hint)


def check_sandbox(sandbox: Any) -> Any:
    """Returns a sandbox of the synchronous classes, as adapters use it."""
    from ._sync.sandbox import Sandbox

    if not isinstance(sandbox, Sandbox):
        raise unexpected("a `Sandbox`", "sandbox", sandbox)
    return sandbox
