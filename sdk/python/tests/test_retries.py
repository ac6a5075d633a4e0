"""Requests that are sent again: which have a key, and what becomes of a connection that breaks."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

from conftest import Server
from ringfence import AsyncSandbox, Client, RingfenceError, Sandbox, ServerGone, ServerUnavailable, errors
from ringfence._request import RequestBuilder
from ringfence._retries import KEY, Retries
from ringfence._sync import transport

ENDS_WITH_CALL = {"/v1/run", "/v1/tools/{name}", "/v1/sandboxes/{id}/exec", "/v1/sandboxes/{id}/run"}


def test_each_post_has_a_key_that_takes_one(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = client._transport._connections().request("GET", "http://localhost/openapi.json")
    document = json.loads(answer.content)
    takes = {
        path
        for path, item in document["paths"].items()
        if any(each["name"].lower() == KEY for each in item.get("post", {}).get("parameters", []))
    }
    sent: List[Tuple[str, Optional[str]]] = []

    build = RequestBuilder.build

    def record(self: RequestBuilder, method: str, path: str, **request: Any) -> Any:
        if method == "POST":
            sent.append((_template("/v1" + path, document["paths"]), request.get("headers", {}).get(KEY)))
        return build(self, method, path, **request)

    monkeypatch.setattr(RequestBuilder, "build", record)
    with Sandbox(client=client) as sandbox:
        sandbox.set_timeout("10m")
        context = sandbox.contexts.create()
        sandbox.run_code("1", context=context)
        sandbox.contexts.interrupt(context)
        sandbox.commands.run("true")
        pty = sandbox.pty.create(["cat"])
        pty.resize(40, 10)
        pty.send_stdin("\n")
        pty.send_signal("KILL")
        sandbox.files.make_dir("d")
        sandbox.files.move("d", "e")
        sandbox.files.copy("e", "f")
        client.run("print(1)")
        client.call_tool("run_code", code="1")
        list(client.batch(["print(1)"]))
    keyed = {path for path, key in sent if key}
    assert keyed == {path for path, _ in sent} & takes - ENDS_WITH_CALL
    assert ENDS_WITH_CALL < takes and len(keyed) >= 9
    keys = [key for _, key in sent if key]
    assert len(set(keys)) == len(keys)


def _template(path: str, templates: Dict[str, Any]) -> str:
    fits = [each for each in templates if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), path)]
    return min(fits, key=lambda each: each.count("{"))


class Cutter:
    """A relay to a server's socket that lets the server do what the first requests say, and breaks off its answers."""

    def __init__(self, path: str, cuts: int) -> None:
        self.path, self.cuts = path, cuts
        self.heads: List[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            with near, socket.socket(socket.AF_UNIX) as far:
                far.connect(self.path)
                while self._exchange(near, far):
                    pass

    def _exchange(self, near: socket.socket, far: socket.socket) -> bool:
        request = _message(near)
        if not request:
            return False
        self.heads.append(request)
        far.sendall(request)
        answer = _message(far)
        if self.cuts > 0:
            self.cuts -= 1
            return False
        near.sendall(answer)
        return True

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def keys(self) -> List[Optional[str]]:
        found = [re.search(rb"(?im)^" + KEY.encode() + rb": (\S+)", head) for head in self.heads]
        return [each.group(1).decode() if each else None for each in found]


def _message(source: socket.socket) -> bytes:
    data = b""
    while True:
        head, separator, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?im)^content-length: (\d+)", head)
        if separator and len(body) >= int(length.group(1) if length else 0):
            return data
        piece = source.recv(65536)
        if not piece:
            return b""
        data += piece


@pytest.fixture
def cutter(server: Server) -> Iterator[Callable[[int], Cutter]]:
    made: List[Cutter] = []

    def make(cuts: int) -> Cutter:
        made.append(Cutter(server.socket, cuts))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_sandbox_whose_answer_was_lost_is_made_once(cutter: Callable[[int], Cutter], client: Client) -> None:
    cut = cutter(2)
    with Client(cut.url, api_key="k") as broken, Sandbox("once", client=broken, metadata={"made": "once"}) as sandbox:
        assert [each.id for each in Sandbox.list(client=client, metadata={"made": "once"})] == [sandbox.sandbox_id]
    first, second, third, *_ = cut.keys()
    assert first and first == second == third


def test_it_is_the_same_for_asyncio(cutter: Callable[[int], Cutter], client: Client) -> None:
    cut = cutter(1)

    async def work() -> None:
        async with AsyncSandbox(url=cut.url, api_key="k", metadata={"made": "async"}) as sandbox:
            found = await asyncio.to_thread(Sandbox.list, client=client, metadata={"made": "async"})
            assert [each.id for each in found] == [sandbox.sandbox_id]

    asyncio.run(work())
    assert cut.keys()[0] == cut.keys()[1]


def test_a_program_is_not_run_again(cutter: Callable[[int], Cutter], sandbox: Sandbox) -> None:
    cut = cutter(1)
    with Sandbox.connect(sandbox.sandbox_id, url=cutter(1).url, api_key="k") as other:
        assert other.sandbox_id == sandbox.sandbox_id
    with Client(cut.url, api_key="k") as broken:
        with pytest.raises(ServerGone):
            broken.run("print(1)")
    assert cut.keys() == [None]


