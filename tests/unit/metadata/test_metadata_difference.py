"""Whatever two images say, the records between them lead from the one to the other; from the empty one, a snapshot."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, TopicId
from tidelog.base.principals import Principal
from tidelog.metadata import (
    BrokerImage,
    ControllerImage,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    RegisteredEndpoint,
    ResourceKey,
    ResourceType,
    TopicImage,
)
from tidelog.metadata.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.metadata.delegation_tokens import DelegationToken
from tidelog.metadata.difference import records_between
from tidelog.metadata.records import decode_record, encode_record
from tidelog.metadata.scram_credentials import ScramCredential

IDS = st.integers(1, 3).map(BrokerId)
SOME = st.lists(IDS, min_size=1, max_size=3, unique=True).map(tuple)
UUIDS = st.integers(1, 6).map(lambda number: UUID(int=number))
ELIGIBLE = "eligible.leader.replicas.version"
SETTINGS = st.dictionaries(st.sampled_from(["retention.ms", "segment.bytes"]), st.sampled_from(["1", "2"]), min_size=1)

QUOTA_ENTITIES = st.sampled_from([(("user", "a"),), (("user", None),), (("client-id", "c"), ("user", None))])
SCRAM_USERS = st.tuples(st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]), st.sampled_from(["alice", "bob"]))
CREDENTIALS = st.builds(
    ScramCredential, st.binary(max_size=4), st.just(b"s"), st.just(b"k"), st.sampled_from([4096, 8192])
)

QUOTAS = st.dictionaries(st.sampled_from(["producer_byte_rate", "request_percentage"]), st.floats(1, 9), min_size=1)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    return PartitionImage(
        replicas=draw(SOME),
        isr=draw(SOME),
        leader=draw(st.none() | IDS),
        leader_epoch=LeaderEpoch(draw(st.integers(0, 9))),
        partition_epoch=PartitionEpoch(draw(st.integers(0, 9))),
        is_recovering=draw(st.booleans()),
        adding_replicas=draw(st.just(()) | SOME),
        removing_replicas=draw(st.just(()) | SOME),
        directories=draw(st.just(()) | st.tuples(UUIDS)),
        eligible_leader_replicas=draw(st.just(()) | SOME),
        last_known_eligible_leader_replicas=draw(st.just(()) | SOME),
        unclean_epoch=draw(st.none() | st.integers(0, 9).map(LeaderEpoch)),
    )


@st.composite
def brokers(draw: st.DrawFn, broker_id: BrokerId) -> BrokerImage:
    return BrokerImage(
        broker_id=broker_id,
        broker_epoch=BrokerEpoch(draw(st.integers(0, 9))),
        incarnation_id=draw(UUIDS),
        endpoints=(RegisteredEndpoint("PLAINTEXT", "host", draw(st.integers(1, 3))),),
        rack=draw(st.none() | st.just("rack")),
        is_fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=draw(st.just(()) | st.tuples(UUIDS)),
        features=(("metadata.version", 7, 21),),
    )


@st.composite
def levels(draw: st.DrawFn) -> dict[str, int]:
    """Of eligible leaders it may be said that there are none, where metadata.version has words for them."""
    found = draw(st.dictionaries(st.sampled_from(["metadata.version", "group.version"]), st.integers(1, 30)))
    if found.get("metadata.version", 30) >= 23 and draw(st.booleans()):
        found[ELIGIBLE] = draw(st.integers(0, 1))
    return found


@st.composite
def controllers(draw: st.DrawFn, controller_id: BrokerId) -> ControllerImage:
    endpoints = (RegisteredEndpoint("CONTROLLER", "host", draw(st.integers(1, 3))),)
    return ControllerImage(controller_id, draw(UUIDS), endpoints, (("metadata.version", 7, draw(st.integers(21, 30))),))


@st.composite
def acls(draw: st.DrawFn) -> Acl:
    return Acl(
        draw(st.sampled_from([AclResourceType.TOPIC, AclResourceType.USER])),
        draw(st.sampled_from(["*", "a"])),
        draw(st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])),
        "User:alice",
        draw(st.sampled_from(["*", "10.0.0.1"])),
        draw(st.sampled_from([AclOperation.READ, AclOperation.ALL])),
        draw(st.sampled_from([AclPermission.DENY, AclPermission.ALLOW])),
    )


@st.composite
def delegation_tokens(draw: st.DrawFn) -> dict[str, DelegationToken]:
    alice, bob = Principal("User", "alice"), Principal("User", "bob")
    ids = draw(st.sets(st.sampled_from(["a", "b", "c"])))
    renewers = st.sampled_from([(), (bob,)])
    return {one: DelegationToken(one, alice, bob, draw(renewers), 1, 9, draw(st.integers(2, 4))) for one in ids}


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    topics = []
    for name in draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True)):
        # A topic that comes twice, with the same id, only ever gains partitions.
        topic_id = TopicId(UUID(int=ord(name) + draw(st.sampled_from([0, 100]))))
        count = 1 if topic_id.int < 150 else 2
        topics.append(TopicImage(name, topic_id, [draw(partitions()) for _ in range(count)]))
    configs = {ResourceKey(ResourceType.BROKER, name): draw(SETTINGS) for name in draw(st.sets(st.just("1")))}
    for topic in topics:
        if draw(st.booleans()):
            configs[ResourceKey(ResourceType.TOPIC, topic.name)] = draw(SETTINGS)
    return MetadataImage(
        topics_by_name={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics},
        brokers={broker_id: draw(brokers(broker_id)) for broker_id in draw(st.sets(IDS))},
        configs=configs,
        features=draw(levels()),
        next_producer_id=draw(st.integers(0, 3)),
        last_offset=Offset(7),
        controllers={one: draw(controllers(one)) for one in draw(st.sets(IDS))},
        acls=draw(st.dictionaries(UUIDS, acls(), max_size=3)),
        delegation_tokens=draw(delegation_tokens()),
        client_quotas=draw(st.dictionaries(QUOTA_ENTITIES, QUOTAS)),
        scram_credentials=draw(st.dictionaries(SCRAM_USERS, CREDENTIALS)),
    )


@given(images(), images())
def test_the_records_between_two_images_lead_from_one_to_the_other(base: MetadataImage, image: MetadataImage) -> None:
    delta = MetadataDelta(base)
    for record in records_between(base, image):
        delta.replay(decode_record(encode_record(record)))
    assert delta.apply(Offset(7)) == image


def test_a_level_that_goes_with_another_is_said_again() -> None:
    base = replace(MetadataImage.empty(), features={"metadata.version": 23, ELIGIBLE: 0}, last_offset=Offset(7))
    image = replace(base, features={ELIGIBLE: 0})
    delta = MetadataDelta(base)
    for record in records_between(base, image):
        delta.replay(decode_record(encode_record(record)))
    assert delta.apply(Offset(7)) == image


@given(images())
def test_nothing_lies_between_an_image_and_itself(image: MetadataImage) -> None:
    assert list(records_between(image, image)) == []
