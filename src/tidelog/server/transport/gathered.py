"""Requests that came together, and are answered together: those of each connection in their order.

Kafka: none; a `Processor` takes one request of a connection at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.wire import Piece


class Gathered:
    """What a dispatcher gives a connection instead of an answer, again for each request that joins those before it.

    Whoever gets it has to end it in the same turn of the event loop, by `take_answers` or by `drop`, and takes the
    answers before that of any later request, and before the next bytes are read where the request lay.

    Attributes:
        is_brief: whether each that joined took microseconds, so that the time need not be looked at behind each.
        waits: whether the connection is told, at the end of that turn, to take the answers (`answer_gathered`); what
            comes on other connections meanwhile is carried out with it.
    """

    __slots__ = ("is_brief",)

    is_brief: bool
    waits = False

    def take_answers(self) -> Sequence[list[Piece]]:
        """Carry out what is left to be done, and have the answer to each request, in order."""
        raise NotImplementedError

    def drop(self) -> None:
        """Their connection is closed, as one of them failed: what is left is not done, and nobody is answered."""
        raise NotImplementedError
