"""Blocks of `with`: mistakes in their form, and failures at their end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from .errors import InvalidArguments, RingfenceError


class OnlyPlain:
    """Refuses `async with`, once what the call before it has made is ended. For type checkers there is none."""

    _plain_name: ClassVar[str]
    """Name of the class for plain `with`."""

    if not TYPE_CHECKING:

        async def __aenter__(self) -> None:
            # The object exists when Python asks for this. Leaving its block ends a sandbox that it made, and closes connections.
            plain: Any = self
            plain.__enter__()
            plain.__exit__(None, None, None)
            raise InvalidArguments(
                f"`{type(self).__name__}` is used with plain `with`", f"use `async with Async{self._plain_name}(...)`"
            )

        async def __aexit__(self, *_: object) -> None:
            """Is looked up before `__aenter__` runs."""


class OnlyAsync:
    """Refuses plain `with`, before anything is made. For type checkers there is none."""

    _plain_name: ClassVar[str]
    """Name of the class for plain `with`."""

    if not TYPE_CHECKING:

        def __enter__(self) -> None:
            raise InvalidArguments(
                f"`{type(self).__name__}` is used with `async with`", f"use `with {self._plain_name}(...)` without asyncio"
            )

        def __exit__(self, *_: object) -> None:
            """Is looked up before `__enter__` runs."""


def log_not_ended(sandbox: object, error: RingfenceError) -> None:
    """Logs that a sandbox stays whose block raised something else."""
    logging.getLogger("ringfence").warning("%r was not ended: %s", sandbox, error)
