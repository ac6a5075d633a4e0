"""Server-sent events and the text in them, decoded as they arrive."""

from __future__ import annotations

import base64
import codecs
from typing import Any, Dict, Iterator, List, NamedTuple

from ._json import parsed
from .errors import IncompatibleServer

MAX_EVENT = 64 << 20
"""Maximum size of an event, in bytes: an execution has results of 8 MiB at most."""


class Event(NamedTuple):
    name: str
    data: Any

    def output(self) -> bytes:
        """Returns the bytes of an event of output."""
        text = self.data.get("text") if isinstance(self.data, dict) else None
        if isinstance(text, str):
            return text.encode("utf-8", "surrogatepass")
        try:
            return base64.b64decode(self.data["base64"], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleServer("an event of output has neither text nor bytes") from error


class EventDecoder:
    """Parses a stream of events from pieces of any size."""

    def __init__(self) -> None:
        self._pieces: List[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yields the events that a piece completes."""
        if not piece:
            return
        # The break between two events may lie across pieces.
        tail = self._pieces[-1][-1:] if self._pieces else b""
        self._pieces.append(piece)
        self._size += len(piece)
        if b"\n\n" not in tail + piece:
            if self._size > MAX_EVENT:
                raise IncompatibleServer(f"an event is larger than {MAX_EVENT} bytes")
            return
        *blocks, rest = b"".join(self._pieces).split(b"\n\n")
        self._pieces, self._size = ([rest], len(rest)) if rest else ([], 0)
        for block in blocks:
            name, data = "message", []
            for line in block.split(b"\n"):
                field, _, value = line.partition(b":")
                value = value[1:] if value.startswith(b" ") else value
                if field == b"event":
                    name = value.decode("utf-8", "replace")
                elif field == b"data":
                    data.append(value)
            if data:
                try:
                    yield Event(name, parsed(b"\n".join(data)))
                except ValueError as error:
                    raise IncompatibleServer(f"the data of an event are not JSON: {error}") from error


class LineDecoder:
    """Splits a stream of lines of JSON."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[Any]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_EVENT:
            raise IncompatibleServer(f"a line is larger than {MAX_EVENT} bytes")
        for line in lines:
            if line.strip():
                try:
                    yield parsed(line)
                except ValueError as error:
                    raise IncompatibleServer(f"a line is not JSON: {error}") from error


class Texts:
    """Decodes the output of a program: a character may lie across events."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders: Dict[str, codecs.IncrementalDecoder] = {}
        self._new = decoder

    def push(self, stream: str, data: bytes) -> str:
        if stream not in self._decoders:
            self._decoders[stream] = self._new("replace")
        return self._decoders[stream].decode(data)

    def end(self, stream: str) -> str:
        """Returns what is left of a character that was never completed."""
        decoder = self._decoders.get(stream)
        return decoder.decode(b"", final=True) if decoder else ""


class Kept:
    """Pieces of text up to a number of characters."""

    def __init__(self, limit: int) -> None:
        self.pieces: List[str] = []
        self.truncated = False
        self._left = limit

    def push(self, text: str) -> None:
        kept = text[: self._left]
        self.truncated = self.truncated or len(kept) < len(text)
        if kept:
            self._left -= len(kept)
            self.pieces.append(kept)

    def text(self) -> str:
        return "".join(self.pieces)
