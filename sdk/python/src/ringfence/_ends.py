"""Ends of commands and failures of files, as the libraries of the adapters tell them apart.

What the server or a sandbox that is gone failed at is an exception of this package in every adapter, and never the
result of a program.
"""

from __future__ import annotations

from typing import Optional

from .errors import ApiError, Conflict, InvalidArguments, LimitExceeded, NotFound, RingfenceError, escaped
from .models import CommandResult

TIMED_OUT = 124
"""Exit status of a command that went past its time, as timeout(1) tells it."""

NOT_EXECUTABLE, NOT_THERE = 126, 127

# By the words of errno(3), with which the server tells what a file operation failed at; the path comes after them.
_FILES = {
    "no such file or directory": "not_found",
    "not a directory": "not_a_directory",
    "is a directory": "is_a_directory",
    "expected a regular file, found a directory": "is_a_directory",
    "expected a regular file, found a fifo, socket or device": "not_a_file",
    "permission denied": "denied",
    "operation not permitted": "denied",
    "links of /proc, and the process of a file operation, are closed to file operations": "denied",
    "read-only file system": "denied",
    "no space left on device": "no_space",
    "disk quota exceeded": "no_space",
    "file too large": "no_space",
    "file name too long": "invalid",
    "invalid argument": "invalid",
    "too many levels of symbolic links": "invalid",
    "text file busy": "busy",
    "device or resource busy": "busy",
}


def exit_status(result: CommandResult) -> int:
    """Returns the exit status as a shell has it: 128 + N after the signal N.

    Raises if the end says nothing about the program: another caller ended it, or its end is unknown.
    """
    if result.outcome in ("unknown", "cancelled"):
        raise RingfenceError(f"the end of the command is {result.outcome}: {escaped(result.error or 'something else ended it')}")
    if result.outcome == "timed_out":
        return TIMED_OUT
    return result.exit_code if result.exit_code >= 0 else 128 - result.exit_code


def not_started(error: ApiError) -> Optional[int]:
    """Returns the status that a shell has for a program that cannot be started; `None` if that is not the failure."""
    message = error.message
    if isinstance(error, NotFound) and message.startswith("there is no program"):
        return NOT_THERE
    reasons = ("cannot enter the working directory", "cannot start the program", "the code, its arguments and its environment")
    if isinstance(error, InvalidArguments) and message.startswith(reasons):
        return NOT_EXECUTABLE
    return None


def file_failure(error: ApiError) -> Optional[str]:
    """Returns why an operation on a file failed, such as `not_found`; `None` if the failure is not the file's."""
    if not isinstance(error, (NotFound, Conflict, InvalidArguments, LimitExceeded)):
        return None
    words, separator, _ = error.message.partition(": /")
    return _FILES.get(words.lower()) if separator else None


def why_cut(result: CommandResult) -> str:
    """Returns what a person should know about an end that is not an exit, in brackets; else an empty text."""
    words = {"timed_out": "it went past its time, and was killed", "memory_exceeded": "it ran out of memory, and was killed"}
    why = words.get(result.outcome)
    return f"[{why}]" if why else ""
