"""The account of losses in the metadata: what opens an entry, what is told for it, what closes it (`base/losses.py`).

An entry is opened in the batch of the records that make it necessary, so no crash comes in between. It is told of by
the replicas, each of which may hold what the leader lacks.

Kafka: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import NamedTuple

from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, TopicId
from tidelog.base.losses import PRODUCERS_MAX, Loss, LossCause, LossId, ReplicaFate, ReplicaLoss
from tidelog.controller.brokers import registered
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.configs import cluster as keys
from tidelog.metadata.draft import merge
from tidelog.metadata.image import MetadataView, TopicImage
from tidelog.metadata.records.cluster import ForgottenLoss, NoOpRecord
from tidelog.metadata.records.topics import PartitionChangeRecord, RemoveTopicRecord
from tidelog.wire.messages.losses import entry_of

FORGOTTEN_MAX = 200
"""Entries that go at a time, twice as many as come: more go with the next."""
LOOKED_AT_MAX = 1_000
"""Entries that are looked at for closed ones, which are forgotten before open ones."""


class ToldLoss(NamedTuple):
    """What a replica tells for one entry.

    Attributes:
        replica: the broker's own row.
    """

    loss_id: LossId
    replica: ReplicaLoss


def accounted(
    metadata: MetadataView, settings: ControllerSettings, records: Sequence[object], *, now_ms: int
) -> tuple[object, ...]:
    """Records that are about to be appended, with what they mean for the account behind them.

    Args:
        metadata: as it is before them.
        now_ms: since 1970.
    """
    opened: dict[LossId, Loss] = {}
    left: dict[TopicId, dict[PartitionIndex, Sequence[int]] | None] = {}  # of which only these replicas stay; None: all
    for record in records:
        if isinstance(record, PartitionChangeRecord):
            if record.unclean_epoch >= 0:
                loss = _opened(metadata, settings, record, now_ms)
                if loss is not None:
                    opened[loss.id] = loss
            if record.replicas is not None and metadata.losses:
                staying = left.setdefault(TopicId(record.topic_id), {})
                if staying is not None:
                    staying[PartitionIndex(record.partition_id)] = record.replicas
        elif isinstance(record, RemoveTopicRecord) and metadata.losses:
            left[TopicId(record.topic_id)] = None
    changed = opened
    if left and metadata.open_loss_count:
        changed = {**_without_who_left(metadata.losses.values(), left), **opened}
    if not changed:
        return tuple(records)
    return (*records, *_entries(changed.values()), *_forgotten(metadata, settings, opened, now_ms))


def _opened(
    metadata: MetadataView, settings: ControllerSettings, record: PartitionChangeRecord, now_ms: int
) -> Loss | None:
    topic = metadata.topics_by_id.get(TopicId(record.topic_id))
    if topic is None:
        return None
    index = PartitionIndex(record.partition_id)
    before = topic.partitions[index]
    after = merge(before, record)
    if len(after.replicas) == 1 and after.leader in (None, *after.replicas):
        return None  # there is nobody who could hold what it lacks, or tell
    if after.leader is None or after.leader in (*before.isr, *before.eligible_leader_replicas):
        cause = LossCause.LOST_BY_LEADER
    elif TopicRules(metadata, settings).allows_unclean(topic.name):
        cause = LossCause.BY_SETTING
    else:
        cause = LossCause.BY_OPERATOR
    return Loss(
        topic.name,
        topic.topic_id,
        index,
        LeaderEpoch(record.unclean_epoch),
        cause,
        after.leader,
        now_ms,
        tuple(ReplicaLoss(one) for one in after.replicas),
    )


def _without_who_left(
    losses: Iterable[Loss], left: Mapping[TopicId, Mapping[PartitionIndex, Sequence[int]] | None]
) -> dict[LossId, Loss]:
    """Who holds a partition no more is awaited no more."""
    changed: dict[LossId, Loss] = {}
    for loss in losses:
        if loss.topic_id not in left or not loss.is_open:
            continue
        of_topic = left[loss.topic_id]
        if of_topic is not None and loss.partition not in of_topic:
            continue
        staying: Sequence[int] = () if of_topic is None else of_topic[loss.partition]
        replicas = tuple(
            replace(one, fate=ReplicaFate.LEFT)
            if one.fate is ReplicaFate.AWAITED and one.broker_id not in staying
            else one
            for one in loss.replicas
        )
        if replicas != loss.replicas:
            changed[loss.id] = replace(loss, replicas=replicas)
    return changed


def _entries(losses: Iterable[Loss]) -> list[object]:
    return [NoOpRecord(losses=[entry_of(loss)]) for loss in losses]


def _forgotten(
    metadata: MetadataView, settings: ControllerSettings, opened: Mapping[LossId, Loss], now_ms: int
) -> list[object]:
    """What the account forgets for the sake of what is opened: what is too old, then what is closed, then the rest."""
    if not opened:
        return []
    broker_settings = settings.broker_settings(metadata)
    count_max, age_ms_max = broker_settings[keys.LOSSES_RETAINED_MAX], broker_settings[keys.LOSSES_RETENTION_MS]
    by_age = iter(metadata.losses.values())
    forgotten = []
    if age_ms_max >= 0:
        too_old = takewhile(lambda loss: loss.opened_ms < now_ms - age_ms_max, by_age)
        forgotten = list(islice(too_old, FORGOTTEN_MAX))
    too_many = len(metadata.losses) - len(forgotten) + len(opened) - count_max
    too_many = min(too_many, FORGOTTEN_MAX)
    if too_many > 0:
        oldest = list(islice(metadata.losses.values(), len(forgotten), len(forgotten) + too_many + LOOKED_AT_MAX))
        forgotten += sorted(oldest, key=lambda loss: loss.is_open)[:too_many]  # stable: by age
    gone = (loss for loss in forgotten if loss.id not in opened)
    return [NoOpRecord(forgotten_losses=[ForgottenLoss(*loss.id)]) for loss in gone]


def decide_tell_losses(
    metadata: MetadataView,
    settings: ControllerSettings,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch,
    told: Sequence[ToldLoss],
    *,
    now_ms: int,
) -> Decision[tuple[()]]:
    """Note what the replicas of a broker held. What is told again changes nothing.

    What was cut off is noted where no entry is open for it, too: the controller may have been of a release that opens
    none, or the account may have forgotten it. What a replica held whole is worth no entry.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED; STALE_BROKER_EPOCH.
    """
    registered(metadata, broker_id, broker_epoch)
    changed: dict[LossId, Loss] = {}
    for one in told:
        replica = replace(
            one.replica, broker_id=broker_id, told_ms=now_ms, producer_ids=one.replica.producer_ids[:PRODUCERS_MAX]
        )
        if not _makes_sense(replica):
            continue
        loss = changed.get(one.loss_id) or metadata.losses.get(one.loss_id)
        if loss is None:
            topic = metadata.topics_by_id.get(one.loss_id.topic_id)
            if topic is None or not _may_be_found(topic, one.loss_id, replica):
                continue
            loss = Loss(topic.name, *one.loss_id, LossCause.FOUND, None, now_ms, (ReplicaLoss(broker_id),))
        known = loss.replica(broker_id)
        if known is None and replica.fate is not ReplicaFate.CUT:
            continue  # it came later, and was never awaited
        noted = _noted(known, replica)
        if noted is known:
            continue
        others = tuple(each for each in loss.replicas if each.broker_id != broker_id)
        order = [each.broker_id for each in loss.replicas if known is not None] or [broker_id]
        rows = {each.broker_id: each for each in (*others, noted)}
        changed[one.loss_id] = replace(loss, replicas=tuple(rows[each] for each in dict.fromkeys((*order, *rows))))
    opened = {loss_id: loss for loss_id, loss in changed.items() if loss_id not in metadata.losses}
    records = (*_entries(changed.values()), *_forgotten(metadata, settings, opened, now_ms))
    return Decision(records, ())


def _noted(known: ReplicaLoss | None, told: ReplicaLoss) -> ReplicaLoss:
    """What is known of a replica after it told; `known` itself where that says nothing new.

    A replica that was cut in two steps tells twice: its range is both. One that was cut says so for good.
    """
    if known is None or known.fate is ReplicaFate.AWAITED:
        return told
    if told.fate is not ReplicaFate.CUT:
        return known
    if known.fate is not ReplicaFate.CUT:
        return told
    if known.cut_from == told.cut_from and known.end_offset == told.end_offset:
        is_dropped = told.kept_size_bytes < known.kept_size_bytes
        return replace(known, kept_size_bytes=told.kept_size_bytes) if is_dropped else known
    return known.joined(told)


TOLD_FATES = frozenset(ReplicaFate) - {ReplicaFate.AWAITED, ReplicaFate.LEFT}


def _makes_sense(replica: ReplicaLoss) -> bool:
    if replica.fate not in TOLD_FATES:
        return False
    start, end = replica.cut_from, replica.end_offset
    return (start is not None) == (replica.fate is ReplicaFate.CUT) and (start is None or end is None or start < end)


def _may_be_found(topic: TopicImage, loss_id: LossId, replica: ReplicaLoss) -> bool:
    """Whether what was cut off is worth an entry that was not opened for it."""
    if replica.fate is not ReplicaFate.CUT or not 0 <= loss_id.partition < len(topic.partitions):
        return False
    state = topic.partitions[loss_id.partition]
    return replica.broker_id in state.replicas and 0 <= loss_id.leader_epoch <= state.leader_epoch


def decide_acknowledge_losses(
    metadata: MetadataView, losses: Sequence[LossId], note: str, *, now_ms: int
) -> Decision[tuple[bool, ...]]:
    """Note that an operator has dealt with entries. The reply says of each whether there is one.

    An open entry stays open: who is awaited may still tell.
    """
    found = [metadata.losses.get(loss_id) for loss_id in losses]
    changed = [replace(loss, acknowledged_ms=now_ms, note=note) for loss in found if loss is not None]
    return Decision(tuple(_entries(changed)), tuple(loss is not None for loss in found))
