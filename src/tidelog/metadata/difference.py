"""The records that lead from one image to another: from the empty one, those of a snapshot.

A node whose log fell behind takes up a snapshot in the midst of its run, and what follows the metadata there is told
of it as of any other records: one path for news, however it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.metadata.client_quotas import QuotaEntity
from tidelog.metadata.features import (
    CONTROLLERS_SINCE,
    ELIGIBLE_LEADERS_SINCE,
    ELIGIBLE_LEADERS_VERSION,
    METADATA_VERSION_FEATURE,
    METADATA_VERSION_MIN,
    metadata_version,
)
from tidelog.metadata.image import (
    BrokerImage,
    ControllerImage,
    MetadataImage,
    PartitionImage,
    ResourceKey,
    ResourceType,
    TopicImage,
)
from tidelog.metadata.records.acls import RemoveAccessControlEntryRecord, record_of
from tidelog.metadata.records.brokers import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog.metadata.records.cluster import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    ForgottenLoss,
    NoOpRecord,
    ProducerIdsRecord,
    QuotaEntityPart,
)
from tidelog.metadata.records.controllers import RegisterControllerRecord
from tidelog.metadata.records.delegation_tokens import RemoveDelegationTokenRecord, record_of_token
from tidelog.metadata.records.scram_credentials import scram_record
from tidelog.metadata.records.topics import NO_LEADER, PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.wire.messages.losses import entry_of


def records_between(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    """Records that make `image` of `base` when they are applied in this order."""
    yield from _features(base, image)
    yield from _controllers(base, image)
    yield from _brokers(base, image)
    yield from _topics(base, image)
    yield from _configs(base, image)
    yield from _client_quotas(base, image)
    if image.next_producer_id != base.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from _losses(base, image)
    yield from _acls(base, image)
    yield from _scram_credentials(base, image)
    yield from _delegation_tokens(base, image)


def _begins_anew(base: MetadataImage, image: MetadataImage) -> bool:
    """Whether `metadata.version` was below a level meanwhile that has words for what is not said any more: no record
    takes back that eligible leaders are on or off, or that a controller registered.
    """
    is_forgotten = ELIGIBLE_LEADERS_VERSION in base.features and ELIGIBLE_LEADERS_VERSION not in image.features
    was_low = is_forgotten and metadata_version(image.features) >= ELIGIBLE_LEADERS_SINCE
    return was_low or not base.controllers.keys() <= image.controllers.keys()


def _features(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    """`metadata.version` is first, as Kafka's readers want it."""
    known, gone = dict(base.features), base.features.keys() - image.features.keys()
    if _begins_anew(base, image):
        yield FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=METADATA_VERSION_MIN)
        for name in (METADATA_VERSION_FEATURE, ELIGIBLE_LEADERS_VERSION):
            known.pop(name, None)
        gone = ({METADATA_VERSION_FEATURE, *gone} - image.features.keys()) - {ELIGIBLE_LEADERS_VERSION}
    if METADATA_VERSION_FEATURE in gone:
        known.pop(ELIGIBLE_LEADERS_VERSION, None)  # goes with it
    for name in gone:
        yield FeatureLevelRecord(name=name, feature_level=0)
    for name in sorted(image.features, key=lambda name: name != METADATA_VERSION_FEATURE):
        level = image.features[name]
        if known.get(name) != level:
            yield FeatureLevelRecord(name=name, feature_level=level)


