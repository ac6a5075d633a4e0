import array, ctypes, errno, fcntl, os, select, signal, socket, sys

LIBC = ctypes.CDLL(None, use_errno=True)
HELD = []


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def queued_signal():
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    check(LIBC.sigqueue(os.getpid(), 40, ctypes.c_void_p(0)))


def timer():
    check(LIBC.timer_create(0, None, ctypes.byref(ctypes.c_void_p())))


def inotify_instance():
    HELD.append(check(LIBC.inotify_init1(0)))


def inotify_watch():
    if not HELD:
        inotify_instance()
    place = f"watched-{os.getpid()}-{len(HELD)}"
    os.mkdir(place)
    check(LIBC.inotify_add_watch(HELD[0], place.encode(), 2))
    HELD.append(place)


def descriptor_in_flight():
    if not HELD:
        HELD.extend(socket.socketpair())
        HELD[0].setblocking(False)
    HELD[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
    # The number of messages is bounded as well: each carries as many as it can.
    HELD[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 252))])


def descriptor():
    HELD.append(os.dup(0))


def locked_segment():
    check(LIBC.shmctl(check(LIBC.shmget(0, 4096, 0o1600)), 11, None))


def message_queue():
    name = f"/ringfence-{os.getpid()}-{len(HELD)}".encode()
    library = ctypes.CDLL("librt.so.1", use_errno=True)
    HELD.append(check(library.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None)))
    library.mq_unlink(name)


def pipe_of_a_mebibyte():
    pipe = os.pipe()
    HELD.append(pipe)
    fcntl.fcntl(pipe[0], fcntl.F_SETPIPE_SZ, 1 << 20)


def lease():
    HELD.append(os.open(f"leased-{os.getpid()}-{len(HELD)}", os.O_CREAT | os.O_WRONLY))
    fcntl.fcntl(HELD[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)


def watched_by_epoll():
    """Watches as much as a process can: with half of its descriptors the other half."""
    read, _ = os.pipe()
    try:
        while True:
            HELD.append(os.dup(read))
    except OSError:
        pass
    half = len(HELD) // 2
    for file in HELD[half:]:
        os.close(file)
    sets = [select.epoll() for _ in range(half)]
    for one in sets:
        for file in HELD[:half]:
            one.register(file)
    return half * half


def take(one, most):
    """Takes until it is refused: how often it was not, and the error's name."""
    for taken in range(most):
        try:
            one()
        except OSError as error:
            return f"{taken} {errno.errorcode[error.errno]}"
    return f"{most} ok"
