"""TellLosses (key 10002, ours): a broker tells the controller what its replicas held that their leaders lack."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.messages.losses import ReplicaLossEntry
from tidelog.wire.schema import array, field, int16, int32, int64, message, struct, uuid


@struct
class LossToTell:
    """What one replica held."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partition_index: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="The epoch whose entry it is for.")
    replica: ReplicaLossEntry = field(ReplicaLossEntry, doc="The broker's own row.")


@message(api_key=10002, versions="0", flexible="0+")
class TellLossesRequest:
    """Note what replicas of a broker held."""

    broker_id: int = field(int32, doc="Whose they are.")
    broker_epoch: int = field(int64, default=-1, doc="Its incarnation.")
    losses: list[LossToTell] = field(array(LossToTell), default_factory=list, doc="What they held.")


@message(api_key=10002, versions="0", flexible="0+")
class TellLossesResponse:
    """All is noted, or nothing is known of it."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why it was refused.")
