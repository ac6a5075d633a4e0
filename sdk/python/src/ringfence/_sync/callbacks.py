# Written by generate.py from _async: do not change it here.
"""Callbacks for output, under way."""

from __future__ import annotations

import inspect
from typing import Any, Callable, TypeVar

from ..errors import InvalidArguments

T = TypeVar("T")


def called(callback: Callable[[T], Any], value: T) -> None:
    """Calls a callback, to the end of its coroutine if it is one."""
    result = callback(value)
    if inspect.isawaitable(result):
        getattr(result, "close", lambda: None)()
        raise InvalidArguments("the callback is a coroutine", "pass a plain function, or use the package's asynchronous classes")
