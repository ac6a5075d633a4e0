"""Ids in the paths of routes."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ._arguments import unexpected


def segment(text: Any, name: str = "id") -> str:
    """Returns an id or a name as one segment of a path."""
    if not isinstance(text, str) or not text:
        raise unexpected("an id or a name", name, text)
    # Dots alone are taken out of paths, so that another route would be asked.
    return quote(text, safe="") if text.strip(".") else quote(text, safe="").replace(".", "%2E")
