"""A session as bare as can be: evaluates what comes on descriptor 3, and answers with what `result` then is."""
import ctypes
import errno
import os
import socket

library = ctypes.PyDLL("/proc/self/fd/3")
if library.ringfence_zygote() != 3:
    os._exit(1)


def read(count):
    data = b""
    while len(data) < count:
        part = os.read(3, count - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def fork():
    return library.ringfence_fork()


def attempt(act):
    """The name of the error that an act meets, or "allowed"."""
    try:
        act()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "allowed"


def call(name, *arguments):
    """A function of the C library."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = getattr(libc, name)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def sibling(flags=0):
    """A process that is the child of whoever started this one."""
    number = 56 if os.uname().machine == "x86_64" else 220
    return call("syscall", number, 0x8000 | flags, 0, 0, 0, 0)


names = ("ctypes", "os", "socket", "fork", "attempt", "call", "sibling", "library")
space = {name: globals()[name] for name in names}
while True:
    code = read(int.from_bytes(read(4), "little")).decode()
    space["result"] = None
    try:
        exec(code, space)
    except BaseException as error:
        space["result"] = repr(error)
    answer = str(space["result"]).encode()
    os.write(3, len(answer).to_bytes(4, "little") + answer)
