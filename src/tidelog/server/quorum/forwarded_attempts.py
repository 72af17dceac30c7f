"""Which attempts at forwarding a request are too old to be carried out: they come late, and were sent again since.

A connection breaks at the sender's end, and what it sent still lies in the network. The broker asks again, is answered,
and the client goes on: were the first attempt carried out then, it would undo what was done meanwhile. So a broker
counts the attempts that it gave up, and says of each which leader it was meant for.

Kafka: none. Its brokers send no such number, and its controller carries out what comes late.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from tidelog.base.errors import Code, refusal

SENDERS_MAX = 10_000
"""That a controller remembers. Of those from which it heard longest ago it knows nothing any more."""


class Attempt(NamedTuple):
    """What a broker says of a request that it forwards.

    Attributes:
        sender_id: of the requests of one class, of one start of a broker.
        sender_generation: rises with each attempt that the sender gave up without an answer.
        leader_epoch: of the metadata quorum, as the sender knew it; -1 where it knew none.
    """

    sender_id: UUID
    sender_generation: int
    leader_epoch: int


class LatestAttempts:
    """The newest generation of each sender that one controller has heard of."""

    def __init__(self) -> None:
        self.generations: dict[UUID, int] = {}  # the sender heard of last is the last one

    def check(self, attempt: Attempt, leader_epoch: int) -> None:
        """Raises KafkaError: NOT_CONTROLLER: it may have been sent again since. Its sender, if it waits, sends it anew.

        An attempt in the epoch of this leader is known as an old one by its generation, for whoever answered the later
        one is this leader. One that was sent before is known by its epoch, for an earlier leader may have answered.
        """
        if 0 <= attempt.leader_epoch < leader_epoch:
            raise refusal(
                Code.NOT_CONTROLLER,
                f"a request was sent to the leader of epoch {attempt.leader_epoch}, and came in {leader_epoch}",
            )
        newest = self.generations.pop(attempt.sender_id, attempt.sender_generation)
        self.generations[attempt.sender_id] = max(newest, attempt.sender_generation)
        if len(self.generations) > SENDERS_MAX:
            del self.generations[next(iter(self.generations))]
        if attempt.sender_generation < newest:
            raise refusal(
                Code.NOT_CONTROLLER,
                f"a request was sent in generation {attempt.sender_generation} of its sender, and came in {newest}",
            )
