"""FetchLostRecords (key 10003, ours): what a broker keeps of the records that one of its replicas lost."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tidelog.wire.schema import field, int16, int32, int64, message, records, string, uuid


@message(api_key=10003, versions="0", flexible="0+")
class FetchLostRecordsRequest:
    """Ask for a page of the batches that were cut off this broker's replica."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partition_index: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="The epoch whose loss it is.")
    position: int = field(int64, default=0, doc="How many bytes of it the client has; whole batches.")
    max_bytes: int = field(int32, default=1024 * 1024, doc="How many bytes to answer at most, beside a first batch.")


@message(api_key=10003, versions="0", flexible="0+")
class FetchLostRecordsResponse:
    """A page of it."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why there is none.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="The same in words.")
    size_bytes: int = field(int64, default=0, doc="Of all that is kept of this loss here.")
    records: Any = field(
        records, nullable="0+", default=None, doc="Whole batches, by offset; none at the end of what is kept."
    )