def test_an_end_that_nobody_knows_is_told(cutter: Callable[[int], Cutter]) -> None:
    cut = cutter(9)
    with Client(cut.url, api_key="k") as broken, pytest.raises(ServerGone):
        broken.tools()
    assert len(cut.heads) == 3


class _Refuses(BaseHTTPRequestHandler):
    """Refuses as often as it is told to, and then answers."""

    refusals: List[Tuple[int, Optional[str]]] = []
    bodies: List[bytes] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        status, after = self.refusals.pop(0) if self.refusals else (200, None)
        error = {"error": {"type": "busy", "message": "m", "hint": "h"}}
        result = {"stdout": "done", "stderr": "", "exit_code": 0, "duration": 0, "meta": {}}
        body = json.dumps(result if status == 200 else error).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if after is not None:
            self.send_header("retry-after", after)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def refuses() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), _Refuses)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    _Refuses.bodies.clear()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> List[float]:
    slept: List[float] = []
    monkeypatch.setattr(transport, "sleep", slept.append)
    return slept


def test_what_the_server_has_no_room_for_is_sent_later(refuses: HTTPServer, pauses: List[float]) -> None:
    with Client(f"http://127.0.0.1:{refuses.server_port}", api_key="k") as client:
        _Refuses.refusals = [(429, "7"), (503, "2")]
        assert client.run("print(1)").stdout == "done"
        assert pauses == [7, 2] and len(set(_Refuses.bodies)) == 1 and len(_Refuses.bodies) == 3
        for refusals, sent in [
            # Too late, without an invitation, and too often.
            ([(429, "31")], 1),
            ([(429, None)], 1),
            ([(500, "1")], 1),
            ([(429, "1")] * 3, 3),
        ]:
            _Refuses.refusals = list(refusals)
            _Refuses.bodies.clear()
            with pytest.raises(errors.Busy):
                client.run("print(1)")
            assert len(_Refuses.bodies) == sent, refusals


def test_a_server_that_does_not_listen_yet_is_asked_again(refuses: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _Refuses.refusals = []
    probe = socket.create_server(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    slept: List[float] = []
    with Client(f"http://127.0.0.1:{port}", api_key="k") as client:
        monkeypatch.setattr(transport, "sleep", slept.append)
        with pytest.raises(ServerUnavailable):
            client.run("print(1)")
        assert len(slept) == 2
        late: List[HTTPServer] = []

        def start(_: float) -> None:
            late.append(HTTPServer(("127.0.0.1", port), _Refuses))
            threading.Thread(target=late[0].handle_request).start()

        monkeypatch.setattr(transport, "sleep", start)
        assert client.run("print(1)").stdout == "done"
        late[0].server_close()


def test_pieces_are_not_sent_again() -> None:
    gone = ServerGone("")
    for method, has_key, whole, again in [
        ("GET", False, True, True),
        ("PUT", False, True, True),
        ("PUT", False, False, False),
        ("POST", True, True, True),
        ("POST", False, True, False),
        # The second one would find nothing, and say so.
        ("DELETE", False, True, False),
    ]:
        retries = Retries(method, has_key=has_key, whole=whole)
        assert (retries.pause(gone) is not None) == again, (method, has_key, whole)


def test_the_first_request_is_waited_for() -> None:
    def refused(type: str, message: str) -> RingfenceError:
        return errors.of_body({"error": {"type": type, "message": message, "hint": "h"}}, 409)

    under_way = refused("in_progress", "it has not ended")
    first = Retries("POST", has_key=True, whole=True)
    assert first.pause(under_way) is None
    lost = ServerGone("lost")
    second = Retries("POST", has_key=True, whole=True)
    assert second.pause(lost) is not None
    waited = 0.0
    while (seconds := second.pause(under_way)) is not None:
        waited += seconds
    assert 25 < waited < 30 and second.failure(under_way) is lost
    # The type alone tells, not the words.
    other = refused("conflict", "the request with this key is being carried out")
    assert second.pause(other) is None and second.failure(other) is other


class OneEvent(Cutter):
    """A relay to a server's socket that breaks off each stream of events after one of them."""

    def _exchange(self, near: socket.socket, far: socket.socket) -> bool:
        request = _message(near)
        if not request:
            return False
        self.heads.append(request)
        far.sendall(request)
        answer = b""
        while b"\n\n" not in answer.partition(b"\r\n\r\n")[2]:
            answer += far.recv(65536)
        near.sendall(answer[: answer.index(b"\n\n", answer.index(b"\r\n\r\n") + 4) + 2])
        return False


def test_output_goes_on_where_a_connection_broke(server: Server, sandbox: Sandbox) -> None:
    process = sandbox.commands.start(r"echo out; echo err >&2; printf 'gr\303'; sleep 0.1; printf '\251'")
    relay = OneEvent(server.socket, 0)
    try:
        with Client(relay.url, api_key="k") as broken:
            process._transport = broken._transport
            result = process.wait()
        assert (result.stdout, result.stderr, result.truncated) == ("out\ngr\u00e9", "err\n", False)
        # Each connection brought one event at most, and the last one the end.
        assert len(relay.heads) >= 3
    finally:
        relay.close()
