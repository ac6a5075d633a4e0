"""A Jupyter kernel whose cells run in a sandbox: `pip install ringfence[jupyter]`.

`python -m ringfence.jupyter install --user` installs it. What the cells do stays in the sandbox; this module is the thin
program beside the notebook server, and never runs, compiles or unpickles what a cell or its output contains.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

try:
    from ipykernel.kernelapp import IPKernelApp
    from jupyter_client.kernelspec import KernelSpecManager
except ImportError as error:
    raise ImportError("ringfence.jupyter needs the package ipykernel: install ringfence[jupyter]") from error

from ._kernel import CELL, LANGUAGES, RingfenceKernel

__all__ = ["RingfenceKernel", "main"]

_NAMES = {"python": "Python", "bash": "Bash", "javascript": "JavaScript"}

# The notebook's directory must not decide which modules this program imports: with `-c`, it comes first on the path.
_START = "import sys; sys.path[:] = filter(None, sys.path); from ringfence.jupyter import main; main()"


class _App(IPKernelApp):
    """The application that listens to a front end. Nothing of the notebook's directory is imported or read."""

    name = "ringfence-kernel"

    def init_path(self) -> None:
        """Leaves the working directory off the path of modules."""

    def init_control(self, context: Any) -> None:
        super().init_control(context)
        # Subshells would run cells in other threads; an interpreter runs one cell at a time.
        self.shell_channel_thread = None

    def start(self) -> None:
        """Listens until the end. ipykernel ends the thread of output first, and the control thread may hang in sending to it."""
        super().start()
        self.control_thread.stop()
        self.control_thread.join()

    def load_config_file(self, *_: Any, **__: Any) -> None:
        """Reads no configuration of IPython: what it says is about an interpreter that is not here."""


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--language", choices=sorted(LANGUAGES), default="python", help="language of the cells")
    parser.add_argument("--memory", metavar="SIZE", type=_size, help="memory limit of the sandbox, such as 2GiB")
    parser.add_argument("--disk", metavar="SIZE", type=_size, help="disk limit, at most half of the memory limit")
    parser.add_argument("--cpus", metavar="NUMBER", type=float, help="cores")
    parser.add_argument("--pids", metavar="NUMBER", type=int, help="processes and threads")
    parser.add_argument("--env", metavar="NAME=VALUE", action="append", type=_variable, help="a variable of the cells")
    parser.add_argument("--allow-host", metavar="HOST", action="append", help="a host that cells may reach")
    parser.add_argument("--packages", metavar="KEY", help="kept packages, as `ringfence packages ls --json` names them")
    parser.add_argument("--fence", choices=["run", "box"], help="`box` makes cells root of a root file system of their own")
    parser.add_argument("--image", metavar="REF", help="image whose files the sandbox has")
    parser.add_argument("--runtime", choices=["local", "docker", "podman"], help="where the sandbox is")
    parser.add_argument("--snapshot", metavar="ID", help="snapshot whose files it begins with")
    parser.add_argument(
        "--cell-timeout", metavar="TIME", type=_time, default=CELL, help="time limit of a cell; 24h by default"
    )
    parser.add_argument(
        "--linger", metavar="SECONDS", type=_seconds, default=600, help="time that a sandbox outlives a killed kernel"
    )
    parser.add_argument(
        "--outputs",
        choices=["safe", "all"],
        default="safe",
        help="`all` passes on HTML, JavaScript and the rest, which can act in the page of the notebook",
    )
    return parser


def _variable(text: str) -> Tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value


_NUMBER = r"[0-9]+(\.[0-9]{1,9})?"


def _size(text: str) -> str:
    """Returns a size as the command line takes it. The server would refuse another at the first cell only."""
    if not re.fullmatch(_NUMBER + r"(b|k|kib|kb|m|mib|mb|g|gib|gb)?", text, re.IGNORECASE | re.ASCII):
        raise argparse.ArgumentTypeError(f"expected a size such as 256MiB or 2GiB, got {text!r}")
    return text


def _time(text: str) -> str:
    if not re.fullmatch(_NUMBER + "(ms|s|m|h)?", text):
        raise argparse.ArgumentTypeError(f"expected a time such as 500ms, 30s or 2m, got {text!r}")
    return text if text[-1].isalpha() else text + "s"


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 3 <= seconds <= 24 * 60 * 60:
        raise argparse.ArgumentTypeError(f"expected 3 to 86400 seconds, got {text}")
    return seconds


def _sandbox(options: argparse.Namespace) -> Dict[str, Any]:
    """Returns the arguments of `Sandbox(...)` that were named."""
    names = ("memory", "disk", "cpus", "pids", "packages", "fence", "image", "runtime", "snapshot")
    named = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.env:
        named["env"] = dict(options.env)
    if options.allow_host:
        named["allowed_hosts"] = options.allow_host
    return named


def _install(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m ringfence.jupyter install", description="Install the kernel for Jupyter.", parents=[_options()]
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for your user; without it, for all")
    where.add_argument("--prefix", metavar="DIR", help="below this directory")
    where.add_argument("--sys-prefix", action="store_true", help="in this Python's environment")
    parser.add_argument("--name", help="name of the kernel; `ringfence`, or `ringfence-LANGUAGE`")
    parser.add_argument("--display-name", help="name that people see")
    options = parser.parse_args(arguments)
    own = {"--user", "--sys-prefix"}, {"--prefix", "--name", "--display-name"}
    language = options.language
    specification = {
        "argv": [sys.executable, "-c", _START, "-f", "{connection_file}", *_without(arguments, *own)],
        "display_name": options.display_name or f"{_NAMES[language]} (Ringfence)",
        "language": language,
        # SIGINT would end what the server started, too, where Jupyter signals a whole group.
        "interrupt_mode": "message",
        "metadata": {"supported_encryption": ["curve"]},
    }
    with tempfile.TemporaryDirectory() as directory:
        # Its mode is that of the installed directory, which all users read.
        os.chmod(directory, 0o755)
        (Path(directory) / "kernel.json").write_text(json.dumps(specification, indent=1) + "\n")
        place = KernelSpecManager().install_kernel_spec(
            directory,
            options.name or ("ringfence" if language == "python" else f"ringfence-{language}"),
            user=options.user,
            prefix=sys.prefix if options.sys_prefix else options.prefix,
        )
    print(place)


def _without(arguments: Sequence[str], flags: "set[str]", valued: "set[str]") -> List[str]:
    """Returns the arguments without those that say where the kernel is installed."""
    kept, skip = [], False
    for each in arguments:
        name, separator, _ = each.partition("=")
        if skip:
            skip = False
        elif name in valued:
            skip = not separator
        elif name not in flags:
            kept.append(each)
    return kept


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Installs the kernel, or is the kernel, which a front end starts with a connection file."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["install"]:
        return _install(given[1:])
    parser = argparse.ArgumentParser(
        prog="python -m ringfence.jupyter",
        description="A Jupyter kernel whose cells run in a sandbox. `install` installs it; front ends start it with -f FILE.",
        parents=[_options()],
        allow_abbrev=False,
    )
    parser.add_argument("-f", metavar="FILE", dest="connection_file", help="connection file of the front end")
    options = parser.parse_args(given)
    if options.connection_file is None:
        parser.error("expected `install`, or -f FILE from a front end")
    options.sandbox = _sandbox(options)
    RingfenceKernel.options = options
    # What this program prints is for its log, and no output of a cell.
    app = _App.instance(kernel_class=RingfenceKernel, connection_file=options.connection_file, outstream_class=None)
    app.initialize([])
    app.start()
