"""Output of a guest, in the forms that may reach a front end.

A notebook's page can start other kernels, which run outside of any sandbox. So a script that it runs for a guest would be
the guest's way out. Nothing here decodes, parses or follows what it passes on.
"""

from __future__ import annotations

import base64
import html
import re
from typing import Any, Dict, List, Mapping, Tuple

from ._guest import ANSWER, DISPLAY, ERROR

# Front ends show these as text and pictures, whatever they contain.
_INERT = ("text/plain", "image/png", "image/jpeg", "application/json")

# The server's own, for other clients.
_PRIVATE = (ANSWER, DISPLAY, ERROR, "application/vnd.ringfence.data+json", "application/vnd.ringfence.chart+json")

MAX_STREAMED = 8 << 20
"""Characters of output of one cell that are shown."""

# No script, no form, no navigation of the page, no origin; and nothing is fetched.
_FRAME = (
    '<iframe sandbox="" referrerpolicy="no-referrer" style="width: 100%; height: {height}px; border: 0; background: #fff" '
    'srcdoc="{document}"></iframe>'
)
_HEAD = (
    '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; img-src data:; font-src data:\">"
    '<meta http-equiv="x-dns-prefetch-control" content="off"><style>body { font: 13px sans-serif; margin: 4px }'
    "table { border-collapse: collapse } td, th { padding: 2px 8px; text-align: right }</style>"
)

# A policy of the page does not hold for `<link rel=preconnect>`, whose host's name says what it wants.
_LINK = re.compile("<(?=link)", re.IGNORECASE)

MAX_FRAME = 16 << 20
"""Characters of a frame, whose document is longer when it is escaped."""

# Escape sequences that only colour text stay; a terminal obeys the others.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-ln-~]")
_CONTROL = re.compile(r"\x1b(?!\[[0-9;:]*m)|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8})?\Z")


def plain(text: str) -> str:
    """Removes control characters but those of lines, tabs, backspaces and colours."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


MAX_DISPLAY_ID = 256
"""Characters of the id of a display."""


def display_of(raw: Mapping[str, Any]) -> "Tuple[Dict[str, str], bool]":
    """Returns what front ends get to find a display again, and True for an update of an earlier cell's."""
    mark = raw.get(DISPLAY)
    if not isinstance(mark, dict):
        return {}, False
    known = mark.get("id")
    if not isinstance(known, str) or len(known) > MAX_DISPLAY_ID:
        return {}, False
    return {"display_id": known}, mark.get("update") is True


class Outputs:
    """The forms in which outputs are passed on: all of them, or those that can do nothing in the page."""

    def __init__(self, everything: bool) -> None:
        self._everything = everything
        self._told: List[str] = []

    def text(self, text: str) -> str:
        return text if self._everything else plain(text)

    def bundle(self, raw: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns the data of a MIME bundle."""
        if self._everything:
            return {media: data for media, data in raw.items() if media not in _PRIVATE}
        shown = {media: raw[media] for media in _INERT if media in raw}
        if "text/plain" in shown:
            shown["text/plain"] = plain(str(shown["text/plain"]))
        if "text/html" in raw:
            shown["text/html"] = _framed(str(raw["text/html"]))
        elif "image/svg+xml" in raw and "image/png" not in raw:
            shown["text/html"] = _picture(str(raw["image/svg+xml"]))
        return shown

    def left_out(self, raw: Mapping[str, Any]) -> List[str]:
        """Returns the media types that a person should know are left out. Each is returned once."""
        if self._everything:
            return []
        framed = ("text/html", "image/svg+xml")
        new = [each for each in raw if each not in (*_INERT, *_PRIVATE, *framed, *self._told)]
        # Names are a guest's, too.
        new = new[: max(0, 32 - len(self._told))]
        self._told += new
        return [plain(each) for each in new if not each.startswith("application/vnd.ringfence.")]


class Stream:
    """Text of a stream, whose escape sequences may lie across its pieces."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._rest = ""

    def push(self, piece: str) -> str:
        text = self._rest + piece
        found = _UNFINISHED.search(text)
        self._rest = found.group() if found else ""
        return self._outputs.text(text[: len(text) - len(self._rest)])

    def end(self) -> str:
        text, self._rest = self._rest, ""
        return self._outputs.text(text)


def _framed(markup: str) -> str:
    rows = markup.count("<tr")
    height = min(max(26 * rows + 40, 80), 480) if rows else 240
    document = html.escape(_HEAD + _LINK.sub("&lt;", markup))
    if len(document) > MAX_FRAME:
        document = html.escape(f"{_HEAD}[ringfence] HTML of more than {MAX_FRAME} characters is left out")
    return _FRAME.format(height=height, document=document)


def _picture(svg: str) -> str:
    # A picture in an `img` runs no script and fetches nothing.
    data = base64.b64encode(svg.encode("utf-8", "replace")).decode()
    return f'<img style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'
