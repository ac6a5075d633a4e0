"""The address of the server: a URL with a key, or a private socket."""

from __future__ import annotations

import ipaddress
import os
import stat
import sys
import warnings
from dataclasses import dataclass
from typing import NamedTuple, Optional
from urllib.parse import urlsplit

from ._arguments import StrPath, path_text
from .errors import InvalidArguments, ServerUnavailable

PORTS = {"http": 80, "https": 443}


class ServerIdentity(NamedTuple):
    """The socket that a server has made: another server makes another one at the same path."""

    device: int
    inode: int
    modified: int


@dataclass(frozen=True)
class Address:
    url: str
    api_key: Optional[str] = None
    socket: Optional[str] = None
    autostart: bool = False
    server: Optional[ServerIdentity] = None
    """The only server that may answer at the socket."""

    @property
    def is_local(self) -> bool:
        return self.socket is not None or _is_loopback(urlsplit(self.url).hostname)

    def __str__(self) -> str:
        return self.socket or self.url

    def __repr__(self) -> str:
        # The key appears in no message.
        return f"Address({str(self)!r})"


def resolve(
    url: Optional[str], api_key: Optional[str], socket: Optional[StrPath], autostart: bool, plain_http: bool
) -> Address:
    """Returns the address that the caller names, else the environment, else this user's private socket."""
    if url and socket:
        raise InvalidArguments("`url` and `socket` exclude each other", "pass one of them")
    socket = path_text(socket, "socket") if socket else None
    if not url and not socket:
        url = os.environ.get("RINGFENCE_API_URL") or None
    if url:
        key = _key(api_key, "`api_key`")
        if api_key is not None and key is None:
            raise InvalidArguments("`api_key` is empty", "pass a key, or leave it out for that of RINGFENCE_API_KEY")
        _check_url(url, plain_http)
        return Address(_base(url), key or _key(os.environ.get("RINGFENCE_API_KEY"), "RINGFENCE_API_KEY"))
    if api_key is not None:
        raise InvalidArguments("a key has no use at a socket", "pass `url`, or set RINGFENCE_API_URL, too")
    if not socket and os.environ.get("RINGFENCE_API_KEY"):
        warnings.warn(
            "RINGFENCE_API_KEY is not used: no URL is given, so that the server is this user's own (set RINGFENCE_API_URL)",
            stacklevel=_level_outside(),
        )
    return Address("http://localhost", None, socket or default_socket(), autostart and not socket)


def _level_outside() -> int:
    """Returns the `stacklevel` with which a warning of the caller names the line that called the package."""
    package, frame, level = os.path.join(os.path.dirname(__file__), ""), sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    return level


def _base(url: str) -> str:
    """Returns the address of a server without the beginning of its routes, which each request adds."""
    url = url.rstrip("/")
    return url[: -len("/v1")].rstrip("/") if url.endswith("/v1") else url


def _key(given: Optional[str], source: str) -> Optional[str]:
    """Returns a key without the white space around it, such as the last newline of a file. No message shows the key."""
    if given is not None and not isinstance(given, str):
        raise InvalidArguments(f"expected a text for {source}, got {type(given).__name__}")
    key = (given or "").strip()
    if not all(" " <= character <= "~" for character in key):
        raise InvalidArguments(
            f"{source} has a character that the header of a request cannot hold",
            "pass the key alone, on one line, as `ringfence keys create` printed it",
        )
    return key or None


def encoded_host(host: str) -> bytes:
    """Encodes a host's name by IDNA 2008. Raises `ValueError` for what cannot be one.

    Python's own codec has IDNA 2003, which makes `strasse` of `straße`: the key would go to another host.
    """
    if host.isascii():
        return host.encode("ascii" if ":" in host else "idna")
    import idna

    return idna.encode(host)


def _check_url(url: str, plain_http: bool) -> None:
    try:
        if not isinstance(url, str):
            raise ValueError
        parts = urlsplit(url)
    except ValueError:
        raise InvalidArguments(f"expected an address such as https://host:8080, got {url!r}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArguments(f"expected an address such as https://host:8080, got {url!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidArguments("a key in an address is not used", "pass `api_key`, or set RINGFENCE_API_KEY")
    if parts.scheme == "http" and not plain_http and not _is_loopback(parts.hostname):
        raise InvalidArguments(
            f"{parts.hostname} would get the key and programs unencrypted",
            "use https, or pass `plain_http=True` for a network that you trust",
        )


def _is_loopback(host: Optional[str]) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def runtime_directory() -> str:
    """Returns the directory of the server's sockets, as `ringfence serve` finds it."""
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(named):
        return os.path.join(named, "ringfence")
    uid = os.getuid()
    customary = f"/run/user/{uid}"
    try:
        found = os.stat(customary)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == uid:
            return os.path.join(customary, "ringfence")
    except OSError:
        pass
    return f"/tmp/ringfence-{uid}"


def default_socket() -> str:
    return os.path.join(runtime_directory(), "engine.sock")


def check_private(directory: str) -> None:
    """Checks that a directory is not a link, ours, and closed to others: anybody may make one in /tmp."""
    found = os.lstat(directory)
    why = None
    if not stat.S_ISDIR(found.st_mode):
        why = "it is not a directory"
    elif found.st_uid != os.getuid():
        why = f"it belongs to user {found.st_uid}"
    elif found.st_mode & 0o077:
        why = f"others may enter it (mode {found.st_mode & 0o777:o})"
    if why:
        raise ServerUnavailable(
            f"cannot use the directory {directory}: {why}", "remove it, or set XDG_RUNTIME_DIR to one of your own"
        )


def check_socket(path: str, *, private: bool) -> bool:
    """Returns `True` if there is a socket. Raises if somebody else could have put it there."""
    try:
        if private:
            check_private(os.path.dirname(path))
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode):
        raise ServerUnavailable(f"{path} is not a socket")
    if found.st_uid != os.getuid():
        raise ServerUnavailable(
            f"the socket {path} belongs to user {found.st_uid}", "a server of your own user has one that is yours"
        )
    return True
