"""Bodies of uploads: what callers pass, as pieces of bytes."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import IO, Any, AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Optional, Tuple, Union

from .errors import InvalidArguments

PIECE = 256 * 1024

Piece = Union[str, bytes, bytearray, memoryview]

Data = Union[Piece, IO[bytes], IO[str], Iterable[Piece]]
"""Text, bytes, a file, or pieces of text or bytes."""

AsyncData = Union[Data, AsyncIterable[Piece]]


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


def pieces(data: Any) -> Any:
    """Returns what an HTTP client takes. Raises before anything is sent if `data` is none."""
    if isinstance(data, bytes):
        return data
    _check(data)
    return _pieces(data)


def _check(data: Any) -> None:
    # Iterating a mapping would send its keys.
    if isinstance(data, Mapping) or not (hasattr(data, "read") or hasattr(data, "__iter__")):
        expected = "text, bytes, a file, or an iterable of text or bytes for the data"
        hint = "open the file: `open(path, 'rb')`" if isinstance(data, os.PathLike) else ""
        raise InvalidArguments(f"expected {expected}, got {type(data).__name__}", hint)


def _pieces(data: Any) -> Iterator[bytes]:
    if not hasattr(data, "read"):
        yield from map(_piece, data)
        return
    while True:
        piece = _piece(data.read(PIECE))
        if not piece:
            return
        yield piece


def _piece(piece: Any) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return bytes(piece)
    raise InvalidArguments(f"expected text or bytes for each piece of the data, got {type(piece).__name__}")


def async_pieces(data: Any) -> Any:
    """Returns what an asynchronous HTTP client takes. Files are read on a thread. Raises like `pieces`."""
    if isinstance(data, bytes):
        return data
    if hasattr(data, "__aiter__"):
        return _own_pieces(data)
    _check(data)
    return _async_pieces(_pieces(data))


async def _own_pieces(data: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    async for piece in data:
        yield _piece(piece)


async def _async_pieces(source: Iterator[bytes]) -> AsyncIterator[bytes]:
    while True:
        piece = await asyncio.to_thread(next, source, None)
        if piece is None:
            return
        yield piece
