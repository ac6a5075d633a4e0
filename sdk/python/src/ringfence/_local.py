"""Files of this machine."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from typing import IO, Iterator


@contextmanager
def new_file(path: str) -> Iterator[IO[bytes]]:
    """Opens a file that must not exist. It has its name once it is complete: an error leaves nothing."""
    if os.path.lexists(path):
        raise _exists(path)
    temporary = os.path.join(os.path.dirname(path), f".ringfence-{secrets.token_hex(8)}")
    try:
        file = open(temporary, "xb")
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, error.strerror, path) from None
    try:
        with file:
            yield file
        _publish(temporary, path)
    except BaseException:
        # There is none any more if it was interrupted at the end.
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _publish(temporary: str, path: str) -> None:
    try:
        # Unlike a rename, a link replaces nothing that has appeared meanwhile.
        os.link(temporary, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:
        # A file system without hard links.
        if os.path.lexists(path):
            raise _exists(path) from None
        os.rename(temporary, path)
    else:
        os.unlink(temporary)


def _exists(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
