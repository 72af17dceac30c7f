"""DeleteShareGroupOffsets (key 92): have a share group without members forget topics (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, message, string, struct, uuid


@struct
class DeleteShareGroupOffsetsRequestTopic:
    """A topic to forget."""

    topic_name: str = field(string, doc="The topic's name.")


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """Ask the coordinator of the group."""

    group_id: str = field(string, doc="The group.")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(
        array(DeleteShareGroupOffsetsRequestTopic), default_factory=list, doc="The topics."
    )


@struct(kw_only=True)
class DeleteShareGroupOffsetsResponseTopic:
    """Whether one topic is forgotten."""

    topic_name: str = field(string, doc="The topic's name.")
    topic_id: UUID = field(uuid, doc="The topic's id.")
    error_code: int = field(int16, default=0, doc="0 if it is.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """What became of each topic."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Of the group as a whole.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="What went wrong.")
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(
        array(DeleteShareGroupOffsetsResponseTopic), default_factory=list, doc="The topics."
    )
