"""Keeps many sandboxes at a server, uses and replaces them for a while, and looks for what is left behind.

usage: churn.py RINGFENCE SECONDS SANDBOXES REPORT
"""

import http.client
import json
import os
import random
import socket
import threading
import time
from collections import Counter, defaultdict

from endurance import line, quantiles, run, settled, state, surplus

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


def begin(place):
    path = f"{place.path}/run/ringfence/engine.sock"
    return place.serve([], lambda log: path if os.path.exists(path) else None)


def churn(server, path, seconds, count, say):
    times, counts, errors = defaultdict(list), Counter(), []
    client = Client(path, times)
    # The first of each kind makes what stays: launchers, pools, allocations.
    first = create(client)
    for use in (command, code, files, pause):
        use(client, first)
    remove(client, first)
    before = settled(server, state(server), {})
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
    after = settled(server, before, {})
    say(f"at the end   {line(after)}")
    say(f"\nuses: {line(counts)}")
    for name, taken in sorted(times.items()):
        say(f"{name:8} {quantiles(taken)}")
    for error in errors[:20]:
        say(f"error: {error}")
    left = surplus(before, after, {})
    say(f"\nleft behind: {', '.join(left) or 'nothing'}; errors: {len(errors)}")
    return not left and not errors


run(begin, churn)
