"""Certificates, proxies, and the form of requests."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from ringfence import AsyncClient, Client, RingfenceError, ServerUnavailable
from ringfence._address import Address
from ringfence._async.transport import _close
from ringfence._proxy import proxy_of
from ringfence._request import RequestBuilder

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class _Peer(BaseHTTPRequestHandler):
    """Answers as a server without tools, and refuses tunnels as a proxy."""

    protocol_version = "HTTP/1.1"
    heads: List[str] = []

    def do_GET(self) -> None:
        self.heads.append(f"{self.requestline}\n{self.headers}")
        self.send_response(200)
        self.send_header("content-length", "12")
        self.end_headers()
        self.wfile.write(b'{"tools":[]}')

    def do_CONNECT(self) -> None:
        self.heads.append(f"{self.requestline}\n{self.headers}")
        self.send_error(502)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def peer() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), _Peer)
    _Peer.heads.clear()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the proxies of the environment, and no others."""
    for name in PROXIES:
        for each in (name, name.lower()):
            monkeypatch.delenv(each, raising=False)

    def change(**variables: str) -> None:
        for name in PROXIES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return change


def _list_tools(url: str) -> None:
    with Client(url, api_key="rf_secret") as client:
        assert client.tools() == []


def _list_tools_async(url: str) -> None:
    async def work() -> None:
        async with AsyncClient(url, api_key="rf_secret") as client:
            assert await client.tools() == []

    asyncio.run(work())


@pytest.mark.parametrize("list_tools", [_list_tools, _list_tools_async])
def test_a_certificate_of_ones_own_authority(
    list_tools: Callable[[str], None], peer: HTTPServer, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, authority.with_name("key"))
    peer.socket = context.wrap_socket(peer.socket, server_side=True)
    url = f"https://127.0.0.1:{peer.server_port}"
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    list_tools(url)
    with pytest.raises(ServerUnavailable, match="is not trusted: .*use a name that the certificate has") as error:
        list_tools(f"https://localhost:{peer.server_port}")
    assert "rf_secret" not in str(error.value)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ServerUnavailable, match="is not trusted: self.signed certificate.*set SSL_CERT_FILE"):
        list_tools(url)
    assert len(_Peer.heads) == 1
    for wrong in ("/nowhere.pem", __file__):
        monkeypatch.setenv("SSL_CERT_FILE", wrong)
        with pytest.raises(RingfenceError, match=f"SSL_CERT_FILE, '{wrong}', cannot be used"):
            list_tools(url)


@pytest.mark.parametrize("list_tools", [_list_tools, _list_tools_async])
def test_a_proxy_of_the_environment(
    list_tools: Callable[[str], None], peer: HTTPServer, environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence._retries.PAUSES", ())
    proxy = f"http://user:p%40ss@127.0.0.1:{peer.server_port}"
    environment(ALL_PROXY=proxy)
    with pytest.raises(RingfenceError, match="the proxy of the environment made no connection: 502") as error:
        list_tools("https://sandboxes.invalid")
    assert type(error.value) is RingfenceError
    (head,) = _Peer.heads
    assert head.startswith("CONNECT sandboxes.invalid:443 HTTP/1.1\n")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'user:p@ss').decode()}\n" in head
    # The key is for the server behind the tunnel.
    assert "rf_secret" not in head
    # What is for this machine goes to no other.
    environment(HTTP_PROXY="http://127.0.0.1:1", ALL_PROXY="http://127.0.0.1:1")
    list_tools(f"http://127.0.0.1:{peer.server_port}")
    assert _Peer.heads[1].startswith("GET /v1/tools HTTP/1.1\n")


def test_a_proxy_gets_plain_requests_whole(peer: HTTPServer, environment: Callable[..., None]) -> None:
    environment(HTTP_PROXY=f"127.0.0.1:{peer.server_port}")
    with Client("http://sandboxes.invalid:8080/base", api_key="k", plain_http=True) as client:
        assert client.tools() == []
    (head,) = _Peer.heads
    assert head.startswith("GET http://sandboxes.invalid:8080/base/v1/tools HTTP/1.1\n")
    assert "host: sandboxes.invalid:8080\n" in head.lower()


