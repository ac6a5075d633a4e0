"""Starts a server of this user if none runs, and keeps it while this process lives.

The server is started with `--while-used FILE`: it ends once no process locks that file. The kernel drops the
lock of a process however it ends, and several processes share one server.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time
from typing import IO, Dict, List, Optional

from ._address import ServerIdentity, check_private, check_socket, default_socket, runtime_directory
from .errors import ServerUnavailable

START = 30.0
"""Seconds until a server must listen."""

_OURS = ("RINGFENCE_API_URL", "RINGFENCE_API_KEY", "RINGFENCE_BIN")

_guard = threading.Lock()
_used: Optional[int] = None
_used_path: Optional[str] = None


def binary() -> str:
    """Returns the path of `ringfence`: that of RINGFENCE_BIN, of this package's wheel, or of PATH."""
    named = os.environ.get("RINGFENCE_BIN")
    if named:
        hint = "set it to the absolute path of `ringfence`"
        if not os.path.isabs(named):
            raise ServerUnavailable(f"expected an absolute path in RINGFENCE_BIN, got {named!r}", hint)
        if not (os.path.isfile(named) and os.access(named, os.X_OK)):
            raise ServerUnavailable(f"there is no program at {named!r}, which RINGFENCE_BIN names", hint)
        return named
    bundled = os.path.join(sysconfig.get_path("scripts"), "ringfence")
    if os.access(bundled, os.X_OK):
        return bundled
    # Relative directories of PATH lead to whatever a project has there.
    path = os.pathsep.join(each for each in os.get_exec_path() if os.path.isabs(each))
    found = shutil.which("ringfence", path=path)
    if found:
        return found
    raise ServerUnavailable(
        "no server runs, and there is no program `ringfence` to start one",
        "install a wheel for this machine, put `ringfence` on PATH, or set RINGFENCE_API_URL",
    )


def own_environment() -> Dict[str, str]:
    """Returns the environment of a `ringfence` that is this user's own."""
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def ensure() -> str:
    """Returns the private socket of a server that listens; starts one if there is none."""
    path, directory = default_socket(), runtime_directory()
    lock = os.path.join(directory, "clients.lock")
    with _guard:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        check_private(directory)
        _use(lock)
        if not _listens(path):
            _start(path, lock)
    return path


def identity(path: str) -> Optional[ServerIdentity]:
    """Returns the identity of the server at a socket. `None`: there is no socket."""
    if not check_socket(path, private=True):
        return None
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return ServerIdentity(found.st_dev, found.st_ino, found.st_mtime_ns)


def lives(path: str, server: ServerIdentity) -> bool:
    """Returns `True` if this server accepts connections at a socket."""
    return identity(path) == server and _listens(path)


def _listens(path: str) -> bool:
    if not check_socket(path, private=True):
        return False
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(path)
        return True
    except OSError as error:
        if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
            return False
        raise ServerUnavailable(f"cannot connect to {path}: {error}") from error
    finally:
        probe.close()


def _use(lock: str) -> None:
    """Holds the shared lock until this process ends. Waits for a server that is just ending."""
    global _used, _used_path
    if _used is not None and _used_path == lock:
        return
    descriptor = _open_lock(lock)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    _used, _used_path = descriptor, lock


def _open_lock(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _start(path: str, lock: str) -> None:
    starting = _open_lock(os.path.join(os.path.dirname(path), "starting.lock"))
    try:
        fcntl.flock(starting, fcntl.LOCK_EX)
        # Another process may have started one meanwhile.
        if not _listens(path):
            _launch([binary(), "serve", "--while-used", lock], path)
    finally:
        os.close(starting)


def _launch(command: List[str], path: str) -> None:
    with tempfile.TemporaryFile() as log:
        try:
            # A session of its own: Ctrl-C is for the program, which may want to clean up. Neither the working
            # directory nor a project's configuration there decide how a server works that others share.
            server = subprocess.Popen(
                command,
                cwd="/",
                env=own_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise ServerUnavailable(f"cannot start {command[0]}: {error}") from error
        # Reaps it whenever it ends.
        threading.Thread(target=server.wait, name="ringfence-server", daemon=True).start()
        deadline = time.monotonic() + START
        while not _listens(path):
            if server.poll() is not None:
                raise ServerUnavailable(f"the server ended at its start: {_tail(log)}")
            if time.monotonic() > deadline:
                server.kill()
                raise ServerUnavailable(f"the server does not listen after {START:.0f} s: {_tail(log)}")
            time.sleep(0.005)


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - 4096))
    return log.read().decode("utf-8", "replace").strip() or "it printed nothing"
