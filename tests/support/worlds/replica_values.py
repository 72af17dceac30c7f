"""What replicas joined in memory are made of: logs as lists, brokers, and the messages between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tidelog.controller.partition_changes import IsActive, without
from tidelog.metadata.image import BrokerImage, PartitionImage
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica import (
    AheadRule,
    FetchOutcome,
    FollowerReplica,
    FollowerRequest,
    HaltRule,
    IsrProposal,
    JoinRule,
    LeaderReplica,
    TruncationRule,
    belies_what_was_committed,
    is_committed_without,
    join_point,
    truncation_point,
)

START = Offset(0)
FIRST_INCARNATION = BrokerEpoch(1)


class LeavingRule(Protocol):
    """The partition without a broker; None where nothing changes. As `without`."""

    def __call__(
        self,
        partition: PartitionImage,
        broker: BrokerId,
        /,
        *,
        min_insync_replicas: int,
        is_active: IsActive,
        is_lost: bool,
    ) -> PartitionImage | None: ...


@dataclass(frozen=True)
class Rules:
    """What the machines, their disks and their controller go by; the defaults are production's.

    Attributes:
        halts: when a follower keeps what it is told to cut.
        leader: production's, or one that goes by less where no function can be passed in.
        lineage: likewise.
        leaving: what the controller makes of a broker that is gone, or is there anew (rules 6 and 7).
        is_fetch_fenced: whether leaders look at the leader epoch of who fetches (rule 3).
        is_truncation_fenced: whether they look at that of who asks where an epoch ends (rule 2).
        compares_last_epoch: whether they look at the epoch of the fetcher's last record (rule 3).
        counts_diverging: whether a fetch that diverges counts as one all the same (rule 3).
        keeps_seats: whether a broker that restarts faster than anyone notices keeps its place in the ISR (rule 6).
        keeps_epoch: whether it even leads on in the epoch in which it led before (rule 6).
        checks_broker_epochs: whether the controller looks at the incarnation of who is to join the ISR (rule 5).
        trims_lineage: whether epochs go that no record is left of, when a broker is back from a loss of power.
        syncs_truncation: whether a truncation is on disk before the lineage says so (rule 10).
        lowers_checkpoint: whether a truncation takes back the high watermark on disk too (rule 4).
        acks_duplicates: whether a duplicate is acknowledged at once, whatever became of the original (rule 10).
        serves_unreconciled: whether a follower serves consumers before it knows how far it agrees (rule 9).
    """

    truncation: TruncationRule = truncation_point
    halts: HaltRule = belies_what_was_committed
    join: JoinRule = join_point
    ahead: AheadRule = is_committed_without
    leader: type[LeaderReplica] = LeaderReplica
    lineage: type[LeaderEpochLineage] = LeaderEpochLineage
    leaving: LeavingRule = without
    is_fetch_fenced: bool = True
    is_truncation_fenced: bool = True
    compares_last_epoch: bool = True
    counts_diverging: bool = False
    keeps_seats: bool = False
    keeps_epoch: bool = False
    checks_broker_epochs: bool = True
    trims_lineage: bool = True
    syncs_truncation: bool = True
    lowers_checkpoint: bool = True
    acks_duplicates: bool = False
    serves_unreconciled: bool = False

    def new_log(self) -> ModelLog:
        return ModelLog(lineage=self.lineage())


class Stored(NamedTuple):
    """A record: the leader epoch that wrote it, and what it says, which no other record does."""

    leader_epoch: LeaderEpoch
    value: str


@dataclass
class ModelLog:
    """What one replica has on disk.

    Attributes:
        high_watermark: as its checkpoint file has it.
        unsynced: the records that a truncation removed, as long as a loss of power would bring them back.
    """

    records: list[Stored] = field(default_factory=list)
    lineage: LeaderEpochLineage = field(default_factory=LeaderEpochLineage)
    high_watermark: Offset = START
    unsynced: dict[Offset, Stored] = field(default_factory=dict)

    @property
    def end_offset(self) -> Offset:
        return Offset(len(self.records))

    def truncate(self, end_offset: Offset, *, is_synced: bool = True) -> None:
        if not is_synced:
            self.unsynced = {Offset(at): self.records[at] for at in range(end_offset, len(self.records))}
        del self.records[end_offset:]
        self.lineage.truncate_from_end(end_offset)

    def append(self, records: list[Stored]) -> None:
        for record in records:
            self.lineage.assign(record.leader_epoch, self.end_offset)
            self.records.append(record)

    def lose_power(self, keeps: int, *, trims_lineage: bool) -> None:
        """Only the first records were on disk, and whatever else was not synced comes back. Epochs always are."""
        del self.records[keeps:]
        while (record := self.unsynced.get(self.end_offset)) is not None:
            self.records.append(record)
        self.unsynced.clear()
        if trims_lineage:
            self.lineage.truncate_from_end(Offset(self.end_offset + 1))


@dataclass
class Node:
    """One broker.

    Attributes:
        is_fenced: whether the controller takes it to be gone.
        has_lost_power: since it was up last.
        applied: how much of the metadata history it has applied.
        broker_epoch: its incarnation.
        brokers: those that are not fenced and their incarnations, as far as it has heard.
        unwritten: what came before a fetch that went ahead, and is to be written yet.
        holds_writes: whether that waits for an answer, or for `ReplicaWorld.write`.
    """

    broker_id: BrokerId
    log: ModelLog = field(default_factory=ModelLog)
    is_up: bool = True
    is_fenced: bool = False
    has_lost_power: bool = False
    applied: int = 0
    broker_epoch: BrokerEpoch = FIRST_INCARNATION
    leader: LeaderReplica | None = None
    follower: FollowerReplica | None = None
    asked: FollowerRequest | None = None
    brokers: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    unwritten: tuple[Stored, ...] = ()
    holds_writes: bool = False


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
    outcome: KafkaError | FetchOutcome | EpochEntry | Offset | None
    records: tuple[Stored, ...] = ()


class Propose(NamedTuple):
    """AlterPartition on its way. The answer is the metadata."""

    sender: BrokerId
    broker_epoch: BrokerEpoch
    proposal: IsrProposal


Message = Ask | Answer | Propose


def name_of(broker: BrokerId) -> str:
    """Brokers of stories go by letters."""
    return chr(ord("A") + broker - 1)


def text_of(record: Stored) -> str:
    return f"{record.value}@{record.leader_epoch}"


def broker_image(node: Node) -> BrokerImage:
    """As the controller has it."""
    return BrokerImage(node.broker_id, node.broker_epoch, UUID(int=node.broker_epoch), (), None, node.is_fenced)
