"""The deadline of a thread's waiting: no read of its connections lasts longer."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import Any, Iterable, Iterator, Optional

import httpcore

_thread = threading.local()


class DeadlinePassed(Exception):
    """The deadline of the thread has passed."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Ends connecting, reading and sleeping in this thread after a time, by `DeadlinePassed`."""
    before = getattr(_thread, "end", None)
    end = time.monotonic() + seconds
    _thread.end = end if before is None else min(before, end)
    try:
        yield
    finally:
        _thread.end = before


def bounded(timeout: Optional[float]) -> Optional[float]:
    """Returns a timeout, or the time that is left if that is less."""
    end = getattr(_thread, "end", None)
    if end is None:
        return timeout
    left: float = end - time.monotonic()
    if left <= 0:
        raise DeadlinePassed
    return left if timeout is None else min(left, timeout)


def sleep(seconds: float) -> None:
    """Sleeps for a time, or until the deadline."""
    time.sleep(bounded(seconds) or 0.0)
    bounded(None)


class Backend(httpcore.SyncBackend):
    """Connections that keep to the deadline of the thread which uses them."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: Optional[float] = None,
        local_address: Optional[str] = None,
        socket_options: Optional[Iterable[Any]] = None,
    ) -> httpcore.NetworkStream:
        return _Stream(super().connect_tcp(host, port, bounded(timeout), local_address, socket_options))

    def connect_unix_socket(
        self, path: str, timeout: Optional[float] = None, socket_options: Optional[Iterable[Any]] = None
    ) -> httpcore.NetworkStream:
        return _Stream(super().connect_unix_socket(path, bounded(timeout), socket_options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self.write = stream.write  # type: ignore[method-assign]
        self.close = stream.close  # type: ignore[method-assign]
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: Optional[float] = None) -> bytes:
        limit = bounded(timeout)
        try:
            return self._stream.read(max_bytes, limit)
        except httpcore.ReadTimeout:
            bounded(None)
            raise

    def start_tls(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(*arguments, **options))
