"""Bodies of uploads: what callers pass, as pieces of bytes."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import IO, Any, AsyncIterable, AsyncIterator, Iterable, Iterator, Optional, Tuple, Union

PIECE = 256 * 1024

Data = Union[str, bytes, bytearray, memoryview, IO[bytes], IO[str], Iterable[bytes]]
"""Text, bytes, a file, or pieces of bytes."""

AsyncData = Union[Data, AsyncIterable[bytes]]


def sized(data: Any) -> Tuple[Any, Optional[int]]:
    """Returns data as bytes or something that gives them, with their number if it is known."""
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        data = bytes(data)
        return data, len(data)
    return data, _rest_of_file(data)


def _rest_of_file(data: Any) -> Optional[int]:
    if "b" not in getattr(data, "mode", ""):
        return None
    try:
        found = os.fstat(data.fileno())
        return max(0, found.st_size - data.tell()) if stat.S_ISREG(found.st_mode) else None
    except (AttributeError, OSError, ValueError):
        return None


def _read(data: Any) -> bytes:
    piece = data.read(PIECE)
    return piece.encode() if isinstance(piece, str) else piece


def pieces(data: Any) -> Any:
    """Returns what an HTTP client takes."""
    if isinstance(data, bytes):
        return data
    return _pieces(data)


def _pieces(data: Any) -> Iterator[bytes]:
    if not hasattr(data, "read"):
        yield from data
        return
    while True:
        piece = _read(data)
        if not piece:
            return
        yield piece


def async_pieces(data: Any) -> Any:
    """Returns what an asynchronous HTTP client takes. Files are read on a thread."""
    if isinstance(data, bytes):
        return data
    if hasattr(data, "__aiter__"):
        return data
    return _async_pieces(_pieces(data))


async def _async_pieces(source: Iterator[bytes]) -> AsyncIterator[bytes]:
    while True:
        piece = await asyncio.to_thread(next, source, None)
        if piece is None:
            return
        yield piece
