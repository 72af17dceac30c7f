"""DescribeToldReaders 0-1, ours: whom this broker has told that what they read, or wrote, is gone.

Behaviour: since this process started, and at most `READERS_MAX` of them. They are listed in turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.server.api.request_context import RequestContext
from tidelog.server.transport.turns import in_turns
from tidelog.wire.messages.api_10004_describe_told_readers import (
    DescribeToldReadersRequest,
    DescribeToldReadersResponse,
    ToldReaderRow,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi


async def handle(
    node: DataApi, request: DescribeToldReadersRequest, context: RequestContext
) -> DescribeToldReadersResponse:
    context.is_long = True
    topics = None if request.topics is None else set(request.topics)
    rows = [
        ToldReaderRow(
            each.topic_partition.topic,
            each.topic_id,
            each.topic_partition.partition,
            *(each.client_id, each.host, each.leader_epoch, each.end_offset, each.has_compared),
            *(each.count, each.first_ms, each.last_ms),
            *(each.resumption or (-1, -1, "")),
            -1 if each.producer_id is None else each.producer_id,
        )
        async for each in in_turns(list(node.told_readers))
        if topics is None or each.topic_partition.topic in topics
    ]
    return DescribeToldReadersResponse(readers=rows)
