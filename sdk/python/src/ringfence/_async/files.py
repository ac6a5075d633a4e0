"""Files of a sandbox."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import IO, Any, AsyncIterator, Dict, List, Literal, Optional, Union, overload

from .._arguments import StrPath, number, path_text, size, unexpected
from .._body import AsyncData, async_pieces, sized
from .._events import Event
from .._local import new_file
from .._pack import packed
from .._unpack import MAX_SIZE, new_tree_on_threads  # async
# sync: from .._unpack import MAX_SIZE, new_tree
from ..errors import InvalidArguments, LimitExceeded, NotFound, RingfenceError, ServerGone
from ..models import DownloadedDir, EntryInfo, EntryPage, FileChange, UploadedDir, build
from .transport import AsyncTransport


class AsyncFiles:
    """Reads and writes files with the rights of the sandbox's programs. Paths are absolute, or below /workspace."""

    def __init__(self, transport: AsyncTransport, base: str) -> None:
        self._transport = transport
        self._base = base + "/files"

    async def write(self, path: StrPath, data: AsyncData, *, mode: Optional[int] = None) -> EntryInfo:
        """Stores text, bytes, a file or pieces of text or bytes. Readers see the old content or the new one."""
        content, length = sized(data)
        params = {"path": absolute(path), "size": length, "mode": None if mode is None else f"{number(mode, 'mode'):o}"}
        answer = await self._transport.json("PUT", self._base, params=params, content=async_pieces(content))
        return build(EntryInfo, answer)

    @overload
    async def read(self, path: StrPath, format: Literal["text"] = "text") -> str: ...

    @overload
    async def read(self, path: StrPath, format: Literal["bytes"]) -> bytes: ...

    async def read(self, path: StrPath, format: str = "text") -> Union[str, bytes]:
        """Returns the content as text or, with `format="bytes"`, as bytes. `stream` is for large files."""
        if format not in ("text", "bytes"):
            raise unexpected('"text" or "bytes"', "format", format)
        pieces = []
        async with self.stream(path) as stream:
            async for piece in stream:
                pieces.append(piece)
        content = b"".join(pieces)
        return _text(path, content) if format == "text" else content

    @asynccontextmanager
    async def stream(
        self, path: StrPath, *, offset: int = 0, length: Optional[int] = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Gives the content in pieces: `with sb.files.stream(path) as pieces: ...`."""
        params = {"path": absolute(path), "offset": offset, "length": length}
        async with self._transport.bytes("GET", self._base, params=params) as pieces:
            yield pieces

    async def download(self, path: StrPath, to: Union[StrPath, IO[bytes]]) -> int:
        """Copies the content to a local file, which must not exist, or one that is open. Returns the number of bytes.

        The local file is made once the content is complete.
        """
        if not hasattr(to, "write"):
            to = path_text(to, "to")
        count = 0
        async with self.stream(path) as pieces:
            if isinstance(to, str):
                with new_file(to) as file:
                    async for piece in pieces:
                        count += file.write(piece)
            else:
                async for piece in pieces:
                    to.write(piece)
                    count += len(piece)
        return count

    async def upload_dir(self, source: StrPath, path: StrPath) -> UploadedDir:
        """Copies what a local directory has into a directory, which is made if there is none.

        Links stay links, and no other is followed than `source` itself. FIFOs, sockets and devices are left out. Raises
        `LimitExceeded` if the sandbox has no room; what has arrived stays.
        """
        return build(UploadedDir, await self.extract(path, packed(path_text(source, "source"))))

    async def download_dir(
        self, path: StrPath, to: StrPath, *, max_size: Union[int, str] = MAX_SIZE, include_protected: bool = False
    ) -> DownloadedDir:
        """Copies a directory to a local one, which must not exist.

        The local directory is made once all is there. A sandbox's programs wrote what it has: look at it before a program of yours
        acts on it. Left out, and named, are links that could lead out of it and, without `include_protected`, what programs of this
        machine execute or obey, such as `.git`, `.envrc`, `.vscode` and `__pycache__`. What the sandbox cannot archive is missing: FIFOs,
        sockets, devices, what it may not read, and what is below 128 levels. A file that becomes shorter meanwhile ends in zeros.
        `max_size` bytes come at most.
        """
        to, max_size = path_text(to, "to"), size(max_size, "max_size")
        if (await self.stat(path)).type == "file":
            raise RingfenceError(f"{path} is a file", "use `download`")
        async with self.archive(path) as pieces:
            # sync: with new_tree(to, max_size, include_protected) as tree:
            async with new_tree_on_threads(to, max_size, include_protected) as tree:  # async
                async for piece in pieces:
                    await tree.feed(piece)
        return tree.result

    async def list(self, path: StrPath = "/workspace", *, depth: int = 1) -> List[EntryInfo]:
        """Lists a directory and, with `depth`, those below it, page after page. Raises `LimitExceeded` if there are more levels than a
        list has, or if the server has no pages and more entries than one answer holds."""
        page = await self.list_page(path, depth=depth)
        entries = page.entries
        while page.next is not None:
            page = await self.list_page(path, depth=depth, after=page.next)
            entries += page.entries
        if not page.complete:
            hint = "list it with `commands.run`, such as `find . -maxdepth 1`, or copy it with `download_dir`"
            raise LimitExceeded(
                f"the listing of {path} is not complete with its {len(entries)} entries",
                hint if depth == 1 else "ask for fewer levels",
            )
        return entries

    async def list_page(
        self, path: StrPath = "/workspace", *, depth: int = 1, after: Optional[str] = None
    ) -> EntryPage:
        """Lists a page of a directory, at most 10,000 entries. `after` is `next` of the page before."""
        depth = number(depth, "depth", least=1)
        answer = await self._get("/list", path=absolute(path), depth=depth, after=after)
        entries = [build(EntryInfo, each) for each in answer.get("entries", [])]
        return EntryPage(entries, answer.get("complete", True), answer.get("next"))

    async def stat(self, path: StrPath) -> EntryInfo:
        """Describes a file. A link is not followed."""
        return build(EntryInfo, await self._get("/stat", path=absolute(path)))

    async def exists(self, path: StrPath) -> bool:
        try:
            await self.stat(path)
        except NotFound as error:
            return _unless_sandbox(error)
        return True

    async def make_dir(self, path: StrPath) -> None:
        """Makes a directory, with those above it."""
        await self._post("/mkdir", path=absolute(path))

    async def move(self, old_path: StrPath, new_path: StrPath) -> EntryInfo:
        """Moves a file or a directory."""
        return build(EntryInfo, await self._post("/move", **_from_to(old_path, new_path)))

    async def copy(self, old_path: StrPath, new_path: StrPath) -> None:
        """Copies a file or a directory."""
        await self._post("/copy", **_from_to(old_path, new_path))

    async def remove(self, path: StrPath) -> None:
        """Removes a file, or a directory with everything in it."""
        await self._transport.json("DELETE", self._base, params={"path": absolute(path)})

    @asynccontextmanager
    async def watch(
        self, path: StrPath = "/workspace", *, recursive: bool = False
    ) -> AsyncIterator[AsyncIterator[FileChange]]:
        """Follows changes: `with sb.files.watch(path) as changes: ...`. What happens after the `with` is seen."""
        params = {"path": absolute(path), "recursive": recursive}
        async with self._transport.events("GET", self._base + "/watch", params=params) as events:
            changes = _changes(events)
            # The first one says that it watches.
            async for _ in changes:
                break
            yield changes

    @asynccontextmanager
    async def archive(self, path: StrPath = "/workspace") -> AsyncIterator[AsyncIterator[bytes]]:
        """Gives a tree as a tar archive, in pieces."""
        async with self._transport.bytes("GET", self._base + "/archive", params={"path": absolute(path)}) as pieces:
            yield pieces

    async def extract(self, path: StrPath, archive: AsyncData) -> Dict[str, Any]:
        """Unpacks a tar archive into a directory. Returns what was done and left out."""
        content, _ = sized(archive)
        answer = await self._transport.json(
            "PUT", self._base + "/archive", params={"path": absolute(path)}, content=async_pieces(content)
        )
        return dict(answer)

    async def _get(self, operation: str, **params: Any) -> Any:
        return await self._transport.json("GET", self._base + operation, params=params)

    async def _post(self, operation: str, **body: Any) -> Any:
        return await self._transport.json("POST", self._base + operation, json=body)


class _Changes:
    """Changes of a watched directory; iterating again goes on."""

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events

    def __aiter__(self) -> _Changes:
        return self

    async def __anext__(self) -> FileChange:
        async for event in self._events:
            if event.name == "change":
                return build(FileChange, event.data)
        raise ServerGone("the directory is watched no more: its sandbox or the server has ended")


def _changes(events: AsyncIterator[Event]) -> _Changes:
    return _Changes(events)


def absolute(path: StrPath) -> str:
    """Returns a path as the server takes it: a relative one is below the directory where commands start."""
    path = path_text(path)
    return path if path.startswith("/") else f"/workspace/{path}"


def _text(path: StrPath, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RingfenceError(f"{path} is no text in UTF-8: {error.reason} at {error.start}", 'pass `format="bytes"`') from error


def _from_to(old_path: StrPath, new_path: StrPath) -> Dict[str, str]:
    return {"from": absolute(old_path), "to": absolute(new_path)}


def _unless_sandbox(error: NotFound) -> bool:
    # A sandbox that is gone says nothing about its files.
    if error.message.startswith("no such file or directory"):
        return False
    raise error
