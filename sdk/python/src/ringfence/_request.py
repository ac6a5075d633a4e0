"""Requests to one server, in the form that httpcore sends."""

from __future__ import annotations

import json as jsons
import os
import platform
from datetime import timedelta
from typing import Any, Dict, List, Mapping, Optional, Tuple
from urllib.parse import quote, urlencode, urlsplit

import httpcore

from ._address import PORTS, Address, encoded_host
from ._arguments import path_text
from ._version import VERSION
from .errors import InvalidArguments

AGENT = f"ringfence-python/{VERSION} python/{platform.python_version()}"

CONNECT_TIMEOUT = 10.0


def _plain(value: Any) -> Any:
    """Returns what JSON has for a value that it cannot hold as such."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, os.PathLike):
        return path_text(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON")


_encode = jsons.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain).encode


def _encoded(members: Mapping[str, Any]) -> bytes:
    try:
        return _encode(members).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArguments(f"{_culprit(members)} cannot be sent: {_reason(error)}") from error


def _culprit(members: Mapping[str, Any]) -> str:
    for name, value in members.items():
        try:
            _encode(value).encode()
        except (TypeError, ValueError):
            return f"`{name}`"
    return "an argument"


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "it has half of a surrogate pair, which is no text in UTF-8"
    return "expected a finite number, got NaN or infinity" if "Out of range" in str(error) else str(error)


class RequestBuilder:
    """Encodes requests. What is the same in all of them is encoded once."""

    def __init__(self, address: Address) -> None:
        parts = urlsplit(address.url)
        host = parts.hostname or ""
        try:
            self._port = parts.port
            self._host = encoded_host(host)
        except ValueError as error:
            raise InvalidArguments(f"expected an address such as https://host:8080, got {address.url!r}") from error
        self._scheme = parts.scheme.encode()
        self._prefix = quote(parts.path, safe="/%:@!$&'()*+,;=~") + "/v1"
        site = b"[%b]" % self._host if b":" in self._host else self._host
        if self._port not in (None, PORTS[parts.scheme]):
            site += b":%d" % (self._port or 0)
        self.headers: List[Tuple[bytes, bytes]] = [
            (b"host", site),
            (b"user-agent", AGENT.encode()),
            # Some proxies compress answers that do not forbid it.
            (b"accept-encoding", b"identity"),
        ]
        if address.api_key:
            self.headers.append((b"authorization", b"Bearer " + address.api_key.encode()))

    def build(
        self,
        method: str,
        path: str,
        *,
        params: Optional[Mapping[str, Any]] = None,
        json: Optional[Mapping[str, Any]] = None,
        content: Any = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> httpcore.Request:
        """Encodes a request. Members that are `None` are left out; `timeout` is the silence that breaks its connection."""
        described = {"accept": "*/*", **(headers or {})}
        if json is not None:
            content = _encoded({name: value for name, value in json.items() if value is not None})
            described["content-type"] = "application/json"
        elif content is not None:
            described["content-type"] = "application/octet-stream"
        described.update(_framing(method, content))
        query = urlencode(_texts(params or {}))
        target = f"{self._prefix}{path}?{query}" if query else self._prefix + path
        return httpcore.Request(
            method.encode(),
            httpcore.URL(scheme=self._scheme, host=self._host, port=self._port, target=target.encode()),
            headers=[*self.headers, *((name.encode(), value.encode()) for name, value in described.items())],
            content=content,
            extensions={"timeout": {"connect": CONNECT_TIMEOUT, "read": timeout, "write": timeout, "pool": timeout}},
        )


def _framing(method: str, content: Any) -> Dict[str, str]:
    """Returns the header that says where the body ends."""
    if content is None:
        return {"content-length": "0"} if method in ("POST", "PUT") else {}
    if isinstance(content, bytes):
        return {"content-length": str(len(content))}
    return {"transfer-encoding": "chunked"}


def _texts(params: Mapping[str, Any]) -> Dict[str, str]:
    words = {True: "true", False: "false"}
    return {
        name: words[value] if isinstance(value, bool) else str(value)
        for name, value in params.items()
        if value is not None
    }
