# Written by generate.py from _async: do not change it here.
"""Ports of a sandbox."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Callable, Optional

from .._forward import HOST, forwarding_on_a_thread
from .._arguments import check_callbacks, number
from ..errors import RingfenceError
from ..models import ForwardedPort, SandboxInfo, build
from .transport import Transport


class Ports:
    """TCP ports on which programs of a sandbox with `ports=True` listen."""

    def __init__(self, transport: Transport, base: str) -> None:
        self._transport = transport
        self._base = base

    @contextmanager
    def forward(
        self,
        port: int,
        *,
        host: str = HOST,
        local_port: int = 0,
        on_error: Optional[Callable[[RingfenceError], Any]] = None,
    ) -> Iterator[ForwardedPort]:
        """Brings a port to an address of this machine: `with sb.ports.forward(8000) as web: ...` until the `with` is left.

        `host` is an address of this machine alone, but not 127.0.0.1, where browsers would send the sandbox the console's
        cookies; `local_port` is a free one by default. Every user of this machine can connect there. 16 connections are passed
        on at once, 48 more wait, and those beyond are reset. One to a port where nothing listens is reset, and one whose client
        has sent its end once the program has sent nothing for 60 s. `on_error` is called with the reason, after the reset; the
        end of the `with` raises the first exception of it.
        """
        check_callbacks(on_error=on_error)
        info = build(SandboxInfo, self._transport.json("GET", self._base))
        if not info.ports:
            raise RingfenceError("the sandbox was created without ports", "create one with `Sandbox(ports=True)`")
        path = f"{self._base}/ports/{number(port, 'port')}"
        with forwarding_on_a_thread(self._transport.address, path, host, local_port, on_error) as address:
            yield address
