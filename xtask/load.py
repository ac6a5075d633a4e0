"""Has many clients run programs at a server over TCP for a while, and looks for what is wrong, lost or left behind.

usage: load.py RINGFENCE SECONDS CLIENTS REPORT
"""

import http.client
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict

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


def more(before, now):
    """Returns what there is more of than before, beyond what pools may hold. Memory is only shown."""
    return [name for name in now if name != "resident KiB" and now[name] > before[name] + POOLS.get(name, 0)]


def settled(server, before):
    """Waits until nothing is left but pools, at most a minute; returns what is there then."""
    until = time.monotonic() + 60
    while True:
        now = state(server)
        if not more(before, now) or time.monotonic() > until:
            return now
        time.sleep(0.5)


def line(values):
    return ", ".join(f"{name} {value}" for name, value in values.items())


def quantiles(times):
    ordered = sorted(times)
    return f"{len(ordered):8} times, median {statistics.median(ordered) * 1000:8.1f} ms, p99 {ordered[len(ordered) * 99 // 100] * 1000:8.1f} ms, longest {ordered[-1] * 1000:8.1f} ms"


def start(ringfence, environment, place):
    log = open(f"{place}/log", "w")
    server = subprocess.Popen([ringfence, "serve", "--listen", "127.0.0.1:0"], env=environment, stderr=log)
    while True:
        text = open(f"{place}/log").read()
        found = [words for words in text.splitlines() if words.startswith("API at http://")]
        if found:
            return server, found[0].removeprefix("API at http://")
        if server.poll() is not None:
            raise SystemExit(f"the server ended: {text}")
        time.sleep(0.1)


def load(server, address, keys, seconds, count, say):
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
    after = settled(server, before)
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
    left = more(before, after)
    failures = sum(number for status, number in statuses.items() if status >= 500)
    say(f"\nleft behind: {', '.join(left) or 'nothing'}; wrong or lost: {len(errors)}; infrastructure failures: {failures}")
    return not left and not errors and not failures


def main():
    ringfence, seconds, count, report = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    place = tempfile.mkdtemp()
    text = []

    def say(words):
        print(words, flush=True)
        text.append(words)

    os.makedirs(f"{place}/config/ringfence")
    with open(f"{place}/config/ringfence/ringfence.toml", "w") as file:
        file.write(f"[engine]\npool_size = {READY}\n")
    environment = {**os.environ, "XDG_STATE_HOME": f"{place}/state", "XDG_CONFIG_HOME": f"{place}/config", "XDG_RUNTIME_DIR": f"{place}/run"}
    os.mkdir(f"{place}/run", 0o700)
    create = [ringfence, "keys", "create", "load"]
    keys = [
        subprocess.run([*create, "--tenant", f"t{number % TENANTS}"], env=environment, check=True, capture_output=True, text=True).stdout.strip()
        for number in range(2 * TENANTS)
    ]
    server, address = start(ringfence, environment, place)
    good = False
    try:
        good = load(server, address, keys, seconds, count, say)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(place)
        with open(report, "a") as file:
            file.write("\n".join(text) + "\n")
    raise SystemExit(0 if good else 1)


main()
