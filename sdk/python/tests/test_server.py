"""Servers that die, that are not there, and that the package starts."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Iterator, List

import httpcore
import pytest

from conftest import BINARY, KEY, Server, World, ended
from ringfence import Client, IncompatibleServer, InvalidArguments, RingfenceError, Sandbox, ServerGone, ServerUnavailable
from ringfence import _server

READY = "import time\nprint('ready', flush=True)\ntime.sleep(600)"


def _kill(server: Server) -> None:
    server.process.kill()
    server.process.wait()


def test_a_death_in_mid_stream_has_its_own_exception(own_server: Server) -> None:
    with pytest.raises(ServerGone, match="connection to the server broke: .*hint: the server may have ended"):
        with Sandbox(socket=own_server.socket) as sandbox:
            sandbox.run_code(READY, on_stdout=lambda _: _kill(own_server))
    # Leaving the `with` did not hide it, and the next one says that nobody is there.
    with pytest.raises(ServerUnavailable):
        Sandbox.list(socket=own_server.socket)


def test_a_death_in_other_streams(own_server: Server) -> None:
    sandbox = Sandbox(socket=own_server.socket)
    sandbox.files.write("zeros", bytes(64 << 20))
    handle = sandbox.commands.start("echo ready; exec sleep 600")
    output = handle.stream()
    next(output)
    with sandbox.files.watch() as changes, sandbox.files.stream("zeros") as pieces:
        next(pieces)
        _kill(own_server)
        with pytest.raises(ServerGone):
            next(changes)
        with pytest.raises(ServerGone):
            for _ in pieces:
                pass
    with pytest.raises(ServerGone):
        next(output)
    sandbox.close()


def test_a_death_in_a_batch_and_in_a_call(own_server: Server) -> None:
    client = Client(socket=own_server.socket)
    items = client.batch(["print(1)", "import time; time.sleep(600)"])
    assert next(items).index == 0
    failed: List[BaseException] = []
    asked = threading.Event()

    def call() -> None:
        try:
            asked.set()
            client.run("import time; time.sleep(600)")
        except RingfenceError as error:
            failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    asked.wait()
    _kill(own_server)
    with pytest.raises(ServerGone):
        next(items)
    thread.join()
    assert isinstance(failed[0], (ServerGone, ServerUnavailable))
    client.close()


def test_the_end_of_a_sandbox_ends_its_streams(sandbox: Sandbox) -> None:
    with sandbox.files.watch() as changes:
        handle = sandbox.commands.start("echo ready; exec sleep 600")
        output = handle.stream()
        next(output)
        sandbox.kill()
        with pytest.raises(ServerGone, match="watched no more"):
            next(changes)
        for _ in output:
            pass


def _user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    for name in ("RINGFENCE_API_URL", "RINGFENCE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


USER = """
import os, socket, struct, sys
from ringfence import Sandbox
with Sandbox() as sandbox:
    assert sandbox.run_code("6 * 7").text == "42"
    probe = socket.socket(socket.AF_UNIX)
    probe.connect(os.environ["XDG_RUNTIME_DIR"] + "/ringfence/engine.sock")
    pid, *_ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    print(pid, flush=True)
    sys.stdin.read()
"""


def _pidfd(user: "subprocess.Popen[str]") -> Any:
    assert user.stdout is not None
    pid = int(user.stdout.readline())
    return pid, os.pidfd_open(pid)


@pytest.mark.parametrize("kill", [False, True])
def test_a_server_that_it_started_ends_with_it(tmp_path: Path, kill: bool) -> None:
    world = World(tmp_path)
    user = world.python(USER, stdin=subprocess.PIPE)
    _, server = _pidfd(user)
    if kill:
        user.kill()
    else:
        assert user.stdin is not None
        user.stdin.close()
    user.wait()
    assert ended(server)
    assert not _listening(world)


def test_two_processes_share_a_server_until_both_have_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    one, two = (world.python(USER, stdin=subprocess.PIPE) for _ in range(2))
    (first, server), (second, _) = _pidfd(one), _pidfd(two)
    assert first == second
    for user in (one, two):
        assert _listening(world)
        user.kill()
        user.wait()
    assert ended(server)
    # And there is room for the next.
    three = world.python(USER, stdin=subprocess.PIPE)
    third, server = _pidfd(three)
    assert third != first
    three.kill()
    three.wait()
    assert ended(server)


def test_the_server_of_somebody_else_stays(own_server: Server) -> None:
    user = own_server.python(USER, stdin=subprocess.PIPE)
    pid, _ = _pidfd(user)
    assert pid == own_server.process.pid
    user.kill()
    user.wait()
    assert _listening(own_server)


ENDING = """
import os, signal, socket, struct
from ringfence import Client, RingfenceError, Sandbox

def kill_server(_):
    probe = socket.socket(socket.AF_UNIX)
    probe.connect(os.environ["XDG_RUNTIME_DIR"] + "/ringfence/engine.sock")
    pid, *_ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.kill(pid, signal.SIGKILL)

