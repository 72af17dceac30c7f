"""What replicas joined in memory are made of: logs as lists, brokers, and the messages between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica import (
    Fetched,
    FollowerReplica,
    FollowerRequest,
    IsrProposal,
    JoinRule,
    LeaderReplica,
    TruncationRule,
    join_point,
    truncation_point,
)

START = Offset(0)
FIRST_INCARNATION = BrokerEpoch(1)


@dataclass(frozen=True)
class Rules:
    """What the machines go by; the defaults are production's.

    Attributes:
        is_fenced: whether leaders look at the leader epoch of who fetches, and of who asks where an epoch ends.
        keeps_seats: whether a broker that restarts faster than anyone notices keeps its place in the ISR (rule 6).
    """

    truncation: TruncationRule = truncation_point
    join: JoinRule = join_point
    is_fenced: bool = True
    keeps_seats: bool = False


class Stored(NamedTuple):
    """A record: the leader epoch that wrote it, and what it says, which no other record does."""

    leader_epoch: LeaderEpoch
    value: str


@dataclass
class ModelLog:
    """What one replica has on disk."""

    records: list[Stored] = field(default_factory=list)
    lineage: LeaderEpochLineage = field(default_factory=LeaderEpochLineage)
    high_watermark: Offset = START

    @property
    def end_offset(self) -> Offset:
        return Offset(len(self.records))

    def truncate(self, end_offset: Offset) -> None:
        del self.records[end_offset:]
        self.lineage.truncate_from_end(end_offset)

    def append(self, records: list[Stored]) -> None:
        for record in records:
            self.lineage.assign(record.leader_epoch, self.end_offset)
            self.records.append(record)


@dataclass
class Node:
    """One broker.

    Attributes:
        applied: how much of the metadata history it has applied.
        broker_epoch: its incarnation.
    """

    broker_id: BrokerId
    log: ModelLog = field(default_factory=ModelLog)
    is_up: bool = True
    applied: int = 0
    broker_epoch: BrokerEpoch = FIRST_INCARNATION
    leader: LeaderReplica | None = None
    follower: FollowerReplica | None = None
    asked: FollowerRequest | None = None


class Ask(NamedTuple):
    """A follower's request on its way."""

    sender: BrokerId
    broker_epoch: BrokerEpoch
    request: FollowerRequest


class Answer(NamedTuple):
    """The leader's answer on its way back."""

    to: BrokerId
    broker_epoch: BrokerEpoch
    request: FollowerRequest
    outcome: KafkaError | Fetched | EpochEntry | Offset | None
    records: tuple[Stored, ...] = ()


class Propose(NamedTuple):
    """AlterPartition on its way. The answer is the metadata."""

    sender: BrokerId
    broker_epochs: Mapping[BrokerId, BrokerEpoch]
    proposal: IsrProposal


Message = Ask | Answer | Propose


def name_of(broker: BrokerId) -> str:
    """Brokers of stories go by letters."""
    return chr(ord("A") + broker - 1)


def text_of(record: Stored) -> str:
    return f"{record.value}@{record.leader_epoch}"
