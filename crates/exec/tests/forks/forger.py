"""What a session can do with the launcher's request when it does not call the library."""
import array
import time

launcher = socket.socket(fileno=os.dup(5))
KINDS = ["user", "pid", "net", "ipc", "uts", "cgroup", "mnt", "time"]


def take():
    """The descriptors of the next request: 0 to 3, the report, the session's socket, the namespaces."""
    return socket.recv_fds(launcher, 1 << 17, 16)[1]


def report(fds, message=bytes(8)):
    socket.socket(fileno=os.dup(fds[4])).send(message)


def close(fds):
    for fd in fds:
        os.close(fd)


def join(fds, but=()):
    for fd, kind in zip(fds[6:], KINDS):
        if kind not in but:
            call("setns", fd, 0)


def drop_capabilities():
    number = 0
    while attempt(lambda: call("prctl", 24, number, 0, 0, 0)) == "allowed":
        number += 1
    call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())


def arrange(fds, keep=()):
    for number, fd in enumerate([os.dup(fd) for fd in fds[:6]]):
        os.dup2(fd, number)
    for number in range(6, 200):
        if number not in keep:
            attempt(lambda: os.close(number))


def move(fds, act, but=()):
    """Has `act` done by a process in the fork's cell."""
    if sibling() == 0:
        join(fds, but)
        if sibling() == 0:
            act()
            time.sleep(60)
        os._exit(0)
    close(fds)


def honest(fds, keep=()):
    arrange(fds, keep)
    drop_capabilities()
    socket.socket(fileno=4).send(bytes(8))
