"""DeleteTopics (key 20).

Version 3 may answer TOPIC_DELETION_DISABLED, 4 is flexible, 5 answers a message and may be throttled (KIP-599), 6 takes
ids (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, field, int16, int32, message, string, struct, uuid


@struct
class DeleteTopicState:
    """A topic by its name, or by its id."""

    name: str | None = field(string, versions="6+", nullable="6+", default=None, doc="None: by its id.")
    topic_id: UUID = field(uuid, versions="6+", default=ZERO_UUID, doc="Used if there is no name.")


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """Delete topics, each on its own: some may be refused."""

    topics: list[DeleteTopicState] = field(
        array(DeleteTopicState), versions="6+", default_factory=list, doc="The topics (version 6)."
    )
    topic_names: list[str] = field(
        array(string), versions="0-5", default_factory=list, ignorable=True, doc="Their names (before version 6)."
    )
    timeout_ms: int = field(int32, default=60_000, doc="How long to wait until they are gone.")


@struct
class DeletableTopicResult:
    """What became of one topic."""

    name: str | None = field(string, nullable="6+", default=None, doc="None if it was given by an unknown id.")
    topic_id: UUID = field(uuid, versions="6+", default=ZERO_UUID, ignorable=True, doc="Its id.")
    error_code: int = field(int16, default=0, doc="0 if it was deleted.")
    error_message: str | None = field(
        string, versions="5+", nullable="5+", default=None, ignorable=True, doc="Why it was not."
    )


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """One answer per topic."""

    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult), doc="The topics.")
