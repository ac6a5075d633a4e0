"""Keys of the API."""

from __future__ import annotations

from typing import List

from .._path import segment
from ..administration import KeyInfo, key_info
from .transport import AsyncTransport


class AsyncKeys:
    """Keys of the API, for the server's own user and keys with the right `admin`. Others get `PermissionDenied`.

    `ringfence keys create` makes one, on the server's machine. To replace a key, make another one of its tenant, and revoke the old one.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[KeyInfo]:
        """Lists the keys, the oldest first, with revoked and expired ones."""
        answer = await self._transport.json("GET", "/keys")
        return [key_info(each) for each in answer.get("keys", [])]

    async def revoke(self, key_id: str) -> None:
        """Revokes a key: it opens nothing any more, and what is open in its name ends within a second.

        Its sandboxes stay. A key that is revoked already stays so. Raises `NotFound` if there is none.
        """
        await self._transport.json("POST", f"/keys/{segment(key_id, 'key_id')}/revoke")

    async def remove(self, key_id: str) -> None:
        """Removes a key that is revoked or has expired and, unless other keys of its tenant are left, its sandboxes, snapshots,
        sessions, stored runs and usage.

        The audit log stays. Raises `Conflict` if the key is in force or requests of it are still running, `NotFound` if there is none.
        """
        await self._transport.json("DELETE", f"/keys/{segment(key_id, 'key_id')}")
