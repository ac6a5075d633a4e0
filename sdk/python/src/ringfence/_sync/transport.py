# Written by generate.py from _async: do not change it here.
"""Requests to the server, and their errors."""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Iterator, Dict, Mapping, Optional
from urllib.parse import urlsplit

import httpcore

from .. import _server
from .._address import Address, ServerIdentity, check_socket, default_socket
from .._deadline import Backend, sleep
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


class Transport:
    """A pool of connections to one server, for many threads or tasks. One with a `parent` uses that one's."""

    def __init__(self, address: Address, parent: Optional[Transport] = None) -> None:
        self.address = address
        self._parent = parent
        self._requests = RequestBuilder(address)
        self._pool: Optional[httpcore.ConnectionPool] = None
        self._process = os.getpid()
        self._closed = False
        self._is_lost = False
        self.why_closed = ("the client is closed", "create another one")

    def of_sandbox(self) -> Transport:
        """Returns a transport with the same connections for a sandbox of the server that listens now.

        It does not go on to another server, which has not this sandbox. At an address that the caller has named, whoever
        answers there may pass requests on to a server that lives.
        """
        if self.address.server or not self.address.autostart or not self.address.socket:
            return self
        server = _server.identity(self.address.socket) or ServerIdentity(0, 0, 0)
        return Transport(replace(self.address, server=server), self)

    def _connections(self) -> httpcore.ConnectionPool:
        if self._parent is not None:
            if not self._parent.is_closed:
                self._check_server()
            return self._parent._connections()
        if self._closed:
            raise RingfenceError(*self.why_closed)
        # After a fork, two processes would read from the same connections.
        if self._pool is None or self._process != os.getpid():
            self._find_server()
            pool = _pool(self.address)
            if self._pool is None or self._process != os.getpid():
                self._pool, self._process = pool, os.getpid()
            else:
                pool.close()
        elif self._is_lost:
            self._is_lost = False
            self._find_server()
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

    def _raise_if_ended(self, error: RingfenceError) -> None:
        """Raises `ServerGone` if a request of a sandbox failed because its server has ended."""
        if not isinstance(error, (ServerGone, ServerUnavailable)):
            return
        if not self.address.server:
            # The next request looks for a server again, and may start one.
            self._is_lost = self.address.autostart and isinstance(error, ServerUnavailable)
            return
        # The connections of a server that is killed may end before it does.
        for seconds in (0.0, *PAUSES):
            sleep(seconds)
            if self.has_ended():
                raise ServerGone(*ENDED) from error

    def _find_server(self) -> None:
        if not self.address.socket:
            return
        if self.address.server:
            self._check_server()
            return
        if self.address.autostart:
            _server.ensure()
            return
        private = self.address.socket == default_socket()
        if not check_socket(self.address.socket, private=private):
            raise ServerUnavailable(f"there is no socket {self.address.socket}", "start `ringfence serve`")

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.close()

    def send(self, method: str, path: str, **request: Any) -> httpcore.Response:
        """Sends a request, and returns the response before its body is read. The caller closes it.

        It is sent again where that is safe.
        """
        retries, built = _retries(method, request), self._requests.build(method, path, **request)
        while True:
            pool = self._connections()
            try:
                return self._attempt(pool, built, method, path)
            except RingfenceError as error:
                self._pause(retries, error)

    def json(self, method: str, path: str, *, ends_with_call: bool = False, **request: Any) -> Any:
        """Sends a request, and returns its answer.

        POST has an `Idempotency-Key`, but not where the work `ends_with_call`: what has a key goes on without its caller.
        """
        if method == "POST" and not ends_with_call and "content" not in request:
            request["headers"] = key()
        retries, built = _retries(method, request), self._requests.build(method, path, **request)
        while True:
            pool = self._connections()
            try:
                body = _whole(self._attempt(pool, built, method, path))
                break
            except RingfenceError as error:
                self._pause(retries, error)
        try:
            return parsed(body)
        except ValueError as error:
            raise IncompatibleServer(f"the answer is not JSON: {error}") from error

    def _pause(self, retries: Retries, error: RingfenceError) -> None:
        self._raise_if_ended(error)
        pause(retries, error)

    def _attempt(
        self, pool: httpcore.ConnectionPool, request: httpcore.Request, method: str, path: str
    ) -> httpcore.Response:
        try:
            response = pool.handle_request(request)
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
        raise refusal(self.address, response, _whole(response), method, path)

    @contextmanager
    def bytes(self, method: str, path: str, **request: Any) -> Iterator[Iterator[bytes]]:
        """Sends a request; gives its answer in pieces, and closes the connection in the end."""
        response = self.send(method, path, **request)
        try:
            yield _explained(self, response)
        finally:
            _close(response)

    @contextmanager
    def events(self, method: str, path: str, **request: Any) -> Iterator[Iterator[Event]]:
        """Sends a request, and gives the events of its answer. Leaving it cancels what the request began."""
        request.setdefault("headers", {"accept": EVENTS})
        with self.bytes(method, path, timeout=SILENCE, **request) as pieces:
            yield _decoded(pieces)


def _pool(address: Address) -> httpcore.ConnectionPool:
    return httpcore.ConnectionPool(
        uds=address.socket,
        proxy=proxy_of(address),
        ssl_context=_authorities() if urlsplit(address.url).scheme == "https" else None,
        # Each stream has a connection; the server bounds them.
        max_connections=None,
        max_keepalive_connections=16,
        keepalive_expiry=30,
        network_backend=Backend(),
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


def pause(retries: Retries, error: RingfenceError) -> None:
    """Waits until the request may be sent again. Raises if it has failed."""
    seconds = retries.pause(error)
    if seconds is None:
        raise retries.failure(error)
    sleep(seconds)


def _whole(response: httpcore.Response) -> bytes:
    """Reads an answer to its end, and closes it."""
    body = bytearray()
    try:
        for piece in _pieces(response):
            body += piece
            if len(body) > MAX_ANSWER:
                raise IncompatibleServer(f"the answer is larger than {MAX_ANSWER} bytes")
    finally:
        _close(response)
    return bytes(body)


def _close(response: httpcore.Response) -> None:
    """Gives the connection back. A task that is cancelled meanwhile would keep it from the pool for ever."""
    response.close()


def _pieces(response: httpcore.Response) -> Iterator[bytes]:
    try:
        for piece in response.iter_stream():
            yield piece
    except FAILURES as error:
        raise gone(error) from error


def _explained(transport: Transport, response: httpcore.Response) -> Iterator[bytes]:
    try:
        for piece in _pieces(response):
            yield piece
    except ServerGone as error:
        transport._raise_if_ended(error)
        raise


def _decoded(pieces: Iterator[bytes]) -> Iterator[Event]:
    decoder = EventDecoder()
    for piece in pieces:
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
