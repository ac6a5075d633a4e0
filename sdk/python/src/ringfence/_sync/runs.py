# Written by generate.py from _async: do not change it here.
"""Stored runs."""

from __future__ import annotations

from typing import Optional

from ..models import RunResult, build
from ..operations import RunPage, RunSummary, StoredRun
from .._path import segment
from .transport import Transport


class Runs:
    """Stored runs: all of them at the private socket, those of its tenant for a key with the right `run`.

    A server stores failed ones alone, unless its operator sets SANDBOX_STORE_CODE.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: Optional[int] = None, before: Optional[str] = None) -> RunPage:
        """Returns a page of runs, the newest first: 50, or `limit`, which is 100 at most, and fewer if their records are long.

        `before` is `next` of the page before.
        """
        answer = self._transport.json("GET", "/runs", params={"limit": limit, "before": before})
        return RunPage([build(RunSummary, each) for each in answer.get("runs", [])], answer.get("next"))

    def get(self, run_id: str) -> StoredRun:
        """Returns a run with its code and output, by its id: `meta["artifact"]` of its result. Raises `NotFound` if there is none."""
        answer = self._transport.json("GET", f"/runs/{segment(run_id, 'run_id')}")
        return build(StoredRun, answer, result=build(RunResult, answer.get("result")))
