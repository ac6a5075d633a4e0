"""Runs one program inside the fence; with a second argument, as a zygote that forks such runs.

Arguments: the module search path, joined by newlines; nothing, or "zygote", the path that it searches itself, the seconds
that an import may take, and the modules to be preloaded. In a container the path is empty, for it is the image's, and the
second argument "call" or "forks", see forks.py.
The job arrives on descriptor 3: a sequence of byte strings, each after its length in four bytes, behind the
length of the whole: name, code, number of arguments, arguments, then the names and values of variables.
A job without length makes a session of it: see session.py. All ones but the lowest bit before the job have it import the packages of
its programs first: see `import_packages`. All ones but the
second bit: texts of this program come first, see `read_texts`. All ones before the job keep the descriptor as the program's bridge: see bridge.py. This file is put behind both.
"""
import _io
import posix
import sys


def read_exactly(count, read=posix.read):
    parts = []
    while count:
        part = read(3, min(count, 1 << 20))
        if not part:
            posix._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def parse_job(data):
    fields, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        fields.append(data[at + 4 : end])
        at = end
    count = 3 + int(fields[2])
    decode = lambda fields: [field.decode("utf-8", "surrogateescape") for field in fields]
    # Editors on other systems begin a file with a mark, which is no part of the program.
    code = fields[1].decode("utf-8").removeprefix("\ufeff")
    return decode(fields[:1])[0], code, decode(fields[3:count]), decode(fields[count:])


class Source:
    """The program's loader: gives its lines to tracebacks, `inspect` and whoever else asks."""

    def __init__(self, code):
        self.code = code

    def get_source(self, name):
        return self.code


def publish(name, code):
    """Writes the program to a file, which the processes that multiprocessing spawns read anew."""
    directory = posix.environ.get(b"TMPDIR", b"/tmp") + b"/.program"
    posix.mkdir(directory, 0o700)
    path = directory.decode() + "/" + (name.rsplit("/", 1)[-1] if name.endswith(".py") else "main.py")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(code)
    return path


def show_exception(kind, value, trace, name, code):
    """Prints a traceback that begins with the program's own frames and shows its lines."""
    if sys.excepthook is not sys.__excepthook__:
        return sys.excepthook(kind, value, trace)
    import linecache
    import traceback

    linecache.cache[name] = (len(code), None, _io.StringIO(code + "\n", None).readlines(), name)
    traceback.print_exception(kind, value, without_ours(trace))


# The module of the code for what notebooks have beyond Python.
COMMANDS_NAME = "ringfence_commands"


def without_ours(trace):
    """A traceback without the frames of what is not the program's, such as `device`."""
    kept = []
    while trace is not None:
        space = trace.tb_frame.f_globals
        if space is not globals() and space.get("__name__") != COMMANDS_NAME:
            kept.append(trace)
        trace = trace.tb_next
    for one, next_one in zip(kept, kept[1:] + [None]):
        one.tb_next = next_one
    return kept[0] if kept else None


def exit_status(request):
    """What `sys.exit(request)` means."""
    if request is None:
        return 0
    if isinstance(request, int):
        return request & 0xFF
    print(request, file=sys.stderr)
    return 1


# Marks the exit that the system-call filter announces (`LAST_EXIT` in crates/seccomp/src/lib.rs). The kernel takes the
# lowest eight bits of a status.
LAST_EXIT = 0x52460000


def finish(status):
    """What the interpreter does at its end, without taking itself apart."""
    threading = sys.modules.get("threading")
    # Where there are no threads there is nothing to wait for, and that takes long to find out in there.
    if threading is not None and (threading.active_count() > 1 or getattr(threading, "_threading_atexits", True)):
        try:
            threading._shutdown()
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
    import atexit

    atexit._run_exitfuncs()
    try:
        let_go(threading)
    except BaseException:
        pass  # A file that cannot be flushed is nobody's to report any more.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            status = status or 120
    posix._exit(LAST_EXIT | status)


def let_go(threading, descriptors=3):
    """Lets go of what the program holds, as the interpreter's own end does: its variables, then its open files."""
    if threading is not None and threading.active_count() > 1:
        return  # Threads that nobody waits for would miss the variables.
    sys.stdout.flush()
    space = sys.modules["__main__"].__dict__
    for private in (True, False):
        for name in list(space):
            if name.startswith("_") == private and not name.startswith("__"):
                space[name] = None
    try:
        # Linux 6.2 tells the number of open descriptors so; before, it is 0.
        open_files = posix.stat("/proc/self/fd").st_size
    except OSError:
        open_files = 0
    if open_files != descriptors:
        import gc

        for thing in gc.get_objects():
            if isinstance(thing, _io._IOBase) and not thing.closed:
                thing.flush()


def set_variables(variables):
    if variables:
        import os

        os.environ.update(zip(variables[::2], variables[1::2]))


