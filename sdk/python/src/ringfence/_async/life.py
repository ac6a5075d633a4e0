"""Events in the lives of sandboxes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import AsyncIterator

from .._events import Event
from ..errors import ServerGone
from ..models import LifeEvent, build
from .transport import AsyncTransport


@asynccontextmanager
async def life_events(transport: AsyncTransport, path: str, *, to_end: bool) -> AsyncIterator[AsyncIterator[LifeEvent]]:
    """Follows events; `to_end` says that they are those of one sandbox, with whose end they end."""
    async with transport.events("GET", path) as events:
        # The first one says that none is missed from now on.
        async for event in events:
            if event.name == "ready":
                break
        else:
            raise ServerGone("the stream of events ended before it began")
        yield _lives(events, to_end)


async def _lives(events: AsyncIterator[Event], to_end: bool) -> AsyncIterator[LifeEvent]:
    async for event in events:
        life = build(LifeEvent, event.data)
        yield life
        if to_end and life.is_end:
            return
    raise ServerGone("the stream of events has ended: the server has")
