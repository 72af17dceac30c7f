"""Requests of others to this node of the metadata quorum, until they are answered: the machine knows them by a number.

Kafka: `ThresholdPurgatory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tidelog.base.errors import Code, refusal
from tidelog.quorum import QuorumNode
from tidelog.quorum.values import Answer, EpochBegun, EpochEnded, PeerRequest, QuorumFetch, QuorumReply, VoteRequested

EPOCHS_AHEAD_MAX = 1_000_000
"""No node is so far ahead of another, for each epoch takes an election. After the last, 2^31 - 1, nobody could lead."""


class PendingPeerRequests:
    """Requests of peers that wait for an answer. Each has its connection, so those bound their number."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._last_ticket = 0

    @property
    def count(self) -> int:
        return len(self._waiting)

    async def handle(self, request: PeerRequest, machine: QuorumNode, notify: Callable[..., None]) -> Answer:
        """Give a request to the machine, and return its answer. One whose connection closes is dropped.

        Args:
            notify: calls one of the methods of the machine, and does what the machine owes then.

        Raises:
            KafkaError: INVALID_REQUEST: it cannot come from a node.
        """
        leader_epoch = machine.standing.leader_epoch
        if request.leader_epoch > leader_epoch + EPOCHS_AHEAD_MAX:
            raise refusal(Code.INVALID_REQUEST, f"leader epoch {request.leader_epoch}: this node is at {leader_epoch}")
        self._last_ticket += 1
        ticket = self._last_ticket
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        match request:
            case QuorumFetch():
                notify(machine.on_fetch_request, ticket, request)
            case VoteRequested():
                notify(machine.on_vote_request, ticket, request)
            case EpochBegun():
                notify(machine.on_epoch_begun, ticket, request)
            case EpochEnded():
                notify(machine.on_epoch_ended, ticket, request)
        try:
            return await future
        finally:
            if self._waiting.pop(ticket, None) is not None:
                machine.on_requester_disconnected(ticket)

    def answer(self, replies: Iterable[QuorumReply]) -> None:
        """Complete the requests that the machine has answered."""
        for reply in replies:
            future = self._waiting.pop(reply.ticket, None)
            if future is not None and not future.done():
                future.set_result(reply.answer)

    def give_up(self) -> None:
        """Nothing more is answered here."""
        for future in list(self._waiting.values()):
            future.cancel()
