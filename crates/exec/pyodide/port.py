

class Port(Channel):
    """Lines of JSON to the host and back, through Deno. There is one thread: while it waits, nothing else runs, except
    where calls of an event loop are under way. Then a call that waits lets the loop go on meanwhile."""

    def __init__(self, port):
        self.port = port
        self.process = posix.getpid()
        self.buffer, self.searched = bytearray(), 0
        self.closed = None
        self.listeners, self.armed = {}, False

    def write(self, line, meanwhile):
        while self.closed is None and self.port.room() < len(line):
            self.wait()
            meanwhile()
        if self.closed is None:
            self.port.send(line.decode())

    def read(self):
        text = self.port.taken()
        if text is None:
            self.close("the bridge to the host is closed")
            return
        self.buffer += text.encode()
        yield from self.whole()

    def wait(self):
        if not self.port.listens():
            return self.port.wait()
        from pyodide.ffi import run_sync

        run_sync(self.port.arrived())

    def listen(self, loop, take_in):
        self.listeners[loop] = take_in
        self.arm()

    def ignore(self, loop):
        del self.listeners[loop]

    def arm(self):
        if self.listeners and not self.armed and self.closed is None:
            self.armed = True
            self.port.arrived().then(self.arrive)

    def arrive(self, _):
        self.armed = False
        for take_in in list(self.listeners.values()):
            take_in()
        self.arm()


class Ported(Bridge):
    """Calls from any event loop of the one thread. Others may call while one of them waits."""

    def __init__(self, port):
        super().__init__(Port(port))
        self.writing = contextlib.nullcontext()

    def call(self, path, args=(), kwargs={}):
        """Calls a function, and waits."""
        answer = self.begin(path, args, kwargs, lambda: None)
        try:
            while not answer.done:
                self.channel.wait()
                self.settle()
        except BaseException:
            self.take_back(answer)
            raise
        return answer.value()


def ported_device(port):
    """`device`, over a port."""
    device = Device(None)
    device._open = Ported(port)
    return device


