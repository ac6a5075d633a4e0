"""Keeps many sandboxes at a server, uses and replaces them for a while, and looks for what is left behind.

usage: churn.py RINGFENCE SECONDS SANDBOXES REPORT
"""

import http.client
import json
import os
import random
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict

AT_ONCE = 8
SANDBOX = {"memory": "64MiB", "disk": "16MiB", "pids": 32, "timeout": "86000"}


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Failed(Exception):
    pass


class Client:
    """A connection to the server, which measures what it asks."""

    def __init__(self, path, times):
        self.connection = Connection(path)
        self.times = times

    def ask(self, what, method, path, body=None):
        text = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        begun = time.monotonic()
        self.connection.request(method, path, text, headers)
        response = self.connection.getresponse()
        answer = response.read()
        self.times[what].append(time.monotonic() - begun)
        if response.status >= 300:
            raise Failed(f"{what}: {response.status} {answer[:300].decode(errors='replace')}")
        return json.loads(answer) if answer else None


def create(client):
    return client.ask("create", "POST", "/v1/sandboxes", SANDBOX)["id"]


def remove(client, sandbox):
    client.ask("remove", "DELETE", f"/v1/sandboxes/{sandbox}")


def expect(got, wanted):
    if got != wanted:
        raise Failed(f"expected {wanted!r}, got {got!r}")


def command(client, sandbox):
    done = client.ask("exec", "POST", f"/v1/sandboxes/{sandbox}/exec", {"command": ["echo", sandbox]})
    expect(done["stdout"], sandbox + "\n")


def code(client, sandbox):
    done = client.ask("run", "POST", f"/v1/sandboxes/{sandbox}/run", {"code": "x = globals().get('x', 0) + 1; print(x > 0)"})
    expect(done["stdout"], "True\n")


def files(client, sandbox):
    path = f"/v1/sandboxes/{sandbox}/files"
    client.ask("mkdir", "POST", f"{path}/mkdir", {"path": "/workspace/a/b"})
    listed = client.ask("list", "GET", f"{path}/list?path=/workspace&depth=2")
    if not any(entry["path"] == "/workspace/a/b" for entry in listed["entries"]):
        raise Failed(f"the directory is not listed: {listed}")


def background(client, sandbox):
    client.ask("start", "POST", f"/v1/sandboxes/{sandbox}/processes", {"command": ["sleep", "1000"]})


def pause(client, sandbox):
    client.ask("pause", "POST", f"/v1/sandboxes/{sandbox}/pause")
    client.ask("resume", "POST", f"/v1/sandboxes/{sandbox}/resume")


def replace(client, sandbox):
    remove(client, sandbox)
    return create(client)


def fork(client, sandbox):
    made = client.ask("fork", "POST", f"/v1/sandboxes/{sandbox}/fork", {"count": 1})["sandboxes"][0]["id"]
    remove(client, sandbox)
    return made


# Uses with their weights. One that returns a sandbox has replaced the old one by it.
USES = {command: 40, code: 10, files: 20, background: 3, pause: 7, replace: 15, fork: 5}


def work(path, free, lock, until, times, counts, errors):
    client = Client(path, times)
    uses, weights = list(USES), list(USES.values())
    while time.monotonic() < until and len(errors) < 20:
        with lock:
            sandbox = free.pop(random.randrange(len(free)))
        use = random.choices(uses, weights)[0]
        try:
            sandbox = use(client, sandbox) or sandbox
            counts[use.__name__] += 1
        except Exception as error:
            errors.append(f"{use.__name__}: {error!r}")
            client = Client(path, times)
        with lock:
            free.append(sandbox)


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


def settled(server, before):
    """Waits until nothing but memory is more than before, at most two minutes; returns what is there then."""
    for _ in range(240):
        now = state(server)
        if all(now[name] <= before[name] for name in now if name != "resident KiB"):
            break
        time.sleep(0.5)
    return now


def line(values):
    return ", ".join(f"{name} {value}" for name, value in values.items())


def quantiles(times):
    ordered = sorted(times)
    return f"{len(ordered):8} times, median {statistics.median(ordered) * 1000:7.1f} ms, p99 {ordered[len(ordered) * 99 // 100] * 1000:7.1f} ms, longest {ordered[-1] * 1000:7.1f} ms"


def start(ringfence, place):
    environment = {**os.environ, "XDG_STATE_HOME": f"{place}/state", "XDG_CONFIG_HOME": f"{place}/config", "XDG_RUNTIME_DIR": f"{place}/run"}
    os.mkdir(f"{place}/run", 0o700)
    server = subprocess.Popen([ringfence, "serve"], env=environment, stderr=open(f"{place}/log", "w"))
    path = f"{place}/run/ringfence/engine.sock"
    while not os.path.exists(path):
        if server.poll() is not None:
            raise SystemExit(f"the server ended: {open(f'{place}/log').read()}")
        time.sleep(0.1)
    return server, path


def churn(server, path, seconds, count, say):
    times, counts, errors = defaultdict(list), Counter(), []
    client = Client(path, times)
    # The first of each kind makes what stays: launchers, pools, allocations.
    first = create(client)
    for use in (command, code, files, pause):
        use(client, first)
    remove(client, first)
    before = settled(server, state(server))
    say(f"before       {line(before)}")
    free = [create(client) for _ in range(count)]
    say(f"with {count:4}    {line(state(server))}")
    until, lock = time.monotonic() + seconds, threading.Lock()
    arguments = (path, free, lock, until, times, counts, errors)
    workers = [threading.Thread(target=work, args=arguments) for _ in range(AT_ONCE)]
    for worker in workers:
        worker.start()
    begun = time.monotonic()
    while any(worker.is_alive() for worker in workers):
        workers[0].join(min(60, max(1, seconds / 10)))
        say(f"after {time.monotonic() - begun:5.0f} s {line(state(server))}; {sum(counts.values())} uses, {len(errors)} errors")
    # The server has closed the first connection, which was idle for long.
    client = Client(path, times)
    for sandbox in free:
        try:
            remove(client, sandbox)
        except Failed as error:
            errors.append(f"last remove: {error}")
    after = settled(server, before)
    say(f"at the end   {line(after)}")
    say(f"\nuses: {line(counts)}")
    for name, taken in sorted(times.items()):
        say(f"{name:8} {quantiles(taken)}")
    for error in errors[:20]:
        say(f"error: {error}")
    left = [name for name in after if name != "resident KiB" and after[name] > before[name]]
    say(f"\nleft behind: {', '.join(left) or 'nothing'}; errors: {len(errors)}")
    return not left and not errors


def main():
    ringfence, seconds, count, report = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    place = tempfile.mkdtemp()
    text = []

    def say(words):
        print(words, flush=True)
        text.append(words)

    server, path = start(ringfence, place)
    try:
        good = churn(server, path, seconds, count, say)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(place)
    with open(report, "a") as file:
        file.write("\n".join(text) + "\n")
    raise SystemExit(0 if good else 1)


main()
