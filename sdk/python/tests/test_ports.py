"""Ports of sandboxes at addresses of this machine."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
import urllib.request
from typing import Iterator, List

import pytest

from conftest import KEY, Server
from ringfence import _forward
from ringfence import AsyncClient, AsyncSandbox, Client, ForwardedPort, NotFound, RingfenceError, Sandbox

# It echoes, and says when the other side has ended.
ECHO = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 7000))
print("ready", flush=True)
def serve(peer):
    with peer:
        while piece := peer.recv(65536):
            peer.sendall(piece)
        peer.sendall(b"over")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""


@pytest.fixture(params=["socket", "tcp"])
def echo(request: pytest.FixtureRequest, server: Server) -> Iterator[Sandbox]:
    """A sandbox with a program that echoes at its port 7000."""
    connection = {"socket": server.socket} if request.param == "socket" else {"url": server.url, "api_key": KEY}
    with Client(**connection) as client, Sandbox(client=client, ports=True) as sandbox:
        program = sandbox.commands.start(["python3", "-c", ECHO])
        assert next(program.stream()).text == "ready\n"
        yield sandbox


def _connect(address: ForwardedPort) -> socket.socket:
    return socket.create_connection((address.host, address.port), timeout=60)


def _rest(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def test_both_directions_go_on_at_once(echo: Sandbox) -> None:
    with echo.ports.forward(7000) as address:
        assert address.host == "127.0.0.2" and address.url == f"http://127.0.0.2:{address.port}"
        with _connect(address) as one, _connect(address) as two:
            for text in (b"a", b"bc", b"d" * 1000):
                one.sendall(text)
                assert one.recv(len(text), socket.MSG_WAITALL) == text
            two.sendall(b"two")
            one.shutdown(socket.SHUT_WR)
            assert _rest(one) == b"over"
            assert two.recv(3, socket.MSG_WAITALL) == b"two"
        with _connect(address) as large:
            data = bytes(range(256)) * 40_000
            sending = threading.Thread(target=lambda: (large.sendall(data), large.shutdown(socket.SHUT_WR)))
            sending.start()
            assert _rest(large) == data + b"over"
            sending.join()
        with _connect(address) as left:
            left.sendall(b"x")
            assert left.recv(1) == b"x"
    with pytest.raises(ConnectionRefusedError):
        _connect(address)


def test_the_end_of_the_forwarding_ends_connections(echo: Sandbox) -> None:
    with echo.ports.forward(7000) as address:
        connection = _connect(address)
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
    with connection, pytest.raises(ConnectionResetError):
        connection.recv(1)


def test_a_port_where_nothing_listens_says_why(echo: Sandbox) -> None:
    failed: List[RingfenceError] = []
    with echo.ports.forward(7001, on_error=failed.append) as address, _connect(address) as connection:
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert len(failed) == 1 and isinstance(failed[0], NotFound), failed


def test_what_cannot_be_forwarded_is_refused(echo: Sandbox, client: Client) -> None:
    with Sandbox(client=client) as closed:
        with pytest.raises(RingfenceError, match="without ports.*ports=True"), closed.ports.forward(7000):
            pass
    for host in ("127.0.0.1", "0.0.0.0", "localhost", "::1", ""):
        with pytest.raises(RingfenceError, match="address of this machine alone"), echo.ports.forward(7000, host=host):
            pass
    with echo.ports.forward(7000) as address:
        taken = pytest.raises(RingfenceError, match="cannot listen at 127.0.0.2:.*in use")
        with taken, echo.ports.forward(7000, local_port=address.port):
            pass


def test_a_page_of_a_sandbox(client: Client) -> None:
    with Sandbox(client=client, ports=True) as sandbox:
        sandbox.files.write("index.html", "hello")
        program = "import http.server as h; s = h.HTTPServer(('127.0.0.1', 8000), h.SimpleHTTPRequestHandler); print('ready', flush=True); s.serve_forever()"
        assert next(sandbox.commands.start(["python3", "-c", program]).stream()).text == "ready\n"
        with sandbox.ports.forward(8000) as web:
            assert urllib.request.urlopen(web.url).read() == b"hello"


def test_the_same_with_asyncio(server: Server) -> None:
    async def work() -> None:
        async with AsyncClient(socket=server.socket) as client, AsyncSandbox(client=client, ports=True) as sandbox:
            program = await sandbox.commands.start(["python3", "-c", ECHO])
            async for output in program.stream():
                assert output.text == "ready\n"
                break
            failed: List[RingfenceError] = []

            async def note(error: RingfenceError) -> None:
                failed.append(error)

            async with sandbox.ports.forward(7000) as address, sandbox.ports.forward(1, on_error=note) as nothing:
                reader, writer = await asyncio.open_connection(address.host, address.port)
                for text in (b"a", b"bc"):
                    writer.write(text)
                    assert await reader.readexactly(len(text)) == text
                writer.write_eof()
                assert await reader.read() == b"over"
                writer.close()
                reader, writer = await asyncio.open_connection(nothing.host, nothing.port)
                with pytest.raises(ConnectionResetError):
                    await reader.read()
                writer.close()
            assert [type(each) for each in failed] == [NotFound]

    asyncio.run(work())


# Nobody takes the connections.
QUIET = "import socket, time; listener = socket.create_server(('127.0.0.1', 7003)); print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def quiet(client: Client) -> Iterator[Sandbox]:
    """A sandbox with a program that says nothing at its port 7003."""
    with Sandbox(client=client, ports=True) as sandbox:
        assert next(sandbox.commands.start(["python3", "-c", QUIET]).stream()).text == "ready\n"
        yield sandbox


def test_clients_that_have_gone_keep_no_room(quiet: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_forward, "MAX_OPEN", 2)
    monkeypatch.setattr(_forward, "SILENCE", 0.3)
    failed: "queue.Queue[RingfenceError]" = queue.Queue()
    with quiet.ports.forward(7003, on_error=failed.put) as address, _connect(address) as one:
        with _connect(address) as two:
            # The reset may come while it still connects.
            with pytest.raises(ConnectionResetError), _connect(address) as three:
                three.recv(1)
            assert "there are 2 others" in str(failed.get(timeout=60))
            two.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionResetError):
                two.recv(1)
            assert "nothing for 0.3 s" in str(failed.get(timeout=60))
        # There is room again, and who has not ended stays.
        with _connect(address) as four:
            four.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionResetError):
                four.recv(1)
            assert "nothing for 0.3 s" in str(failed.get(timeout=60))
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(1)


def test_the_end_raises_what_on_error_has_raised(quiet: Sandbox) -> None:
    def fail(error: RingfenceError) -> None:
        raise TypeError("of the callback")

    with pytest.raises(TypeError, match="of the callback"):
        with quiet.ports.forward(7001, on_error=fail) as address, _connect(address) as connection:
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
    # Another exception comes before it.
    with pytest.raises(ValueError), quiet.ports.forward(7001, on_error=fail) as address, _connect(address) as connection:
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        raise ValueError


def test_a_reset_does_not_wait_for_on_error(quiet: Sandbox) -> None:
    go_on, waited = threading.Event(), []
    with quiet.ports.forward(7001, on_error=lambda _: waited.append(go_on.wait(60))) as address, _connect(address) as connection:
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        go_on.set()
    assert waited == [True]
