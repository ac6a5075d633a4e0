"""The guest's end of the bridge to the host's functions; docs/protocol/bridge.md says what goes over it.

`device` is made of what is below. Nothing is asked of the host before it is first used.
"""


class Text(str):
    """Words that are shown as they are."""

    __repr__ = str.__str__


class Channel:
    """Lines of JSON to the host and back."""

    MAX_LINE, MAX_DEPTH, MAX_VALUES = 1 << 20, 32, 100_000

    def __init__(self, descriptor):
        # Two numbers, so that the program's own files get the lowest ones.
        self.descriptor = descriptor
        self.process = posix.getpid()
        self.buffer, self.searched = bytearray(), 0
        self.closed = None
        posix.set_blocking(descriptor, False)

    def check(self, value, room=MAX_DEPTH, left=None):
        """That JSON carries the value as it is."""
        kind = type(value)
        if kind is str and len(value) >= self.MAX_LINE:
            raise self.too_long(len(value))
        if kind is float and not -float("inf") < value < float("inf"):
            raise ValueError("what is no number, or infinite, cannot go over the bridge")
        left = [self.MAX_VALUES] if left is None else left
        if value is None or kind in (str, bool, float):
            return
        if isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 64:
                raise ValueError("a whole number of more than 64 bits cannot go over the bridge; pass it as a text")
        elif isinstance(value, (list, tuple, dict)):
            if not room:
                raise ValueError(f"a value that is nested more than {self.MAX_DEPTH} deep cannot go over the bridge")
            left[0] -= 1 + len(value)
            if left[0] < 0:
                raise ValueError(f"more than {self.MAX_VALUES} values cannot go over the bridge at once")
            if isinstance(value, dict):
                for key in value:
                    if not isinstance(key, str):
                        raise TypeError("a dictionary goes over the bridge only if its keys are texts")
                value = value.values()
            for part in value:
                self.check(part, room - 1, left)
        elif not isinstance(value, (str, float)):
            raise TypeError(f"a value of the type {kind.__name__} cannot go over the bridge; pass JSON's types")

    def line(self, kind, id, data):
        import json

        try:
            line = json.dumps({"type": kind, "id": id, "data": data}, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text with half of a surrogate pair cannot go over the bridge") from None
        if len(line) >= self.MAX_LINE:
            raise self.too_long(len(line))
        return line + b"\n"

    def too_long(self, length):
        return ValueError(f"{length} bytes cannot go over the bridge at once; {self.MAX_LINE} is the limit")

    def write(self, line, meanwhile):
        """Writes a line; `meanwhile` takes in what comes, so that neither side waits for the other."""
        import select

        rest = memoryview(line)
        try:
            while rest:
                try:
                    rest = rest[posix.write(self.descriptor, rest) :]
                except BlockingIOError:
                    ready = select.poll()
                    ready.register(self.descriptor, select.POLLIN | select.POLLOUT)
                    ready.poll()
                    meanwhile()
        except OSError:
            meanwhile()
            self.close("the bridge to the host is closed")
        except BaseException:
            if len(rest) != len(line):
                self.close("the bridge to the host is closed: a call was interrupted while it was sent")
            raise

    def read(self):
        """The messages that have come. None are left when the channel is closed."""
        while self.closed is None:
            try:
                data = posix.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close("the bridge to the host is closed")
            self.buffer += data
            yield from self.whole()

    def whole(self):
        import json

        while (end := self.buffer.find(b"\n", self.searched)) >= 0:
            line = self.buffer[:end]
            del self.buffer[: end + 1]
            self.searched = 0
            yield json.loads(line)
        self.searched = len(self.buffer)

    def wait(self):
        """Returns once there is something to be read."""
        import select

        ready = select.poll()
        ready.register(self.descriptor, select.POLLIN)
        ready.poll()

    def listen(self, loop, take_in):
        loop.add_reader(self.descriptor, take_in)

    def ignore(self, loop):
        loop.remove_reader(self.descriptor)

    def close(self, why):
        self.closed = self.closed or why


class Answer:
    """What a call waits for."""

    def __init__(self, settled):
        self.settled = settled
        self.done = False

    def settle(self, message):
        self.message = message
        self.done = True
        self.settled()

    def value(self):
        if self.message["type"] == "result":
            return self.message["data"]["value"]
        kinds = {
            "invalid_arguments": TypeError,
            "not_found": AttributeError,
            "permission_denied": PermissionError,
            "rejected": PermissionError,
            "timeout": TimeoutError,
            "approval_timeout": TimeoutError,
            "closed": ConnectionError,
        }
        fault = self.message["data"]
        raise kinds.get(fault["kind"], RuntimeError)(fault["error"])


class Bridge:
    """Calls of the host's functions, from any thread and any event loop of this process."""

    def __init__(self, channel):
        import threading

        self.channel = channel
        self.writing = threading.Lock()
        self.turn = threading.Condition()
        self.reading = False
        self.pending = {}
        self.loops = {}
        self.last = 0

    def begin(self, path, args, kwargs, settled):
        """Sends a call; what its answer will be in."""
        channel = self.channel
        if posix.getpid() != channel.process:
            raise RuntimeError("`device` belongs to the process that the program began in")
        channel.check([args, kwargs])
        answer = Answer(settled)
        with self.turn:
            self.last += 1
            id = str(self.last)
            answer.id = id
            line = channel.line("call", id, {"path": path, "args": args, "kwargs": kwargs})
            self.pending[id] = answer
        try:
            with self.writing:
                if channel.closed is None:
                    channel.write(line, self.take_in)
        except BaseException:
            self.pending.pop(id, None)
            raise
        if channel.closed is not None:
            self.lose_all()
        return answer

    def take_back(self, answer):
        """Tells the host that nobody waits for a call any more."""
        if self.pending.pop(answer.id, None) is not None and self.channel.closed is None:
            line = self.channel.line("error", answer.id, {"kind": "cancelled", "error": "cancelled"})
            with self.writing:
                self.channel.write(line, self.take_in)

    def take_in(self):
        """Takes in what has come, unless somebody else does."""
        with self.turn:
            if self.reading:
                return
            self.reading = True
        try:
            self.settle()
        finally:
            with self.turn:
                self.reading = False
                self.turn.notify_all()

    def settle(self):
        for message in self.channel.read():
            if message["id"] == "":
                self.channel.close(f"the bridge to the host is closed: {message['data']['error']}")
            elif answer := self.pending.pop(message["id"], None):
                answer.settle(message)
        if self.channel.closed is not None:
            self.lose_all()

    def lose_all(self):
        for id in list(self.pending):
            if answer := self.pending.pop(id, None):
                data = {"kind": "closed", "error": self.channel.closed}
                answer.settle({"type": "error", "id": id, "data": data})

    def call(self, path, args=(), kwargs={}):
        """Calls a function, and waits."""
        answer = self.begin(path, args, kwargs, lambda: None)
        try:
            while not answer.done:
                with self.turn:
                    # Whoever comes first reads for all.
                    while self.reading and not answer.done:
                        self.turn.wait()
                    if answer.done:
                        break
                    self.reading = True
                try:
                    self.channel.wait()
                    self.settle()
                finally:
                    with self.turn:
                        self.reading = False
                        self.turn.notify_all()
        except BaseException:
            self.take_back(answer)
            raise
        return answer.value()

    async def call_at_once(self, path, args, kwargs):
        """Calls a function; others can be called meanwhile."""
        import asyncio

        loop = asyncio.get_running_loop()
        settled = loop.create_future()

        def wake():
            if not settled.done():
                settled.set_result(None)

        def settle():
            try:
                loop.call_soon_threadsafe(wake)
            except RuntimeError:
                pass  # The loop is closed: nobody waits there any more.

        answer = self.begin(path, args, kwargs, settle)
        self.listen(loop)
        try:
            await settled
        except BaseException:
            self.take_back(answer)
            raise
        finally:
            self.leave(loop)
        return answer.value()

    def listen(self, loop):
        waiting = self.loops[loop] = self.loops.get(loop, 0) + 1
        if waiting == 1:
            self.channel.listen(loop, self.take_in)

    def leave(self, loop):
        self.loops[loop] -= 1
        if not self.loops[loop]:
            del self.loops[loop]
            self.channel.ignore(loop)


def bridged(device, entry):
    """The function that stands for one of the host's."""
    import inspect

    path = entry["path"]

    def function(*args, **kwargs):
        return device._bridge().call(path, args, kwargs)

    async def aio(*args, **kwargs):
        return await device._bridge().call_at_once(path, args, kwargs)

    def parameter(given):
        kind = getattr(inspect.Parameter, given["kind"].upper())
        shown = {name: Text(given[name]) for name in ("default", "annotation") if given[name] is not None}
        return inspect.Parameter(given["name"], kind, **shown)

    returns = {} if entry["returns"] is None else {"return_annotation": Text(entry["returns"])}
    signature = inspect.Signature([parameter(given) for given in entry["parameters"]], **returns)
    for made, name in ((function, path), (aio, path + ".aio")):
        made.__name__, made.__qualname__, made.__module__ = name.rpartition(".")[2], name, "device"
        made.__doc__, made.__signature__ = entry["doc"], signature
    function.aio = aio
    return function


class Skill:
    # A property gives each object a text of its own, which is what `help` shows.
    @property
    def __doc__(self):
        import inspect

        told = ["Functions of the host:"]
        for name in sorted(name for name in self.__dict__ if not name.startswith("_")):
            function = self.__dict__[name]
            doc = function.__doc__.strip().replace("\n", "\n    ")
            told.append(f"{function.__qualname__}{inspect.signature(function)}" + (f"\n    {doc}" if doc else ""))
        return "\n\n".join(told)

    def __init__(self, name, functions):
        self.__dict__.update(functions)
        self.__name__ = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        known = ", ".join(sorted(known for known in self.__dict__ if not known.startswith("_")))
        raise AttributeError(f"not found: `{self.__name__}` has no function `{name}`; it has {known}")

    def __dir__(self):
        return sorted(self.__dict__)

    def __repr__(self):
        return f"<skill {self.__name__}: {', '.join(name for name in dir(self) if not name.startswith('_'))}>"


class Device:
    @property
    def __doc__(self):
        return (
            "The host's functions: `device.<Skill>.<function>(...)`, or `await device.<Skill>.<function>.aio(...)`.\n\n"
            "`device.search_skills(query)` finds functions, `device.describe_function(path)` describes one,\n"
            f"`help(device.<Skill>)` those of a skill. There is {self._names()}."
        )

    def __repr__(self):
        return "<device: functions of the host; help(device) tells of them>"

    def __init__(self, descriptor):
        import _thread

        self._opening = _thread.RLock()
        self._process = posix.getpid()
        self._descriptor = descriptor
        self._open = None

    def _bridge(self):
        with self._opening:
            if self._open is None:
                if posix.getpid() != self._process:
                    raise RuntimeError("`device` belongs to the process that the program began in")
                self._open = Bridge(self._channel())
            return self._open

    def _channel(self):
        return Channel(self._descriptor)

    def _skills(self):
        found = {}
        for entry in self._bridge().call("device.catalogue"):
            skill, _, name = entry["path"].partition(".")
            found.setdefault(skill, {})[name] = bridged(self, entry)
        return {name: Skill(name, functions) for name, functions in found.items()}

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__.update(self._skills())
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"not found: there is no skill `{name}`; there is {self._names()}")

    def _names(self):
        return ", ".join(name for name in dir(self) if name not in ("search_skills", "describe_function")) or "none at all"

    def __dir__(self):
        names = [name for name in self.__dict__ if not name.startswith("_")]
        if not names:
            try:
                names = list(self._skills())
            except (OSError, RuntimeError):
                pass  # Without a bridge there is nothing else.
        return sorted(names) + ["describe_function", "search_skills"]

    def search_skills(self, query=""):
        """Functions that fit the words of `query`, as a list of {path, signature, summary}."""
        return self._bridge().call("device.search_skills", (query,))

    def describe_function(self, path):
        """The `def` line and the documentation of the function `path`, such as "Notes.add"."""
        return self._bridge().call("device.describe_function", (path,))


def open_device(number):
    """`device`, over the channel that the job came on."""
    descriptor = posix.dup(number)
    posix.close(number)
    return Device(descriptor)


