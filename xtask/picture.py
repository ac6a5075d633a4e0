#!/usr/bin/python3
"""Records the terminal of the README as an SVG picture.

usage: picture.py BINARY [PICTURE]

Runs each of COMMANDS in a pseudo-terminal, with BINARY as `ringfence`, and draws what it printed, colours included.
Nothing is typed in by hand but the commands. PICTURE is docs/pictures/run.svg unless named.
"""

import html
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, LINES = 92, 50
TIME_LIMIT = 60
MAX_BYTES = 40_000

COMMANDS = [
    "ringfence run examples/csv_report.py",
    "ringfence run -l bash -c 'cat /etc/shadow; ls /home'",
    "ringfence run -l bash -c 'echo > /dev/tcp/example.com/443'",
    "ringfence run --memory 64MiB -c 'x = \"a\" * 10**9'",
    "ringfence run --timeout 1s -c 'while True: pass'",
    "echo $?",
]

# Colours by SGR code: class, on light paper, on dark paper.
COLOURS = {
    31: ("red", "#b3261e", "#ff7b72"),
    32: ("green", "#1a7f37", "#7ee787"),
    33: ("yellow", "#7d4e00", "#e3b341"),
    36: ("cyan", "#0b6b78", "#76e3ea"),
}
CELL, LEADING, MARGIN, BAR = 8.43, 20, 18, 34


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    picture = Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT / "docs/pictures/run.svg"
    screen = record(Path(sys.argv[1]).resolve())
    svg = draw(screen)
    if len(svg) > MAX_BYTES:
        sys.exit(f"expected a picture of at most {MAX_BYTES} bytes, got {len(svg)}")
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(svg)


def record(binary):
    """Returns the lines of the terminal, each a list of runs of text with their colours."""
    lines = []
    status = 0
    with tempfile.TemporaryDirectory() as home:
        Path(home, "bin").mkdir()
        Path(home, "bin/ringfence").symlink_to(binary)
        for command in COMMANDS:
            # Each command has a shell of its own, which is told the status of the one before.
            printed, status = in_terminal(["bash", "-c", f"(exit {status}); {command}"], home)
            lines.append([("prompt", "$ "), ("command", command)])
            lines += coloured(printed)
    return lines


def in_terminal(argv, home):
    """Runs a program in a pseudo-terminal; returns what it printed, and its exit status."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {
        "HOME": home,
        "LANG": "C.UTF-8",
        "PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "XDG_RUNTIME_DIR": home,
    }
    child = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment)
    os.close(theirs)
    printed = b""
    deadline = time.monotonic() + TIME_LIMIT
    while True:
        if not select.select([ours], [], [], max(0, deadline - time.monotonic()))[0]:
            child.kill()
            sys.exit(f"no end within {TIME_LIMIT} s: {argv}")
        try:
            some = os.read(ours, 65536)
        except OSError:  # EIO: every process has closed the terminal.
            some = b""
        if not some:
            break
        printed += some
    os.close(ours)
    return printed.decode(), child.wait()


def coloured(printed):
    """Splits text with colour sequences into lines of runs; rejects any other control sequence."""
    colour = "plain"
    for line in printed.replace("\r\n", "\n").removesuffix("\n").split("\n") if printed else []:
        runs = []
        for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
            if piece.startswith("\x1b["):
                colour = next((COLOURS[int(code)][0] for code in piece[2:-1].split(";") if code.isdigit() and int(code) in COLOURS), "plain")
            elif piece:
                if not piece.isprintable():
                    sys.exit(f"expected text and colours, found {piece!r}")
                runs.append((colour, piece))
        yield runs


def draw(screen):
    lines = [folded for line in screen for folded in fold(line)]
    width = round(COLUMNS * CELL + 2 * MARGIN)
    height = BAR + LEADING * len(lines) + MARGIN
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{BAR + LEADING * (number + 1) - 5}">{"".join(map(span, line))}</text>'
        for number, line in enumerate(lines)
        if line
    )
    light = "".join(f".{name}{{fill:{on_light}}}" for name, on_light, _ in COLOURS.values())
    dark = "".join(f".{name}{{fill:{on_dark}}}" for name, _, on_dark in COLOURS.values())
    dots = "".join(f'<circle cx="{MARGIN + 6 + 20 * n}" cy="18" r="5" class="dot"/>' for n in range(3))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" \
aria-label="A terminal in which Ringfence runs five programs">
<!-- Recorded by xtask/picture.py; do not edit. -->
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#1f2328}}
.paper{{fill:#f6f8fa;stroke:#d0d7de}}.dot{{fill:#d0d7de}}.prompt{{fill:#59636e}}.command{{font-weight:bold}}{light}
@media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}.paper{{fill:#151b23;stroke:#3d444d}}.dot{{fill:#3d444d}}\
.prompt{{fill:#9198a1}}{dark}}}
</style>
<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>
{dots}
{rows}
</svg>
"""


def fold(line):
    """Breaks a line at the right edge, as a terminal does."""
    folded, room = [[]], COLUMNS
    for colour, text in line:
        while text:
            if not room:
                folded.append([])
                room = COLUMNS
            folded[-1].append((colour, text[:room]))
            text, room = text[room:], room - len(text[:room])
    return folded


def span(run):
    colour, text = run
    text = html.escape(text, quote=False)
    return text if colour == "plain" else f'<tspan class="{colour}">{text}</tspan>'


if __name__ == "__main__":
    main()
