"""Runs functional tests of the fence in each situation of this machine, and prints a line for each."""

import json, os, subprocess, sys, time
from pathlib import Path

RINGFENCE = "/vm/ringfence"
GROUPS = Path("/sys/fs/cgroup")
USER = 1234
CONTROLLERS = "+memory +pids +cpu"
TAKE = "data = bytearray(200 << 20)"
TAKE_IN_CHILDREN = (
    "import os, signal\n"
    "for _ in range(8):\n"
    "    if os.fork() == 0:\n"
    "        data = bytearray(25 << 20)\n"
    "        signal.pause()\n"
    "os.wait()\n"
    "signal.pause()"
)
CHILDREN = (
    "import os\n"
    "read, write = os.pipe()\n"
    "started = 0\n"
    "try:\n"
    "    for _ in range(40):\n"
    "        if os.fork() == 0:\n"
    "            os.close(write); os.read(read, 1); os._exit(0)\n"
    "        started += 1\n"
    "except BlockingIOError:\n"
    "    print('refused after', started < 20)\n"
    "os.close(write)\n"
)
LEAVE = (
    "import os, signal, time\n"
    "for _ in range(4):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        while True: signal.pause()\n"
    "print('left')\n"
    "while True: time.sleep(1)"
)
REACH = (
    "import os, socket\n"
    "for act in (lambda: open('/etc/shadow'), lambda: open('/root/x', 'w'), lambda: socket.socket(),\n"
    "            lambda: os.listdir('/sys/fs/cgroup'), lambda: open('/proc/cmdline')):\n"
    "    try: act(); print('reached')\n"
    "    except OSError as error: pass\n"
    "print('over')"
)


class Situation:
    """A user in a control group of its own."""

    def __init__(self, name, user, group, delegated=False, alone=True):
        self.name, self.user, self.delegated = name, user, delegated
        # A group for each program, as `systemd-run --scope` makes one; or one for all, as a login has.
        self.fresh = GROUPS / group if alone and group else None
        self.group = GROUPS if not group else GROUPS / group
        self.number = 0
        self.home = Path(f"/home/{name.replace(' ', '-').replace(',', '')}")
        for place in ("", "work", "state", "run", "config", "tmp"):
            (self.home / place).mkdir(parents=True, exist_ok=True)
            os.chown(self.home / place, user, user)
        if self.fresh:
            self.fresh.mkdir()
            (self.fresh / "cgroup.subtree_control").write_text(CONTROLLERS)
        elif group:
            self.group.mkdir()
        # The console asks the kernel's module tcp_diag, which is not in this machine.
        settings = self.home / "config/ringfence"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "ringfence.toml").write_text("[engine]\nconsole = false\n")
        # What a login has beside the program that it starts.
        self.shell = None if alone else self.start(["sleep", "100000"])

    def renew_group(self):
        self.number += 1
        self.group = self.fresh / f"run-{self.number}.scope"
        self.group.mkdir()
        if self.delegated:
            for file in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
                os.chown(self.group / file, self.user, self.user)

    def enter(self):
        (self.group / "cgroup.procs").write_text("0")
        os.setsid()
        if self.user:
            os.setgroups([])
            os.setresgid(self.user, self.user, self.user)
            os.setresuid(self.user, self.user, self.user)

    def environment(self):
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "TMPDIR": str(self.home / "tmp"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
        }

    def start(self, command, **more):
        if self.fresh:
            self.renew_group()
        return subprocess.Popen(
            command, preexec_fn=self.enter, env=self.environment(), cwd=self.home / "work", stdin=subprocess.DEVNULL, **more
        )

    def ringfence(self, *arguments):
        pipe = subprocess.PIPE
        process = self.start([RINGFENCE, *arguments], stdout=pipe, stderr=pipe, text=True)
        out, error = process.communicate(timeout=300)
        return process.returncode, out, error

    def result(self, code, *options):
        timeout = [] if "--timeout" in options else ["--timeout", "60s"]
        status, out, error = self.ringfence("run", *self.how, "--json", *timeout, *options, "-c", code)
        try:
            return json.loads(out)
        except ValueError:
            return {"error": f"status {status}: {out}{error}", "meta": {"isolation": {}}}

    how = ["--no-engine"]


FAILED = 0


def tell(situation, name, fine, found=""):
    global FAILED
    FAILED += not fine
    print(f"{'pass' if fine else 'FAIL'}  {situation.name}: {name}{'' if fine else ': ' + str(found)[:600]}", flush=True)


def groups_of_ringfence():
    found = [path for path in GROUPS.rglob("ringfence-*") if path.is_dir()]
    return [str(path.relative_to(GROUPS)) for path in found if path.name != "ringfence-engine"]


def processes_with(mark):
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


