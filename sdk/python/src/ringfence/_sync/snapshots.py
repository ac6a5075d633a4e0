# Written by generate.py from _async: do not change it here.
"""Snapshots of sandboxes."""

from __future__ import annotations

from typing import List

from ..models import SnapshotInfo, build
from .._path import segment
from .transport import Transport


class Snapshots:
    """Kept files of sandboxes. `sandbox.snapshot()` makes one, and `Sandbox(snapshot=ID)` begins with its files."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[SnapshotInfo]:
        """Lists the snapshots, the oldest first."""
        answer = self._transport.json("GET", "/snapshots")
        return [build(SnapshotInfo, each) for each in answer.get("snapshots", [])]

    def get(self, snapshot_id: str) -> SnapshotInfo:
        """Returns the snapshot with this id or name. Raises `NotFound` if there is none."""
        return build(SnapshotInfo, self._transport.json("GET", f"/snapshots/{segment(snapshot_id, 'snapshot_id')}"))

    def remove(self, snapshot_id: str) -> None:
        """Removes the snapshot with this id or name; sandboxes that were made of it stay. Raises `NotFound` if there is none."""
        self._transport.json("DELETE", f"/snapshots/{segment(snapshot_id, 'snapshot_id')}")
