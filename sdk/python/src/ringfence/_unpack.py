"""Unpacks a directory of a sandbox from its tar archive.

What comes out of a sandbox is hostile. It is unpacked into a new directory where nothing is but what came before: directories and
files by plain names first, links at the end, so that no name leads anywhere else. Links that could lead out of the tree are left out,
and so is what programs of this machine execute or obey.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import stat
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from tarfile import BLOCKSIZE
from typing import AsyncIterator, BinaryIO, Dict, Iterator, List, Optional, Set, Tuple

from ._local import _exists
from ._protection import Protection
from .errors import IncompatibleServer, RingfenceError, ServerGone
from .models import DownloadedDir

MAX_SIZE = 4 << 30
"""Bytes that come out of a sandbox, unless others are allowed: a hole of a terabyte costs it nothing."""

MAX_ENTRIES = 1_000_000
MAX_DEPTH = 256
MAX_EXTENDED = 16 << 10

KINDS = (b"0", b"1", b"2", b"5")
"""Types of members: files, hard links, symbolic links, directories."""


@contextmanager
def new_tree(path: str, max_size: int, include_protected: bool = False) -> Iterator[_NewTree]:
    """Makes a directory that must not exist of what is fed. It has its name once it is complete: an error leaves nothing."""
    tree = _NewTree(path, max_size, include_protected)
    try:
        tree.begin()
        yield tree
        tree.publish()
    except BaseException:
        tree.discard()
        raise


@asynccontextmanager
async def new_tree_on_threads(
    path: str, max_size: int, include_protected: bool = False
) -> AsyncIterator[_NewTreeOnThreads]:
    """Does the same, and holds up no event loop."""
    tree = _NewTree(path, max_size, include_protected)
    try:
        await asyncio.to_thread(tree.begin)
        yield _NewTreeOnThreads(tree)
        await asyncio.to_thread(tree.publish)
    except BaseException:
        # A task that is cancelled again would leave it.
        await asyncio.shield(asyncio.to_thread(tree.discard))
        raise


class _NewTree:
    """A directory that is being made. A cancelled task's thread may be at work in it when it is discarded: there is a lock."""

    def __init__(self, path: str, max_size: int, include_protected: bool) -> None:
        self._path = os.path.abspath(path)
        self._temporary = os.path.join(os.path.dirname(self._path), f".ringfence-{secrets.token_hex(8)}")
        self._unpacker = Unpacker(self._temporary, max_size, include_protected)
        self._lock = threading.Lock()
        self._is_made = self._is_over = False

    def begin(self) -> None:
        with self._lock:
            if os.path.lexists(self._path):
                raise _exists(self._path)
            if not self._is_over:
                os.mkdir(self._temporary, 0o700)
                self._is_made = True

    def feed(self, piece: bytes) -> None:
        with self._lock:
            if not self._is_over:
                self._unpacker.feed(piece)

    def publish(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._unpacker.finish()
            _publish(self._temporary, self._path)
            self._is_made, self._is_over = False, True
            self._unpacker.restrict(self._path)

    def discard(self) -> None:
        with self._lock:
            self._is_over = True
            self._unpacker.close()
            if self._is_made:
                shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def result(self) -> DownloadedDir:
        return self._unpacker.result


class _NewTreeOnThreads:
    def __init__(self, tree: _NewTree) -> None:
        self._tree = tree

    async def feed(self, piece: bytes) -> None:
        await asyncio.to_thread(self._tree.feed, piece)

    @property
    def result(self) -> DownloadedDir:
        return self._tree.result


def _publish(temporary: str, path: str) -> None:
    # A rename replaces an empty directory, and nothing else that has appeared meanwhile.
    os.mkdir(path)
    try:
        os.chmod(temporary, stat.S_IMODE(os.lstat(path).st_mode))
        os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.rmdir(path)
        raise


class Unpacker:
    """Reads the form of tar that sandboxes write, from pieces of any size."""

    def __init__(self, root: str, max_size: int, include_protected: bool = False) -> None:
        self._root = os.fsencode(root)
        self._allowed = max_size
        self._counted = 0
        self._pending = bytearray()
        self._left = 0
        self._padding = 0
        self._file: Optional[BinaryIO] = None
        self._modified = 0
        self._records: Optional[bytearray] = None
        self._extended: Dict[bytes, bytes] = {}
        # Links are made last, through those made before: their parents must be directories of the archive, as all parents.
        self._directories: Set[bytes] = {b""}
        self._links: List[Tuple[List[bytes], bytes]] = []
        self._modes: List[Tuple[List[bytes], int]] = []
        self._protection = None if include_protected else Protection()
        # With all below: hard links elsewhere lead there, too.
        self._skipped: Set[bytes] = set()
        self._protected: List[str] = []
        self._over = False
        self.result = DownloadedDir()
        self._seen = self._entries = self._bytes = 0

    def feed(self, piece: bytes) -> None:
        self._pending += piece
        view = 0
        while True:
            if self._left:
                content = bytes(self._pending[view : view + self._left])
                if not content:
                    break
                view += len(content)
                self._left -= len(content)
                self._write(content)
                if not self._left:
                    self._end_member()
            elif self._padding:
                skipped = min(self._padding, len(self._pending) - view)
                if not skipped:
                    break
                view += skipped
                self._padding -= skipped
            elif len(self._pending) - view >= BLOCKSIZE:
                block = bytes(self._pending[view : view + BLOCKSIZE])
                view += BLOCKSIZE
                self._header(block)
            else:
                break
        del self._pending[:view]

    def _write(self, content: bytes) -> None:
        if self._records is not None:
            self._records += content
        elif self._file is not None:
            self._file.write(content)

    def _end_member(self) -> None:
        if self._records is not None:
            self._extended = _parsed(bytes(self._records))
            self._records = None
        elif self._file is not None:
            self._file.flush()
            os.utime(self._file.fileno(), (self._modified, self._modified))
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _header(self, block: bytes) -> None:
        if not any(block):
            self._over = True
            self._count(0)
            return
        if self._over:
            raise _malformed("something follows its end")
        total = sum(block) - sum(block[148:156]) + 8 * ord(" ")
        if _octal(block[148:156]) != total:
            raise _malformed("a checksum is wrong")
        kind, size, path, target = block[156:157], _octal(block[124:136]), b"", b""
        extended, self._extended = self._extended, {}
        if kind == b"x":
            if extended or size > MAX_EXTENDED:
                raise _malformed("an extended header is too long")
            self._records = bytearray()
        else:
            size = _number(extended[b"size"]) if b"size" in extended else size
            path = extended.get(b"path", _text(block[:100]))
            target = extended.get(b"linkpath", _text(block[157:257]))
            self._modified = _octal(block[136:148])
            if size and kind != b"0":
                raise _malformed(f"a member of the type {kind!r} has a content")
        self._count(size)
        self._left, self._padding = size, -size % BLOCKSIZE
        if kind != b"x":
            self._place(kind, _names(path), _octal(block[100:108]) & 0o777, target)
        if not size:
            self._end_member()

    def _count(self, size: int) -> None:
        self._counted += BLOCKSIZE + size
        if self._counted > self._allowed:
            raise RingfenceError(f"the directory has more than {self._allowed} bytes", "pass a larger `max_size`")

    def _place(self, kind: bytes, names: List[bytes], mode: int, target: bytes) -> None:
        place, shown = self._at(names), os.fsdecode(b"/".join(names))
        parent = b"/".join(names[:-1])
        if parent not in self._directories and parent not in self._skipped:
            raise _malformed(f"no directory came before {shown!r}")
        self._seen += 1
        if self._seen > MAX_ENTRIES:
            raise RingfenceError(f"the directory has more than {MAX_ENTRIES} entries", "download those below it one by one")
        if kind not in KINDS:
            raise _malformed(f"a member has the type {kind!r}")
        if self._is_skipped(kind, names, target):
            return
        self._entries += 1
        try:
            if kind == b"0":
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.fdopen(os.open(place, flags, mode), "wb")
                self._bytes += self._left
            elif kind == b"1":
                os.link(self._at(_names(target)), place, follow_symlinks=False)
            elif kind == b"2":
                self._links.append((names, target))
            else:
                os.mkdir(place, mode | 0o700)
                self._modes.append((names, mode))
                self._directories.add(b"/".join(names))
        except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
            raise _malformed(f"{shown!r}: {error.strerror}") from error

    def _is_skipped(self, kind: bytes, names: List[bytes], target: bytes) -> bool:
        """Returns `True` for a protected entry and what is below it, which its name stands for."""
        if self._protection is None:
            return False
        if b"/".join(names[:-1]) not in self._skipped:
            is_link_there = kind == b"1" and b"/".join(_names(target)) in self._skipped
            if not is_link_there and not self._protection.covers(names):
                return False
            self._protected.append(os.fsdecode(b"/".join(names)))
        self._skipped.add(b"/".join(names))
        return True

    def _at(self, names: List[bytes]) -> bytes:
        return os.path.join(self._root, *names)

    def finish(self) -> None:
        """Makes the links. Raises if the archive is not complete."""
        if not self._over:
            raise ServerGone("the archive broke off before its end")
        left_out = []
        for names, target in self._links:
            place, shown = self._at(names), os.fsdecode(b"/".join(names))
            if os.path.lexists(place):
                raise _malformed(f"{shown!r} comes twice")
            if _stays(target, len(names) - 1):
                os.symlink(target, place)
            else:
                left_out.append(shown)
        entries = self._entries - len(left_out)
        self.result = DownloadedDir(entries, self._bytes, left_out + self._protected, self._protected)

    def restrict(self, path: str) -> None:
        """Takes the rights on directories that the sandbox's owner of them had not, now that all is there."""
        for names, mode in reversed(self._modes):
            if mode & 0o700 != 0o700:
                place = os.path.join(os.fsencode(path), *names)
                os.chmod(place, stat.S_IMODE(os.lstat(place).st_mode) & mode)


def _names(path: bytes) -> List[bytes]:
    names = path[:-1].split(b"/") if path.endswith(b"/") else path.split(b"/")
    if len(names) > MAX_DEPTH or any(name in (b"", b".", b"..") or b"\0" in name for name in names):
        raise _malformed(f"a member has the path {path!r}")
    return names


def _stays(target: bytes, depth: int) -> bool:
    """Returns `True` if a link at this depth leads to the tree: after a name, `..` would be of what that leads to."""
    names = [name for name in target.split(b"/") if name not in (b"", b".")]
    up = next((at for at, name in enumerate(names) if name != b".."), len(names))
    return bool(target) and not target.startswith(b"/") and up <= depth and b".." not in names[up:]


def _octal(field: bytes) -> int:
    digits = field.rstrip(b"\0 ")
    if not digits or digits.strip(b"01234567"):
        raise _malformed(f"expected an octal number, found {field!r}")
    return int(digits, 8)


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 19:
        raise _malformed(f"expected a number, found {text[:19]!r}")
    return int(text)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _parsed(records: bytes) -> Dict[bytes, bytes]:
    """Returns the records `LENGTH KEY=VALUE` of an extended header."""
    found, at = {}, 0
    while at < len(records):
        blank = records.find(b" ", at, at + 20)
        end = at + _number(records[at:blank]) if blank > at else at
        key, separator, value = records[blank + 1 : end].partition(b"=")
        if not separator or not value.endswith(b"\n") or end > len(records):
            raise _malformed("an extended header has no records")
        found[key], at = value[:-1], end
    return found


def _malformed(why: str) -> IncompatibleServer:
    return IncompatibleServer(f"the archive is none of a sandbox: {why}")
