# Written by generate.py from _async: do not change it here.
"""Questions to people: show and answer them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, List, Literal, Mapping, Union

from .._arguments import unexpected
from .._events import Event
from ..errors import ServerGone
from ..models import build
from ..operations import Approval, ApprovalEvent, approval
from .._path import segment
from .transport import Transport

Remember = Union[Literal["once", "session", "always"], Mapping[Literal["uses"], int]]
"""The time for which an answer holds. `{"uses": 5}` is this time and five more."""


class Approvals:
    """Questions that wait for a person: all of them at the private socket, those of its tenant for a key with the right `approvals`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, past: bool = False) -> List[Approval]:
        """Lists the questions that wait, the oldest first. With `past`, the newest that wait no longer follow, the newest first."""
        answer = self._transport.json("GET", "/approvals", params={"past": past})
        return [approval(each) for name in ("waiting", "past") for each in answer.get(name, [])]

    def get(self, approval_id: str) -> Approval:
        """Returns a question, waiting or past. Raises `NotFound` if there is none, or it is another tenant's."""
        return approval(self._transport.json("GET", f"/approvals/{segment(approval_id, 'approval_id')}"))

    def answer(self, question: Approval, approved: bool, *, remember: Remember = "once") -> None:
        """Answers a question whose text somebody, or this program, has read.

        `remember` is one of the question's `remember`; of a denial, `once` or `session`. Raises `Conflict` if it was answered
        before or waits no longer, `InvalidArguments` if the answer cannot hold for that long.
        """
        if not isinstance(question, Approval):
            raise unexpected("an `Approval`, such as `approvals.get(id)` returns,", "question", question)
        body = {"approved": approved, "digest": question.digest, "remember": remember}
        self._transport.json("POST", f"/approvals/{segment(question.id)}", json=body)

    @contextmanager
    def events(self) -> Iterator[Iterator[ApprovalEvent]]:
        """Follows questions: `with client.approvals.events() as events: ...`. Those that wait come first.

        Within the `with`, somebody counts as there to be asked. The loop ends with the `with` alone: raises `ServerGone` if the
        server ends, and `LimitExceeded` if 16 streams are open.
        """
        with self._transport.events("GET", "/approvals/events") as events:
            # The first event says that it is registered.
            for event in events:
                if event.name == "waiting":
                    break
            else:
                raise ServerGone("the stream of questions ended before it began")
            yield _followed(events)


def _followed(events: Iterator[Event]) -> Iterator[ApprovalEvent]:
    for event in events:
        if event.name == "question":
            question = approval(event.data)
            yield ApprovalEvent("question", question.id, question)
        elif event.name == "over":
            yield build(ApprovalEvent, event.data, type="over")
    raise ServerGone("the stream of questions has ended: the server has")
