"""DescribeLosses (key 10000, ours): the account of losses (`base/losses.py`), a page after the other."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.messages.losses import LossEntry
from tidelog.wire.schema import array, boolean, field, int16, int32, message, string, struct, uuid


@struct
class LossCursor:
    """Where a page ended."""

    position: int = field(int32, doc="How many entries there were up to there, whether they were wanted or not.")

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partition_index: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="The epoch.")


@message(api_key=10000, versions="0", flexible="0+")
class DescribeLossesRequest:
    """Ask for entries, the oldest first."""

    topics: list[str] | None = field(array(string), nullable="0+", default=None, doc="Of these topics; None: of all.")
    open_only: bool = field(boolean, default=False, doc="Whether to leave out those that are closed.")
    after: list[LossCursor] = field(
        array(LossCursor), default_factory=list, doc="Where the last page ended, if this is not the first."
    )


@message(api_key=10000, versions="0", flexible="0+")
class DescribeLossesResponse:
    """A page of entries."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why there are none.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="The same in words.")
    losses: list[LossEntry] = field(array(LossEntry), default_factory=list, doc="The entries.")
    next: list[LossCursor] = field(array(LossCursor), default_factory=list, doc="Where to go on, if there is more.")
    open_count: int = field(int32, default=0, doc="Entries that are open, of all topics.")
    closed_count: int = field(int32, default=0, doc="Entries that are closed, of all topics.")
