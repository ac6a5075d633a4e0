"""Ids in the paths of routes."""

from __future__ import annotations

from urllib.parse import quote


def segment(text: str) -> str:
    """Returns a text as one segment of a path."""
    # Dots alone are taken out of paths, so that another route would be asked.
    return quote(text, safe="") if text.strip(".") else quote(text, safe="").replace(".", "%2E")
