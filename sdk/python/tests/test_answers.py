"""Answers of a server that is not to be trusted, as exceptions show them."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Callable, Iterator

import pytest

from ringfence import AsyncClient, Client, IncompatibleServer, RingfenceError
from ringfence._events import EventDecoder, LineDecoder
from ringfence.errors import of_body

DEEP = b"[" * 200_000


class _Peer(HTTPServer):
    status, body = 200, b""


class _Answers(BaseHTTPRequestHandler):
    server: _Peer

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def peer() -> Iterator[_Peer]:
    peer = _Peer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=peer.serve_forever)
    thread.start()
    yield peer
    peer.shutdown()
    thread.join()
    peer.server_close()


def _list_tools(url: str) -> None:
    with Client(url, api_key="k") as client:
        client.tools()


def _list_tools_asynchronously(url: str) -> None:
    async def work() -> None:
        async with AsyncClient(url, api_key="k") as client:
            await client.tools()

    asyncio.run(work())


@pytest.fixture(params=[_list_tools, _list_tools_asynchronously])
def list_tools(request: pytest.FixtureRequest, peer: _Peer) -> Callable[[], Any]:
    return lambda: request.param(f"http://127.0.0.1:{peer.server_address[1]}")


def test_json_of_many_levels_is_no_answer(list_tools: Callable[[], Any], peer: _Peer) -> None:
    for status in (200, 400):
        for body in (DEEP, DEEP + b"]" * len(DEEP)):
            peer.status, peer.body = status, body
            with pytest.raises(IncompatibleServer, match="too many levels" if status == 200 else "not one of Ringfence"):
                list_tools()
    for decode in (lambda: EventDecoder().feed(b"data: " + DEEP + b"\n\n"), lambda: LineDecoder().feed(DEEP + b"\n")):
        with pytest.raises(IncompatibleServer, match="too many levels"):
            list(decode())


def test_a_servers_words_are_one_line_without_control_characters(list_tools: Callable[[], Any], peer: _Peer) -> None:
    text = "a\x1b[2J\r\nb\x7f\x9b\u202e\u2066é"
    peer.status, peer.body = 400, json.dumps({"error": {"type": "busy", "message": text, "hint": text}}).encode()
    with pytest.raises(RingfenceError) as raised:
        list_tools()
    shown = r"a\x1b[2J\r\nb\x7f\x9b\u202e\u2066é"
    assert (raised.value.message, raised.value.hint) == (shown, shown)
    assert str(raised.value) == f"{shown} (hint: {shown})"
    assert str(RingfenceError("two\nlines\x1b")) == "two\nlines\\x1b"


def test_words_that_are_no_text_are_left_out() -> None:
    error = of_body({"error": {"type": "busy", "message": ["x"], "hint": None}}, 400)
    assert (error.message, error.hint, str(error)) == ("", "", "")
