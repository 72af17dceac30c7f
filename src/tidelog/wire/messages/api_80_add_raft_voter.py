"""AddRaftVoter (key 80): let one more node vote in the metadata quorum (KIP-853).

Version 1 can answer before the new set of voters is committed. Both are flexible.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, boolean, field, int16, int32, message, string, struct, uint16, uuid


@struct
class Listener:
    """Where the new voter listens, under one listener name."""

    name: str = field(string, doc="The listener's name.")
    host: str = field(string, doc="Its host.")
    port: int = field(uint16, doc="Its port.")


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    """Add a voter."""

    cluster_id: str | None = field(string, nullable="0+", default=None, doc="Checked if it is given.")
    timeout_ms: int = field(int32, doc="How long to wait for it.")
    voter_id: int = field(int32, doc="The node.")
    voter_directory_id: UUID = field(uuid, doc="The directory of its log: with another it is another voter.")
    listeners: list[Listener] = field(array(Listener), doc="Where it listens.")
    ack_when_committed: bool = field(
        boolean, versions="1+", default=True, doc="Whether to answer only when the new set is committed."
    )


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    """Whether it votes."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it does.")
    error_message: str | None = field(string, nullable="0+", default=None, ignorable=True, doc="Why it does not.")
