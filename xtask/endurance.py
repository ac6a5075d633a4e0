"""What long runs against a server share: a server of their own, what it holds, and the report."""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def descendants(of):
    """Returns the number of processes that a process or one of these has started."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            # It has ended meanwhile.
            pass
    found, new = set(), {of}
    while new:
        new = {process for process, parent in parents.items() if parent in new}
        found |= new
    return len(found)


def state(server):
    """Returns what the server and its processes hold now."""
    status = dict(line.split(":", 1) for line in open(f"/proc/{server.pid}/status"))
    groups = sum(f"/ringfence-{server.pid}-" in folder for folder, _, _ in os.walk("/sys/fs/cgroup"))
    return {
        "resident KiB": int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir(f"/proc/{server.pid}/fd")),
        "processes": descendants(server.pid),
        "control groups": groups,
        "mounts": len(open(f"/proc/{server.pid}/mounts").readlines()),
    }


def surplus(before, now, allowed):
    """Returns the names of what there is more of than before, beyond what is allowed. Memory is only shown."""
    return [name for name in now if name != "resident KiB" and now[name] > before[name] + allowed.get(name, 0)]


def settled(server, before, allowed):
    """Waits until there is no surplus, at most two minutes; returns what is there then."""
    until = time.monotonic() + 120
    while True:
        now = state(server)
        if not surplus(before, now, allowed) or time.monotonic() > until:
            return now
        time.sleep(0.5)


def line(values):
    return ", ".join(f"{name} {value}" for name, value in values.items())


def quantiles(times):
    ordered = sorted(times)
    return f"{len(ordered):8} times, median {statistics.median(ordered) * 1000:8.1f} ms, p99 {ordered[len(ordered) * 99 // 100] * 1000:8.1f} ms, longest {ordered[-1] * 1000:8.1f} ms"


class Place:
    """Directories of a server's own."""

    def __init__(self, ringfence):
        self.ringfence = ringfence
        self.path = tempfile.mkdtemp()
        names = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "XDG_RUNTIME_DIR": "run"}
        self.environment = {**os.environ, **{name: f"{self.path}/{below}" for name, below in names.items()}}
        os.mkdir(f"{self.path}/run", 0o700)

    def command(self, *words):
        """Returns what a command prints."""
        done = subprocess.run([self.ringfence, *words], env=self.environment, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def serve(self, options, ready):
        """Starts the server, and waits until `ready` of its log is something; returns both."""
        log = f"{self.path}/log"
        with open(log, "w") as stderr:
            server = subprocess.Popen([self.ringfence, "serve", *options], env=self.environment, stderr=stderr)
        while True:
            with open(log) as file:
                text = file.read()
            found = ready(text)
            if found:
                return server, found
            if server.poll() is not None:
                raise SystemExit(f"the server ended: {text}")
            time.sleep(0.1)


def run(begin, measure):
    """Runs `measure(server, about, seconds, count, say)` with what `begin` starts, and adds what it says to the report.

    The arguments of the program are RINGFENCE SECONDS COUNT REPORT. It fails if `measure` returns false.
    """
    ringfence, seconds, count, report = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    place = Place(ringfence)
    text = []

    def say(words):
        print(words, flush=True)
        text.append(words)

    server, about = begin(place)
    good = False
    try:
        good = measure(server, about, seconds, count, say)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(place.path)
        with open(report, "a") as file:
            file.write("\n".join(text) + "\n")
    raise SystemExit(0 if good else 1)