def execute(name, code, arguments, device):
    """Runs the program, and says its status."""
    main = type(sys)("__main__")
    if device is not None:
        main.device = device
    main.__file__ = publish(name, code) if "multiprocessing" in code or "concurrent" in code else name
    main.__loader__ = Source(code)
    main.__builtins__ = sys.modules["builtins"]
    sys.modules["__main__"] = main
    sys.argv[:] = [name, *arguments]
    status = 0
    try:
        exec(compile(code, name, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as request:
        status = exit_status(request.code)
    except BaseException as error:
        # The first frame is ours; a syntax error has no other.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        show_exception(type(error), error, trace, name, code)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    return status


def add_site_names():
    """The names that `site` gives to programs."""
    import builtins

    def help(*things):
        """Type help(object) for help about object."""
        import _sitebuiltins

        return _sitebuiltins._Helper()(*things)

    def exit(code=None):
        """End the program."""
        raise SystemExit(code)

    builtins.exit = builtins.quit = exit
    builtins.help = help


def preload():
    """Imports what most programs use, so that forks share it."""
    import importlib

    common = (
        "os re json math random datetime time collections itertools functools string typing enum dataclasses "
        "threading traceback linecache io atexit copy textwrap base64 pathlib tempfile "
        "csv heapq bisect operator contextlib abc warnings weakref struct signal subprocess"
    )
    for module in common.split():
        try:
            importlib.import_module(module)
        except ImportError:
            pass  # Not every Python has all of them.


def preload_named(seconds, modules):
    """Imports the modules that a person named. Each is announced, so that one that takes the interpreter along is known."""
    import importlib
    import signal

    report = lambda text: posix.write(4, text.encode("utf-8", "replace")[:900])
    # Nobody reads what they print, and a full pipe would hold them up for ever.
    kept = [posix.dup(1), posix.dup(2)]
    nowhere = posix.open("/dev/null", posix.O_WRONLY)
    for stream in (1, 2):
        posix.dup2(nowhere, stream)
    for number, module in enumerate(modules):
        report(f"import {number}")
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            importlib.import_module(module)
        except BaseException as error:
            report(f"failed {number} {type(error).__name__}: {error}")
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not is_alone():
            # A fork would lose its threads, with the locks that they hold.
            report(f"failed {number} it leaves threads running, which no copy of this interpreter would have")
            posix._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    for stream, number in zip((1, 2), kept):
        posix.dup2(number, stream)
    for number in [*kept, nowhere]:
        posix.close(number)
    report("imported")


# Where the packages of programs are mounted (`PACKAGES` in crates/policy/src/mount.rs).
PACKAGES = "/opt/ringfence/site-packages"

# The variables by which numerical libraries choose their number of threads.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

# Most modules that are imported beforehand.
MOST_MODULES = 32


def read_texts():
    """Takes the texts that are compiled when they are first used. As a part of an argument each byte would take twenty."""
    global RICH, COMMANDS
    RICH, COMMANDS = [read_exactly(int.from_bytes(read_exactly(4), "little")) for _ in range(2)]


def import_packages(library):
    """Imports the packages of the programs to come. Behind the fence of these: the code is a stranger's.

    A fork would lose other threads, with the locks that they hold: numerical libraries start none.
    """
    import importlib
    import os

    known = top_names()
    set_here = [name for name in THREADS if library and name not in os.environ]
    os.environ.update(dict.fromkeys(set_here, "1"))
    kept = [posix.dup(1), posix.dup(2)]
    nowhere = posix.open("/dev/null", posix.O_WRONLY)
    for stream in (1, 2):
        posix.dup2(nowhere, stream)
    for module in package_modules()[:MOST_MODULES]:
        try:
            importlib.import_module(module)
        except BaseException:
            pass  # The program gets the error, if it imports the module.
    for name in set_here:
        os.environ.pop(name, None)
    flush()
    for stream, number in zip((1, 2), kept):
        posix.dup2(number, stream)
    for number in [*kept, nowhere]:
        posix.close(number)
    if library:
        serve_forks(library, known)


def top_names():
    """The names before the first dot of all imported modules."""
    return {name.partition(".")[0] for name in sys.modules}


def package_modules():
    """The modules of the packages that no other one there requires: what somebody named, and not what that brought along."""
    import re

    plain = lambda name: re.sub("[-_.]+", "-", name).lower()
    found, required = {}, set()
    for entry in posix.listdir(PACKAGES):
        if entry.endswith(".dist-info"):
            name = plain(entry.removesuffix(".dist-info").rpartition("-")[0])
            head = read_lines(entry + "/METADATA", "")
            needs = [line[15:] for line in head if line.startswith("Requires-Dist: ") and "extra ==" not in line]
            required.update(plain(re.match("[A-Za-z0-9._-]*", need)[0]) for need in needs)
            found[name] = entry
    named = [name for name in found if name not in required] or list(found)
    return [module for name in sorted(named) for module in modules_of(name, found[name], plain)]


def modules_of(name, entry, plain):
    """The modules of a package: the one that is called as it is, or all."""
    tops = {line.split(",")[0].partition("/")[0].partition(".")[0] for line in read_lines(entry + "/RECORD")}
    tops = sorted(top for top in tops if top.isidentifier() and not top.startswith("_"))
    called = [top for top in tops if plain(top) == name] or tops
    # The part of it that takes long, and that every program imports.
    return ["matplotlib.pyplot" if top == "matplotlib" else top for top in called]


def read_lines(name, end=None):
    """The lines of a file of the packages, up to one that is `end`."""
    lines = []
    try:
        with open(PACKAGES + "/" + name, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.rstrip("\n") == end:
                    break
                lines.append(line.rstrip("\n"))
    except OSError:
        pass
    return lines


def serve_forks(library, known):
    """Lets the launcher make forks of this interpreter, one for each byte, and returns in them.

    Not if a file of their workspace has the name of a module that is imported here, and was not `known` before: a program
    that imports it means the file.
    """
    import gc

    if not is_alone():
        posix.write(3, b"T")
        posix._exit(1)
    taken = top_names() - known
    gc.collect()
    gc.freeze()
    answer = b"R"
    while True:
        posix.write(3, answer)
        read_exactly(1)
        forked = library.ringfence_fork()
        if forked == 3:
            break
        answer = bytes([-forked & 0xFF])
    reseed()
    # So far its first directory was another one, of the same name.
    sys.path_importer_cache.pop(sys.path[0], None)
    try:
        files = posix.listdir(sys.path[0])
    except OSError:
        files = []  # There is nothing to import for a program, either.
    if not taken.isdisjoint(file.partition(".")[0] for file in files):
        posix.write(3, b"S")
        # The launcher may have to look at this fork yet, and one that has gone counts as a failure.
        posix.read(3, 1)
        posix._exit(0)
    posix.write(3, b"R")


def is_alone(patience=2):
    """Whether no other thread runs, once those that are about to end have ended."""
    import time

    end = time.monotonic() + patience
    while len(posix.listdir("/proc/self/task")) > 1:
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def warm_up():
    """Touches, in the fork, the memory that every program touches: copying it costs more than the rest.

    What only some programs use stays shared: a waiting worker should be small.
    """
    reseed()
    space = {"__name__": "__warm__", "__builtins__": sys.modules["builtins"]}
    source = (
        "import os, re, json\n"
        "class A:\n    def f(self, x): return [x, {x: str(x)}, f'{x:>4}']\n"
        "def g(n):\n    try:\n        return sum(A().f(i) is not None for i in range(n)) / 0\n"
        "    except ZeroDivisionError as e:\n        return str(e)\n"
        "g(2)\n"
    )
    exec(compile(source, "<warm>", "exec", dont_inherit=True), space)
    space.clear()
    sys.stdout.flush()


def reseed():
    """Gives a fork random numbers of its own. Python's module does that by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def serve_as_zygote():
    import ctypes
    import gc

    library = ctypes.PyDLL("/proc/self/fd/3")
    gc.collect()
    gc.freeze()
    if library.ringfence_zygote() != 3:
        posix._exit(1)
    warm_up()
    posix.write(3, b"R")
    return library


def enter_environment():
    """What `site` does for a virtual environment."""
    prefix = sys.executable.rpartition("/bin/")[0]
    try:
        posix.stat(prefix + "/pyvenv.cfg")
    except OSError:
        return
    sys.prefix = sys.exec_prefix = prefix


def enter_directory():
    """Goes where a call in a container shall start: that comes before its job."""
    directory = read_exactly(int.from_bytes(read_exactly(4), "little"))
    posix.chdir(directory)
    sys.path.insert(0, directory.decode("utf-8", "surrogateescape"))


def main():
    search_path, modules = sys.argv[1], sys.argv[2:]
    zygote = modules[:1] == ["zygote"]
    if search_path:
        sys.path[:] = search_path.split("\n")
    if zygote:
        # The zygote is not confined as guests are: a `random.py` in a directory that they may write would run in it.
        guests, sys.path[:] = sys.path[:], list(filter(None, modules[1].split("\n")))
    sys.stdout.reconfigure(line_buffering=True)
    add_site_names()
    enter_environment()
    library, settle = None, lambda bridge: None
    if zygote:
        preload()
        if modules[3:]:
            preload_named(float(modules[2]), modules[3:])
        library = serve_as_zygote()
        sys.path[:] = guests
        if PACKAGES in guests:
            # For the interpreters that a session starts. A program's variables have it.
            set_variables(["PYTHONPATH", PACKAGES])
    elif modules:
        if modules == ["forks"]:
            reopen = fork_for_calls()
            settle = lambda bridge: bridge or reopen()
        else:
            settle = lambda bridge: bridge and hide()
        enter_directory()
    length = int.from_bytes(read_exactly(4), "little")
    if length == 0xFFFFFFFD:
        read_texts()
        length = int.from_bytes(read_exactly(4), "little")
    if length == 0xFFFFFFFE:
        import_packages(library)
        length = int.from_bytes(read_exactly(4), "little")
    if length == 0:
        serve_session(library)
    bridge = length == 0xFFFFFFFF
    if bridge:
        length = int.from_bytes(read_exactly(4), "little")
    settle(bridge)
    name, code, arguments, variables = parse_job(read_exactly(length))
    device = open_device(3) if bridge else posix.close(3)
    set_variables(variables)
    finish(execute(name, code, arguments, device))


main()
