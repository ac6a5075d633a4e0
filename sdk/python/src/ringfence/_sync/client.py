# Written by generate.py from _async: do not change it here.
"""Programs that run once, tools, and the connection that sandboxes share."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Callable, Dict, Iterable, List, Mapping, Optional, Union

from .._address import Address, resolve
from .._arguments import StrPath, check_callbacks, items, language_of, named, unexpected
from .._blocks import OnlyPlain
from .._events import LineDecoder
from .._path import segment
from ..administration import UsageReport, usage_report
from ..errors import IncompatibleServer, ServerGone, of_body
from ..models import BatchItem, LifeEvent, RunResult, Seconds, Tool, ToolAnswer, build
from .approvals import Approvals
from .audit import Audit
from .callbacks import called
from .images import Images
from .keys import Keys
from .life import life_events
from .runs import Runs
from .snapshots import Snapshots
from .transport import Transport

OnText = Callable[[str], Any]


class Client(OnlyPlain):
    """A connection to a server.

    Without `url` and `socket`, the server is that of RINGFENCE_API_URL (with the key of RINGFENCE_API_KEY), else the
    one of this user. If that does not run, it is started, and ends with the processes that use it.

    `approvals` are questions to people, `audit` the audit log, `images` those of which sandboxes are made, `keys` those of the
    API, `runs` the stored ones, and `snapshots` the kept files of sandboxes.
    """

    _plain_name = "Client"

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        api_key: Optional[str] = None,
        socket: Optional[StrPath] = None,
        autostart: bool = True,
        plain_http: bool = False,
    ) -> None:
        self._use(resolve(url, api_key, socket, autostart, plain_http))

    def _use(self, address: Address) -> None:
        self._transport = transport = Transport(address)
        self.approvals = Approvals(transport)
        self.audit = Audit(transport)
        self.images = Images(transport)
        self.keys = Keys(transport)
        self.runs = Runs(transport)
        self.snapshots = Snapshots(transport)

    def _another(self) -> Client:
        """Returns a client of the same server with connections of its own."""
        client = Client.__new__(Client)
        client._use(self._transport.address)
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. What runs over them is cancelled."""
        self._transport.close()


    def run(
        self,
        code: str,
        language: str = "python",
        *,
        timeout: Optional[Seconds] = None,
        stdin: Optional[str] = None,
        files: Optional[Mapping[str, str]] = None,
        runtime: Optional[str] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
    ) -> RunResult:
        """Runs a program in a fence of its own. Cancelling the call kills it."""
        check_callbacks(on_stdout=on_stdout, on_stderr=on_stderr)
        body = _program(code, language, timeout, stdin, files, runtime)
        if on_stdout is None and on_stderr is None:
            return build(RunResult, self._transport.json("POST", "/run", json=body, ends_with_call=True))
        with self._transport.events("POST", "/run", json=body) as events:
            for event in events:
                callback = {"stdout": on_stdout, "stderr": on_stderr}.get(event.name)
                if callback is not None:
                    called(callback, event.output().decode("utf-8", "replace"))
                elif event.name == "result":
                    return build(RunResult, event.data)
        raise ServerGone("the stream of events ended before the result")

    def batch(self, programs: Iterable[Union[str, Mapping[str, Any]]]) -> Iterator[BatchItem]:
        """Runs many programs, and yields the end of each on arrival. Leaving the loop cancels the rest.

        A program is its code, or a mapping with the arguments of `run`.
        """
        runs = _programs(programs)
        left = set(range(len(runs)))
        decoder = LineDecoder()
        with self._transport.bytes("POST", "/batch", json={"runs": runs}) as pieces:
            for piece in pieces:
                for line in decoder.feed(piece):
                    item = _item(line)
                    left.discard(item.index)
                    yield item
        if left:
            raise ServerGone(f"the answer ended before {len(left)} of {len(runs)} programs did")

    def tools(self) -> List[Tool]:
        """Lists the tools that may be used."""
        answer = self._transport.json("GET", "/tools")
        return [build(Tool, each) for each in answer.get("tools", [])]

    def call_tool(self, name: str, **arguments: Any) -> ToolAnswer:
        """Uses a tool."""
        path = f"/tools/{segment(name, 'name')}"
        answer = self._transport.json("POST", path, json=arguments, ends_with_call=True)
        return build(ToolAnswer, answer)

    def usage(self) -> UsageReport:
        """Returns what the key, or its tenant, has used today (UTC) and in all, and its quotas.

        At the private socket, and with the right `admin`, it is that of all keys. The private socket's own use is not counted.
        """
        return usage_report(self._transport.json("GET", "/usage"))

    @contextmanager
    def sandbox_events(self) -> Iterator[Iterator[LifeEvent]]:
        """Follows the lives of all your sandboxes: `with client.sandbox_events() as events: ...`.

        The loop ends with the `with` alone: raises `ServerGone` if the server ends.
        """
        with life_events(self._transport, "/sandbox-events", to_end=False) as events:
            yield events


def _program(
    code: str,
    language: str,
    timeout: Optional[Seconds],
    stdin: Optional[str],
    files: Optional[Mapping[str, str]],
    runtime: Optional[str],
) -> Dict[str, Any]:
    return {
        "code": code,
        "language": language_of(language),
        "timeout": timeout,
        "stdin": stdin,
        "files": named(files, "files"),
        "runtime": runtime,
    }


def _programs(programs: Any) -> List[Dict[str, Any]]:
    hint = "pass a list of one, or use `run`" if isinstance(programs, (str, Mapping)) else ""
    return [_one(each) for each in items(programs, "programs", "a list of programs", hint)]


def _one(program: Any) -> Dict[str, Any]:
    if isinstance(program, str):
        return {"code": program}
    if not isinstance(program, Mapping):
        raise unexpected("code, or a mapping with the arguments of `run`,", "programs", program)
    members = {name: value for name, value in program.items() if value is not None}
    return {**members, "language": language_of(members["language"])} if "language" in members else members


def _item(line: Any) -> BatchItem:
    if not isinstance(line, dict) or not isinstance(line.get("index"), int):
        raise IncompatibleServer("a line of the batch has no index")
    if "result" in line:
        return BatchItem(line["index"], result=build(RunResult, line["result"]))
    return BatchItem(line["index"], error=of_body(line, 200))
