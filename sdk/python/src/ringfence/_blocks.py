"""Blocks of `with`: mistakes in their form, and failures at their end."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from .errors import InvalidArguments, RingfenceError


class OnlyPlain:
    """Refuses `async with`, once what the call before it has made is ended."""

    async def __aenter__(self) -> NoReturn:
        # The object exists when Python asks for this. Leaving its block ends a sandbox that it made, and closes connections.
        plain: Any = self
        plain.__enter__()
        plain.__exit__(None, None, None)
        name = type(self).__name__
        raise InvalidArguments(f"`{name}` is used with plain `with`", f"use `async with Async{name}(...)`")

    async def __aexit__(self, *_: object) -> None:
        """Is looked up before `__aenter__` runs."""


class OnlyAsync:
    """Refuses plain `with`. Nothing is made before."""

    def __enter__(self) -> NoReturn:
        name = type(self).__name__
        raise InvalidArguments(f"`{name}` is used with `async with`", f"use `with {name[len('Async') :]}(...)` without asyncio")

    def __exit__(self, *_: object) -> None:
        """Is looked up before `__enter__` runs."""


def not_ended(sandbox: object, error: RingfenceError) -> None:
    """Logs that a sandbox stays whose block raised something else."""
    logging.getLogger("ringfence").warning("%r was not ended: %s", sandbox, error)