def test_the_proxy_of_an_address(environment: Callable[..., None]) -> None:
    def check(url: str, expected: str, **variables: str) -> None:
        environment(**variables)
        proxy = proxy_of(Address(url))
        found = proxy and f"{proxy.url.scheme.decode()} {proxy.url.host.decode()} {proxy.url.port}"
        assert (found or "") == expected, (url, variables)

    secure, plain, named = "https://a.invalid", "http://a.invalid:81", "http proxy.invalid 3128"
    proxy = "http://proxy.invalid:3128"
    check(secure, "")
    check(secure, named, HTTPS_PROXY=proxy)
    check(plain, "", HTTPS_PROXY=proxy)
    check(plain, named, HTTP_PROXY=proxy)
    check(plain, "http other.invalid None", HTTP_PROXY="other.invalid", ALL_PROXY=proxy)
    for names in ("*", "b.invalid, *", "a.invalid", ".invalid", "invalid", "b.invalid,a.invalid:81"):
        check(plain, "", HTTP_PROXY=proxy, NO_PROXY=names)
    check(secure, "", HTTPS_PROXY=proxy, NO_PROXY="a.invalid:443")
    for names in ("b.invalid", "a.invalid:82", "xa.invalid"):
        check(plain, named, HTTP_PROXY=proxy, NO_PROXY=names)
    for local in ("http://127.0.0.1:81", "http://localhost", "http://[::1]:81"):
        check(local, "", HTTP_PROXY=proxy, ALL_PROXY=proxy)


@pytest.mark.parametrize("proxy", ["ftp://user:secret@proxy.invalid", "http://user:secret@proxy.invalid:x", "http://:secret@"])
def test_a_proxy_that_is_none_is_refused(proxy: str, environment: Callable[..., None]) -> None:
    environment(HTTPS_PROXY=proxy)
    with Client("https://sandboxes.invalid", api_key="k") as client, pytest.raises(RingfenceError) as error:
        client.tools()
    assert type(error.value) is RingfenceError and "HTTPS_PROXY" in str(error.value) and "secret" not in str(error.value)


def test_a_cancelled_task_gives_its_connection_back() -> None:
    class Response:
        def __init__(self) -> None:
            self.begun, self.may_end, self.closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def aclose(self) -> None:
            self.begun.set()
            await self.may_end.wait()
            self.closed.set()

    async def work() -> None:
        response = Response()
        task = asyncio.create_task(_close(response))  # type: ignore[arg-type]
        await response.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        response.may_end.set()
        await asyncio.wait_for(response.closed.wait(), 60)

    asyncio.run(work())


def test_the_form_of_a_request() -> None:
    def check(url: str, host: bytes, target: bytes, **request: object) -> None:
        built = RequestBuilder(Address(url)).build("POST", "/run", **request)  # type: ignore[arg-type]
        assert (dict(built.headers)[b"host"], built.url.target) == (host, target)

    check("http://localhost", b"localhost", b"/v1/run")
    check("https://A.invalid:443/b c", b"a.invalid", b"/b%20c/v1/run")
    check("http://[::1]:81", b"[::1]:81", b"/v1/run?a=%2F+%26&b=true", params={"a": "/ &", "b": True, "c": None})
    check("https://b\u00fccher.invalid", b"xn--bcher-kva.invalid", b"/v1/run")
    # Not `strasse.invalid`, which may be somebody else's.
    check("https://stra\u00dfe.invalid", b"xn--strae-oqa.invalid", b"/v1/run")
    for url in ("http://127.0.0.1:port", "http://127.0.0.1:65536", f"http://{'a' * 64}.invalid", "http://[::1", "http://\u2105.invalid"):
        with pytest.raises(RingfenceError, match="expected an address"):
            Client(url, api_key="k", plain_http=True)
