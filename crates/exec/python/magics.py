"""The object behind the commands of a session and `get_ipython()`, and what each magic command does."""
import builtins
import contextlib
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time


class UsageError(Exception):
    """A magic command that does not exist, or not so."""

    __module__ = "builtins"


class Lines(list):
    """The lines that a command printed."""

    n = property("\n".join)
    s = property(" ".join)
    l = property(list)


class Captured:
    """What `%%capture` kept."""

    def __init__(self, session, stdout, stderr, results):
        self.stdout, self.stderr = stdout, stderr
        self._session, self._results = session, results

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        if self._results is not None:
            self._session.display.collected().extend(self._results)

    def __str__(self):
        return self.stdout


class Shell:
    """What `get_ipython()` returns to code of a session: magic commands, and no more of IPython."""

    def __init__(self, session):
        self._session = session
        self._line, self._cell = dict(LINE), dict(CELLS)
        self.user_ns = session.main.__dict__
        self.config = {}
        self.display_pub = session.display

    def __getattr__(self, name):
        raise AttributeError(f"`get_ipython().{name}` is not available here: this is no IPython, but has its commonest magic commands")

    def run_line_magic(self, name, line=""):
        found = self._line.get(name)
        if found is None:
            name = name.lstrip("%")
            if name in self._cell:
                raise UsageError(f"`%%{name}` must be the first line of its code")
            raise UsageError(f"`%{name}` is not available here. {self.known()}")
        return found(self, line)

    def run_cell_magic(self, name, line, cell, before=0):
        """Does what a magic command does with the code behind its line, which `before` lines are above."""
        found = self._cell.get(name)
        if found is None:
            raise UsageError(f"`%%{name}` is not available here. {self.known()}")
        return found(self, line, cell) if found in AS_TEXT else found(self, line, "\n" * before + cell)

    def magic(self, text):
        name, _, line = text.strip().removeprefix("%").partition(" ")
        return self.run_line_magic(name, line.strip())

    def known(self):
        line, cell = (" ".join(sorted(mark + name for name in names)) for mark, names in (("%", self._line), ("%%", self._cell)))
        return f"Available are {line}, and as the first line of code {cell}"

    def register_magic_function(self, function, magic_kind="line", magic_name=None):
        if magic_kind not in ("line", "cell", "line_cell"):
            raise UsageError("a magic command is of the kind line, cell or line_cell")
        name = magic_name or function.__name__
        if "line" in magic_kind:
            self._line[name] = lambda _, line: function(line)
        if "cell" in magic_kind:
            self._cell[name] = lambda _, line, cell: function(line, cell)
            AS_TEXT.add(self._cell[name])

    def parse(self, code):
        return self._session.parse(code, "<cell>")

    def ev(self, expression):
        return eval(expression, self.user_ns)

    def ex(self, code):
        exec(code, self.user_ns)

    def push(self, variables, *_, **__):
        self.user_ns.update(variables)

    def system(self, command):
        """Runs a command whose output is that of the session. Its exit status is `_exit_code`."""
        return self._start([self._bash(), "-c", command])

    def getoutput(self, command, split=True):
        """The lines that a command prints, also as errors."""
        text = self._start([self._bash(), "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)[0]
        return Lines(text.splitlines()) if split else text

    def _bash(self):
        return shutil.which("bash") or "sh"

    def _start(self, program, text=None, stdout=None, stderr=None):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        wanted = [stdout, stderr]
        # What replaces a stream is no file: it gets what the command has printed.
        kept = [wanted[0] is None and sys.stdout is not sys.__stdout__, wanted[1] is None and sys.stderr is not sys.__stderr__]
        pipes = [subprocess.PIPE if own else one for one, own in zip(wanted, kept)]
        source = subprocess.DEVNULL if text is None else subprocess.PIPE
        options = {"encoding": "utf-8", "errors": "surrogateescape"}
        process = subprocess.Popen(program, stdin=source, stdout=pipes[0], stderr=pipes[1], start_new_session=True, **options)
        try:
            printed = process.communicate(text)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        for stream, own, data in zip((sys.stdout, sys.stderr), kept, printed):
            if own:
                stream.write(data)
        self.user_ns["_exit_code"] = process.returncode
        return printed if stdout is not None or stderr is not None else None


def note(text):
    print(f"[ringfence] {text}", file=sys.stderr)


def options(line, flags, valued=""):
    """The options at the beginning of a line, and the rest of it."""
    import re

    found = {}
    option = re.compile(rf"-(?:([{flags}])|([{valued or flags}])\s*(\d+))(?:\s+|$)")
    while True:
        at = option.match(line)
        if at is None:
            return found, line
        found[at[1] or at[2]] = True if at[1] else int(at[3])
        line = line[at.end() :]


# Time.


def duration(seconds, digits=3):
    if seconds >= 60:
        parts = []
        for name, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
            whole, seconds = divmod(seconds, length)
            if whole:
                parts.append(f"{int(whole)}{name}")
        return " ".join(parts)
    for name, length in (("s", 1), ("ms", 1e-3), ("\u00b5s", 1e-6)):
        if seconds >= length:
            break
    else:
        name, length = "ns", 1e-9
    return f"{seconds / length:.{digits}g} {name}"


def timed(shell, line, code=None):
    import resource

    name = "<timed>" if code is None else shell._session.file
    code = line if code is None else code
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    value = shell._session.run(code, name)
    end, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    print(f"CPU times: user {duration(user)}, sys: {duration(system)}, total: {duration(user + system)}")
    print(f"Wall time: {duration(end - start)}")
    return value


class Timing:
    """The value of `%timeit -o`."""

    def __init__(self, loops, runs):
        from statistics import fmean, pstdev

        self.loops, self.repeat, self.timings = loops, len(runs), runs
        self.best, self.worst = min(runs), max(runs)
        self.average, self.stdev = fmean(runs), pstdev(runs)

    def __repr__(self):
        runs, loops = (f"{count:,} {name}{'s' * (count != 1)}" for count, name in ((self.repeat, "run"), (self.loops, "loop")))
        mean, deviation = duration(self.average), duration(self.stdev)
        return f"<TimeitResult : {mean} \u00b1 {deviation} per loop (mean \u00b1 std. dev. of {runs}, {loops} each)>"


def timeit(shell, line, code=None):
    import ast
    import gc
    import itertools

    found, line = options(line, "tcqo", "nrp")
    setup, statement = ("", line) if code is None else (line, code)
    name = "<timed>" if code is None else shell._session.file
    tree = ast.parse("def inner(rounds, now):\n 0\n start = now()\n for _ in rounds: pass\n return now() - start")
    function = tree.body[0]
    function.body[2].body = shell._session.parse(statement, name).body or function.body[2].body
    function.body[:1] = shell._session.parse(setup, name).body
    space = {}
    exec(compile(ast.fix_missing_locations(tree), name, "exec"), shell.user_ns, space)

    def once(loops):
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return space["inner"](itertools.repeat(None, loops), time.perf_counter)
        finally:
            if was_enabled:
                gc.enable()

    counts = (digit * 10**zeros for zeros in range(10) for digit in (1, 2, 5))
    loops = found.get("n") or next(loops for loops in counts if once(loops) >= 0.2)
    timing = Timing(loops, [once(loops) / loops for _ in range(found.get("r") or 7)])
    if "q" not in found:
        if timing.worst > 4 * timing.best > 0 and timing.worst > 1e-6:
            print(f"The slowest run took {timing.worst / timing.best:.2f} times longer than the fastest.")
        print(repr(timing)[16:-1])
    return timing if "o" in found else None


# Places and variables.


def change_directory(shell, line):
    found, line = options(line, "q")
    here = os.getcwd()
    target = line.strip() or "~"
    if target[0] in "\"'" and target[-1] == target[0]:
        target = target[1:-1]
    os.chdir(shell.user_ns.get("_oldcwd", here) if target == "-" else os.path.expanduser(target))
    shell.user_ns["_oldcwd"] = here
    if "q" not in found:
        print(os.getcwd())


def environment(shell, line):
    if not line:
        return dict(os.environ)
    name, mark, value = line.partition("=" if "=" in line else " ")
    if not mark:
        if name not in os.environ:
            raise UsageError(f"the environment has no variable {name}")
        return os.environ[name]
    return set_environment(shell, line)


def set_environment(shell, line):
    name, _, value = (part.strip() for part in line.partition("=" if "=" in line else " "))
    os.environ[name] = value
    print(f"env: {name}={value}")


# Names that are no variables of the code.
OWN = ("device", "get_ipython")


def names(shell):
    return sorted(name for name in shell.user_ns if not name.startswith("_") and name not in OWN)


def who(shell, line):
    print("\t".join(names(shell)) or "There are no variables.")


def whos(shell, line):
    rows = [(name, type(value).__name__, f"{value!r:.50}".replace("\n", " ")) for name, value in named(shell)]
    widths = [max(len(row[column]) for row in [("Variable", "Type"), *rows]) for column in (0, 1)]
    for name, kind, text in [("Variable", "Type", "Value"), *rows]:
        print(f"{name:{widths[0]}}   {kind:{widths[1]}}   {text}")


def named(shell):
    return [(name, shell.user_ns[name]) for name in names(shell)]


def reset(shell, line):
    for name in list(shell.user_ns):
        if not name.startswith("__") and name not in OWN:
            del shell.user_ns[name]


def run_file(shell, line):
    found, line = options(line, "i")
    words = shlex.split(line)
    if not words or words[0].endswith(".ipynb"):
        raise UsageError("`%run FILE ARGUMENTS` runs a file of Python")
    path = os.path.expanduser(words[0])
    with open(path, encoding="utf-8") as file:
        code = file.read()
    fresh = {"__name__": "__main__", "__file__": path, "__builtins__": builtins}
    space = shell.user_ns if "i" in found else fresh
    arguments, sys.argv = sys.argv, words
    try:
        exec(compile(code, path, "exec", dont_inherit=True), space)
    except SystemExit as request:
        if request.code:
            print(f"{path}: exit {request.code}", file=sys.stderr)
    finally:
        sys.argv = arguments
    shell.user_ns.update((name, value) for name, value in space.items() if not name.startswith("__"))


# Other languages and files.


def script(program):
    def run(shell, line, cell):
        words = shlex.split(line)
        given = {"--out": None, "--err": None, "--no-raise-error": False}
        command = list(program)
        while words:
            word = words.pop(0)
            if word == "--no-raise-error":
                given[word] = True
            elif word in given:
                given[word] = words.pop(0) if words else None
            else:
                command += [word, *words]
                break
        if not command:
            raise UsageError("`%%script PROGRAM` names what runs the code")
        command[0] = sys.executable if command[0] in ("python", "python3") else command[0]
        pipes = [subprocess.PIPE if given[name] else None for name in ("--out", "--err")]
        printed = shell._start(command, cell, *pipes)
        for name, data in zip(("--out", "--err"), printed or ()):
            if given[name]:
                shell.user_ns[given[name]] = data
        if shell.user_ns["_exit_code"] and not given["--no-raise-error"]:
            raise subprocess.CalledProcessError(shell.user_ns["_exit_code"], command)

    return run


def pip(shell, line):
    import importlib
    import site

    shell.system(f"{shlex.quote(sys.executable)} -m pip {line}")
    # An interpreter that began before the first installation lacks its directory.
    own = site.getusersitepackages()
    if site.ENABLE_USER_SITE and own not in sys.path and os.path.isdir(own):
        site.addsitedir(own)
    importlib.invalidate_caches()


def write_file(shell, line, cell):
    words = shlex.split(line)
    appends = words[:1] == ["-a"] and bool(words.pop(0))
    if len(words) != 1:
        raise UsageError("`%%writefile [-a] FILE` names one file")
    path = os.path.expanduser(words[0])
    verb = ("Appending to" if appends else "Overwriting") if os.path.exists(path) else "Writing"
    with open(path, "a" if appends else "w", encoding="utf-8") as file:
        file.write(cell if cell.endswith("\n") else cell + "\n")
    print(verb, path)


def capture(shell, line, cell):
    session = shell._session
    display, words = session.display, shlex.split(line)
    streams = {name: io.StringIO() for name in ("stdout", "stderr") if f"--no-{name}" not in words}
    kept, display.results = display.results, None
    results = None
    try:
        with contextlib.ExitStack() as stack:
            for name, stream in streams.items():
                stack.enter_context(getattr(contextlib, f"redirect_{name}")(stream))
            value = session.run(cell, session.file)
            if value is not None:
                display.show(value)
            display.show_figures()
    finally:
        results, display.results = display.results, kept
        texts = [streams[name].getvalue() if name in streams else "" for name in ("stdout", "stderr")]
        for name in words:
            if not name.startswith("-"):
                shell.user_ns[name] = Captured(session, *texts, results)


def shown(mime, name):
    def show(shell, line, cell):
        shell._session.display.publish({mime: cell, "text/plain": f"<{name}>"})

    return show


# Commands that have their effect without being asked for, or none here.


def nothing(shell, line):
    """Charts appear without it."""


def without_effect(name, instead=""):
    return lambda shell, line: note(f"`%{name}` has no effect here{instead}")


def configure(shell, line):
    if not line.startswith("InlineBackend"):
        note("`%config` has no effect here")


def aliased(command):
    return lambda shell, line: shell.system(f"{command} {line}")


LINE = {
    "autoreload": without_effect("autoreload", ": `importlib.reload(module)` reads a module anew"),
    "cd": change_directory,
    "config": configure,
    "env": environment,
    "load_ext": without_effect("load_ext", ": extensions of IPython are not loaded"),
    "lsmagic": lambda shell, line: print(shell.known()),
    "matplotlib": nothing,
    "pip": pip,
    "pwd": lambda shell, line: os.getcwd(),
    "reload_ext": without_effect("reload_ext"),
    "reset": reset,
    "run": run_file,
    "set_env": set_environment,
    "sx": lambda shell, line: shell.getoutput(line),
    "system": lambda shell, line: shell.getoutput(line),
    "time": timed,
    "timeit": timeit,
    "who": who,
    "who_ls": lambda shell, line: names(shell),
    "whos": whos,
    "xmode": without_effect("xmode"),
} | {name: aliased(name) for name in ("cat", "cp", "ls", "mkdir", "mv", "rm", "rmdir")}

CELLS = {
    "bash": script(["bash"]),
    "capture": capture,
    "file": write_file,
    "html": shown("text/html", "HTML"),
    "javascript": shown("application/javascript", "JavaScript"),
    "js": shown("application/javascript", "JavaScript"),
    "latex": shown("text/latex", "LaTeX"),
    "markdown": shown("text/markdown", "Markdown"),
    "python": script(["python3"]),
    "python3": script(["python3"]),
    "script": script([]),
    "sh": script(["sh"]),
    "svg": shown("image/svg+xml", "SVG"),
    "time": timed,
    "timeit": timeit,
    "writefile": write_file,
}

# The others run the code as that of the session.
AS_TEXT = set(CELLS.values()) - {capture, timed, timeit}
