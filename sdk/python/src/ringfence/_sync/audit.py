# Written by generate.py from _async: do not change it here.
"""The audit log."""

from __future__ import annotations

from typing import List, Optional

from ..administration import AuditRecord, AuditVerification, audit_records, audit_verification
from .transport import Transport


class Audit:
    """The audit log, for the server's own user and keys with the right `admin`. Others get `PermissionDenied`.

    With `host`, it is the log of commands on the host and of people's answers.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        limit: Optional[int] = None,
        tenant: Optional[str] = None,
        client: Optional[str] = None,
        tool: Optional[str] = None,
        outcome: Optional[str] = None,
        host: bool = False,
    ) -> List[AuditRecord]:
        """Returns the newest records, the newest first: 100, or `limit`, which is 1000 at most.

        `tenant`, `client` (the id of a key), `tool` and `outcome` choose among the newest 1000.
        """
        params = {"limit": limit, "tenant": tenant, "client": client, "tool": tool, "outcome": outcome, "host": host}
        return audit_records(self._transport.json("GET", "/audit", params=params))

    def verify(self, *, head: Optional[str] = None, host: bool = False) -> AuditVerification:
        """Checks every record, and that none is missing. A broken log raises nothing: `intact` says so.

        `head` is one that an earlier check returned, and must still be in the log.
        """
        answer = self._transport.json("GET", "/audit/verify", params={"head": head, "host": host})
        return audit_verification(answer)
