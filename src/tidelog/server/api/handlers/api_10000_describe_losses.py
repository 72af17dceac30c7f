"""DescribeLosses 0, ours: a page of the account of losses, as the metadata has it.

Behaviour: at most `PAGE_MAX` entries, the oldest first. Where the entry to go on behind was forgotten meanwhile, the
page begins with the first.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tidelog.base.ids import LeaderEpoch, PartitionIndex, TopicId
from tidelog.base.losses import LossId
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_10000_describe_losses import DescribeLossesRequest, DescribeLossesResponse
from tidelog.wire.messages.losses import entry_of

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi

PAGE_MAX = 100
"""Entries in an answer: a millisecond or two of the event loop."""


def handle(node: MetadataApi, request: DescribeLossesRequest, context: RequestContext) -> DescribeLossesResponse:
    del context
    losses = node.image.losses
    entries = iter(losses.values())
    for cursor in request.after[:1]:
        after = LossId(
            TopicId(cursor.topic_id), PartitionIndex(cursor.partition_index), LeaderEpoch(cursor.leader_epoch)
        )
        if after in losses:
            next((None for loss in entries if loss.id == after), None)
    topics = None if request.topics is None else set(request.topics)
    wanted = (
        loss for loss in entries if (topics is None or loss.topic in topics) and (loss.is_open or not request.open_only)
    )
    page = list(islice(wanted, PAGE_MAX))
    return DescribeLossesResponse(
        losses=[entry_of(loss) for loss in page],
        has_more=next(wanted, None) is not None,
        open_count=node.image.open_loss_count,
        closed_count=len(losses) - node.image.open_loss_count,
    )
