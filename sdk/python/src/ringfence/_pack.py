"""Packs a directory of this machine as a tar archive."""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from contextlib import contextmanager
from tarfile import BLOCKSIZE
from typing import BinaryIO, Iterator

from .errors import RingfenceError

PIECE = 256 * 1024


def packed(path: str) -> Iterator[bytes]:
    """Returns a directory's content as a tar archive. Follows no link below it; leaves out FIFOs, sockets and devices."""
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return _packed(path)


def _packed(path: str) -> Iterator[bytes]:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield from _below(directory, path, "")
    finally:
        os.close(directory)
    yield bytes(2 * BLOCKSIZE)


def _below(directory: int, shown: str, prefix: str) -> Iterator[bytes]:
    """Packs what an open directory has: a link that takes the place of it or of one above it is not followed."""
    for name in sorted(os.listdir(directory)):
        yield from _entry(directory, name, os.path.join(shown, name), prefix + name)


def _entry(directory: int, name: str, shown: str, path: str) -> Iterator[bytes]:
    with _errors_of(shown):
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        inside = _opened(directory, name, os.O_DIRECTORY, shown)
        try:
            yield _head(_described(path, os.fstat(inside), tarfile.DIRTYPE))
            yield from _below(inside, shown, f"{path}/")
        finally:
            os.close(inside)
    elif stat.S_ISLNK(found.st_mode):
        member = _described(path, found, tarfile.SYMTYPE)
        with _errors_of(shown):
            member.linkname = os.readlink(name, dir_fd=directory)
        yield _head(member)
    elif stat.S_ISREG(found.st_mode):
        with os.fdopen(_opened(directory, name, os.O_NONBLOCK, shown), "rb") as file:
            yield from _content(file, shown, path)


def _opened(directory: int, name: str, flags: int, shown: str) -> int:
    with _errors_of(shown):
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory)


@contextmanager
def _errors_of(shown: str) -> Iterator[None]:
    """Names the path in errors, in place of a name in a directory."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise RingfenceError(f"{shown!r} was replaced while it was read") from error
        error.filename = shown
        raise


def _described(path: str, found: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type = kind
    member.mode, member.mtime = stat.S_IMODE(found.st_mode) & 0o777, max(0, int(found.st_mtime))
    return member


def _content(file: BinaryIO, shown: str, path: str) -> Iterator[bytes]:
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise RingfenceError(f"{shown!r} was replaced while it was read")
    member = _described(path, found, tarfile.REGTYPE)
    member.size = left = found.st_size
    yield _head(member)
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise RingfenceError(f"{shown!r} has become shorter while it was read")
        left -= len(piece)
        yield piece
    yield bytes(-member.size % BLOCKSIZE)


def _head(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
