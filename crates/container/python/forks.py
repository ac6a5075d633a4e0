"""Forks guests from a warm interpreter in a container, as the init asks; worker.py is put behind it.

Descriptor 3 is a socket that keeps packets. On it, `H` says that nobody can look into this process any more, and `R` that
it is warm. Each packet from the init brings five descriptors: where to report, then the guest's control, standard input,
output and error. What is reported is written down in `crates/jail/src/init/worker.rs`.
"""


class Forks:
    """The kernel's switches that Python has no function for."""

    SET_DUMPABLE, SET_CHILD_SUBREAPER = 4, 36

    def __init__(self):
        import ctypes

        self.number = ctypes.c_ulong
        self.call = ctypes.CDLL(None).prctl

    def set_dumpable(self, value):
        """Whether others can look into this process. Without that switch there is no warm interpreter."""
        if self.set(self.SET_DUMPABLE, value):
            posix._exit(1)

    def set(self, option, value):
        return self.call(option, *map(self.number, (value, 0, 0, 0)))


def fork_for_calls():
    """Serves the init. Returns in each guest, which cannot be looked into, with what opens it."""
    switches = Forks()
    switches.set_dumpable(0)
    posix.write(3, b"H")
    # What wait4 answers in is made on its first use.
    import _socket
    import gc
    import resource
    import signal

    preload()
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, 3)
    # Those between the guests and this process are waited for by nobody.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    posix.write(3, b"R")
    while True:
        message, extra, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(20))
        if not message:
            posix._exit(0)
        fds = [int.from_bytes(data[at : at + 4], sys.byteorder) for _, _, data in extra for at in range(0, len(data), 4)]
        try:
            forked = posix.fork()
        except OSError:
            forked = -1  # The init sees that the descriptors are closed.
        if forked == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.detach()
            supervise(switches, *fds)
            return lambda: switches.set_dumpable(1)
        for fd in fds:
            posix.close(fd)


def hide():
    """Keeps other programs of the container from taking the bridge of this one."""
    try:
        Forks().set(Forks.SET_DUMPABLE, 0)
    except (ImportError, OSError):
        pass  # Without ctypes nobody can.


def supervise(switches, report, *theirs):
    """Returns in the guest. Above it, adopts what it leaves, tells how it ended, and ends when nothing is left."""
    posix.close(3)
    # Where there is no such thing, the init adopts what is left; it knows.
    switches.set(Forks.SET_CHILD_SUBREAPER, 1)
    guest = posix.fork()
    if guest == 0:
        posix.setsid()
        for fd, number in zip(theirs, (3, 0, 1, 2)):
            posix.dup2(fd, number)
        posix.closerange(4, max(64, *theirs) + 1)
        warm_up()
        rehearse(switches)
        return
    for fd in theirs:
        posix.close(fd)
    try:
        attend(report, guest)
    finally:
        posix._exit(0)


def rehearse(switches):
    """Does in the guest, without any effect, what each call does: it copies memory that the interpreter shares."""
    switches.set_dumpable(0)
    field = lambda text: len(text).to_bytes(4, "little") + text
    name, code, arguments, variables = parse_job(b"".join(map(field, (b"main", b"print(end='')", b"0"))))
    set_variables(variables)
    execute(name, code, arguments, None)
    let_go(sys.modules.get("threading"), 4)


def attend(report, guest):
    tell(report, b"S", (posix.getpid(), 4), (guest, 4))
    # The first look finds nothing, and is a rehearsal.
    flags = posix.WNOHANG
    while True:
        pid, status, usage = posix.wait4(-1, flags)
        flags = 0
        time = int((usage.ru_utime + usage.ru_stime) * 1e6)
        end = (-(status & 0x7F) or status >> 8, 4), (time, 8), (usage.ru_maxrss * 1024, 8)
        if pid != guest:
            continue
        left = 1
        try:
            while posix.wait4(-1, posix.WNOHANG)[0]:
                pass
        except ChildProcessError:
            left = 0
        tell(report, b"E", *end, (left, 1))


def tell(report, kind, *numbers):
    word = [number.to_bytes(size, "little", signed=size == 4) for number, size in numbers]
    posix.write(report, kind + b"".join(word))


