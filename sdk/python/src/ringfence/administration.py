"""Values of keys, their usage, and the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, TypedDict

from .errors import IncompatibleServer
from .models import build


@dataclass(frozen=True)
class Quota:
    """The most that a key may use a day (UTC), and have at a time. `None` is no limit."""

    cpu_seconds: Optional[int] = None
    """Processor time, in seconds."""
    runs: Optional[int] = None
    egress_bytes: Optional[int] = None
    """Bytes sent to hosts and received from them."""
    memory_gib_seconds: Optional[int] = None
    """Memory times the duration of its use, in GiB-seconds."""
    sandboxes: Optional[int] = None
    """Sandboxes at a time, those of all keys of the tenant together."""


@dataclass(frozen=True)
class KeyInfo:
    """A key of the API, without its secret."""

    id: str
    """Its public part, which begins with `rf_`."""
    name: str
    """Its purpose, in the operator's words."""
    rights: List[str]
    """Of `run`, `sandboxes`, `tools`, `approvals` and `admin`."""
    created: int
    """Seconds since 1970."""
    revoked: bool
    quota: Quota
    expires: Optional[int] = None
    """Seconds since 1970; `None` if it does not expire."""
    tenant: Optional[str] = None
    """The tenant whose keys share what they make."""


def key_info(data: Any) -> KeyInfo:
    """Creates a key from the server's answer."""
    return build(KeyInfo, data, quota=build(Quota, _member(data, "quota")))


@dataclass(frozen=True)
class UsageFigures:
    """Sums of what was used."""

    runs: int
    """Programs of runs and batches, calls of tools, and in sandboxes processes and pieces of code, as they begin."""
    cpu_seconds: float
    """Processor time, in seconds. A run whose time nobody measures counts with its duration on all of its processors."""
    memory_gib_seconds: float
    """Memory in use times its duration, in GiB-seconds."""
    egress_bytes: int = 0
    """Bytes that runs and tools sent to hosts and received from them."""


@dataclass(frozen=True)
class KeyUsage:
    """The usage of a key, or of all keys of its tenant together: do not add up those of one tenant."""

    id: str
    """Id of the key; `RINGFENCE_API_KEY` for the one of the server's environment."""
    today: UsageFigures
    """Since midnight (UTC)."""
    total: UsageFigures
    """Since the key, or the first of its tenant's, was made, or since the server's records begin."""
    quota: Quota
    name: Optional[str] = None
    """Its purpose, in the operator's words; `None` for the key of the server's environment."""
    tenant: Optional[str] = None
    sandboxes: int = 0
    """Sandboxes that the key, or its tenant, has now."""


@dataclass(frozen=True)
class UsageReport:
    """The usage of the keys that the caller may see."""

    keys: List[KeyUsage]
    resets_at: str
    """Time at which `today` and the quotas begin anew: the next midnight (UTC, RFC 3339)."""


def usage_report(data: Any) -> UsageReport:
    """Creates a report from the server's answer."""
    return build(UsageReport, data, keys=[_key_usage(each) for each in _member(data, "keys") or []])


def _key_usage(data: Any) -> KeyUsage:
    today, total = (build(UsageFigures, _member(data, name)) for name in ("today", "total"))
    return build(KeyUsage, data, today=today, total=total, quota=build(Quota, _member(data, "quota")))


class AuditRecord(TypedDict, total=False):
    """A record, as the log has it: that of a use has `tool`, another one of the last five members.

    Programs and clients chose names and arguments: do not trust them.
    """

    sequence: int
    time: str
    """RFC 3339 (UTC)."""
    previous: str
    """`hash` of the record before it."""
    hash: str
    """SHA-256 of its line up to here."""
    who: Dict[str, Any]
    """`scope`, `session`, `surface` and `client`, such as the id of a key."""
    tool: str
    """Name of the tool or operation."""
    arguments: Any
    """Without credentials; long texts are cut."""
    arguments_digest: str
    """SHA-256 of the whole arguments."""
    attempts: List[str]
    """Hosts that it tried to reach, with the results."""
    judgement: str
    decision: str
    """`allowed` or `refused`."""
    outcome: str
    """`answered`, `failed`, `cancelled`, or `begun` for a command on the host."""
    error: Optional[str]
    """Type of the error."""
    duration_micros: int
    """Time that the use took, in microseconds."""
    result_digest: Optional[str]
    """SHA-256 of the answer's text, or of a run's captured standard output."""
    answer: Dict[str, Any]
    """An answer that a person gave."""
    refused: Dict[str, Any]
    """A count of refused uses that have no record of their own."""
    removed: Dict[str, Any]
    """The removal of older records: those up to `last`."""
    repair: Dict[str, Any]
    """A line that was cut off because its writer died."""
    damaged: str
    """A line that is no record."""


def audit_records(data: Any) -> List[AuditRecord]:
    """Returns the records of the server's answer."""
    records = _member(data, "records")
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise IncompatibleServer("expected records of the audit log")
    return records


@dataclass(frozen=True)
class AuditBreak:
    """The first break of the log."""

    what: str
    file: Optional[str] = None
    line: Optional[int] = None
    """Number of the line in the file, from 1."""
    sequence: Optional[int] = None
    """Expected sequence number, if it is known."""


@dataclass(frozen=True)
class AuditVerification:
    """Findings of a check of the log. The numbers and `head` are `None` if it is broken."""

    intact: bool
    """`False` if a record was changed or is missing."""
    records: Optional[int] = None
    """Number of records."""
    first: Optional[int] = None
    """Sequence number of the oldest kept record."""
    head: Optional[str] = None
    """The newest record as `SEQUENCE:HASH`. Noted elsewhere, it later shows if records were removed or replaced."""
    removed: Optional[int] = None
    """Sequence number of the newest record that was removed to make room; `None` if none was."""
    counted: Optional[int] = None
    """Number of refused uses that are counted in a common record."""
    repairs: Optional[int] = None
    """Number of records that say that a torn line was cut off."""
    torn_bytes: Optional[int] = None
    """Bytes of a record whose writer died."""
    broken: Optional[AuditBreak] = None
    """`None` if the log is intact."""


def audit_verification(data: Any) -> AuditVerification:
    """Creates findings from the server's answer."""
    broken = _member(data, "broken")
    return build(AuditVerification, data, broken=None if broken is None else build(AuditBreak, broken))


def _member(data: Any, name: str) -> Any:
    return data.get(name) if isinstance(data, dict) else None
