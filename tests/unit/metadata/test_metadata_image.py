"""Images and deltas: one meaning of every record, and images that never change."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import InvariantBrokenError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.base.principals import Principal
from tidelog.metadata import MetadataDelta, MetadataDraft, MetadataImage, ResourceKey, ResourceType
from tidelog.metadata.delegation_tokens import DelegationToken
from tidelog.metadata.difference import records_between
from tidelog.metadata.records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityPart,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from tidelog.metadata.scram_credentials import ScramCredential

K = TypeVar("K", bound=Hashable)

EPOCH = LeaderEpoch(1)
A, B = TopicId(UUID(int=10)), TopicId(UUID(int=11))
P0, P1 = PartitionIndex(0), PartitionIndex(1)


def partition(topic_id: UUID, index: int, *, leader: int = 1) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
    )


def topic(topic_id: UUID, name: str, partitions: int = 2) -> list[object]:
    return [TopicRecord(name=name, topic_id=topic_id), *(partition(topic_id, index) for index in range(partitions))]


def replayed(base: MetadataImage, *records: object, last_offset: int = 0) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(base)
    for record in records:
        delta.replay(record)
    return delta, delta.apply(Offset(last_offset))


def image_of(*records: object) -> MetadataImage:
    return replayed(MetadataImage.empty(), *records)[1]


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = image_of(*topic(A, "a"))
    assert image.topic("a") is image.topic_by_id(A)
    assert image.topic("b") is None
    state = image.partition("a", P1)
    assert state is not None
    assert (state.replicas, state.isr, state.leader, state.leader_epoch, state.partition_epoch) == (
        (1, 2),
        (1, 2),
        1,
        0,
        0,
    )
    assert image.partition("a", PartitionIndex(2)) is None
    assert image.partition("a", PartitionIndex(-1)) is None
    assert image.partition("b", P0) is None


@pytest.mark.parametrize(
    ("leader", "becomes", "leader_epoch"),
    [(-2, 1, 0), (-1, None, 1), (1, 1, 1), (2, 2, 1)],
    ids=["unchanged", "none", "the same anew", "another"],
)
def test_naming_a_leader_moves_the_leader_epoch(leader: int, becomes: int | None, leader_epoch: int) -> None:
    base = image_of(*topic(A, "a"))
    _, image = replayed(base, PartitionChangeRecord(partition_id=0, topic_id=A, leader=leader, isr=[2]))
    state = image.partition("a", P0)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (becomes, leader_epoch, 1, (2,))
    assert state.replicas == (1, 2)
    assert base.partition("a", P0) != state
    assert image.partition("a", P1) is base.partition("a", P1)


def test_a_delta_lists_what_changed() -> None:
    base = image_of(*topic(A, "a"), *topic(B, "b"))
    new, gone = TopicId(UUID(int=12)), TopicId(UUID(int=13))
    delta, image = replayed(
        base,
        *topic(new, "new", 1),
        *topic(gone, "gone", 1),
        PartitionChangeRecord(partition_id=1, topic_id=A, leader=2),
        PartitionChangeRecord(partition_id=1, topic_id=B, leader=2),
        RemoveTopicRecord(topic_id=B),
        RemoveTopicRecord(topic_id=gone),
        ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1"),
    )
    assert delta.created_topics == {new: "new"}
    assert delta.deleted_topics == {B: base.topics_by_id[B]}
    assert delta.changed_partitions == {A: {1}, new: {0}}
    assert delta.changed_configs == {ResourceKey(ResourceType.TOPIC, "a")}
    assert not delta.are_features_changed
    assert not delta.changed_brokers
    assert set(image.topics_by_name) == {"a", "new"}


def test_a_topic_takes_its_settings_along() -> None:
    base = image_of(*topic(A, "a"), ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1"))
    assert base.topic_configs("a") == {"retention.ms": "1"}
    _, image = replayed(base, RemoveTopicRecord(topic_id=A), *topic(B, "a"))
    assert image.topic_configs("a") == {}
    assert image.topics_by_name["a"].topic_id == B


def test_a_setting_is_taken_back() -> None:
    base = image_of(ConfigRecord(resource_type=4, resource_name="1", name="k", value="v"))
    assert base.broker_configs(BrokerId(1)) == {"k": "v"}
    _, image = replayed(base, ConfigRecord(resource_type=4, resource_name="1", name="k", value=None))
    assert image.configs == {}


def test_a_quota_is_set_and_taken_back_however_its_entity_is_ordered() -> None:
    parts = [QuotaEntityPart("user", "a"), QuotaEntityPart("client-id", None)]
    entity = (("client-id", None), ("user", "a"))
    delta, base = replayed(MetadataImage.empty(), ClientQuotaRecord(entity=parts, key="producer_byte_rate", value=5.0))
    assert delta.are_client_quotas_changed
    assert base.client_quotas == {entity: {"producer_byte_rate": 5.0}}
    gone = ClientQuotaRecord(entity=parts[::-1], key="producer_byte_rate", value=0.0, remove=True)
    _, image = replayed(base, gone)
    assert image.client_quotas == {}
    assert base.client_quotas == {entity: {"producer_byte_rate": 5.0}}


def test_a_password_comes_changes_and_goes() -> None:
    def kept(salt: bytes, mechanism: int = 1) -> UserScramCredentialRecord:
        return UserScramCredentialRecord(
            name="alice", mechanism=mechanism, salt=salt, stored_key=b"stored", server_key=b"server", iterations=4096
        )

    delta, base = replayed(MetadataImage.empty(), kept(b"first"), kept(b"other", 2))
    user = ("SCRAM-SHA-256", "alice")
    assert delta.changed_scram_users == {user, ("SCRAM-SHA-512", "alice")}
    assert base.scram_credentials[user] == ScramCredential(b"first", b"stored", b"server", 4096)
    _, changed = replayed(base, kept(b"second"))
    assert changed.scram_credentials[user].salt == b"second"
    assert base.scram_credentials[user].salt == b"first"
    _, gone = replayed(changed, RemoveUserScramCredentialRecord(name="alice", mechanism=1))
    assert list(gone.scram_credentials) == [("SCRAM-SHA-512", "alice")]


def test_neither_records_nor_images_show_what_is_kept_of_passwords() -> None:
    record = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"SALT", stored_key=b"STORED", server_key=b"SERVER", iterations=4096
    )
    _, image = replayed(MetadataImage.empty(), record)
    for text in (repr(record), str(record), f"{record}", repr(image), str(image.scram_credentials)):
        assert "alice" in text
        assert not any(secret in text for secret in ("SALT", "STORED", "SERVER"))


def test_a_delegation_token_comes_is_renewed_and_goes() -> None:
    def record(expires_ms: int) -> DelegationTokenRecord:
        return DelegationTokenRecord(
            owner="User:alice ",
            requester="User:b:c",
            renewers=["User:d"],
            issue_timestamp=1,
            max_timestamp=9,
            expiration_timestamp=expires_ms,
            token_id="id",
        )

    delta, base = replayed(MetadataImage.empty(), record(5))
    assert delta.changed_delegation_tokens == {"id"}
    alice, bc, d = Principal("User", "alice "), Principal("User", "b:c"), Principal("User", "d")
    token = DelegationToken("id", alice, bc, (d,), 1, 9, 5)
    assert base.delegation_tokens == {"id": token}
    assert [token.may_renew(one) for one in (alice, bc, d)] == [True, False, True]
    assert all(map(token.concerns, (alice, bc, d)))
    assert not token.concerns(Principal("User", "alice"))
    assert not token.is_expired(5)
    assert token.is_expired(6)
    assert token._replace(expiry_timestamp_ms=20).is_expired(10)
    _, renewed = replayed(base, record(7))
    assert renewed.delegation_tokens["id"].expiry_timestamp_ms == 7
    delta, image = replayed(renewed, RemoveDelegationTokenRecord(token_id="id"))
    assert image.delegation_tokens == {}
    assert delta.changed_delegation_tokens == {"id"}
    assert base.delegation_tokens == {"id": token}


def test_a_broker_comes_and_goes() -> None:
    registration = RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=UUID(int=5),
        broker_epoch=7,
        end_points=[BrokerEndpoint("PLAINTEXT", "h", 9092, 0)],
        features=[],
        rack="r",
    )
    image = image_of(registration)
    broker = image.brokers[BrokerId(1)]
    assert broker.is_fenced
    assert not broker.is_active
    endpoint = broker.endpoint("PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("h", 9092)
    assert broker.endpoint("SSL") is None
    delta, image = replayed(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))
    assert delta.changed_brokers == {1}
    assert image.brokers[BrokerId(1)].is_active
    _, image = replayed(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1))
    assert not image.brokers[BrokerId(1)].is_fenced
    assert not image.brokers[BrokerId(1)].is_active
    _, image = replayed(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=7))
    assert not image.brokers


def test_the_offset_of_an_image_counts_control_records() -> None:
    delta, image = replayed(MetadataImage.empty(), NoOpRecord(), last_offset=41)
    assert image.last_offset == 41
    assert delta.apply(Offset(42)).last_offset == 42


@pytest.mark.parametrize(
    "record",
    [
        RemoveTopicRecord(topic_id=B),
        PartitionChangeRecord(partition_id=9, topic_id=A),
        PartitionChangeRecord(partition_id=0, topic_id=B),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=7),
        RemoveAccessControlEntryRecord(id=A),
        RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        RemoveDelegationTokenRecord(token_id="id"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_contradicts_the_metadata_is_a_bug(record: object) -> None:
    with pytest.raises(InvariantBrokenError):
        replayed(image_of(*topic(A, "a")), record)


def test_a_topic_that_was_removed_is_gone_at_once() -> None:
    with pytest.raises(InvariantBrokenError):
        image_of(*topic(A, "a"), RemoveTopicRecord(topic_id=A), PartitionChangeRecord(partition_id=0, topic_id=A))


def test_a_change_shares_what_it_does_not_touch() -> None:
    records: list[object] = []
    for number in range(1000):
        records += topic(UUID(int=100 + number), f"t{number}", 1)
    base = image_of(*records)
    _, image = replayed(base, PartitionChangeRecord(partition_id=0, topic_id=UUID(int=100), leader=2))
    assert image.brokers is base.brokers
    assert image.configs is base.configs
    shared = sum(image.topics_by_name[name] is base.topics_by_name[name] for name in base.topics_by_name)
    assert shared == 999


def test_a_draft_copies_a_mapping_once() -> None:
    draft = MetadataDraft(image_of(*topic(A, "a")))
    draft.apply(ConfigRecord(resource_type=2, resource_name="a", name="k", value="1"))
    own = draft.configs
    draft.apply(ConfigRecord(resource_type=2, resource_name="a", name="l", value="1"))
    assert draft.configs is own
    image = draft.image(None)
    draft.apply(ConfigRecord(resource_type=2, resource_name="a", name="m", value="1"))
    assert draft.configs is not own
    assert image.topic_configs("a") == {"k": "1", "l": "1"}


class Log:
    """Makes random records, each of which fits the ones before it."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.topics: dict[int, int] = {}
        self.brokers: dict[int, int] = {}
        self.acls: list[UUID] = []
        self.users: set[tuple[str, int]] = set()
        self.tokens: set[str] = set()
        self.next_topic = 1
        self.offset = 0

    def step(self) -> Iterator[object]:
        number = self.draw(st.integers(0, 13))
        self.offset += 1
        if number > 9:
            yield from (self.rule, self.user, self.token, self.quota)[number - 10]()
            return
        if number <= 1 or not self.topics:
            self.topics[self.next_topic] = self.draw(st.integers(1, 3))
            yield from topic(
                UUID(int=self.next_topic), f"t{self.next_topic % 5}-{self.next_topic}", self.topics[self.next_topic]
            )
            self.next_topic += 1
        elif number <= 4:
            chosen = self.draw(st.sampled_from(sorted(self.topics)))
            yield PartitionChangeRecord(
                partition_id=self.draw(st.integers(0, self.topics[chosen] - 1)),
                topic_id=UUID(int=chosen),
                leader=self.draw(st.integers(-2, 3)),
                isr=self.draw(st.none() | st.lists(st.integers(1, 3), unique=True)),
            )
        elif number == 5:
            chosen = self.draw(st.sampled_from(sorted(self.topics)))
            del self.topics[chosen]
            yield RemoveTopicRecord(topic_id=UUID(int=chosen))
        elif number == 6:
            broker = self.draw(st.integers(1, 3))
            self.brokers[broker] = self.offset
            yield RegisterBrokerRecord(
                broker_id=broker,
                incarnation_id=UUID(int=self.offset),
                broker_epoch=self.offset,
                end_points=[],
                features=[],
            )
        elif number == 7 and self.brokers:
            broker = self.draw(st.sampled_from(sorted(self.brokers)))
            if self.draw(st.booleans()):
                fenced = self.draw(st.integers(-1, 1))
                yield BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=self.brokers[broker], fenced=fenced)
            else:
                yield UnregisterBrokerRecord(broker_id=broker, broker_epoch=self.brokers.pop(broker))
        elif number == 8:
            yield ConfigRecord(
                resource_type=self.draw(st.sampled_from((2, 4))),
                resource_name=self.draw(st.sampled_from(("t1-1", "1", ""))),
                name=self.draw(st.sampled_from(("k", "l"))),
                value=self.draw(st.none() | st.just("v")),
            )
        else:
            yield FeatureLevelRecord(name="f", feature_level=self.draw(st.integers(0, 3)))
            yield ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=self.offset * 1000)

    def rule(self) -> Iterator[object]:
        if self.draw(st.booleans()) and self.acls:
            place = self.draw(st.integers(0, len(self.acls) - 1))
            yield RemoveAccessControlEntryRecord(id=self.acls.pop(place))
        else:
            self.acls.append(UUID(int=self.offset))
            yield AccessControlEntryRecord(
                id=UUID(int=self.offset),
                resource_type=self.draw(st.sampled_from((2, 3))),
                resource_name=self.draw(st.sampled_from(("a", "*"))),
                pattern_type=self.draw(st.sampled_from((3, 4))),
                principal="User:alice",
                host="*",
                operation=self.draw(st.sampled_from((2, 3))),
                permission_type=self.draw(st.sampled_from((2, 3))),
            )

    def user(self) -> Iterator[object]:
        """A password again is another one."""
        chosen = self.draw(st.sampled_from(("alice", "bob"))), self.draw(st.sampled_from((1, 2)))
        name, mechanism = chosen
        if chosen in self.users and self.draw(st.booleans()):
            self.users.remove(chosen)
            yield RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
        else:
            self.users.add(chosen)
            yield UserScramCredentialRecord(
                name=name,
                mechanism=mechanism,
                salt=b"%d" % self.offset,
                stored_key=b"stored",
                server_key=b"server",
                iterations=4096,
            )

    def token(self) -> Iterator[object]:
        """One that is there already is renewed."""
        chosen = self.draw(st.sampled_from(("x", "y", "z")))
        if chosen in self.tokens and self.draw(st.booleans()):
            self.tokens.remove(chosen)
            yield RemoveDelegationTokenRecord(token_id=chosen)
        else:
            self.tokens.add(chosen)
            yield DelegationTokenRecord(
                owner="User:alice",
                requester="User:bob",
                renewers=self.draw(st.sampled_from(([], ["User:carol"]))),
                issue_timestamp=1,
                max_timestamp=999,
                expiration_timestamp=self.offset,
                token_id=chosen,
            )

    def quota(self) -> Iterator[object]:
        """One that was never set may be taken back."""
        user, client = (
            QuotaEntityPart(kind, self.draw(st.sampled_from((None, "a")))) for kind in ("user", "client-id")
        )
        value = self.draw(st.none() | st.integers(1, 3))
        yield ClientQuotaRecord(
            entity=self.draw(st.sampled_from(([user], [client], [user, client], [client, user]))),
            key=self.draw(st.sampled_from(("producer_byte_rate", "request_percentage"))),
            value=float(value or 0),
            remove=value is None,
        )


