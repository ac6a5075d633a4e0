"""Images of which sandboxes can be made."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

from .._arguments import check_callbacks
from ..errors import ServerGone
from ..models import build
from ..operations import ImageInfo, PulledImage, PullProgress
from .callbacks import called
from .transport import AsyncTransport


class AsyncImages:
    """Images of the server, for its own user and keys with the right `admin`. Others get `PermissionDenied`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[ImageInfo]:
        """Lists the images, by their first reference."""
        answer = await self._transport.json("GET", "/images")
        return [build(ImageInfo, each) for each in answer.get("images", [])]

    async def pull(
        self, reference: str, *, on_progress: Optional[Callable[[PullProgress], Any]] = None
    ) -> PulledImage:
        """Pulls an image from its registry, by a reference as `docker pull` takes it. Cancelling the call cancels the pull.

        `on_progress` is called at each percent of a layer. Raises `InvalidArguments` if the registry has no such image, or it is
        none, `Busy` while two others are being pulled, `LimitExceeded` if there is no room.
        """
        check_callbacks(on_progress=on_progress)
        async with self._transport.events("POST", "/images", json={"reference": reference}) as events:
            async for event in events:
                if event.name == "progress" and on_progress is not None:
                    await called(on_progress, build(PullProgress, event.data))
                elif event.name == "result":
                    return build(PulledImage, event.data, image=build(ImageInfo, event.data.get("image")))
        raise ServerGone("the stream of events ended before the pull")

    async def remove(self, image: str) -> str:
        """Removes a reference or, by a digest, all references of an image.

        Returns what becomes of its files: `removed`, `still_named` by another reference, or `in_use` by a sandbox or run, after
        which they go. Raises `NotFound` if there is no such image.
        """
        answer = await self._transport.json("DELETE", "/images", params={"image": image})
        return str(answer.get("files", ""))
