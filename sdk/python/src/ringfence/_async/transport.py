"""Requests to the server, and their errors."""

from __future__ import annotations

import asyncio  # async
import os
import ssl
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, AsyncIterator, Dict, Mapping, Optional
from urllib.parse import urlsplit

import httpcore

from .. import _server
from .._address import Address, ServerIdentity, check_socket, default_socket
# sync: from .._deadline import Backend, sleep
from .._events import Event, EventDecoder
from .._json import parsed
from .._proxy import proxy_of
from .._request import RequestBuilder
from .._refused import explain_unauthenticated, is_wrong_scheme, wrong_scheme_message
from .._retries import KEY, PAUSES, Retries, key
from .._version import VERSION
from ..errors import IncompatibleServer, RingfenceError, ServerGone, ServerUnavailable, Unauthenticated, of_body

ENDED = ("the server has ended, and its sandboxes with it", "create another one")

SILENCE = 60.0
"""Seconds without a byte after which a stream of events counts as broken: the server sends a comment each 10 s."""

MAX_ANSWER = 64 << 20
"""Maximum size of an answer that is read whole, in bytes."""

EVENTS = "text/event-stream"

PROXY_HINT = "check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY"

FAILURES = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)

# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_NAME, _OTHER_ADDRESS = 62, 64


