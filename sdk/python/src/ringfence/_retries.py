"""Decides which requests are sent again, and when.

A request is sent again if that cannot do its work twice: if it never arrived, if the server refused it before it began,
or if its connection broke and either HTTP or its `Idempotency-Key` makes a retry harmless.
"""

from __future__ import annotations

import uuid
from typing import Dict, Optional

from .errors import ApiError, InProgress, RingfenceError, ServerGone, ServerUnavailable

KEY = "idempotency-key"

PAUSES = (0.1, 0.4)
"""Seconds before each retry after a connection that broke, or was not made. There are as many retries."""

MAX_WAIT = 30.0
"""Seconds that a call waits in all before its retries."""

LONGEST_POLL = 1.0


class Retries:
    """The retries of one request."""

    def __init__(self, method: str, *, has_key: bool, whole: bool) -> None:
        """`whole` says that its body can be sent again."""
        self._whole = whole
        self._harmless = has_key or method in ("GET", "PUT")
        self._has_key = has_key
        self._sent = 0
        self._polls = 0
        self._waited = 0.0
        self._broke: Optional[ServerGone] = None

    def pause(self, error: RingfenceError) -> Optional[float]:
        """Returns the seconds after which to send it again. `None`: it has failed."""
        seconds = self._pause(error) if self._whole else None
        if seconds is None or self._waited + seconds > MAX_WAIT:
            return None
        self._waited += seconds
        return seconds

    def _pause(self, error: RingfenceError) -> Optional[float]:
        if isinstance(error, ServerGone):
            self._broke = self._broke or error
            return self._next() if self._harmless else None
        if isinstance(error, ServerUnavailable):
            return self._next()
        if not isinstance(error, ApiError):
            return None
        if self._is_under_way(error):
            self._polls += 1
            return min(PAUSES[0] * 2.0**self._polls, LONGEST_POLL)
        # Nothing was begun. Without `Retry-After`, nobody says that it could begin later.
        refused = error.status in (429, 503) and error.retry_after is not None
        return error.retry_after if refused and self._next() is not None else None

    def _is_under_way(self, error: RingfenceError) -> bool:
        """Returns `True` if the server still carries out what this call sent before."""
        return self._has_key and self._broke is not None and isinstance(error, InProgress)

    def _next(self) -> Optional[float]:
        self._sent += 1
        return PAUSES[self._sent - 1] if self._sent <= len(PAUSES) else None

    def failure(self, error: RingfenceError) -> RingfenceError:
        """Returns the exception for the call, after the last one: something may have happened once a connection broke."""
        unknown = isinstance(error, (ServerGone, ServerUnavailable)) or self._is_under_way(error)
        return self._broke if self._broke is not None and unknown else error


def key() -> Dict[str, str]:
    """Returns the header of a new key."""
    return {KEY: str(uuid.uuid4())}