client = Client()
one, two = Sandbox(), Sandbox(client=client)

def show(call):
    try:
        print(call())
    except RingfenceError as error:
        print(type(error).__name__, error)

show(lambda: one.commands.run("echo; exec sleep 600", on_stdout=kill_server))
show(one.get_info)
show(lambda: two.commands.run("true"))
with Sandbox(client=client) as three:
    show(lambda: three.run_code("6 * 7").text)
    show(lambda: one.files.read("a"))
    show(two.fork)
    one.close()
    show(lambda: [one.kill(), two.is_running()])
"""


def test_a_sandbox_is_not_moved_to_another_server(tmp_path: Path) -> None:
    user = World(tmp_path).python(ENDING)
    out, _ = user.communicate()
    gone = "ServerGone the server has ended, and its sandboxes with it (hint: create another one)"
    assert out.splitlines() == [gone, gone, gone, "42", gone, gone, "[False, False]"]


def test_ctrl_c_reaches_the_program_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    # The line tells that an interrupt is expected from then on.
    wait = "    print(pid, flush=True)\n    sys.stdin.read()\n"
    assert wait in USER
    caught = "    try:\n    " + wait.replace("\n    ", "\n        ") + (
        "    except KeyboardInterrupt:\n        print(sandbox.run_code('1').text)\n"
    )
    code = USER.replace(wait, caught)
    user = world.python(code, stdin=subprocess.PIPE, start_new_session=True)
    _, server = _pidfd(user)
    os.killpg(user.pid, signal.SIGINT)
    out, _ = user.communicate()
    assert out == "1\n" and user.returncode == 0
    assert ended(server)


def _listening(world: World) -> bool:
    probe = socket.socket(socket.AF_UNIX)
    try:
        probe.connect(world.socket)
    except OSError:
        return False
    finally:
        probe.close()
    return True


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    _user(world, monkeypatch)
    (tmp_path / "config/ringfence/ringfence.toml").write_text("[sandbox]\ntimeout = 'never'\n")
    with pytest.raises(ServerUnavailable, match="(?s)ended at its start.*timeout"):
        Sandbox()


def test_the_program_is_looked_for_in_safe_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "ringfence"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_server.sysconfig, "get_path", lambda _: "/nowhere")
    monkeypatch.delenv("RINGFENCE_BIN")
    monkeypatch.setenv("PATH", f"{tmp_path}")
    assert _server.binary() == str(script)
    # What a project has in the working directory is not found by a relative path.
    for path in ("", ".", "./"):
        monkeypatch.setenv("PATH", path + ":/nowhere")
        with pytest.raises(ServerUnavailable, match="no program"):
            _server.binary()
    monkeypatch.setenv("RINGFENCE_BIN", "ringfence")
    with pytest.raises(ServerUnavailable, match="absolute"):
        _server.binary()
    for named in ("/nope", str(tmp_path)):
        monkeypatch.setenv("RINGFENCE_BIN", named)
        with pytest.raises(ServerUnavailable, match=f"no program at '{named}'"):
            _server.binary()
    monkeypatch.setenv("RINGFENCE_BIN", BINARY)
    assert _server.binary() == BINARY


def test_a_socket_that_another_could_have_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_server: Server
) -> None:
    _user(own_server, monkeypatch)
    assert Sandbox.list() == []
    directory = Path(own_server.socket).parent
    directory.chmod(0o755)
    with pytest.raises(ServerUnavailable, match="others may enter"):
        Sandbox.list()
    directory.chmod(0o700)
    moved = directory.rename(directory.with_name("moved"))
    directory.symlink_to(moved)
    with pytest.raises(ServerUnavailable, match="not a directory"):
        Sandbox.list()
    directory.unlink()
    moved.rename(directory)
    if os.getuid() == 0:
        os.chown(own_server.socket, 1234, 1234)
        for options in ({}, {"socket": own_server.socket}):
            with pytest.raises(ServerUnavailable, match="belongs to user 1234"):
                Sandbox.list(**options)
        os.chown(own_server.socket, 0, 0)
    assert Sandbox.list() == []


def test_addresses_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RINGFENCE_API_URL", "RINGFENCE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for options, why in [
        ({"url": "http://sandboxes.invalid:8080", "api_key": "k"}, "unencrypted"),
        ({"url": "http://user:key@127.0.0.1:1"}, "key in an address"),
        ({"url": "ftp://127.0.0.1"}, "expected an address"),
        ({"url": "http://127.0.0.1:1", "socket": "/s"}, "exclude"),
        ({"socket": "/s", "api_key": "k"}, "no use"),
    ]:
        with pytest.raises(RingfenceError, match=why):
            Client(**options)  # type: ignore[arg-type]
    with pytest.raises(ServerUnavailable):
        Client("http://127.0.0.1:1", api_key="k").tools()
    with pytest.raises(ServerUnavailable, match="no socket"):
        Client(socket="/nowhere/engine.sock").tools()
    Client("http://sandboxes.invalid:8080", api_key="k", plain_http=True).close()


def test_a_key_from_a_file_is_the_key(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RINGFENCE_API_KEY", raising=False)
    (tmp_path / "key").write_text(f" {KEY}\r\n")
    for options in ({"api_key": (tmp_path / "key").read_text()}, {}):
        assert Sandbox.list(url=server.url, **options) == []
        monkeypatch.setenv("RINGFENCE_API_KEY", f"{KEY}\n")


@pytest.mark.parametrize("key", ["rf_sec\nret", "rf_secret\x00x", "rf_secr\u00e9t", b"rf_secret", "rf_secret\x7f\n"])
def test_a_key_that_no_header_holds_is_refused_at_once(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any, **options: Any) -> None:
        with pytest.raises(RingfenceError, match="api_key|RINGFENCE_API_KEY") as error:
            Client("http://127.0.0.1:1", *arguments, **options)
        assert type(error.value) is InvalidArguments
        assert "sec" not in "".join(traceback.format_exception(type(error.value), error.value, None))

    refused(api_key=key)
    if isinstance(key, str) and "\x00" not in key:
        monkeypatch.setenv("RINGFENCE_API_KEY", key)
        refused()


def test_a_header_that_cannot_be_sent_is_no_broken_connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: List[float] = []
    monkeypatch.setattr("ringfence._sync.transport.sleep", slept.append)
    with Client(server.url, api_key=KEY) as client:
        client._transport._requests.headers.append((b"authorization", b"Bearer rf_secret\n"))
        with pytest.raises(RingfenceError) as error:
            client.tools()
    assert not isinstance(error.value, ServerGone) and "secret" not in str(error.value) and slept == []


def test_an_address_without_a_server_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable) as error:
        Client("http://127.0.0.1:1", api_key="k").tools()
    assert str(error.value).startswith("no server answers at http://127.0.0.1:1: ") and "--listen" in error.value.hint
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.close()
    with pytest.raises(ServerUnavailable, match=f"at {tmp_path / 's'}: .*hint: start `ringfence serve`"):
        Client(socket=str(tmp_path / "s")).tools()


@pytest.mark.parametrize(("code", "hint"), [(18, "SSL_CERT_FILE"), (62, "name"), (64, "name")])
def test_a_certificate_that_is_not_trusted_is_named(code: int, hint: str) -> None:
    refused = ssl.SSLCertVerificationError(1, "certificate verify failed")
    refused.verify_code, refused.verify_message = code, "self-signed"

    class Refusing(httpcore.ConnectionPool):
        def handle_request(self, request: httpcore.Request) -> httpcore.Response:
            # As httpcore raises it.
            raise httpcore.ConnectError(str(refused)) from refused

    with Client("https://127.0.0.1:1", api_key="k") as client:
        client._transport._pool = Refusing()
        with pytest.raises(ServerUnavailable, match="certificate of https://127.0.0.1:1 is not trusted: self-signed") as error:
            client.tools()
    assert hint in error.value.hint


class _Stranger(BaseHTTPRequestHandler):
    """A server of another version, or none of ours."""

    answer = (200, "application/json", b"{}")
    agents: List[str] = []

    def do_GET(self) -> None:
        self.agents.append(self.headers["user-agent"])
        status, media, body = self.answer
        self.send_response(status)
        self.send_header("content-type", media)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            pass

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_other_versions(stranger: str) -> None:
    sandbox = {
        "id": "a", "runtime": "local", "state": "dreaming", "created_at": "", "expires_at": "", "new": {"in": ["2028"]},
    }
    with Client(stranger, api_key="k") as client:
        _Stranger.answer = (200, "application/json", json.dumps({"sandboxes": [sandbox], "next": 1}).encode())
        (info,) = Sandbox.list(client=client)
        assert (info.id, info.state) == ("a", "dreaming")
        del sandbox["runtime"]
        _Stranger.answer = (200, "application/json", json.dumps({"sandboxes": [sandbox]}).encode())
        with pytest.raises(IncompatibleServer, match="runtime"):
            Sandbox.list(client=client)
        error = {"error": {"type": "too_tired", "message": "m", "hint": "h", "more": 1}}
        _Stranger.answer = (418, "application/json", json.dumps(error).encode())
        with pytest.raises(RingfenceError) as refused:
            Sandbox.list(client=client)
        assert getattr(refused.value, "type") == "too_tired"
        for answer in [(200, "text/html", b"<html>"), (502, "text/html", b"<html>"), (404, "application/json", b"[]")]:
            _Stranger.answer = answer
            with pytest.raises(IncompatibleServer):
                Sandbox.list(client=client)
        _Stranger.answer = (200, "application/json", b" " * (65 << 20))
        with pytest.raises(IncompatibleServer, match="larger"):
            Sandbox.list(client=client)
    assert all(agent.startswith("ringfence-python/0.1.0 ") for agent in _Stranger.agents)