@given(st.data())
def test_images_by_deltas_equal_the_image_by_replay(data: st.DataObject) -> None:
    log = Log(data)
    runs = [list(log.step()) for _ in range(data.draw(st.integers(1, 25)))]
    image = MetadataImage.empty()
    history: list[tuple[MetadataImage, MetadataImage]] = []
    for number, run in enumerate(runs):
        delta, following = replayed(image, *run, last_offset=number)
        check_listing(delta, image, following)
        image = following
        history.append((image, copy.deepcopy(image)))
    _, whole = replayed(MetadataImage.empty(), *(record for run in runs for record in run), last_offset=len(runs) - 1)
    assert image == whole
    assert len(image.topics_by_name) == len(image.topics_by_id)
    for then, as_it_was in history:
        assert then == as_it_was, "an image changed after it was taken"


@given(st.data())
def test_a_snapshot_and_the_log_behind_it_are_worth_the_whole_log(data: st.DataObject) -> None:
    """Wherever the log is cut, and whichever snapshot the next one is made of: also for who had an older one."""
    log = Log(data)
    runs = [list(log.step()) for _ in range(data.draw(st.integers(1, 40)))]
    images = [MetadataImage.empty()]
    for number, run in enumerate(runs):
        images.append(replayed(images[-1], *run, last_offset=number)[1])
    cuts = data.draw(st.lists(st.integers(1, len(runs)), unique=True, max_size=4).map(sorted))
    behind = images[data.draw(st.integers(0, min(cuts, default=0)))]
    snapshot, begins = MetadataImage.empty(), 0
    for cut in [*cuts, len(runs)]:
        left = [record for run in runs[begins:cut] for record in run]
        snapshot, begins = replayed(loaded(MetadataImage.empty(), snapshot), *left, last_offset=cut - 1)[1], cut
        behind = loaded(behind, snapshot)
        assert snapshot == behind == images[cut]


