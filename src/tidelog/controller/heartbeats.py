"""What brokers say of themselves every other second, and what is decided of them: unfenced, fenced, allowed to go.

```
 registered ──► fenced ──── has seen its own registration ───► unfenced ──── wants to go ───► shutting down
                  ▲                                                │                                │
                  ├────── silent for a session, or wants it ───────┘                                │
                  └─── leads nothing that others could lead, and they know: it may shut down ───────┘
```

Kafka: `ReplicationControlManager.processBrokerHeartbeat`.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from uuid import UUID

from tidelog.base.ids import BrokerId, Offset
from tidelog.controller.brokers import decide_fence_broker, decide_unfence_broker, registered
from tidelog.controller.leaders import changes_on_shutdown, changes_where_nobody_knows
from tidelog.controller.partition_scan import PartitionScan
from tidelog.controller.pending_changes import after, pending_changes
from tidelog.controller.sessions import BrokerSessions
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import ControllerSettings, Heartbeat, HeartbeatReply
from tidelog.journal import Decision
from tidelog.metadata.image import BrokerImage, MetadataView
from tidelog.metadata.records.brokers import FENCED, IN_CONTROLLED_SHUTDOWN, BrokerRegistrationChangeRecord


def decide_heartbeat(
    metadata: MetadataView,
    settings: ControllerSettings,
    heartbeat: Heartbeat,
    sessions: BrokerSessions,
    *,
    next_offset: Offset,
    now_ms: int,
    scan: PartitionScan,
) -> Decision[HeartbeatReply]:
    """Let a broker in, out, or shut down, as it wants. Its session goes on at once, whatever becomes of the decision.

    Args:
        scan: goes on with it, where a broker that shuts down has much to give away.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED; STALE_BROKER_EPOCH when it registered anew since.
    """
    broker = registered(metadata, heartbeat.broker_id, heartbeat.broker_epoch)
    offset = heartbeat.metadata_offset
    sessions.on_contact(broker.broker_id, broker.broker_epoch, offset, now_ms)
    is_caught_up = offset is not None and offset >= broker.broker_epoch
    failed = set(heartbeat.offline_log_dirs) & set(broker.log_dirs)
    if failed and failed != set(broker.log_dirs) and not heartbeat.wants_shut_down:
        records = _without_directories(metadata, settings, broker, failed)
        return Decision(records, HeartbeatReply(is_caught_up, broker.is_fenced))
    records = ()
    is_fenced = broker.is_fenced
    shuts_down = heartbeat.wants_shut_down
    if shuts_down and not is_fenced and not heartbeat.wants_fence:
        moves = _moves_on_shutdown(metadata, settings, broker, scan)
        has_more = not scan.is_done
        if moves:
            sessions.on_leaderships_moved(broker.broker_id, Offset(next_offset + len(moves)))
        if moves or has_more:
            return Decision(moves, HeartbeatReply(is_caught_up, is_fenced=False, has_more=has_more))
        if broker.in_controlled_shutdown and not sessions.know_of_move(broker.broker_id, _active(metadata)):
            return Decision((), HeartbeatReply(is_caught_up, is_fenced=False, should_shut_down=False))
    if shuts_down or heartbeat.wants_fence:
        records = decide_fence_broker(metadata, settings, broker.broker_id, broker.broker_epoch).records
        is_fenced = True
    elif is_fenced and is_caught_up and not sessions.is_leaving(broker.broker_id, broker.broker_epoch, now_ms):
        records = decide_unfence_broker(metadata, settings, broker.broker_id, broker.broker_epoch).records
        is_fenced = False
    if shuts_down:
        sessions.on_ended(broker.broker_id)
    return Decision(records, HeartbeatReply(is_caught_up, is_fenced, should_shut_down=shuts_down))


def decide_fence_expired(
    metadata: MetadataView, settings: ControllerSettings, sessions: BrokerSessions, *, now_ms: int
) -> Decision[tuple[BrokerId, ...]]:
    """Fence whoever was not heard of for a session, all in one batch. Those that are are the reply."""
    records: list[object] = []
    fenced: list[BrokerId] = []
    for broker_id, broker_epoch in sessions.expired(now_ms):
        sessions.on_ended(broker_id)
        broker = metadata.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch or broker.is_fenced:
            continue
        records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=FENCED))
        fenced.append(broker_id)
    if records:
        records += pending_changes(after(metadata, *records), settings)
    return Decision(tuple(records), tuple(fenced))


def _without_directories(
    metadata: MetadataView, settings: ControllerSettings, broker: BrokerImage, failed: Collection[UUID]
) -> tuple[object, ...]:
    """The records that say which directories are left, and who leads what lay in the others, the first portion of it.
    Without any directory it stops.
    """
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        log_dirs=[one for one in broker.log_dirs if one not in failed],
    )
    draft = after(metadata, record)
    changes = pending_changes(draft, settings)
    draft = after(draft, *changes)
    partitions = PartitionScan(draft).portion(draft, settings.partition_changes_max)
    unknown = changes_where_nobody_knows(draft, broker.broker_id, TopicRules(draft, settings), partitions)
    return (record, *changes, *islice(unknown, settings.partition_changes_max - len(changes)))


def _moves_on_shutdown(
    metadata: MetadataView, settings: ControllerSettings, broker: BrokerImage, scan: PartitionScan
) -> tuple[object, ...]:
    """The records that give away what others can take over, the next portion of it; none if there is nothing in it.

    The broker asks again until nothing is left. One that leads only what nobody else can lead goes on leading it until
    it is gone.
    """
    rules = TopicRules(metadata, settings)
    partitions = scan.portion(metadata, settings.partition_changes_max)
    all_changes = changes_on_shutdown(metadata, broker.broker_id, rules, partitions)
    changes = tuple(islice(all_changes, settings.partition_changes_max))
    if broker.in_controlled_shutdown or not changes:
        return changes
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
    )
    return (record, *changes)


def _active(metadata: MetadataView) -> list[BrokerId]:
    return [broker.broker_id for broker in metadata.brokers.values() if broker.is_active]
