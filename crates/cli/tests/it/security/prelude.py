import ctypes, errno, mmap, os, platform, signal, socket, stat, struct, sys

ARGS = sys.argv[1:]
LIBC = ctypes.CDLL(None, use_errno=True)
INSIDE = os.path.isdir("/workspace")
X86_64 = platform.machine() == "x86_64"


def number(x86_64, aarch64):
    return x86_64 if X86_64 else aarch64


def call(number, *args):
    """A system call by its number."""
    wide = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    ctypes.set_errno(0)
    result = LIBC.syscall(ctypes.c_long(number), *wide)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def attempt(act, *args):
    """A step before the one that counts: denied inside, while the last is to be asked all the same."""
    try:
        return act(*args)
    except OSError:
        return -1


def in_child(act):
    """What leaves its mark on the process happens in a child; its error is ours."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
        except BaseException:
            os._exit(255)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        raise OSError(errno.EINTR, "killed")
    if os.WEXITSTATUS(status):
        raise OSError(os.WEXITSTATUS(status), "in the child")


def waiting_child():
    """A child that does nothing until its parent is gone."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    return pid


def machine_code(code):
    """The result of a function given as bytes."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return function()


def probe(act):
    try:
        act()
    except OSError as error:
        print("errno", errno.errorcode.get(error.errno, error), flush=True)
    else:
        print("ok", flush=True)