def loaded(base: MetadataImage, snapshot: MetadataImage) -> MetadataImage:
    """What whoever has `base` makes of a snapshot, by its bytes."""
    if snapshot.last_offset is None:
        return snapshot
    records = [decode_record(encode_record(record)) for record in records_between(base, snapshot)]
    return replayed(base, *records, last_offset=snapshot.last_offset)[1]


def check_listing(delta: MetadataDelta, base: MetadataImage, image: MetadataImage) -> None:
    assert set(delta.created_topics) == image.topics_by_id.keys() - base.topics_by_id.keys()
    assert set(delta.deleted_topics) == base.topics_by_id.keys() - image.topics_by_id.keys()
    for topic_id, now in image.topics_by_id.items():
        before = base.topics_by_id.get(topic_id)
        for index, state in enumerate(now.partitions):
            if before is None or before.partitions[index] != state:
                assert index in delta.changed_partitions[topic_id]
    for broker_id in base.brokers.keys() | image.brokers.keys():
        if base.brokers.get(broker_id) != image.brokers.get(broker_id):
            assert broker_id in delta.changed_brokers
    assert _differing(base.acls, image.acls) <= delta.changed_acls
    assert _differing(base.scram_credentials, image.scram_credentials) <= delta.changed_scram_users
    assert _differing(base.delegation_tokens, image.delegation_tokens) <= delta.changed_delegation_tokens
    assert base.client_quotas == image.client_quotas or delta.are_client_quotas_changed


def _differing(before: Mapping[K, object], now: Mapping[K, object]) -> set[K]:
    return {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
