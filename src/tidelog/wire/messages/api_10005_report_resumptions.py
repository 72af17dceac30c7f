"""ReportResumptions (key 10005, ours): a reader says where it goes on after a log lost what it had read."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct, uuid


@struct
class ResumptionRow:
    """One partition of a reader."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partition_index: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="Of the last record that it had read; -1 if that is not known.")
    position: int = field(int64, doc="Where it stood: all below was read.")
    divergent_offset: int = field(int64, doc="From here on what it had read is gone; -1 if that cannot be told.")
    resumed_offset: int = field(int64, doc="Where it goes on.")
    policy: str = field(string, doc="Why it goes on, in a word, such as rewind.")


@message(api_key=10005, versions="0", flexible="0+")
class ReportResumptionsRequest:
    """To the leader: it remembers whom it told."""

    resumptions: list[ResumptionRow] = field(array(ResumptionRow), default_factory=list, doc="The partitions.")


@message(api_key=10005, versions="0", flexible="0+")
class ReportResumptionsResponse:
    """All is noted, but for topics that are no more."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why it was refused.")
