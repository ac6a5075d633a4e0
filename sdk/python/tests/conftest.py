"""A real server for the tests, at a socket and at an address of its own."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from ringfence import Client, Sandbox
from ringfence._server import _listens

BINARY = os.environ["RINGFENCE_BIN"]
KEY = "a fixed key of any form, 0123456789"
DEADLINE = 60_000

needs_box = pytest.mark.skipif(os.geteuid() != 0, reason="`--fence box` needs a server that runs as root")

ASK = "[permissions.tool_limits]\nat_limit = 'ask'\nrun_code_timeout_secs = 0.2\nhard_timeout_secs = 60\n"
"""Configuration of a server that asks at a tool's time limit."""

LONG = "import time; time.sleep(3); print('done')"
"""A program that needs longer than this limit, and ends. Until then, it can be allowed to."""


class World:
    """The directories and variables of a user who has no server yet."""

    def __init__(self, root: Path, config: str = "") -> None:
        self.root = root
        for name in ("run", "state", "config/ringfence", "home"):
            (root / name).mkdir(parents=True, mode=0o700)
        lines = ["[engine]", "listen = '127.0.0.1:0'", "pool_size = 1"]
        if os.environ.get("RINGFENCE_TEST_VENV"):
            lines += ["[sandbox]", f"python = '{os.environ['RINGFENCE_TEST_VENV']}'"]
        (root / "config/ringfence/ringfence.toml").write_text("\n".join(lines) + "\n" + config)
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HOME": str(root / "home"),
            "XDG_RUNTIME_DIR": str(root / "run"),
            "XDG_STATE_HOME": str(root / "state"),
            "XDG_CONFIG_HOME": str(root / "config"),
            "RINGFENCE_BIN": BINARY,
        }
        self.socket = str(root / "run/ringfence/engine.sock")

    def python(self, code: str, **options: Any) -> "subprocess.Popen[str]":
        """Starts a program that uses the package."""
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, env=self.env, text=True, stdout=subprocess.PIPE, cwd=self.root, **options)


class Server(World):
    """A server that somebody started."""

    def __init__(self, root: Path, config: str = "", *arguments: str) -> None:
        super().__init__(root, config)
        self.log = root / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--listen", "127.0.0.1:0", *arguments],
                env={**self.env, "RINGFENCE_API_KEY": KEY},
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        while "API at" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
        line = next(line for line in self.log.read_text().splitlines() if line.startswith("API at"))
        self.url = "http://" + line.split()[-1].removeprefix("http://").rstrip("/")

    def key(self, name: str, *options: str) -> str:
        """Makes a key of the API, as its operator does."""
        command = [BINARY, "keys", "create", name, *options]
        return subprocess.run(command, env=self.env, check=True, capture_output=True, text=True).stdout.strip()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()


def ended(pidfd: int) -> bool:
    """Waits until a process has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(DEADLINE))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Paths of sockets are short.
    server = Server(tmp_path_factory.mktemp("s"))
    yield server
    assert Sandbox.list(socket=server.socket) == [], "a test left a sandbox"
    server.stop()
    assert not _listens_at(server.socket)


def _listens_at(path: str) -> bool:
    return os.path.exists(path) and _listens(path)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    server = Server(tmp_path)
    yield server
    server.process.kill()
    server.process.wait()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(socket=server.socket) as client:
        yield client


@pytest.fixture
def sandbox(client: Client) -> Iterator[Sandbox]:
    with Sandbox(client=client) as sandbox:
        yield sandbox


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A certificate of nobody else's, for 127.0.0.1. Its key is `key` beside it."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=here"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    return tmp_path / "cert"