def check(situation, grouped):
    def test(name, result, fine):
        tell(situation, name, bool(fine), json.dumps(result))

    cgroup = "v2" if grouped else None
    run = situation.result("import os; print(os.getuid())")
    isolation = run["meta"]["isolation"]
    test("a program runs", run, run.get("stdout") == "1000\n" and run["exit_code"] == 0)
    test(f"control group: {cgroup}", run, isolation.get("cgroup") == cgroup)
    layers = ["user_ns", "pid_ns", "mount_ns", "net_ns", "ipc_ns", "uts_ns", "cgroup_ns", "time_ns", "no_new_privs"]
    test("every namespace", run, all(isolation.get(layer) is True for layer in layers))
    test("system-call filter", run, isolation.get("seccomp") == "fence")
    test(f"Landlock, ABI {isolation.get('landlock_abi')}", run, isolation.get("landlock_abi", 0) >= 1)
    run = situation.result(REACH)
    test("files, cgroups and sockets are out of reach", run, run.get("stdout") == "over\n")
    run = situation.result(TAKE, "--memory", "64MiB")
    if grouped:
        test("memory.max ends a program", run, run["meta"].get("outcome") == "memory_exceeded")
        run = situation.result(TAKE_IN_CHILDREN, "--memory", "96MiB")
        test("memory.oom.group ends all of it", run, run["meta"].get("outcome") == "memory_exceeded")
        run = situation.result("data = bytearray(40 << 20)")
        peak = run["meta"].get("peak_memory_bytes") or 0
        test("memory.peak is told", run, 40 << 20 <= peak <= 120 << 20)
    else:
        test("a resource limit ends a program", run, "MemoryError" in run.get("stderr", ""))
    run = situation.result(CHILDREN, "--pids", "16")
    test("pids.max, or RLIMIT_NPROC, refuses processes", run, run.get("stdout") == "refused after True\n")
    mark = f"RINGFENCE_VM={os.getpid()}-{situation.name}"
    run = situation.result(LEAVE, "--env", mark, "--timeout", "5s")
    test("a deadline ends it", run, run["meta"].get("outcome") == "timed_out")
    test("nothing of it is left", processes_with(mark), not processes_with(mark))
    run = situation.result("import ctypes; c = ctypes.CDLL(None); print([c.inotify_init1(0) >= 0 for _ in range(12)].count(True))")
    test("inotify instances are shared out", run, run.get("stdout") == "8\n")
    run = situation.result("print(open('/proc/uptime').read().split('.')[0])")
    test("clocks begin with the guest", run, 3600 <= int(run.get("stdout") or 0) < 7200)


def engine(situation, grouped):
    log = open(situation.home / "engine.log", "w+")
    process = situation.start([RINGFENCE, "serve"], stdout=log, stderr=log)
    deadline = time.monotonic() + 120
    while "listening at" not in Path(log.name).read_text() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.2)
    situation.how = []
    warm = {}
    while time.monotonic() < deadline and warm.get("meta", {}).get("warm") is not True:
        warm = situation.result("import os; print(os.getuid())")
    tell(situation, "engine: a warm worker", warm.get("stdout") == "1000\n" and warm["meta"].get("warm"), warm)
    found = warm["meta"]["isolation"].get("cgroup")
    tell(situation, f"engine: control group: {'v2' if grouped else None}", found == ("v2" if grouped else None), warm)
    if grouped:
        run = situation.result(TAKE, "--memory", "64MiB")
        tell(situation, "engine: a waiting worker takes another memory.max", run["meta"].get("outcome") == "memory_exceeded", run)
        run = situation.result("data = bytearray(40 << 20)")
        peak = run["meta"].get("peak_memory_bytes") or 0
        tell(situation, "engine: memory.peak is told", 40 << 20 <= peak <= 120 << 20, run)
    made = situation.ringfence("session", "new", "s")
    first = situation.result("x = 41", "--session", "s")
    second = situation.result("print(x + 1)", "--session", "s")
    tell(situation, "engine: a session keeps its state", second.get("stdout") == "42\n", (made, first, second))
    forked = situation.ringfence("session", "fork", "s", "t")
    third = situation.result("print(x)", "--session", "t")
    tell(situation, "engine: a session is forked", third.get("stdout") == "41\n", (forked, third))
    process.terminate()
    status = process.wait(timeout=120)
    tell(situation, "engine: ends", status == 0, Path(log.name).read_text())
    situation.how = ["--no-engine"]


def test_control_groups():
    """The jail's own tests, in the root's group and in a scope."""
    tests = subprocess.run(["/vm/cgroup-tests", "--test-threads=1", "--show-output"], capture_output=True, text=True)
    for line in tests.stdout.splitlines():
        if line.startswith("test ") and " ... " in line:
            name, came = line.removeprefix("test ").split(" ... ")
            tell(JAIL, name, came == "ok", tests.stdout + tests.stderr)
        elif line.startswith("skipped"):
            # The machine has no version 1 tree; whatever else is missing is a failure.
            tell(JAIL, line, "version 1" in line, line)


class JAIL:
    name = "control groups of the jail"


def raise_loopback():
    import fcntl, socket, struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        SIOCSIFFLAGS, IFF_UP = 0x8914, 1
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def main():
    raise_loopback()
    Path("/sys/kernel/security").is_dir() and subprocess.run(["mount", "-t", "securityfs", "none", "/sys/kernel/security"])
    (GROUPS / "cgroup.subtree_control").write_text(CONTROLLERS)
    print("kernel", os.uname().release, os.uname().machine, flush=True)
    print("controllers", (GROUPS / "cgroup.controllers").read_text().strip(), flush=True)
    print("modules", Path("/sys/kernel/security/lsm").read_text(), flush=True)
    for name, user, group, options, grouped in [
        ("root", 0, "", {}, True),
        ("root in a scope of its own", 0, "own.scope", {}, True),
        ("root in a login's scope", 0, "root.scope", {"alone": False}, False),
        ("user with delegation", USER, "user.scope", {"delegated": True}, True),
        ("user without delegation", USER, "other.scope", {}, False),
    ]:
        situation = Situation(name, user, group, **options)
        status, out, error = situation.ringfence("doctor", "--json")
        try:
            verdict = json.loads(out)["verdict"]
        except ValueError:
            verdict = out + error
        print(f"----  {name}: doctor: {verdict}", flush=True)
        try:
            check(situation, grouped)
            engine(situation, grouped)
        except Exception as error:
            tell(situation, "no exception", False, repr(error))
        if situation.shell:
            situation.shell.kill()
            situation.shell.wait()
        tell(situation, "no control group is left", not groups_of_ringfence(), groups_of_ringfence())
    test_control_groups()
    print(f"vm: {FAILED} failed", flush=True)


main()
