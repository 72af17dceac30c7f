"""What group coordinators ask of share coordinators, handed to the persister in portions.

Kafka: `GroupCoordinatorService`, as far as it calls `Persister`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicPartition
from tidelog.base.invariant import invariant
from tidelog.server.share_state.persister import SharePersister, StartedState
from tidelog.share.summary import ShareSummary

if TYPE_CHECKING:
    from tidelog.coordinator.groups.share.requests import StateOutcomes

PORTION = 500
"""States of a request that are asked for at once: each waits by itself."""


class GroupRequests:
    """Asks share coordinators, wherever they are."""

    def __init__(self, persister: SharePersister) -> None:
        self._persister = persister

    async def send_to_leader(self, destination: TopicPartition, request: object) -> StateOutcomes:
        """The outcome of what `coordinator.groups.share.requests` has. See `SendToLeader`; it raises nothing.

        Args:
            destination: of none of them: each state has its own.
        """
        from tidelog.coordinator.groups.share.requests import DeleteStates, InitializeStates, LookForStates, RaiseStates

        outcomes: list[KafkaError | None] = []
        known = InitializeStates | RaiseStates | LookForStates | DeleteStates
        invariant(isinstance(request, known), "share coordinators know no {}", request)
        assert isinstance(request, InitializeStates | RaiseStates | LookForStates | DeleteStates)
        for start in range(0, len(request.ids), PORTION):
            some = slice(start, start + PORTION)
            if isinstance(request, DeleteStates):
                outcomes += await self._persister.delete(
                    request.group_id, request.ids[some], state_epoch=request.state_epoch
                )
                continue
            if isinstance(request, LookForStates):
                outcomes += map(_kept, await self._persister.summarize(request.group_id, request.ids[some]))
                continue
            if isinstance(request, RaiseStates):
                outcomes += await self._persister.raise_epochs(request.group_id, request.state_epoch, request.ids[some])
                continue
            states = [
                StartedState(*state_id, request.state_epoch, start=offset)
                for state_id, offset in zip(request.ids[some], request.starts[some], strict=True)
            ]
            outcomes += await self._persister.initialize(request.group_id, states)
        return tuple(outcomes)


def _kept(summary: ShareSummary | KafkaError) -> KafkaError | None:
    """INVALID_REQUEST says that nothing is kept, and so no other error has that code."""
    if isinstance(summary, KafkaError):
        return summary if summary.code != Code.INVALID_REQUEST else refusal(Code.UNKNOWN_SERVER_ERROR, str(summary))
    return refusal(Code.INVALID_REQUEST, "nothing is kept of it") if summary == ShareSummary() else None
