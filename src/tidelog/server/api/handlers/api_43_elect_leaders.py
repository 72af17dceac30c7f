"""ElectLeaders 0-2: the preferred leaders again, or any live replica where nobody may lead without a loss (KIP-460).

Behaviour: each partition on its own; of an order for all, those that needed no election are left out of the answer. An
unclean election of all leaves the internal topics out (rule 12). Nobody waits for the elections: they are committed,
and in this broker's metadata, when the answer comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.controller import ControllerState, ElectedLeader, ElectionType, pieces_to_elect
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi

ONE_ERROR_FOR_ALL_FROM_VERSION = 1
TOLD_AT_ONCE_MAX = 1_000
"""Partitions whose outcome is told on the event loop: a millisecond or two. An order for all may be about thousands."""
ELECTION_TYPES = {int(kind): kind for kind in ElectionType}


async def handle(node: ControllerApi, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    wanted = _wanted(request)
    try:
        kind = ELECTION_TYPES.get(request.election_type)
        if kind is None:
            raise refusal(Code.INVALID_REQUEST, f"there is no election of type {request.election_type}")
        controller, is_of_all = node.controller, wanted is None
        state = controller.journal.speculative
        pieces = pieces_to_elect(state.metadata, state.settings, kind) if wanted is None else [wanted]
        elected: list[ElectedLeader] = await controller.request_in_pieces(
            [
                partial(ControllerState.decide_elect_leaders, kind=kind, partitions=piece, is_of_all=is_of_all)
                for piece in pieces
            ]
        )
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    if len(elected) > TOLD_AT_ONCE_MAX:
        context.is_long = True
    rows = partial(_rows, elected)
    results = await node.executor.compute(rows) if context.is_long else rows()
    return ElectLeadersResponse(replica_election_results=results)


def refused(request: ElectLeadersRequest, context: RequestContext, error: KafkaError) -> ElectLeadersResponse:
    """The answer where nothing could be decided."""
    code = code_of(error, "ElectLeaders")
    rows = _rows([ElectedLeader(one, code, str(error)) for one in _wanted(request) or ()])
    top = code if context.api_version >= ONE_ERROR_FOR_ALL_FROM_VERSION else Code.NONE
    return ElectLeadersResponse(error_code=top, replica_election_results=rows)


def _wanted(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return [
        TopicPartition(one.topic, PartitionIndex(index)) for one in request.topic_partitions for index in one.partitions
    ]


def _rows(elected: Sequence[ElectedLeader]) -> list[ReplicaElectionResult]:
    by_topic = sorted(elected, key=lambda one: one.topic_partition)
    return [
        ReplicaElectionResult(
            topic, [PartitionResult(one.topic_partition.partition, one.code, one.message) for one in rows]
        )
        for topic, rows in groupby(by_topic, key=lambda one: one.topic_partition.topic)
    ]
