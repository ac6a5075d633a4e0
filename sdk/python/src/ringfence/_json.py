"""JSON of a server, which may be anybody's."""

from __future__ import annotations

import json
from typing import Any, Union


def parsed(text: Union[str, bytes]) -> Any:
    """Returns a value. Raises `ValueError` if the text has none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it has too many levels") from None