def _controllers(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    level = image.features.get(METADATA_VERSION_FEATURE)
    is_low = (
        metadata_version(image.features) < CONTROLLERS_SINCE and base.features.get(METADATA_VERSION_FEATURE) != level
    )
    known = {} if is_low or _begins_anew(base, image) else base.controllers  # the level takes them out
    for controller_id, controller in image.controllers.items():
        if known.get(controller_id) != controller:
            yield registration_of_controller(controller)


def registration_of_controller(controller: ControllerImage) -> RegisterControllerRecord:
    """The record that registers it."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        end_points=[BrokerEndpoint(e.listener_name, e.host, e.port, e.security_protocol) for e in controller.endpoints],
        features=[BrokerFeature(name, low, high) for name, low, high in controller.features],
    )


def _brokers(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    for broker_id, broker in base.brokers.items():
        if broker_id not in image.brokers:
            yield UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    for broker_id, broker in image.brokers.items():
        if base.brokers.get(broker_id) != broker:
            yield _registration(broker)


def _registration(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[BrokerEndpoint(e.listener_name, e.host, e.port, e.security_protocol) for e in broker.endpoints],
        features=[BrokerFeature(name, low, high) for name, low, high in broker.features],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
    )


def _topics(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    for topic_id in base.topics_by_id:
        if topic_id not in image.topics_by_id:
            yield RemoveTopicRecord(topic_id=topic_id)
    for topic_id, topic in image.topics_by_id.items():
        before = base.topics_by_id.get(topic_id)
        if before is None:
            yield TopicRecord(name=topic.name, topic_id=topic_id)
        yield from _partitions(before, topic)


def _partitions(before: TopicImage | None, topic: TopicImage) -> Iterator[object]:
    known = () if before is None else before.partitions
    for index, partition in enumerate(topic.partitions):
        if index >= len(known) or known[index] != partition:
            yield _partition(topic, index, partition)


def _partition(topic: TopicImage, index: int, partition: PartitionImage) -> PartitionRecord:
    eligible: list[int] = list(partition.eligible_leader_replicas)
    last_known: list[int] = list(partition.last_known_eligible_leader_replicas)
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=NO_LEADER if partition.leader is None else partition.leader,
        leader_recovery_state=int(partition.is_recovering),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=eligible or None,
        last_known_elr=last_known or None,
        unclean_epoch=-1 if partition.unclean_epoch is None else partition.unclean_epoch,
    )


def _losses(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    for loss_id in base.losses:
        if loss_id not in image.losses:
            yield NoOpRecord(forgotten_losses=[ForgottenLoss(*loss_id)])
    for loss_id, loss in image.losses.items():
        if base.losses.get(loss_id) != loss:
            yield NoOpRecord(losses=[entry_of(loss)])


def _acls(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    if base.acls is image.acls:
        return
    for acl_id in base.acls:
        if acl_id not in image.acls:
            yield RemoveAccessControlEntryRecord(id=acl_id)
    for acl_id, acl in image.acls.items():
        if base.acls.get(acl_id) != acl:
            yield record_of(acl_id, acl)


def _scram_credentials(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    if base.scram_credentials is image.scram_credentials:
        return
    for user in base.scram_credentials:
        if user not in image.scram_credentials:
            yield scram_record(user, None)
    for user, credential in image.scram_credentials.items():
        if base.scram_credentials.get(user) != credential:
            yield scram_record(user, credential)


def _delegation_tokens(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    if base.delegation_tokens is image.delegation_tokens:
        return
    for token_id in base.delegation_tokens:
        if token_id not in image.delegation_tokens:
            yield RemoveDelegationTokenRecord(token_id=token_id)
    for token_id, token in image.delegation_tokens.items():
        if base.delegation_tokens.get(token_id) != token:
            yield record_of_token(token)


def _configs(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    deleted_topics = {topic.name for topic_id, topic in base.topics_by_id.items() if topic_id not in image.topics_by_id}

    def known(resource: ResourceKey) -> Mapping[str, str]:
        """A topic that went took its settings along, even if there is another of its name now."""
        is_gone = resource.type == ResourceType.TOPIC and resource.name in deleted_topics
        return {} if is_gone else base.configs.get(resource, {})

    for resource in base.configs:
        for name in sorted(known(resource).keys() - image.configs.get(resource, {}).keys()):
            yield _setting(resource, name, None)
    for resource, settings in image.configs.items():
        before = known(resource)
        for name, value in settings.items():
            if before.get(name) != value:
                yield _setting(resource, name, value)


def _client_quotas(base: MetadataImage, image: MetadataImage) -> Iterator[object]:
    for entity, before in base.client_quotas.items():
        for key in sorted(before.keys() - image.client_quotas.get(entity, {}).keys()):
            yield quota_record(entity, key, None)
    for entity, quotas in image.client_quotas.items():
        before = base.client_quotas.get(entity, {})
        for key, value in quotas.items():
            if before.get(key) != value:
                yield quota_record(entity, key, value)


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """The record that sets a quota, or, with None, takes it back."""
    return ClientQuotaRecord(
        entity=[QuotaEntityPart(kind, name) for kind, name in entity],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


def _setting(resource: ResourceKey, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=int(resource.type), resource_name=resource.name, name=name, value=value)
