#!/usr/bin/python3
"""Compares two builds of Ringfence in turns.

usage: pairs.py OLD NEW [PAIRS [FIGURE ...]]

Every figure is measured in pairs, OLD and NEW one after the other in alternating order, each with a server, a home
and a state of its own. A row has the medians in milliseconds, the median of the ratios NEW / OLD, and its 95 %
interval (bootstrap of 2,000 samples). Exit status 1 if an interval lies above 1.05.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.05
SAMPLES = 2000
# Time for a server to refill its pools between two measurements.
REFILL = 0.03


class Side:
    """A build with a home, a server and an MCP server of its own."""

    def __init__(self, binary, place):
        self.binary = str(Path(binary).resolve())
        self.work = place / "work"
        self.work.mkdir(parents=True)
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(place / "home"), "LANG": "C.UTF-8"}
        for name in ("CONFIG", "STATE", "CACHE", "DATA", "RUNTIME"):
            suffix = "DIR" if name == "RUNTIME" else "HOME"
            directory = place / name.lower()
            directory.mkdir(mode=0o700)
            self.environment[f"XDG_{name}_{suffix}"] = str(directory)
        (place / "home").mkdir()
        config = place / "config" / "ringfence"
        config.mkdir()
        (config / "ringfence.toml").write_text("[sandbox.docker]\nimage = 'ringfence-sandbox:latest'\n")
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
            subprocess.run([*git, *words], cwd=self.work, check=True, env=self.environment)
        self.server = self.start(["serve"], stderr=subprocess.PIPE)
        self.wait()
        self.mcp = self.start(["mcp", "--workspace", str(self.work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.last = 0
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "pairs", "version": "1"})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def start(self, words, **pipes):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | pipes
        return subprocess.Popen([self.binary, *words], cwd=self.work, env=self.environment, **pipes)

    def wait(self):
        """Waits until the server answers."""
        for _ in range(400):
            if self.server.poll() is not None:
                sys.exit(f"{self.binary} serve: {self.server.stderr.read().decode()}")
            found = subprocess.run([self.binary, "session", "ls"], env=self.environment, cwd=self.work, capture_output=True)
            if found.returncode == 0:
                return
            time.sleep(0.05)
        sys.exit(f"{self.binary} serve does not answer")

    def run(self, words):
        """Runs a command, and returns its seconds."""
        began = time.perf_counter()
        ran = subprocess.run([self.binary, *words], cwd=self.work, env=self.environment, capture_output=True)
        took = time.perf_counter() - began
        if ran.returncode != 0:
            sys.exit(f"{self.binary} {' '.join(words)}: status {ran.returncode}: {ran.stderr.decode()}")
        return took

    def send(self, message):
        self.mcp.stdin.write(json.dumps(message).encode() + b"\n")
        self.mcp.stdin.flush()

    def ask(self, method, **params):
        """Sends a request of MCP, and returns its result."""
        self.last += 1
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        while True:
            line = json.loads(self.mcp.stdout.readline())
            if line.get("id") == self.last and "method" not in line:
                return line["result"]

    def call(self, tool, arguments):
        began = time.perf_counter()
        result = self.ask("tools/call", name=tool, arguments=arguments)
        took = time.perf_counter() - began
        if result.get("isError"):
            sys.exit(f"{self.binary} {tool}: {result}")
        return took

    def end(self):
        for process in (self.mcp, self.server):
            process.terminate()
            process.wait(60)


def whole(*words):
    return lambda side: side.run(words)


def tool(name, **arguments):
    return lambda side: side.call(name, arguments)


CODE = "print(1)"
FIGURES = {
    "start": whole("--version"),
    "run-cold": whole("run", "--no-engine", "-c", CODE),
    "bash-cold": whole("run", "--no-engine", "-l", "bash", "-c", "echo 1"),
    "run-engine": whole("run", "-c", CODE),
    "bash-engine": whole("run", "-l", "bash", "-c", "echo 1"),
    "workspace-engine": whole("run", "--workspace", ".", "-c", CODE),
    "session": whole("run", "--session", "plain", "-c", "1"),
    "session-workspace": whole("run", "--session", "tree", "--workspace", ".", "-c", "1"),
    "tool": whole("tool", "run_python_code", json.dumps({"code": CODE})),
    "mcp-python": tool("run_python_code", code=CODE),
    "mcp-shell": tool("shell", command="ls"),
    "docker": whole("run", "--runtime", "docker", "-c", CODE),
    "podman": whole("run", "--runtime", "podman", "-c", CODE),
}


def interval(ratios):
    """Returns the bounds of the median's 95 % interval."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))
    return medians[SAMPLES * 25 // 1000], medians[SAMPLES * 975 // 1000]


def measure(name, old, new, pairs):
    """Measures a figure and prints its row. Returns True if it is within the limit."""
    act = FIGURES[name]
    times = {old: [], new: []}
    for number in range(-3, pairs):
        for side in (old, new) if number % 2 else (new, old):
            took = act(side)
            if number >= 0:
                times[side].append(took * 1000)
            time.sleep(REFILL)
    ratios = [after / before for before, after in zip(times[old], times[new])]
    low, high = interval(ratios)
    verdict = "ok" if low <= LIMIT else "SLOWER"
    medians = [statistics.median(times[side]) for side in (old, new)]
    print(f"{name:<18} {pairs:>5} {medians[0]:>9.2f} {medians[1]:>9.2f} {statistics.median(ratios):>7.3f}   {low:.3f}-{high:.3f}  {verdict}", flush=True)
    return low <= LIMIT


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    names = sys.argv[4:] or list(FIGURES)
    place = Path(tempfile.mkdtemp(prefix="ringfence-pairs-"))
    sides = []
    try:
        for name, binary in (("old", sys.argv[1]), ("new", sys.argv[2])):
            sides.append(Side(binary, place / name))
        print(f"{'figure':<18} {'pairs':>5} {'old ms':>9} {'new ms':>9} {'ratio':>7}   95 %")
        held = [measure(name, *sides, pairs) for name in names]
    finally:
        for side in sides:
            side.end()
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(not all(held))


if __name__ == "__main__":
    main()
