"""What is left to do about leaders, as the metadata alone says: it is done in portions, each a decision of its own.

```
 a broker is fenced ──► portion ──► portion ──► … ──► no partition is led by a broker that is fenced, nor in sync there
   (the fence comes first)  └── each is decided from the state at that time, by whoever is the active controller then
```
A decision about a broker can change as many partitions as it holds. So much in one batch holds the event loop of every
node, and the controller may be deposed for it. What such a decision has to do with partitions is therefore what
follows from the state that it leaves: a partition whose ISR names a broker that is fenced; one without a leader though
somebody may be it. The decision itself takes along the first portion, so in small clusters it is one batch. Where a
controller is deposed midway, the next one finds the rest.

In between, a fenced broker leads, in the epoch that it has, with the ISR that it knows: as it would until the news of
the election came. It is alive, and then whatever it commits is held by all in that ISR, of whom the next leader is one;
or it is dead, and commits nothing. It changes no ISR (`isr_changes.py`). If it is let in again, it has never ceased to
lead what was not taken from it. A new incarnation takes its place only when nothing is left to it (rule 6).

Its counterpart in Kafka: `ReplicationControlManager.handleBrokerFenced`, which does all in one operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tidelog.base.ids import BrokerId, PartitionIndex
from tidelog.controller.leaders import is_active_in, with_replica_online
from tidelog.controller.partition_changes import IsActive, arrived, change_record, elected, without
from tidelog.controller.topic_rules import UNCLEAN_ELECTION, TopicRules
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.image import MetadataView, PartitionImage
from tidelog.metadata.records.brokers import BrokerRegistrationChangeRecord
from tidelog.metadata.records.cluster import ConfigRecord
from tidelog.metadata.records.topics import PartitionChangeRecord


def decide_settle(metadata: MetadataView, settings: ControllerSettings) -> Decision[int]:
    """The next portion. Returns how many partitions it changes; 0 where nothing is left to do."""
    changes = changes_to_settle(metadata, settings)
    return Decision(tuple(changes), len(changes))


def unsettles(record: object) -> bool:
    """Whether there may be more to do after a record than the decision that it is of did itself."""
    if isinstance(record, ConfigRecord):
        return record.name == UNCLEAN_ELECTION
    return isinstance(record, BrokerRegistrationChangeRecord)


def after(metadata: MetadataView, *records: object) -> MetadataDraft:
    """The metadata as records leave it, to decide on top of them."""
    draft = MetadataDraft(metadata)
    for record in records:
        draft.apply(record)
    return draft


def changes_to_settle(metadata: MetadataView, settings: ControllerSettings) -> list[PartitionChangeRecord]:
    """The first portion of what is left to do."""
    return list(islice(_all_changes(metadata, settings), settings.partition_changes_max))


def _all_changes(metadata: MetadataView, settings: ControllerSettings) -> Iterator[PartitionChangeRecord]:
    rules = TopicRules(metadata, settings)
    is_active = is_active_in(metadata)
    alive = {broker.broker_id for broker in metadata.brokers.values() if not broker.is_fenced}
    for topic_id, topic in metadata.topics_by_id.items():
        for index, partition in enumerate(topic.partitions):  # all there are: what is well is passed over in no time
            if partition.leader is not None and alive.issuperset(partition.isr):
                continue
            changed = _settled(
                partition,
                alive,
                min_insync_replicas=rules.min_insync(topic.name),
                is_active=with_replica_online(is_active, metadata.brokers, partition),
                is_unclean_allowed=rules.allows_unclean(topic.name),
            )
            if changed is not None:
                yield change_record(topic_id, PartitionIndex(index), partition, arrived(partition, changed))


def _settled(
    partition: PartitionImage,
    alive: set[BrokerId],
    *,
    min_insync_replicas: int | None,
    is_active: IsActive,
    is_unclean_allowed: bool,
) -> PartitionImage | None:
    """One partition without those who are fenced, and with a leader if there may be one; None where nothing changes."""
    gone = [broker for broker in partition.isr if broker not in alive]
    if not gone:
        return elected(
            partition,
            min_insync_replicas=min_insync_replicas,
            is_active=is_active,
            is_unclean_allowed=is_unclean_allowed,
        )
    return without(
        partition,
        *gone,
        min_insync_replicas=min_insync_replicas,
        is_active=is_active,
        is_unclean_allowed=is_unclean_allowed,
    )
