"""Refusals that the package explains better than the server, which does not know how it was called."""

from __future__ import annotations

import ssl
from typing import Optional, Tuple
from urllib.parse import urlsplit

import httpcore

from ._address import Address
from .errors import Unauthenticated


def explain_unauthenticated(error: Unauthenticated, has_key: bool) -> Unauthenticated:
    """Distinguishes a missing key from one that the server does not know."""
    message, hint = "the server takes requests with a key alone, and none was given", "pass `api_key=...`, or set RINGFENCE_API_KEY"
    if has_key:
        message = "the server does not know the key: it is wrong, or has expired or been revoked"
        hint = "check `api_key`, or RINGFENCE_API_KEY; `ringfence keys ls` at the server lists the keys"
    return Unauthenticated(message, hint, status=error.status, request_id=error.request_id, retry_after=error.retry_after)


def is_wrong_scheme(error: Optional[BaseException]) -> bool:
    """Returns `True` if one side spoke TLS, and the other did not."""
    while error is not None:
        # A record of TLS begins with a control character, which h11 takes for no line of a client.
        if isinstance(error, httpcore.RemoteProtocolError) and str(error) == "illegal request line":
            return True
        if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
            return True
        error = error.__cause__ or error.__context__
    return False


def wrong_scheme_message(address: Address) -> Tuple[str, str]:
    """Returns the message and the hint for the wrong scheme."""
    parts = urlsplit(address.url)
    if parts.scheme == "http":
        return f"what answers at {address} does not speak plain HTTP", f"use https://{parts.netloc}: it seems to have TLS"
    # Elsewhere the key would go unencrypted to whoever broke the encryption.
    hint = f"use http://{parts.netloc}" if address.is_local else "use the address at which `ringfence serve --tls-cert` or a proxy serves TLS"
    return f"what answers at {address} does not speak TLS", hint
