# Written by generate.py from _async: do not change it here.
"""Events in the lives of sandboxes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from .._events import Event
from ..errors import ServerGone
from ..models import LifeEvent, build
from .transport import Transport


@contextmanager
def life_events(transport: Transport, path: str, *, to_end: bool) -> Iterator[Iterator[LifeEvent]]:
    """Follows events; `to_end` says that they are those of one sandbox, with whose end they end."""
    with transport.events("GET", path) as events:
        # The first one says that none is missed from now on.
        for event in events:
            if event.name == "ready":
                break
        else:
            raise ServerGone("the stream of events ended before it began")
        yield _lives(events, to_end)


def _lives(events: Iterator[Event], to_end: bool) -> Iterator[LifeEvent]:
    for event in events:
        life = build(LifeEvent, event.data)
        yield life
        if to_end and life.is_end:
            return
    raise ServerGone("the stream of events has ended: the server has")
