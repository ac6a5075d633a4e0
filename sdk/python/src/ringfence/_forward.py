"""Passes connections at an address of this machine on to a port of a sandbox."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
import threading
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, AsyncIterator, Callable, Iterator, Optional, Set, Tuple

import httpcore

from ._address import Address
from ._async.callbacks import called
from ._async.transport import FAILURES, AsyncTransport, _close, _pieces
from .errors import InvalidArguments, RingfenceError
from .models import ForwardedPort

HOST = "127.0.0.2"

MAX_CONNECTIONS = 16
"""Connections that are passed on at once, as many as a sandbox has. More wait."""

MAX_OPEN = 64
"""Connections that are passed on or wait. More are reset."""

SILENCE = 60.0
"""Seconds without a byte of the program after which a client that has sent its end counts as gone.

Nothing tells one that still reads from one that has closed its connection.
"""

PIECE = 64 * 1024

OnError = Callable[[RingfenceError], Any]


@asynccontextmanager
async def forwarding(
    transport: AsyncTransport, path: str, host: str, port: int, on_error: Optional[OnError]
) -> AsyncIterator[ForwardedPort]:
    """Listens at an address, and gives it."""
    _check(host)
    forwarder = _Forwarder(transport, path, on_error)
    try:
        server = await asyncio.start_server(forwarder.serve, host, port)
    except OSError as error:
        raise RingfenceError(f"cannot listen at {host}:{port}: {error}", "pass another `host` or `local_port`") from error
    try:
        found = server.sockets[0].getsockname()
        yield ForwardedPort(found[0], found[1])
    finally:
        server.close()
        await forwarder.close()
    if forwarder.raised is not None:
        raise forwarder.raised


def _check(host: str) -> None:
    """Refuses addresses that other machines reach, and 127.0.0.1, where browsers would send the sandbox the console's cookies."""
    address = None
    with suppress(ValueError):
        address = ipaddress.IPv4Address(host)
    if address is None or not address.is_loopback or host == "127.0.0.1":
        raise InvalidArguments(f"expected an address of this machine alone such as 127.0.0.2 for `host`, got {host!r}")


@contextmanager
def forwarding_on_a_thread(
    address: Address, path: str, host: str, port: int, on_error: Optional[OnError]
) -> Iterator[ForwardedPort]:
    """Listens as `forwarding` does, for callers without an event loop. `on_error` is called on that thread."""
    started: "Future[Tuple[ForwardedPort, Callable[[], None]]]" = Future()
    ended: "Future[None]" = Future()

    def work() -> None:
        try:
            ended.set_result(asyncio.run(_until_stopped(started, address, path, host, port, on_error)))
        except BaseException as error:
            ended.set_exception(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    found, stop = started.result()
    try:
        yield found
    finally:
        stop()
        thread.join()
    ended.result()


async def _until_stopped(started: "Future[Any]", address: Address, *arguments: Any) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    transport = AsyncTransport(address)
    try:
        async with forwarding(transport, *arguments) as found:
            started.set_result((found, lambda: loop.call_soon_threadsafe(stopped.set)))
            await stopped.wait()
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)
    finally:
        await transport.aclose()


class _Forwarder:
    def __init__(self, transport: AsyncTransport, path: str, on_error: Optional[OnError]) -> None:
        self._transport = transport
        self._path = path
        self._on_error = on_error
        self._tasks: "Set[asyncio.Task[Any]]" = set()
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self.raised: Optional[Exception] = None
        """The first exception of `on_error`."""

    async def close(self) -> None:
        """Ends the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        is_one_too_many = len(self._tasks) >= MAX_OPEN
        self._tasks.add(task)
        try:
            if is_one_too_many:
                raise RingfenceError(f"a connection was reset: there are {MAX_OPEN} others", "close some of them")
            async with self._room:
                await self._pass_on(reader, writer)
            writer.close()
        except RingfenceError as error:
            _reset(writer)
            # No connection waits for it.
            self._tasks.discard(task)
            await self._report(error)
        except OSError:
            # Whoever connected has gone.
            pass
        finally:
            _reset(writer)
            self._tasks.discard(task)

    async def _report(self, error: RingfenceError) -> None:
        # The loop closes the connection first.
        await asyncio.sleep(0)
        try:
            if self._on_error is not None:
                await called(self._on_error, error)
        except Exception as raised:
            self.raised = self.raised or raised

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        response = await self._connect()
        sending = asyncio.create_task(_send(reader, response.extensions["network_stream"]))
        pause = _Pause()
        receiving = asyncio.create_task(_receive(response, writer, pause))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                sending.result()
                await _until_silent(receiving, pause)
            receiving.result()
        finally:
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
            await _close(response)

    async def _connect(self) -> httpcore.Response:
        pool = await self._transport._connections()
        request = self._transport._requests.build("POST", self._path, content=_open_end())
        return await self._transport._attempt(pool, request, "POST", self._path)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection that is open so that nobody takes what has arrived for the whole."""
    if writer.is_closing():
        return
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _open_end() -> AsyncIterator[bytes]:
    """A body that goes on while the answer comes.

    httpcore reads an answer once the body is over, or cannot be written. After this error it leaves the body open, and what
    follows is written to the connection by `_send`.
    """
    raise httpcore.WriteError("the body follows")
    yield b""


async def _send(reader: asyncio.StreamReader, stream: httpcore.AsyncNetworkStream) -> None:
    """Sends what comes as the chunks of the body, to its end."""
    # If it cannot be written, the answer says why.
    with suppress(*FAILURES):
        while True:
            piece = await reader.read(PIECE)
            await stream.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if not piece:
                return


class _Pause:
    """The time since which a piece of the program is waited for; `None` while the client is to read one."""

    def __init__(self) -> None:
        self.since: Optional[float] = asyncio.get_running_loop().time()


async def _receive(response: httpcore.Response, writer: asyncio.StreamWriter, pause: _Pause) -> None:
    async for piece in _pieces(response):
        pause.since = None
        writer.write(piece)
        await writer.drain()
        pause.since = asyncio.get_running_loop().time()


async def _until_silent(receiving: "asyncio.Task[None]", pause: _Pause) -> None:
    """Waits until all has been received. Raises if the program has sent nothing for too long after this call."""
    now = asyncio.get_running_loop().time
    ended = now()
    while not receiving.done():
        since = now() if pause.since is None else max(ended, pause.since)
        left = since + SILENCE - now()
        if left <= 0:
            raise RingfenceError(
                f"a connection was reset: its client had sent its end, and the program nothing for {SILENCE:g} s"
            )
        await asyncio.wait({receiving}, timeout=left)