class AsyncTransport:
    """A pool of connections to one server, for many threads or tasks. One with a `parent` uses that one's."""

    def __init__(self, address: Address, parent: Optional[AsyncTransport] = None) -> None:
        self.address = address
        self._parent = parent
        self._requests = RequestBuilder(address)
        self._pool: Optional[httpcore.AsyncConnectionPool] = None
        self._process = os.getpid()
        self._closed = False
        self._is_lost = False
        self.why_closed = ("the client is closed", "create another one")

    def of_sandbox(self) -> AsyncTransport:
        """Returns a transport with the same connections for a sandbox of the server that listens now.

        It does not go on to another server, which has not this sandbox. At an address that the caller has named, whoever
        answers there may pass requests on to a server that lives.
        """
        if self.address.server or not self.address.autostart or not self.address.socket:
            return self
        server = _server.identity(self.address.socket) or ServerIdentity(0, 0, 0)
        return AsyncTransport(replace(self.address, server=server), self)

    async def _connections(self) -> httpcore.AsyncConnectionPool:
        if self._parent is not None:
            if not self._parent.is_closed:
                self._check_server()
            return await self._parent._connections()
        if self._closed:
            raise RingfenceError(*self.why_closed)
        # After a fork, two processes would read from the same connections.
        if self._pool is None or self._process != os.getpid():
            await self._find_server()
            pool = _pool(self.address)
            if self._pool is None or self._process != os.getpid():
                self._pool, self._process = pool, os.getpid()
            else:
                await pool.aclose()
        elif self._is_lost:
            self._is_lost = False
            await self._find_server()
        return self._pool

    def _check_server(self) -> None:
        """Raises `ServerGone` if another server listens at the socket, or none does."""
        server, path = self.address.server, self.address.socket
        if server and path and _server.identity(path) != server:
            raise ServerGone(*ENDED)

    def has_ended(self) -> bool:
        """Returns `True` if this is the transport of a sandbox whose server has ended."""
        server, path = self.address.server, self.address.socket
        return bool(server and path and not _server.lives(path, server))

    async def _raise_if_ended(self, error: RingfenceError) -> None:
        """Raises `ServerGone` if a request of a sandbox failed because its server has ended."""
        if not isinstance(error, (ServerGone, ServerUnavailable)):
            return
        if not self.address.server:
            # The next request looks for a server again, and may start one.
            self._is_lost = self.address.autostart and isinstance(error, ServerUnavailable)
            return
        # The connections of a server that is killed may end before it does.
        for seconds in (0.0, *PAUSES):
            await asyncio.sleep(seconds)  # async
            # sync: sleep(seconds)
            if self.has_ended():
                raise ServerGone(*ENDED) from error

    async def _find_server(self) -> None:
        if not self.address.socket:
            return
        if self.address.server:
            self._check_server()
            return
        if self.address.autostart:
            await asyncio.to_thread(_server.ensure)  # async
            # sync: _server.ensure()
            return
        private = self.address.socket == default_socket()
        if not check_socket(self.address.socket, private=private):
            raise ServerUnavailable(f"there is no socket {self.address.socket}", "start `ringfence serve`")

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def aclose(self) -> None:
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            await pool.aclose()

    async def send(self, method: str, path: str, **request: Any) -> httpcore.Response:
        """Sends a request, and returns the response before its body is read. The caller closes it.

        It is sent again where that is safe.
        """
        retries, built = _retries(method, request), self._requests.build(method, path, **request)
        while True:
            pool = await self._connections()
            try:
                return await self._attempt(pool, built, method, path)
            except RingfenceError as error:
                await self._pause(retries, error)

    async def json(self, method: str, path: str, *, ends_with_call: bool = False, **request: Any) -> Any:
        """Sends a request, and returns its answer.

        POST has an `Idempotency-Key`, but not where the work `ends_with_call`: what has a key goes on without its caller.
        """
        if method == "POST" and not ends_with_call and "content" not in request:
            request["headers"] = key()
        retries, built = _retries(method, request), self._requests.build(method, path, **request)
        while True:
            pool = await self._connections()
            try:
                body = await _whole(await self._attempt(pool, built, method, path))
                break
            except RingfenceError as error:
                await self._pause(retries, error)
        try:
            return parsed(body)
        except ValueError as error:
            raise IncompatibleServer(f"the answer is not JSON: {error}") from error

    async def _pause(self, retries: Retries, error: RingfenceError) -> None:
        await self._raise_if_ended(error)
        await pause(retries, error)

    async def _attempt(
        self, pool: httpcore.AsyncConnectionPool, request: httpcore.Request, method: str, path: str
    ) -> httpcore.Response:
        try:
            response = await pool.handle_async_request(request)
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise unavailable(self.address, error) from error
        except httpcore.LocalProtocolError as error:
            if "header" not in str(error):
                raise gone(error) from error
            # Nothing was sent. The text of the error may have the key.
            raise RingfenceError("the request has a header that cannot be sent", "check the key and the URL") from None
        except httpcore.ProxyError as error:
            raise RingfenceError(f"the proxy of the environment made no connection: {error}", PROXY_HINT) from error
        except FAILURES as error:
            if is_wrong_scheme(error):
                raise unavailable(self.address, error) from error
            raise gone(error) from error
        if 200 <= response.status < 300:
            return response
        raise refusal(self.address, response, await _whole(response), method, path)

    @asynccontextmanager
    async def bytes(self, method: str, path: str, **request: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        """Sends a request; gives its answer in pieces, and closes the connection in the end."""
        response = await self.send(method, path, **request)
        try:
            yield _explained(self, response)
        finally:
            await _close(response)

    @asynccontextmanager
    async def events(self, method: str, path: str, **request: Any) -> AsyncIterator[AsyncIterator[Event]]:
        """Sends a request, and gives the events of its answer. Leaving it cancels what the request began."""
        request.setdefault("headers", {"accept": EVENTS})
        async with self.bytes(method, path, timeout=SILENCE, **request) as pieces:
            yield _decoded(pieces)


def _pool(address: Address) -> httpcore.AsyncConnectionPool:
    return httpcore.AsyncConnectionPool(
        uds=address.socket,
        proxy=proxy_of(address),
        ssl_context=_authorities() if urlsplit(address.url).scheme == "https" else None,
        # Each stream has a connection; the server bounds them.
        max_connections=None,
        max_keepalive_connections=16,
        keepalive_expiry=30,
        # sync: network_backend=Backend(),
    )


def _authorities() -> ssl.SSLContext:
    """Returns the authorities that the environment names, or those of Mozilla."""
    # At a socket nobody needs it, and it takes milliseconds to import.
    import certifi

    file, directory = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if directory and not file:
        return ssl.create_default_context(capath=directory)
    try:
        return ssl.create_default_context(cafile=file or certifi.where())
    except OSError as error:
        raise RingfenceError(
            f"SSL_CERT_FILE, {file!r}, cannot be used: {error}", "name a file with certificates of authorities (PEM)"
        ) from error


def _retries(method: str, request: Mapping[str, Any]) -> Retries:
    # What pieces come from may be at its end.
    whole = isinstance(request.get("content", b""), bytes)
    return Retries(method, has_key=KEY in request.get("headers", {}), whole=whole)


async def pause(retries: Retries, error: RingfenceError) -> None:
    """Waits until the request may be sent again. Raises if it has failed."""
    seconds = retries.pause(error)
    if seconds is None:
        raise retries.failure(error)
    await asyncio.sleep(seconds)  # async
    # sync: sleep(seconds)


async def _whole(response: httpcore.Response) -> bytes:
    """Reads an answer to its end, and closes it."""
    body = bytearray()
    try:
        async for piece in _pieces(response):
            body += piece
            if len(body) > MAX_ANSWER:
                raise IncompatibleServer(f"the answer is larger than {MAX_ANSWER} bytes")
    finally:
        await _close(response)
    return bytes(body)


async def _close(response: httpcore.Response) -> None:
    """Gives the connection back. A task that is cancelled meanwhile would keep it from the pool for ever."""
    await asyncio.shield(response.aclose())  # async
    # sync: response.close()


async def _pieces(response: httpcore.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in response.aiter_stream():
            yield piece
    except FAILURES as error:
        raise gone(error) from error


async def _explained(transport: AsyncTransport, response: httpcore.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in _pieces(response):
            yield piece
    except ServerGone as error:
        await transport._raise_if_ended(error)
        raise


async def _decoded(pieces: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    decoder = EventDecoder()
    async for piece in pieces:
        for event in decoder.feed(piece):
            if event.name == "error":
                raise of_body(event.data, 200)
            yield event


def unavailable(address: Address, error: Exception) -> ServerUnavailable:
    """Returns the exception for a connection that was not made."""
    cause: Optional[BaseException] = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        hint = "set SSL_CERT_FILE to a file with its authority (PEM)"
        if cause.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
            hint = "use a name that the certificate has"
        return ServerUnavailable(f"the certificate of {address} is not trusted: {cause.verify_message}", hint)
    if is_wrong_scheme(error):
        return ServerUnavailable(*wrong_scheme_message(address))
    hint = "start `ringfence serve`" if address.socket else "check the URL, and that `ringfence serve --listen` runs there"
    if proxy_of(address):
        hint = f"{PROXY_HINT}, and the URL"
    return ServerUnavailable(f"no server answers at {address}: {str(error) or type(error).__name__}", hint)


def gone(error: Exception) -> ServerGone:
    """Returns the exception for a connection that broke."""
    hint = "the server may have ended; what was under way may have been done all the same"
    return ServerGone(f"the connection to the server broke: {str(error) or type(error).__name__}", hint)


def refusal(address: Address, response: httpcore.Response, body: bytes, method: str, path: str) -> RingfenceError:
    try:
        value = parsed(body)
    except ValueError:
        value = None
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    seconds = headers.get(b"retry-after", "")
    error = of_body(
        value,
        response.status,
        request_id=headers.get(b"x-request-id"),
        retry_after=float(seconds) if seconds.isdecimal() else None,
    )
    unknown_path = response.status == 404 and error.hint == "GET /openapi.json lists the paths"
    if unknown_path or response.status == 405:
        base = urlsplit(address.url).path
        why = f"leave {base!r} out of the URL" if base else f"it has another version than this package, {VERSION}: update the older one"
        return IncompatibleServer(f"the server has no route {method} {base}/v1{path}", why)
    if isinstance(error, Unauthenticated):
        return explain_unauthenticated(error, bool(address.api_key))
    return error
