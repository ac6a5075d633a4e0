"""Exceptions. A program that fails is none of them: its result says how it ended."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Type

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that a terminal obeys, that turn or break a line, or that no encoding has."""

_CONTROL_IN_LINES = re.compile(_CONTROL.pattern.replace("\0-\x1f", "\0-\t\x0b-\x1f"))


def escaped(text: str, pattern: "re.Pattern[str]" = _CONTROL) -> str:
    """Returns a text from elsewhere on one line, with escapes such as `\\x1b` for control characters."""
    return pattern.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class RingfenceError(Exception):
    """Base of all exceptions of this package."""

    def __init__(self, message: str, hint: str = "") -> None:
        # Names and other libraries' errors can be anybody's words, too. The log of a server has lines.
        message, hint = escaped(message, _CONTROL_IN_LINES), escaped(hint, _CONTROL_IN_LINES)
        super().__init__(f"{message} (hint: {hint})" if hint else message)
        self.message = message
        self.hint = hint


class ServerUnavailable(RingfenceError):
    """No server answers at the address, or none could be started."""


class ServerGone(RingfenceError):
    """The connection broke before the answer was whole. What was under way may have happened or not."""


class IncompatibleServer(RingfenceError):
    """The server lacks a route that this package uses, or answers in an unknown form: their versions differ."""


class ApiError(RingfenceError):
    """The server refused a request, or failed. `type` is the one that the API documents."""

    type = "unknown"

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        type: Optional[str] = None,
        status: int = 0,
        request_id: Optional[str] = None,
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(message, hint)
        self.type = type or self.type
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after


class InvalidArguments(ApiError, ValueError, TypeError):
    """A mistake in a call: found here before anything was sent (`status` is 0), or by the server."""

    type = "invalid_arguments"


class Unauthenticated(ApiError):
    """There is no key, or it is wrong, expired or revoked."""

    type = "unauthenticated"


class PermissionDenied(ApiError):
    """The key lacks the right, or the operator allows it to no key."""

    type = "permission_denied"


class Blocked(ApiError):
    """A check rejected the program before it started."""

    type = "blocked"


class Rejected(ApiError):
    """A person was asked and said no."""

    type = "rejected"


class NotFound(ApiError):
    """There is no such sandbox, file, process, context or tool."""

    type = "not_found"


class MethodNotAllowed(ApiError):
    type = "method_not_allowed"


class Conflict(ApiError):
    """The state does not allow it: a name is taken, an input closed, a directory not empty."""

    type = "conflict"


class InProgress(Conflict):
    """The first request with this `Idempotency-Key` has not ended."""

    type = "in_progress"


class LimitExceeded(ApiError):
    """A limit of size, number or rate is exceeded."""

    type = "limit_exceeded"


class Busy(ApiError):
    """Others use the capacity; ask again after `retry_after` seconds."""

    type = "busy"


class NotSupported(ApiError):
    """The runtime of the sandbox lacks it."""

    type = "not_supported"


class Cancelled(ApiError):
    """The client, or the end of the server, cancelled it."""

    type = "cancelled"


class InternalError(ApiError):
    """The server failed. The program did not."""

    type = "internal"


class RuntimeUnavailable(ApiError):
    """The runtime cannot run programs now."""

    type = "runtime_unavailable"


class DeadlineExceeded(ApiError):
    """A deadline of the server passed. A program's own time limit is a result."""

    type = "timeout"


class ApprovalTimeout(ApiError):
    """A person was asked and did not answer."""

    type = "approval_timeout"


def _subclasses(base: Type[ApiError]) -> Dict[str, Type[ApiError]]:
    found: Dict[str, Type[ApiError]] = {}
    for kind in base.__subclasses__():
        found.update({kind.type: kind}, **_subclasses(kind))
    return found


BY_TYPE = _subclasses(ApiError)


class CommandFailed(RingfenceError):
    """A command of `run(..., check=True)` ended with another status than 0; `result` has its output."""

    def __init__(self, result: Any) -> None:
        ended = "" if result.outcome == "exited" else f" ({result.outcome})"
        super().__init__(f"the command ended with the status {result.exit_code}{ended}{_last_line(result.stderr)}")
        self.result = result


class StillRunning(RingfenceError, TimeoutError):
    """A process had not ended when `wait(timeout=...)` did. It runs on."""

    def __init__(self, pid: int, seconds: float) -> None:
        super().__init__(f"the process {pid} has not ended within {seconds:g} s", "wait again, or `kill` it")
        self.pid = pid


MAX_LINE = 300
"""Characters of a command's output in a message."""


def _last_line(output: str) -> str:
    """Returns the last line of an output that has text, behind a colon."""
    line = output.rstrip()[-MAX_LINE - 1 :].rpartition("\n")[2].strip()
    # A terminal obeys control characters, and a program that nobody trusts wrote them.
    line = "".join(character if character.isprintable() else "\ufffd" for character in line)
    if not line:
        return ""
    return f": {line}" if len(line) <= MAX_LINE else f": …{line[-MAX_LINE:]}"


_OWN_WORDS = (
    (r"^GET /openapi\.json describes the body$", ""),
    (r'"stdin": true', "stdin=True"),
    (r"`ringfence sandbox resume [^`]*`, or POST \S+/resume", "`sandbox.resume()`"),
    (r"`ringfence sandbox ls`, or GET /v1/sandboxes, lists", "`Sandbox.list()` lists"),
    (r"`--timeout 4h`, or `timeout` of POST /v1/sandboxes", "`timeout`"),
    (r"`ringfence sandbox timeout`, or POST \S+/timeout", "`sandbox.set_timeout()`"),
    (r"GET /v1/approvals lists", "`client.approvals.list()` lists"),
    (r"GET /v1/runs lists", "`client.runs.list()` lists"),
    (r"GET /v1/audit/verify has answered", "`client.audit.verify()` has returned"),
)
"""Parts of hints that speak of HTTP or the command line, and what this package has in their place."""


def _own_hint(hint: str) -> str:
    for pattern, replacement in _OWN_WORDS:
        hint = re.sub(pattern, replacement, hint)
    return hint


def of_body(
    body: Any, status: int, request_id: Optional[str] = None, retry_after: Optional[float] = None
) -> RingfenceError:
    """Returns the exception for an error of the API, `{"error": {"type", "message", "hint"}}`."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("type"), str):
        return IncompatibleServer(
            f"the answer, of the status {status}, is not one of Ringfence",
            "check that the address is a Ringfence server's, and what proxies stand before it",
        )
    kind = error["type"]
    # Callers of functions see no body.
    message = _text(error, "message").removeprefix("the body does not match the schema: ")
    hint = _own_hint(_text(error, "hint"))
    return BY_TYPE.get(kind, ApiError)(
        message,
        hint,
        type=kind,
        status=status,
        request_id=request_id,
        retry_after=retry_after,
    )


def _text(error: Dict[str, Any], name: str) -> str:
    value = error.get(name)
    return escaped(value) if isinstance(value, str) else ""
