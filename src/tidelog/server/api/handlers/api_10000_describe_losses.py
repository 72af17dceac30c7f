"""DescribeLosses 0, ours: a page of the account of losses, as the metadata has it.

Behaviour: the oldest entries first; a page is what is wanted of `LOOKED_AT_MAX` entries, and no more than `PAGE_MAX`.
Where the entry that the last page ended with was forgotten meanwhile, the page begins with the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.base.ids import LeaderEpoch, PartitionIndex, TopicId
from tidelog.base.losses import Loss, LossId
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_10000_describe_losses import DescribeLossesRequest, DescribeLossesResponse, LossCursor
from tidelog.wire.messages.losses import entry_of

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi

PAGE_MAX = 100
"""Entries in an answer: a millisecond or two of the event loop."""
LOOKED_AT_MAX = 2_000
"""Likewise."""


def handle(node: MetadataApi, request: DescribeLossesRequest, context: RequestContext) -> DescribeLossesResponse:
    del context
    image = node.image
    start = _start(image.losses, request)
    topics = None if request.topics is None else set(request.topics)
    page: list[Loss] = []
    position = start
    last: LossId | None = None
    for loss_id, loss in islice(image.losses.items(), start, start + LOOKED_AT_MAX):
        position, last = position + 1, loss_id
        if (topics is None or loss.topic in topics) and (loss.is_open or not request.open_only):
            page.append(loss)
        if len(page) == PAGE_MAX:
            break
    has_more = last is not None and position < len(image.losses)
    return DescribeLossesResponse(
        losses=[entry_of(loss) for loss in page],
        next=[LossCursor(position, *last)] if has_more and last is not None else [],
        open_count=image.open_loss_count,
        closed_count=len(image.losses) - image.open_loss_count,
    )


def _start(losses: Mapping[LossId, Loss], request: DescribeLossesRequest) -> int:
    """How many entries to pass over: those up to the cursor, wherever it stands by now."""
    for cursor in request.after[:1]:
        ended_with = LossId(
            TopicId(cursor.topic_id), PartitionIndex(cursor.partition_index), LeaderEpoch(cursor.leader_epoch)
        )
        if ended_with in losses:
            position = min(max(cursor.position, 1), len(losses))
            if next(islice(losses, position - 1, None)) == ended_with:
                return position
            return 1 + next(at for at, loss_id in enumerate(losses) if loss_id == ended_with)
    return 0
