"""UpdateRaftVoter (key 82): a voter of the metadata quorum moved, or can speak other versions (KIP-853)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, message, string, struct, uint16, uuid


@struct
class Listener:
    """Where the voter listens, under one listener name."""

    name: str = field(string, doc="The listener's name.")
    host: str = field(string, doc="Its host.")
    port: int = field(uint16, doc="Its port.")


@struct
class KRaftVersionFeature:
    """The versions of the quorum's protocol that the voter can speak."""

    min_supported_version: int = field(int16, doc="The lowest.")
    max_supported_version: int = field(int16, doc="The highest.")


@message(api_key=82, versions="0", flexible="0+")
class UpdateRaftVoterRequest:
    """What the sender, a voter, is now."""

    cluster_id: str | None = field(string, nullable="0+", default=None, doc="Checked if it is given.")
    current_leader_epoch: int = field(int32, doc="What the sender believes; -1 is not checked.")
    voter_id: int = field(int32, doc="The voter.")
    voter_directory_id: UUID = field(uuid, doc="The directory of its log.")
    listeners: list[Listener] = field(array(Listener), doc="Where it listens.")
    kraft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature, doc="What it can speak.")


@struct(kw_only=True)
class CurrentLeader:
    """Who leads, and where it listens."""

    leader_id: int = field(int32, default=-1, doc="The leader, or -1 if none is known.")
    leader_epoch: int = field(int32, default=-1, doc="The latest leader epoch known.")
    host: str = field(string, doc="Its host, on the listener of the quorum.")
    port: int = field(int32, doc="Its port.")


@message(api_key=82, versions="0", flexible="0+")
class UpdateRaftVoterResponse:
    """Whether the set of voters says so now."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it does.")
    current_leader: CurrentLeader | None = field(CurrentLeader, tag=0, default=None, doc="Whom to ask instead.")
