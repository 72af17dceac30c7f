"""Which brokers there are, and which of them may lead: registration, fencing, unfencing.

Kafka: `ClusterControlManager`.
"""

from __future__ import annotations

from itertools import islice
from uuid import UUID

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId
from tidelog.controller.leaders import changes_on_leaving
from tidelog.controller.partition_scan import PartitionScan
from tidelog.controller.pending_changes import after, pending_changes
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import BrokerChange, BrokerToRegister, ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.features import knows_directories, unsupported
from tidelog.metadata.image import BrokerImage, MetadataView
from tidelog.metadata.records.brokers import (
    FENCED,
    UNFENCED,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog.metadata.records.topics import PartitionChangeRecord

NO_BROKER_EPOCH = BrokerEpoch(-1)
"""Of a reply that is not the last one, where no incarnation is registered."""


def decide_register_broker(
    metadata: MetadataView,
    settings: ControllerSettings,
    broker: BrokerToRegister,
    *,
    next_offset: int,
    is_previous_alive: bool,
    scan: PartitionScan,
) -> Decision[BrokerChange]:
    """Register a broker. A new incarnation takes the old one's place; leaderships and seats end, in the same batch.

    Where those are many, or there are many partitions to look for them, the old one is fenced first, and what it has
    goes in portions, each on being asked again.

    So no record can be written in an epoch that the old process led (rule 6 of the replication notes). The new one is
    fenced until it is unfenced: until it has seen its own registration. It stays eligible to lead where the old one
    was only if it shows, by that one's broker epoch, that its logs lost nothing (rule 7).

    Args:
        next_offset: where the decision's first record will lie; it becomes the broker epoch.
        is_previous_alive: whether another incarnation of this broker was heard of within its session.
        scan: a pass that is told what changes behind it: goes on with it.

    Raises:
        KafkaError: INCONSISTENT_CLUSTER_ID; DUPLICATE_BROKER_REGISTRATION while another process with this id lives;
            INVALID_REQUEST for a broker without endpoints; UNSUPPORTED_VERSION for one of a release that does not know
            what the cluster has been upgraded to.
    """
    if settings.cluster_id is not None and broker.cluster_id not in (None, settings.cluster_id):
        raise refusal(
            Code.INCONSISTENT_CLUSTER_ID,
            f"broker {broker.broker_id} belongs to cluster {broker.cluster_id}, this is {settings.cluster_id}",
        )
    if not broker.endpoints:
        raise refusal(Code.INVALID_REQUEST, f"broker {broker.broker_id} registers without a listener")
    unfit = unsupported(metadata.features, broker.features)
    if unfit is not None:
        raise refusal(
            Code.UNSUPPORTED_VERSION,
            f"broker {broker.broker_id} cannot join: {unfit}; start it with the release that the others run",
        )
    previous = metadata.brokers.get(broker.broker_id)
    if previous is not None and previous.incarnation_id == broker.incarnation_id:
        return _register_again(metadata, previous, broker)
    is_lost = previous is None or not _has_all_of(previous, broker)
    if is_previous_alive and is_lost:
        raise refusal(
            Code.DUPLICATE_BROKER_REGISTRATION,
            f"another process serves as broker {broker.broker_id}: stop it, or give this one another node.id; "
            "if it was killed a moment ago, its session will end soon",
        )
    all_changes = changes_on_leaving(
        metadata,
        broker.broker_id,
        TopicRules(metadata, settings),
        is_lost=is_lost,
        directories=broker.log_dirs,
        partitions=scan.portion(metadata, settings.partition_changes_max),
    )
    changes = tuple(islice(all_changes, settings.partition_changes_max))
    if not scan.is_done:
        return _before_it_goes(broker.broker_id, previous, changes)
    broker_epoch = BrokerEpoch(next_offset)
    return Decision(
        (_registration(metadata, broker, broker_epoch, is_fenced=True), *changes),
        BrokerChange(broker_epoch),
    )


def decide_unfence_broker(
    metadata: MetadataView, settings: ControllerSettings, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> Decision[BrokerChange]:
    """Let a broker lead: it is elected wherever there is no leader and it is in sync, or eligible. In portions.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED; STALE_BROKER_EPOCH when it registered anew since.
    """
    broker = registered(metadata, broker_id, broker_epoch)
    if not broker.is_fenced:
        return Decision((), BrokerChange(broker_epoch))
    record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=UNFENCED)
    changes = pending_changes(after(metadata, record), settings)
    return Decision((record, *changes), BrokerChange(broker_epoch))


def decide_fence_broker(
    metadata: MetadataView, settings: ControllerSettings, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> Decision[BrokerChange]:
    """Let a broker lead no longer: it fell silent, or stops. Its leaderships go to others, or to nobody. In portions.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED; STALE_BROKER_EPOCH when it registered anew since.
    """
    broker = registered(metadata, broker_id, broker_epoch)
    if broker.is_fenced:
        return Decision((), BrokerChange(broker_epoch))
    record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=FENCED)
    changes = pending_changes(after(metadata, record), settings)
    return Decision((record, *changes), BrokerChange(broker_epoch))


def decide_unregister_broker(
    metadata: MetadataView,
    settings: ControllerSettings,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch | None,
    *,
    scan: PartitionScan,
) -> Decision[BrokerChange]:
    """Forget a broker that is gone for good. It stays among the replicas of its partitions, which others lead.

    Where it leads many, or there are many partitions to look for them, it is fenced first, and what it has goes in
    portions, each on being asked again. No heartbeat lets it in meanwhile (`BrokerSessions.on_leaving`).

    It may be alive: then it finds that it is not registered, and registers anew.

    Args:
        broker_epoch: the incarnation that is meant; None for whichever there is. If another one has taken its place
            meanwhile, nothing is left to do.
        scan: a pass that is told what changes behind it: goes on with it.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED.
    """
    broker = metadata.brokers.get(broker_id)
    if broker_epoch is not None and (broker is None or broker.broker_epoch != broker_epoch):
        return Decision((), BrokerChange(broker_epoch))
    if broker is None:
        raise refusal(Code.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    partitions = scan.portion(metadata, settings.partition_changes_max)
    all_changes = changes_on_leaving(metadata, broker_id, TopicRules(metadata, settings), partitions=partitions)
    changes = tuple(islice(all_changes, settings.partition_changes_max))
    if not scan.is_done:
        return _before_it_goes(broker_id, broker, changes)
    return Decision((*changes, record), BrokerChange(broker.broker_epoch))


def registered(metadata: MetadataView, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> BrokerImage:
    """The broker, in the incarnation that asks.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED; STALE_BROKER_EPOCH.
    """
    broker = metadata.brokers.get(broker_id)
    if broker is None:
        raise refusal(Code.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        raise refusal(
            Code.STALE_BROKER_EPOCH,
            f"broker {broker_id} asks at broker epoch {broker_epoch}, but is registered at {broker.broker_epoch}",
        )
    return broker


def _before_it_goes(
    broker_id: BrokerId, broker: BrokerImage | None, changes: tuple[PartitionChangeRecord, ...]
) -> Decision[BrokerChange]:
    """A portion of what has to be done before the registration of a broker ends, or one of it begins.

    Args:
        broker: fenced first, if there is one.
    """
    if broker is None:
        return Decision(changes, BrokerChange(NO_BROKER_EPOCH, has_more=True))
    epoch = broker.broker_epoch
    fence = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=FENCED)
    return Decision(changes if broker.is_fenced else (fence, *changes), BrokerChange(epoch, has_more=True))


def _has_all_of(previous: BrokerImage, broker: BrokerToRegister) -> bool:
    """Whether a broker has the logs of its last incarnation, to the last record.

    It shows that by the broker epoch that lies in its directories, which it has locked: so that one is no more, either.
    """
    has_all_directories = set(previous.log_dirs) <= set(broker.log_dirs)
    return broker.previous_broker_epoch == previous.broker_epoch and has_all_directories


def _register_again(metadata: MetadataView, previous: BrokerImage, broker: BrokerToRegister) -> Decision[BrokerChange]:
    """The same process once more: a retry, or new facts about it. It keeps its epoch and its leaderships."""
    reply = BrokerChange(previous.broker_epoch)
    described = (broker.endpoints, broker.rack, _log_dirs(metadata, broker), broker.features)
    if described == (previous.endpoints, previous.rack, previous.log_dirs, previous.features):
        return Decision((), reply)
    record = _registration(metadata, broker, previous.broker_epoch, is_fenced=previous.is_fenced)
    record.in_controlled_shutdown = previous.in_controlled_shutdown
    return Decision((record,), reply)


def _registration(
    metadata: MetadataView, broker: BrokerToRegister, broker_epoch: BrokerEpoch, *, is_fenced: bool
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker_epoch,
        end_points=[BrokerEndpoint(e.listener_name, e.host, e.port, e.security_protocol) for e in broker.endpoints],
        features=[BrokerFeature(name, low, high) for name, low, high in broker.features],
        rack=broker.rack,
        fenced=is_fenced,
        log_dirs=list(_log_dirs(metadata, broker)),
    )


def _log_dirs(metadata: MetadataView, broker: BrokerToRegister) -> tuple[UUID, ...]:
    return broker.log_dirs if knows_directories(metadata.features) else ()
