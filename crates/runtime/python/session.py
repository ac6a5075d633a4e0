"""A session: one interpreter that evaluates pieces of code, each told on descriptor 3 and answered there.

A message has its length in four bytes, then what is to be done in one.
E, to evaluate: a number, the most bytes of a value that are wanted, which descriptors follow (1: standard input, 2: a
bridge, see bridge.py), and a job as worker.py reads it. The answer repeats the number, says the status, and how long the last expression's
value is as a text (all ones where there is none); the text, as far as it is wanted, follows its own length.
F, to be forked, as the launcher has said or will say: a number. Answered the same way, but by the fork not at all.
"""
import _ast
import _signal
import builtins

# What `from __future__ import …` sets in a piece of code holds for those that follow, as at a prompt.
FUTURES = 0x1FE0000

SIGNALS = _signal.valid_signals()

# How many pieces of code are kept to be shown in tracebacks.
MAX_SOURCES = 1000


def hear(descriptor, count):
    """Waits for the engine. What a signal's handler raises meanwhile belongs to no evaluation."""
    while True:
        try:
            return posix.read(descriptor, count)
        except OSError:
            # The channel was closed by the session itself: nobody can reach it any more.
            posix._exit(1)
        except BaseException as error:
            complain(error)


def complain(error):
    try:
        sys.__excepthook__(type(error), error, error.__traceback__)
    except BaseException:
        pass


def say(data):
    try:
        while data:
            data = data[posix.write(3, data) :]
    except OSError:
        posix._exit(1)


def number(data):
    return int.from_bytes(data, "little")


def close(descriptor):
    try:
        posix.close(descriptor)
    except OSError:
        pass  # The code has done that itself.


class Passing(Channel):
    """A channel that goes with the last who uses it."""

    def __del__(self):
        close(self.descriptor)


class Lasting(Device):
    __doc__ = Device.__doc__

    def _begin(self, descriptor):
        """Calls go over this channel from here on. What the host offers is asked for anew."""
        for name in [name for name in self.__dict__ if not name.startswith("_")]:
            del self.__dict__[name]
        self._process = posix.getpid()
        self._descriptor = descriptor

    def _channel(self):
        if self._descriptor is None:
            raise ConnectionError("functions of the host can be called only while an evaluation runs that has them")
        descriptor, self._descriptor = self._descriptor, None
        return Passing(descriptor)

    def _end(self):
        """Whoever still waits for an answer is told that none will come."""
        with self._opening:
            bridge, self._open = self._open, None
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            close(descriptor)
        if bridge is not None:
            bridge.channel.close("the bridge to the host is closed: the evaluation has ended")
            bridge.lose_all()


def connect_stdin(descriptor):
    posix.dup2(descriptor, 0)
    posix.close(descriptor)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)


def receive():
    """Takes over the descriptor that comes beside one byte on the channel."""
    import _socket

    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, 3)
    try:
        descriptor = channel.recvmsg(1, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)[1][0][2]
    finally:
        channel.detach()
    return int.from_bytes(descriptor[:4], sys.byteorder)


class Session:
    def __init__(self, library):
        import linecache

        self.library = library

        self.lines = linecache.cache
        self.process = posix.getpid()
        self.mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, SIGNALS)
        self.flags = 0
        self.names = []
        self.device = Lasting(None)
        self.main = type(sys)("__main__")
        self.main.__builtins__ = builtins
        sys.modules["__main__"] = self.main

    def file_name(self, name, code, evaluation):
        """A name of its own for each piece, so that functions of earlier ones keep their lines in tracebacks."""
        if name in self.lines:
            name = f"{name}#{evaluation}"
        self.lines[name] = (len(code), None, code.splitlines(True), name)
        self.names.append(name)
        if len(self.names) > MAX_SOURCES:
            self.lines.pop(self.names.pop(0), None)
        return name

    def run(self, code, file):
        """Runs a piece of code; the value of its last statement, if that is an expression."""
        tree = compile(code, file, "exec", _ast.PyCF_ONLY_AST | self.flags, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        compiled = compile(tree, file, "exec", self.flags, True)
        self.flags |= compiled.co_flags & FUTURES
        if last is not None:
            last = compile(_ast.Expression(last.value), file, "eval", self.flags, True)
        space = self.main.__dict__
        if tree.body:
            exec(compiled, space)
        return last and eval(last, space)

    def attempt(self, code, file):
        """Runs a piece of code; its status, and the text of its value or None."""
        try:
            value = self.run(code, file)
            if value is None:
                return 0, None
            text = repr(value)
            builtins._ = value
            return 0, text
        except SystemExit as request:
            return exit_status(request.code), None
        except BaseException as error:
            trace = error.__traceback__.tb_next
            if trace is not None and trace.tb_frame.f_code is Session.run.__code__:
                trace = trace.tb_next
            show_exception(type(error), error, trace, file, code)
            return (130 if isinstance(error, KeyboardInterrupt) else 1), None

    def evaluate(self, message):
        evaluation, wanted = message[:4], number(message[4:8])
        stdin, bridge = message[8] & 1, message[8] & 2
        name, code, arguments, variables = parse_job(message[9:])
        status, text = 1, None
        try:
            if stdin:
                connect_stdin(receive())
            if bridge:
                self.device._begin(receive())
                # Who has a variable of that name keeps it.
                self.main.__dict__.setdefault("device", self.device)
            set_variables(variables)
            sys.argv[:] = [name, *arguments]
            self.let_signals_in()
            status, text = self.attempt(code, self.file_name(name, code, number(evaluation)))
        except BaseException as error:
            complain(error)
        self.hold_signals()
        if posix.getpid() != self.process:
            # A child that the code forked, and that came back here: the session is its parent's.
            finish(status)
        self.end_bridge()
        flush()
        if stdin:
            connect_stdin(posix.open("/dev/null", posix.O_RDONLY))
        self.answer(evaluation, status, text, wanted)

    def end_bridge(self):
        try:
            self.device._end()
        except BaseException as error:
            complain(error)

    def let_signals_in(self):
        """What the handlers of those that have waited raise is no part of this evaluation."""
        try:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, self.mask)
        except BaseException as error:
            complain(error)

    def hold_signals(self):
        """Lets signals wait for the next evaluation: a handler that raises would tear a message apart."""
        mask = None
        while True:
            try:
                if mask is None:
                    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
                _signal.pthread_sigmask(_signal.SIG_BLOCK, SIGNALS)
                break
            except BaseException as error:
                complain(error)
        self.mask = mask

    def answer(self, evaluation, status, text, wanted):
        head = evaluation + bytes([status])
        if text is None:
            return say(head + b"\xff" * 8 + bytes(4))
        data = str.encode(text, "utf-8", "backslashreplace")
        cut = data[:wanted].decode("utf-8", "ignore").encode()
        say(head + len(data).to_bytes(8, "little") + len(cut).to_bytes(4, "little") + cut)


    def fork(self, number):
        """Lets the launcher make a fork."""
        # What is not written yet would be written twice.
        flush()
        status = self.library.ringfence_fork()
        if status == 3:
            self.process = posix.getpid()
            return
        self.answer(number, -status & 0xFF, None, 0)


def flush():
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except BaseException:
            pass


def serve_session(library):
    posix.set_inheritable(3, False)
    session = Session(library)
    while True:
        message = read_exactly(number(read_exactly(4, hear)), hear)
        try:
            if message[:1] == b"E":
                session.evaluate(message[1:])
            elif message[:1] == b"F":
                session.fork(message[1:5])
        except BaseException as error:
            complain(error)


