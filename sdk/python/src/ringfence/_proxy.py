"""The proxy that the environment names for a server."""

from __future__ import annotations

import importlib.util
from typing import Optional
from urllib.parse import unquote, urlsplit

import httpcore

from ._address import PORTS, Address, encoded_host
from .errors import RingfenceError

_SCHEMES = ("http", "https", "socks5", "socks5h")


def proxy_of(address: Address) -> Optional[httpcore.Proxy]:
    """Returns the proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, unless NO_PROXY has the server's name.

    A proxy of the environment is for other machines: it would get programs, and reach another loopback.
    """
    parts = urlsplit(address.url)
    if address.is_local or not parts.hostname:
        return None
    # It takes as long to import as a program to run.
    from urllib.request import getproxies

    named = getproxies()
    text = named.get(parts.scheme) or named.get("all")
    site = f"{parts.hostname}:{parts.port or PORTS[parts.scheme]}"
    if not text or _bypassed(parts.hostname, site, named.get("no", "")):
        return None
    return _parsed(text if "://" in text else f"http://{text}")


def _bypassed(host: str, site: str, names: str) -> bool:
    from urllib.request import proxy_bypass

    # urllib knows an asterisk that stands alone.
    return "*" in [each.strip() for each in names.split(",")] or bool(proxy_bypass(site if ":" not in host else host))


def _parsed(text: str) -> httpcore.Proxy:
    # No message shows the text: it may have a password.
    try:
        parts = urlsplit(text)
        host, port = encoded_host(parts.hostname or ""), parts.port
    except ValueError:
        raise RingfenceError("the proxy of the environment is not a URL", "correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY") from None
    if parts.scheme not in _SCHEMES or not host:
        raise RingfenceError(
            f"expected a proxy with one of the schemes {', '.join(_SCHEMES)}, got {parts.scheme!r}",
            "correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY",
        )
    if parts.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        raise RingfenceError("the proxy of the environment speaks SOCKS", "install the package `socksio`")
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    url = httpcore.URL(scheme=parts.scheme.encode(), host=host, port=port, target=b"/")
    return httpcore.Proxy(url, auth and (auth[0].encode(), auth[1].encode()))
