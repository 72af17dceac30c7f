"""What is left to do about leaders, as the metadata alone says: it is done in portions, each a decision of its own.

```
 a broker is fenced ──► portion ──► portion ──► … ──► no partition is led by a broker that is fenced, nor in sync there
   (the fence comes first)  └── each is decided from the state at that time, by whoever is the active controller then;
                                few are on their way to a majority at a time
```
A decision about a broker can change as many partitions as it holds. So much in one batch holds the event loop of every
node, and the controller may be deposed for it. What such a decision has to do with partitions is therefore what
follows from the state that it leaves: a partition whose ISR names a broker that is fenced; one where somebody is in
sync or eligible whose log directory has failed; one without a leader though somebody may be it. The decision itself
takes along the first portion, so in small clusters it is one batch. Where a controller is deposed midway, the next one
finds the rest.

In between, a fenced broker leads, in the epoch that it has, with the ISR that it knows: as it would until the news of
the election came. It is alive, and then whatever it commits is held by all in that ISR, of whom the next leader is one;
or it is dead, and commits nothing. It changes no ISR (`isr_changes.py`). If it is let in again, it has never ceased to
lead what was not taken from it. A new incarnation takes its place only when nothing is left to it (rule 6).

Likewise a replica whose directory failed: its broker serves nothing of it, and from the record that names the
directories left nobody elects it, nor takes it among those in sync. If the broker registers anew before its turn
comes, perhaps with the directory, the registration takes the seats (`leaders.py`).

Its counterpart in Kafka: `ReplicationControlManager.handleBrokerFenced`, which does all in one operation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelog.base.ids import BrokerId
from tidelog.controller.leaders import NO_DIRECTORY, is_active_in, lies_online, with_replica_online
from tidelog.controller.partition_changes import IsActive, arrived, change_record, elected, in_one_step, without
from tidelog.controller.partition_scan import PartitionScan
from tidelog.controller.topic_rules import UNCLEAN_ELECTION, TopicRules
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.image import BrokerImage, MetadataView, PartitionImage
from tidelog.metadata.records.brokers import BrokerRegistrationChangeRecord
from tidelog.metadata.records.cluster import ConfigRecord
from tidelog.metadata.records.topics import PartitionChangeRecord


def decide_pending_changes(metadata: MetadataView, settings: ControllerSettings, scan: PartitionScan) -> Decision[int]:
    """The next portion of a pass. Returns how many partitions it changes: none, maybe, before the pass is done."""
    changes = _next_changes(metadata, settings, scan)
    return Decision(tuple(changes), len(changes))


def leaves_pending_changes(record: object) -> bool:
    """Whether there may be more to do after a record than the decision that it is of did itself."""
    if isinstance(record, ConfigRecord):
        return record.name == UNCLEAN_ELECTION.name
    return isinstance(record, BrokerRegistrationChangeRecord)


def after(metadata: MetadataView, *records: object) -> MetadataDraft:
    """The metadata as records leave it, to decide on top of them."""
    draft = MetadataDraft(metadata)
    for record in records:
        draft.apply(record)
    return draft


def pending_changes(metadata: MetadataView, settings: ControllerSettings) -> list[PartitionChangeRecord]:
    """The first portion of what is left to do."""
    return _next_changes(metadata, settings, PartitionScan(metadata))


def _next_changes(
    metadata: MetadataView, settings: ControllerSettings, scan: PartitionScan
) -> list[PartitionChangeRecord]:
    """A portion: of so many partitions it is worked out what becomes of them. What is well is passed over."""
    rules = TopicRules(metadata, settings)
    is_active = is_active_in(metadata)
    brokers = metadata.brokers
    alive = {broker.broker_id for broker in brokers.values() if not broker.is_fenced}
    online = {NO_DIRECTORY}.union(*(broker.log_dirs for broker in brokers.values()))
    changes = []
    worked_out = 0
    for name, topic_id, index, partition in scan.portion(metadata, settings.partition_changes_max):
        is_well = partition.leader is not None and alive.issuperset(partition.isr)
        lost = () if online.issuperset(partition.directories) else _offline(partition, brokers)
        if is_well and not lost:
            continue
        changed = _resolved(
            partition,
            lost,
            [one for one in partition.isr if one not in alive and one not in lost],
            min_insync_replicas=rules.min_insync(name),
            is_active=with_replica_online(is_active, brokers, partition),
            is_unclean_allowed=rules.allows_unclean(name),
        )
        if changed is not None:
            changes.append(change_record(topic_id, index, partition, arrived(partition, changed)))
        worked_out += 1
        if worked_out == settings.partition_changes_max:
            break
    return changes


def _offline(partition: PartitionImage, brokers: Mapping[BrokerId, BrokerImage]) -> list[BrokerId]:
    """Who may lead by what the metadata says, but for the log directory, which has failed."""
    may_lead = (*partition.isr, *partition.eligible_leader_replicas)
    return [one for one in may_lead if one in brokers and not lies_online(partition, brokers[one])]


def _resolved(
    partition: PartitionImage,
    lost: Collection[BrokerId],
    fenced: Collection[BrokerId],
    *,
    min_insync_replicas: int | None,
    is_active: IsActive,
    is_unclean_allowed: bool,
) -> PartitionImage | None:
    """One partition without those whose logs failed, and those who are fenced, and with a leader if there may be one;
    None where nothing changes.
    """
    if not lost and not fenced:
        return elected(
            partition,
            min_insync_replicas=min_insync_replicas,
            is_active=is_active,
            is_unclean_allowed=is_unclean_allowed,
        )
    left = partition
    for excluded in (lost, fenced):
        if excluded:
            changed = without(
                left,
                *excluded,
                min_insync_replicas=min_insync_replicas,
                is_active=is_active,
                is_lost=excluded is lost,
                is_unclean_allowed=is_unclean_allowed,
            )
            left = changed or left
    return in_one_step(partition, left)
