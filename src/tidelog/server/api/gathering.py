"""Requests that arrived together on a connection and are carried out together: one append for all on a partition.

    frame ▶ decode ▶ check ▶ stage ─┐
    frame ▶ decode ▶ check ▶ stage ─┼─▶ perform ▶ encode ▶ encode ▶ encode ▶ one write
    frame ▶ decode ▶ check ▶ stage ─┘

Nothing else happens between the first and the last of them: all are served in one turn of the event loop, and whatever
request is of another kind has them performed first. So each is answered as if it had come alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.server.transport.gathered import Gathered

if TYPE_CHECKING:
    from tidelog.server.api.request_context import RequestContext
    from tidelog.wire import Piece

REQUESTS_MAX = 256
FRAME_BYTES_MAX = 16 << 10
"""A larger request gains nothing by company: what a request costs beside its records is little then."""


Perform = Callable[[Any, list[Any]], None]
"""Does, for a node, what was staged."""


class GatheredRequest(NamedTuple):
    """One that is answered once what it asks for was performed."""

    context: RequestContext
    response: Any
    """Its rows are filled in by then."""
    size_bytes: int
    """Of its frame."""
    started_ns: int
    staged_ns: int
    """When its turn began and ended, by `perf_counter_ns`; 0 where nothing is timed."""


make_gathered = partial(tuple.__new__, GatheredRequest)  # as the constructor, at a third of its price


class Gathering(Gathered):
    """Those of one connection that arrived together.

    Args:
        answer: encodes the answers to all of them, once they are performed.
        forget: told that no more may join them.
    """

    __slots__ = ("_answer", "_forget", "_node", "_perform", "_staged", "requests")

    def __init__(
        self, answer: Callable[[Gathering], Sequence[list[Piece]]], forget: Callable[[Gathering], None]
    ) -> None:
        self.is_brief = False  # a request may name many partitions, and a batch hold thousands of records
        self._answer = answer
        self._forget = forget
        self._node: Any = None
        self._perform: Perform | None = None
        self._staged: list[Any] = []
        self.requests: list[GatheredRequest] = []

    @property
    def is_full(self) -> bool:
        """Whether whoever comes next begins another."""
        return len(self.requests) >= REQUESTS_MAX

    def stage(self, node: Any, perform: Perform, item: Any) -> None:
        """Have `item` done with all that is staged, in order, by one call of `perform`, which is the same for all."""
        self._node, self._perform = node, perform
        self._staged.append(item)

    def perform(self) -> None:
        """Do what is staged now."""
        if self._staged:
            staged, self._staged = self._staged, []
            assert self._perform is not None
            self._perform(self._node, staged)

    def take_requests(self) -> list[GatheredRequest]:
        """Those that are to be answered; out once. They know of this, so it is to know no more of them: else they would
        not be freed before a collection of garbage.
        """
        requests, self.requests = self.requests, []
        return requests

    def take_answers(self) -> Sequence[list[Piece]]:
        """See `Gathered`."""
        self._forget(self)
        return self._answer(self)

    def drop(self) -> None:
        """See `Gathered`."""
        self._staged, self.requests = [], []
        self._forget(self)
