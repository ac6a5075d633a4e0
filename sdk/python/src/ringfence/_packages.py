"""Installs packages for a sandbox of this user's server, by the program `ringfence`."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, List, Sequence, Union

from ._address import Address, default_socket
from ._arguments import texts
from ._server import binary, own_environment
from .errors import InvalidArguments, RingfenceError, ServerUnavailable

_KEY = re.compile("[0-9a-f]{64}")


_NPM = "npm:"


def keys_of(address: Address, packages: Union[str, Sequence[str]]) -> List[str]:
    """Returns the keys of kept packages. Those that are named in a list are installed if they are not kept yet."""
    if isinstance(packages, str):
        if _KEY.fullmatch(packages):
            return [packages]
        raise InvalidArguments(
            f"expected a key of kept packages or a list of names for `packages`, got {packages!r}",
            f"pass `packages=[{packages!r}]`",
        )
    names = texts(packages, "packages")
    if all(_KEY.fullmatch(name) for name in names):
        return names
    npm = [name for name in names if name.strip().startswith(_NPM)]
    sets = [("python", [name for name in names if name not in npm], "pass"), ("javascript", npm, "0")]
    if address.socket is None:
        raise RingfenceError(
            "no key of the API chooses packages",
            "the server's operator gives packages to every program with `packages.default`",
        )
    if address.socket != default_socket():
        raise RingfenceError(
            "packages can be named for the server of your own user alone",
            f"run {' and '.join(_by_hand(*each) for each in sets if each[1])} as the server's user, and pass the id that "
            "`ringfence packages ls --json` prints",
        )
    return [_installed(*each) for each in sets if each[1]]


def _by_hand(language: str, names: Sequence[str], code: str) -> str:
    option = "" if language == "python" else f" -l {language}"
    return f"`ringfence run{option} --with {','.join(names)} -c {code}`"


def _installed(language: str, names: Sequence[str], code: str) -> str:
    """Returns the key of these packages, which are installed if they are not kept yet."""
    options = ["--json", "--runtime=local", f"--language={language}", *(f"--with={each}" for each in names)]
    installed = _called("run", *options, "-c", code)
    found = _member(_member(installed, "meta"), "packages")
    # The last used is the first: another interpreter's may have the same names.
    for kept in _called("packages", "ls", "--json"):
        if _member(kept, "packages") == found:
            return str(_member(kept, "id"))
    raise RingfenceError(f"the packages were removed at once: {', '.join(names)}", "raise `packages.max_total`")


def _called(*arguments: str) -> Any:
    """Calls the program outside of any project, as the server is started, and returns what it prints."""
    try:
        program = binary()
    except ServerUnavailable as error:
        raise RingfenceError("there is no program `ringfence` to install packages", error.hint) from error
    ended = subprocess.run(
        [program, *arguments], cwd="/", env=own_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    try:
        answer = json.loads(ended.stdout)
    except ValueError:
        lines: List[str] = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RingfenceError(f"`ringfence {arguments[0]}` failed: {lines[-1] if lines else ended.returncode}") from None
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        refusal = answer["error"]
        raise RingfenceError(f"the packages cannot be installed: {refusal.get('message')}", str(refusal.get("hint") or ""))
    return answer


def _member(value: Any, name: str) -> Any:
    found = value.get(name) if isinstance(value, dict) else None
    if found is None:
        raise RingfenceError(f"the answer of `ringfence` lacks `{name}`", "use the program of this package's version")
    return found
