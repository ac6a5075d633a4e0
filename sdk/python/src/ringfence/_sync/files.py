# Written by generate.py from _async: do not change it here.
"""Files of a sandbox."""

from __future__ import annotations

from contextlib import contextmanager
from typing import IO, Any, Iterator, Dict, List, Literal, Optional, Union, overload

from .._arguments import StrPath, number, path_text, size, unexpected
from .._body import Data, pieces, sized
from .._events import Event
from .._local import new_file
from .._pack import packed
from .._unpack import MAX_SIZE, new_tree
from ..errors import InvalidArguments, LimitExceeded, NotFound, RingfenceError, ServerGone
from ..models import DownloadedDir, EntryInfo, EntryPage, FileChange, UploadedDir, build
from .transport import Transport


class Files:
    """Reads and writes files with the rights of the sandbox's programs. Paths are absolute, or below /workspace."""

    def __init__(self, transport: Transport, base: str) -> None:
        self._transport = transport
        self._base = base + "/files"

    def write(self, path: StrPath, data: Data, *, mode: Optional[int] = None) -> EntryInfo:
        """Stores text, bytes, a file or pieces of text or bytes. Readers see the old content or the new one."""
        content, length = sized(data)
        params = {"path": absolute(path), "size": length, "mode": None if mode is None else f"{number(mode, 'mode'):o}"}
        answer = self._transport.json("PUT", self._base, params=params, content=pieces(content))
        return build(EntryInfo, answer)

    @overload
    def read(self, path: StrPath, format: Literal["text"] = "text") -> str: ...

    @overload
    def read(self, path: StrPath, format: Literal["bytes"]) -> bytes: ...

    def read(self, path: StrPath, format: str = "text") -> Union[str, bytes]:
        """Returns the content as text or, with `format="bytes"`, as bytes. `stream` is for large files."""
        if format not in ("text", "bytes"):
            raise unexpected('"text" or "bytes"', "format", format)
        pieces = []
        with self.stream(path) as stream:
            for piece in stream:
                pieces.append(piece)
        content = b"".join(pieces)
        return _text(path, content) if format == "text" else content

    @contextmanager
    def stream(
        self, path: StrPath, *, offset: int = 0, length: Optional[int] = None
    ) -> Iterator[Iterator[bytes]]:
        """Gives the content in pieces: `with sb.files.stream(path) as pieces: ...`."""
        params = {"path": absolute(path), "offset": offset, "length": length}
        with self._transport.bytes("GET", self._base, params=params) as pieces:
            yield pieces

    def download(self, path: StrPath, to: Union[StrPath, IO[bytes]]) -> int:
        """Copies the content to a local file, which must not exist, or one that is open. Returns the number of bytes.

        The local file is made once the content is complete.
        """
        if not hasattr(to, "write"):
            to = path_text(to, "to")
        count = 0
        with self.stream(path) as pieces:
            if isinstance(to, str):
                with new_file(to) as file:
                    for piece in pieces:
                        count += file.write(piece)
            else:
                for piece in pieces:
                    to.write(piece)
                    count += len(piece)
        return count

    def upload_dir(self, source: StrPath, path: StrPath) -> UploadedDir:
        """Copies what a local directory has into a directory, which is made if there is none.

        Links stay links, and no other is followed than `source` itself. FIFOs, sockets and devices are left out. Raises
        `LimitExceeded` if the sandbox has no room; what has arrived stays.
        """
        return build(UploadedDir, self.extract(path, packed(path_text(source, "source"))))

    def download_dir(
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
        if (self.stat(path)).type == "file":
            raise RingfenceError(f"{path} is a file", "use `download`")
        with self.archive(path) as pieces:
            with new_tree(to, max_size, include_protected) as tree:
                for piece in pieces:
                    tree.feed(piece)
        return tree.result

    def list(self, path: StrPath = "/workspace", *, depth: int = 1) -> List[EntryInfo]:
        """Lists a directory and, with `depth`, those below it, page after page. Raises `LimitExceeded` if there are more levels than a
        list has, or if the server has no pages and more entries than one answer holds."""
        page = self.list_page(path, depth=depth)
        entries = page.entries
        while page.next is not None:
            page = self.list_page(path, depth=depth, after=page.next)
            entries += page.entries
        if not page.complete:
            hint = "list it with `commands.run`, such as `find . -maxdepth 1`, or copy it with `download_dir`"
            raise LimitExceeded(
                f"the listing of {path} is not complete with its {len(entries)} entries",
                hint if depth == 1 else "ask for fewer levels",
            )
        return entries

    def list_page(
        self, path: StrPath = "/workspace", *, depth: int = 1, after: Optional[str] = None
    ) -> EntryPage:
        """Lists a page of a directory, at most 10,000 entries. `after` is `next` of the page before."""
        depth = number(depth, "depth", least=1)
        answer = self._get("/list", path=absolute(path), depth=depth, after=after)
        entries = [build(EntryInfo, each) for each in answer.get("entries", [])]
        return EntryPage(entries, answer.get("complete", True), answer.get("next"))

    def stat(self, path: StrPath) -> EntryInfo:
        """Describes a file. A link is not followed."""
        return build(EntryInfo, self._get("/stat", path=absolute(path)))

    def exists(self, path: StrPath) -> bool:
        try:
            self.stat(path)
        except NotFound as error:
            return _unless_sandbox(error)
        return True

    def make_dir(self, path: StrPath) -> None:
        """Makes a directory, with those above it."""
        self._post("/mkdir", path=absolute(path))

    def move(self, old_path: StrPath, new_path: StrPath) -> EntryInfo:
        """Moves a file or a directory."""
        return build(EntryInfo, self._post("/move", **_from_to(old_path, new_path)))

    def copy(self, old_path: StrPath, new_path: StrPath) -> None:
        """Copies a file or a directory."""
        self._post("/copy", **_from_to(old_path, new_path))

    def remove(self, path: StrPath) -> None:
        """Removes a file, or a directory with everything in it."""
        self._transport.json("DELETE", self._base, params={"path": absolute(path)})

    @contextmanager
    def watch(
        self, path: StrPath = "/workspace", *, recursive: bool = False
    ) -> Iterator[Iterator[FileChange]]:
        """Follows changes: `with sb.files.watch(path) as changes: ...`. What happens after the `with` is seen."""
        params = {"path": absolute(path), "recursive": recursive}
        with self._transport.events("GET", self._base + "/watch", params=params) as events:
            changes = _changes(events)
            # The first one says that it watches.
            for _ in changes:
                break
            yield changes

    @contextmanager
    def archive(self, path: StrPath = "/workspace") -> Iterator[Iterator[bytes]]:
        """Gives a tree as a tar archive, in pieces."""
        with self._transport.bytes("GET", self._base + "/archive", params={"path": absolute(path)}) as pieces:
            yield pieces

    def extract(self, path: StrPath, archive: Data) -> Dict[str, Any]:
        """Unpacks a tar archive into a directory. Returns what was done and left out."""
        content, _ = sized(archive)
        answer = self._transport.json(
            "PUT", self._base + "/archive", params={"path": absolute(path)}, content=pieces(content)
        )
        return dict(answer)

    def _get(self, operation: str, **params: Any) -> Any:
        return self._transport.json("GET", self._base + operation, params=params)

    def _post(self, operation: str, **body: Any) -> Any:
        return self._transport.json("POST", self._base + operation, json=body)


class _Changes:
    """Changes of a watched directory; iterating again goes on."""

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events

    def __iter__(self) -> _Changes:
        return self

    def __next__(self) -> FileChange:
        for event in self._events:
            if event.name == "change":
                return build(FileChange, event.data)
        raise ServerGone("the directory is watched no more: its sandbox or the server has ended")


def _changes(events: Iterator[Event]) -> _Changes:
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
