"""Runs a command in a terminal of its own and talks to it: terminal.py STEPS COMMAND...

STEPS is a JSON list of {"expect": REGULAR EXPRESSION}, {"send": TEXT}, {"size": [ROWS, COLUMNS]} and {"signal": NUMBER}. Exits with the command's status, once
the terminal is found as it was before.
"""

import fcntl, json, os, pty, re, select, struct, sys, termios

steps, command = json.loads(sys.argv[1]), sys.argv[2:]
leader, follower = pty.openpty()


def size(rows, columns):
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


size(24, 80)
before = termios.tcgetattr(follower)
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(follower, number)
    os.closerange(3, 64)
    os.execvp(command[0], command)

shown = b""
for step in steps:
    if "send" in step:
        os.write(leader, step["send"].encode())
    elif "size" in step:
        size(*step["size"])
    elif "signal" in step:
        os.kill(child, step["signal"])
    else:
        pattern = re.compile(step["expect"].encode(), re.S)
        while not (found := pattern.search(shown)):
            if not select.select([leader], [], [], 60)[0]:
                sys.exit(f"no {step['expect']!r} in {shown!r}")
            shown += os.read(leader, 65536)
        shown = shown[found.end() :]

_, status = os.waitpid(child, 0)
# The caller's terminal is restored.
assert termios.tcgetattr(follower) == before, "the terminal is not as it was"
sys.exit(os.waitstatus_to_exitcode(status))
