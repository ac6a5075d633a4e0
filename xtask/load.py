"""Has many clients run programs at a server over TCP for a while, and looks for what is wrong, lost or left behind.

usage: load.py RINGFENCE SECONDS CLIENTS REPORT
"""

import http.client
import json
import os
import random
import threading
import time
from collections import Counter, defaultdict

from endurance import line, quantiles, run, settled, state, surplus

TENANTS = 8
# Programs that the server keeps ready for each tenant, and as many spare control groups. How many of them are there at a moment differs.
READY = 8
# What these take at most, of each kind: a control group for each of up to six controllers, pipes and sockets.
POOLS = {"processes": READY * TENANTS, "control groups": 2 * READY * TENANTS * 6, "descriptors": 2 * READY * TENANTS * 10}
# What a client keeps of its times: enough for a p99, whatever the length of the run.
KEPT = 20_000


class Wrong(Exception):
    """An answer that is not what the program must give."""


class Client:
    """One client: a kept connection and a key."""

    def __init__(self, address, key):
        self.address = address
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.connection = None
        self.times = defaultdict(list)
        self.statuses = Counter()
        self.waited = 0.0
        self.errors = []

    def ask(self, what, path, body):
        """Asks until the answer is no 429, which is waited for as long as it says; returns the answer's text."""
        while True:
            begun = time.monotonic()
            if self.connection is None:
                self.connection = http.client.HTTPConnection(self.address, timeout=180)
            self.connection.request("POST", path, json.dumps(body), self.headers)
            response = self.connection.getresponse()
            text = response.read().decode()
            self.statuses[response.status] += 1
            if response.status != 429:
                break
            pause = float(response.headers["Retry-After"])
            self.waited += pause
            # Not all at the same moment.
            time.sleep(pause * random.uniform(1, 1.5))
        taken = self.times[what]
        if len(taken) < KEPT:
            taken.append(time.monotonic() - begun)
        if response.status != 200:
            raise Wrong(f"{what}: {response.status} {text[:300]}")
        return text

    def run(self, what, code, expected, language="python", outcome="exited", **more):
        result = json.loads(self.ask(what, "/v1/run", {"code": code, "language": language, **more}))
        got = (result["stdout"], result["meta"]["outcome"])
        if got != (expected, outcome):
            raise Wrong(f"{what}: expected {(expected, outcome)}, got {result}")

    def work(self, until):
        while time.monotonic() < until and len(self.errors) < 5:
            use = random.choices(list(USES), list(USES.values()))[0]
            try:
                use(self)
            except Exception as error:
                # Whoever hangs up or answers nonsense has lost the request.
                self.errors.append(repr(error))
                self.connection = None


def python(client):
    number = random.randrange(10**9)
    client.run("python", f"print({number} * 2)", f"{number * 2}\n")


def bash(client):
    number = random.randrange(10**9)
    client.run("bash", f"echo {number}", f"{number}\n", "bash")


def failing(client):
    client.run("failing", "import sys; print(1); sys.exit(3)", "1\n")


def slow(client):
    client.run("slow", "import time; time.sleep(0.5); print('slept')", "slept\n")


def endless(client):
    client.run("endless", "while True: pass", "", outcome="timed_out", timeout=0.5)


def batch(client):
    runs = [{"code": f"print({number})"} for number in range(5)]
    lines = [json.loads(line) for line in client.ask("batch of 5", "/v1/batch", {"runs": runs}).splitlines()]
    got = sorted((line["index"], line["result"]["stdout"]) for line in lines if "result" in line)
    if got != [(number, f"{number}\n") for number in range(5)]:
        raise Wrong(f"batch: {lines}")


# Programs with their weights.
USES = {python: 60, bash: 20, failing: 5, slow: 5, endless: 2, batch: 8}


def begin(place):
    """Starts the server, and makes two keys for each tenant."""
    os.makedirs(f"{place.path}/config/ringfence")
    with open(f"{place.path}/config/ringfence/ringfence.toml", "w") as file:
        file.write(f"[engine]\npool_size = {READY}\n")
    keys = [place.command("keys", "create", "load", "--tenant", f"t{number % TENANTS}") for number in range(2 * TENANTS)]
    told = "API at http://"

    def address(log):
        return next((words.removeprefix(told) for words in log.splitlines() if words.startswith(told)), None)

    server, found = place.serve(["--listen", "127.0.0.1:0"], address)
    return server, (found, keys)


def load(server, about, seconds, count, say):
    address, keys = about
    # The first programs make what stays: launchers, pools, allocations. As many at a time as the server lets in.
    first = [Client(address, keys[number % len(keys)]) for number in range(2 * len(keys))]
    warm = [threading.Thread(target=client.work, args=(time.monotonic() + 3,)) for client in first]
    for thread in warm:
        thread.start()
    for thread in warm:
        thread.join()
    for client in first:
        client.connection.close()
    time.sleep(3)
    before = state(server)
    say(f"before       {line(before)}")
    clients = [Client(address, keys[number % len(keys)]) for number in range(count)]
    begun = time.monotonic()
    threads = [threading.Thread(target=client.work, args=(begun + seconds,)) for client in clients]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(min(60, max(1, seconds / 10)))
        answers = sum(sum(client.statuses.values()) for client in clients)
        say(f"after {time.monotonic() - begun:5.0f} s {line(state(server))}; {answers} answers")
    taken = time.monotonic() - begun
    for client in clients:
        if client.connection:
            client.connection.close()
    after = settled(server, before, POOLS)
    say(f"at the end   {line(after)}")
    say(f"idle, the server keeps up to {READY} programs ready for each of {TENANTS} tenants: {line(POOLS)} at most")
    statuses, times, errors = Counter(), defaultdict(list), []
    for client in clients + first:
        errors += client.errors
    for client in clients:
        statuses.update(client.statuses)
        for what, own in client.times.items():
            times[what] += own
    done = statuses[200]
    say(f"\n{count} clients with {len(keys)} keys of {TENANTS} tenants: {done} answers in {taken:.0f} s, {done / taken:.0f} a second")
    say(f"answers by status: {', '.join(f'{status}: {statuses[status]}' for status in sorted(statuses))}")
    say(f"429 with Retry-After: {statuses[429]}, for which clients waited {sum(client.waited for client in clients):.0f} s together")
    for name, own in sorted(times.items()):
        say(f"{name:11} {quantiles(own)}")
    for error in errors[:20]:
        say(f"error: {error}")
    left = surplus(before, after, POOLS)
    failures = sum(number for status, number in statuses.items() if status >= 500)
    say(f"\nleft behind: {', '.join(left) or 'nothing'}; wrong or lost: {len(errors)}; infrastructure failures: {failures}")
    return not left and not errors and not failures


run(begin, load)
