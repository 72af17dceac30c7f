"""Leaderships go back to the preferred replicas, so that they spread again after brokers were away.

Only where nobody notices but for the move: the preferred replica is in sync and alive. What is on its way to other
brokers waits until it is there.

Kafka: `ReplicationControlManager.maybeBalancePartitionLeaders`.
"""

from __future__ import annotations

from tidelog.controller.leaders import is_active_in, with_replica_online
from tidelog.controller.partition_changes import change_record, led_by
from tidelog.controller.partition_scan import PartitionScan
from tidelog.controller.replica_moves import is_moving
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.image import MetadataView


def decide_balance_leaders(metadata: MetadataView, settings: ControllerSettings, scan: PartitionScan) -> Decision[int]:
    """Elect preferred leaders where that needs no sacrifice, of the next portion of a pass. Returns how many.

    Every election makes clients look for their leader anew: not all of a large cluster at once.
    """
    rules = TopicRules(metadata, settings)
    is_active = is_active_in(metadata)
    records: list[object] = []
    for name, topic_id, index, partition in scan.portion(metadata, settings.partition_changes_max):
        preferred = partition.replicas[0]
        if partition.leader in (None, preferred) or preferred not in partition.isr:
            continue
        if not with_replica_online(is_active, metadata.brokers, partition)(preferred):
            continue
        if is_moving(partition):
            continue
        balanced = led_by(partition, preferred, min_insync_replicas=rules.min_insync(name))
        records.append(change_record(topic_id, index, partition, balanced))
        if len(records) == settings.partition_changes_max:
            break
    return Decision(tuple(records), len(records))
