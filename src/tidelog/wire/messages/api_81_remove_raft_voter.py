"""RemoveRaftVoter (key 81): let a node vote in the metadata quorum no more (KIP-853)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import field, int16, int32, message, string, uuid


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    """Remove a voter."""

    cluster_id: str | None = field(string, nullable="0+", default=None, doc="Checked if it is given.")
    voter_id: int = field(int32, doc="The node.")
    voter_directory_id: UUID = field(uuid, doc="The directory of its log: with another it is another voter.")


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    """Whether it votes no more."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it does not.")
    error_message: str | None = field(string, nullable="0+", default=None, ignorable=True, doc="Why it still does.")
