"""Which heartbeats, commits and fetches of consumer groups are refused, and which are not: at the very edge."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from support.fixtures.coordinated_consumers import broker, partition
from tidelog.base.errors import Code, KafkaError, MalformedMessageError
from tidelog.base.ids import BrokerId, TopicId
from tidelog.coordinator.groups.consumer import commit_checks
from tidelog.coordinator.groups.consumer.assignment import (
    AssignableMember,
    Pace,
    contains,
    finished,
    intersects,
    kept_owners,
)
from tidelog.coordinator.groups.consumer.conversion import (
    classic_subscription,
    encoded_assignment,
    protocols_of,
    read_subscription,
)
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.group_change import GroupChange, preferred_assignor
from tidelog.coordinator.groups.consumer.heartbeat_checks import (
    TOPIC_NAMES_MAX,
    Lists,
    check_epoch,
    check_heartbeat,
    check_joining,
    check_known,
    check_room,
    is_full,
    lists_of,
    subscription_after,
)
from tidelog.coordinator.groups.consumer.known_topics import CHANGED_MAX, KnownTopics, TopicsHash
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription, CurrentAssignment
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings, MigrationPolicy
from tidelog.coordinator.groups.consumer_group_records import ClassicMemberMetadata, ConsumerMemberState
from tidelog.coordinator.groups.records import NAME_SIZE_BYTES_MAX
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.metadata.image import MetadataImage, TopicImage
from tidelog.wire.compile import decode, encode
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequestGroup
from tidelog.wire.messages.api_28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatPartitions,
    ConsumerGroupHeartbeatRequest,
)
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

T, U, V = (TopicId(UUID(int=number)) for number in (1, 2, 3))
SETTINGS = ConsumerGroupSettings(group_size_max=2)
CLASSIC = ClassicMemberMetadata(session_timeout_ms=7, supported_protocols=[])


def heartbeat(**changes: object) -> ConsumerGroupHeartbeatRequest:
    fields = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 5,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
        **changes,
    }
    return ConsumerGroupHeartbeatRequest(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"group_id": ""}, "group id is empty"),
        ({"member_id": ""}, "member id is empty"),
        ({"member_id": "", "member_epoch": 3}, "member id is empty"),
        ({"instance_id": ""}, "instance id is empty"),
        ({"rack_id": ""}, "rack id is empty"),
        ({"group_id": "g" * (NAME_SIZE_BYTES_MAX + 1)}, "group id is longer"),
        ({"member_id": "é" * (NAME_SIZE_BYTES_MAX // 2 + 1)}, "member id is longer"),
        ({"member_epoch": -3}, "no member epoch -3"),
        ({"member_epoch": -2}, "only a static member"),
        ({"rebalance_timeout_ms": -1}, "rebalance timeout"),
        ({"topic_partitions": None}, "reads no partitions yet"),
        ({"topic_partitions": [ConsumerGroupHeartbeatPartitions(T, [0])]}, "reads no partitions yet"),
        ({"subscribed_topic_names": None}, "subscribes to"),
        ({"subscribed_topic_names": ["t"] * (TOPIC_NAMES_MAX + 1)}, f"may name {TOPIC_NAMES_MAX}"),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(changes: dict[str, object], names: str) -> None:
    with pytest.raises(KafkaError, match=names) as refused:
        check_heartbeat(heartbeat(**changes), 1, SETTINGS)
    assert refused.value.code is Code.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "api_version"),
    [
        ({}, 1),
        ({"member_id": ""}, 0),
        ({"instance_id": "i", "rack_id": "r"}, 1),
        ({"member_epoch": -2, "instance_id": "i"}, 1),
        ({"member_epoch": -1}, 1),
        ({"rebalance_timeout_ms": 0}, 1),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}, 1),
        ({"member_epoch": 1, "rebalance_timeout_ms": -1, "topic_partitions": None, "subscribed_topic_names": None}, 1),
        ({"group_id": "g" * NAME_SIZE_BYTES_MAX, "member_id": "é" * (NAME_SIZE_BYTES_MAX // 2)}, 1),
        ({"server_assignor": "range"}, 1),
        ({"subscribed_topic_names": ["t"] * TOPIC_NAMES_MAX}, 1),
    ],
)
def test_a_heartbeat_that_makes_sense_is_not(changes: dict[str, object], api_version: int) -> None:
    check_heartbeat(heartbeat(**changes), api_version, SETTINGS)


def test_what_a_heartbeat_says_of_others_is_refused_with_their_codes() -> None:
    for changes, code in (
        ({"server_assignor": "no"}, Code.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, Code.INVALID_REGULAR_EXPRESSION),
    ):
        with pytest.raises(KafkaError) as refused:
            check_heartbeat(heartbeat(**changes), 1, SETTINGS)
        assert refused.value.code is code


def test_a_heartbeat_lists_each_name_and_partition_once() -> None:
    lists = lists_of(
        heartbeat(
            subscribed_topic_names=["u", "t", "u"],
            topic_partitions=[
                ConsumerGroupHeartbeatPartitions(T, [1, 0]),
                ConsumerGroupHeartbeatPartitions(U, [3]),
                ConsumerGroupHeartbeatPartitions(T, [1, 2]),
            ],
        )
    )
    assert lists == Lists(("t", "u"), {T: frozenset((0, 1, 2)), U: frozenset((3,))})
    assert lists_of(heartbeat(subscribed_topic_names=None, topic_partitions=None)) == Lists(None, None)


def test_what_a_heartbeat_leaves_out_stays() -> None:
    old = ConsumerSubscription("c", "h", "i", "r", ("t",), "p", 9, "range")
    nothing = heartbeat(rebalance_timeout_ms=-1)
    assert subscription_after(old, nothing, None, "c2", "h2") == replace(old, client_id="c2", client_host="h2")
    everything = heartbeat(
        instance_id="j", rack_id="s", rebalance_timeout_ms=0, subscribed_topic_regex="q", server_assignor="uniform"
    )
    new = ConsumerSubscription("c", "h", "j", "s", ("u",), "q", 0, "uniform")
    assert subscription_after(old, everything, ("u",), "c", "h") == new
    assert subscription_after(old, heartbeat(subscribed_topic_regex=""), None, "c", "h").pattern is None
    assert subscription_after(None, nothing, None, "c", "h") == ConsumerSubscription("c", "h")
    same = ("t",)
    assert subscription_after(old, nothing, same, "c", "h").topic_names is old.topic_names


@pytest.mark.parametrize(
    ("changes", "says_all"),
    [
        ({}, True),
        ({"rebalance_timeout_ms": 0}, True),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "p"}, True),
        ({"rebalance_timeout_ms": -1}, False),
        ({"subscribed_topic_names": None}, False),
        ({"topic_partitions": None}, False),
    ],
)
def test_who_says_all_may_have_missed_an_answer(changes: dict[str, object], says_all: bool) -> None:
    assert is_full(heartbeat(**changes)) == says_all


def group_of(**members: ConsumerSubscription) -> ConsumerGroup:
    group = ConsumerGroup("g")
    for member_id, one in members.items():
        group.set_subscription(member_id, one)
    return group


def plain(instance_id: str | None = None, classic: ClassicMemberMetadata | None = None) -> ConsumerSubscription:
    return ConsumerSubscription("c", "h", instance_id, classic=classic)


def code_of(check: object, *args: object, **kwargs: object) -> Code:
    try:
        check(*args, **kwargs)  # type: ignore[operator]
    except KafkaError as error:
        return error.code
    return Code.NONE


@pytest.mark.parametrize(
    ("member_id", "instance_id", "code"),
    [
        ("a", None, Code.NONE),
        ("s", "i", Code.NONE),
        ("s", None, Code.NONE),
        ("b", None, Code.UNKNOWN_MEMBER_ID),
        ("a", "j", Code.UNKNOWN_MEMBER_ID),
        ("a", "i", Code.FENCED_INSTANCE_ID),
    ],
)
def test_a_member_is_known_under_its_ids(member_id: str, instance_id: str | None, code: Code) -> None:
    assert code_of(check_known, group_of(a=plain(), s=plain("i")), member_id, instance_id) is code


@pytest.mark.parametrize(
    ("epoch", "owned", "is_fenced"),
    [
        (5, None, False),
        (5, {U: frozenset((0,))}, False),
        (6, {}, True),
        (4, {}, False),
        (4, {T: frozenset((0, 1))}, False),
        (4, {T: frozenset((0, 2))}, True),
        (4, None, True),
        (3, {}, True),
    ],
)
def test_the_epoch_before_is_for_who_reads_nothing_that_is_not_its_own(
    epoch: int, owned: dict[TopicId, frozenset[int]] | None, is_fenced: bool
) -> None:
    current = CurrentAssignment(5, 4, ConsumerMemberState.UNREVOKED_PARTITIONS, {T: {0: 1}}, {T: {1: 1}})
    code = code_of(check_epoch, "g", current, epoch, owned)
    assert code is (Code.FENCED_MEMBER_EPOCH if is_fenced else Code.NONE)


def test_who_joins_is_new_or_takes_its_own_place() -> None:
    group = group_of(a=plain(), s=plain("i"))
    full = ConsumerGroupSettings(group_size_max=2)
    room = ConsumerGroupSettings(group_size_max=3)
    assert check_joining(group, "a", None, full) == "a"
    assert check_joining(group, "s", "i", full) == "s"
    assert check_joining(group, "b", None, room) is None
    assert check_joining(group, "b", "j", room) is None
    assert code_of(check_joining, group, "b", None, full) is Code.GROUP_MAX_SIZE_REACHED
    assert code_of(check_joining, group, "b", "i", room) is Code.UNRELEASED_INSTANCE_ID
    group.set_current("s", CurrentAssignment(-2))
    assert check_joining(group, "b", "i", full) == "s"
    assert code_of(check_joining, group, "a", "i", full) is Code.INVALID_REQUEST
    classic = group_of(s=plain("i", CLASSIC))
    assert check_joining(classic, "b", "i", full) == "s"


def test_a_member_finds_room_or_takes_no_more_than_it_did() -> None:
    one = plain()
    memory = CoordinatorMemory(one.size_bytes)
    check_room(memory, "g", None, one)
    memory.used_bytes = 1
    assert code_of(check_room, memory, "g", None, one) is Code.GROUP_MAX_SIZE_REACHED
    check_room(memory, "g", one, one)
    longer = replace(one, client_id="c" * 3)
    memory.used_bytes = one.size_bytes - 1
    assert code_of(check_room, memory, "g", one, longer) is Code.GROUP_MAX_SIZE_REACHED
    check_room(memory, "g", longer, one)
    memory.used_bytes = one.size_bytes - 2
    check_room(memory, "g", one, longer)


# Offsets.


def committing() -> tuple[ConsumerGroup, KnownTopics]:
    """`a` is at epoch 5, and has 0 since 3, and 1 since 5; `k` is classic, at 5; `s` is static."""
    group = group_of(a=plain(), k=plain(classic=CLASSIC), s=plain("i"))
    group.set_current("a", CurrentAssignment(5, 4, ConsumerMemberState.STABLE, {T: {0: 3, 1: 5}}))
    group.set_current("k", CurrentAssignment(5, 4))
    group.set_current("s", CurrentAssignment(5, 4))
    return group, known(t=2)


def known(racks: dict[int, str | None] | None = None, **topics: int) -> KnownTopics:
    return KnownTopics(image(racks, **topics), 1)


def image(racks: dict[int, str | None] | None = None, **topics: int) -> MetadataImage:
    ids = {"t": T, "u": U, "v": V}
    made = [TopicImage(name, ids[name], tuple(partition(1, 2) for _ in range(count))) for name, count in topics.items()]
    return MetadataImage(
        topics_by_name={one.name: one for one in made},
        topics_by_id={one.topic_id: one for one in made},
        brokers={BrokerId(one): broker(one, rack) for one, rack in (racks or {1: None, 2: None}).items()},
    )


@pytest.mark.parametrize(
    ("member_id", "epoch", "partitions", "options", "code"),
    [
        ("a", 5, [7], {}, Code.NONE),
        ("a", 3, [0], {}, Code.NONE),
        ("a", 4, [0], {}, Code.NONE),
        ("a", 4, [1], {}, Code.STALE_MEMBER_EPOCH),
        ("a", 4, [0, 1], {}, Code.STALE_MEMBER_EPOCH),
        ("a", 2, [0], {}, Code.STALE_MEMBER_EPOCH),
        ("a", 6, [0], {}, Code.STALE_MEMBER_EPOCH),
        ("a", -1, [0], {}, Code.STALE_MEMBER_EPOCH),
        ("a", 4, [0], {"topic": "v"}, Code.STALE_MEMBER_EPOCH),
        ("b", 5, [0], {}, Code.UNKNOWN_MEMBER_ID),
        ("a", 5, [0], {"instance_id": "i"}, Code.FENCED_INSTANCE_ID),
        ("s", 5, [0], {"instance_id": "i"}, Code.NONE),
        ("k", 5, [0], {"api_version": 5}, Code.NONE),
        ("k", 4, [0], {}, Code.ILLEGAL_GENERATION),
        ("a", 5, [0], {"api_version": 8}, Code.UNSUPPORTED_VERSION),
        ("a", 5, [0], {"api_version": 9}, Code.NONE),
    ],
)
def test_a_member_commits_what_it_had_in_its_epoch(
    member_id: str, epoch: int, partitions: list[int], options: dict[str, object], code: Code
) -> None:
    group, topics = committing()
    name = options.get("topic", "t")
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=options.get("instance_id"),  # type: ignore[arg-type]
        topics=[
            OffsetCommitRequestTopic(
                name=name,  # type: ignore[arg-type]
                partitions=[
                    OffsetCommitRequestPartition(partition_index=one, committed_offset=7) for one in partitions
                ],
            )
        ],
    )
    assert code_of(commit_checks.check_commit, group, topics, request, options.get("api_version", 9)) is code


@pytest.mark.parametrize(("epoch", "code"), [(-1, Code.NONE), (0, Code.UNKNOWN_MEMBER_ID), (5, Code.UNKNOWN_MEMBER_ID)])
def test_anybody_commits_to_a_group_without_members_and_says_that_it_is_nobody(epoch: int, code: Code) -> None:
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id="a", topics=[])
    assert code_of(commit_checks.check_commit, group_of(), known(t=1), request, 9) is code


def test_while_topics_are_not_known_a_member_commits_in_its_own_epoch_alone() -> None:
    group, _ = committing()
    for epoch, code in ((5, Code.NONE), (4, Code.STALE_MEMBER_EPOCH)):
        topic = OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
        )
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id="a", topics=[topic])
        assert code_of(commit_checks.check_commit, group, None, request, 9) is code


@pytest.mark.parametrize(
    ("member_id", "instance_id", "epoch", "partitions", "code"),
    [
        ("", None, -1, [0], Code.NONE),
        ("a", None, -1, [0], Code.ILLEGAL_GENERATION),
        ("", "i", -1, [0], Code.FENCED_INSTANCE_ID),
        ("", None, 5, [0], Code.UNKNOWN_MEMBER_ID),
        ("b", None, 5, [0], Code.UNKNOWN_MEMBER_ID),
        ("a", None, 5, [7], Code.NONE),
        ("a", None, 4, [0], Code.NONE),
        ("a", None, 4, [0, 1], Code.ILLEGAL_GENERATION),
        ("a", None, 6, [0], Code.ILLEGAL_GENERATION),
    ],
)
def test_a_transaction_commits_what_its_member_had_in_its_epoch(
    member_id: str, instance_id: str | None, epoch: int, partitions: list[int], code: Code
) -> None:
    group, topics = committing()
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        generation_id=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=one, committed_offset=7) for one in partitions
                ],
            )
        ],
    )
    assert code_of(commit_checks.check_transactional_commit, group, topics, request) is code
    nobody = group_of()
    expected = Code.NONE if epoch < 0 else Code.UNKNOWN_MEMBER_ID
    assert code_of(commit_checks.check_transactional_commit, nobody, topics, request) is expected


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, Code.NONE),
        ("a", 5, Code.NONE),
        ("a", 4, Code.STALE_MEMBER_EPOCH),
        ("a", -1, Code.STALE_MEMBER_EPOCH),
        ("b", 5, Code.UNKNOWN_MEMBER_ID),
        ("", 5, Code.UNKNOWN_MEMBER_ID),
        (None, 0, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_says_that_it_is_a_member_fetches_as_that(member_id: str | None, epoch: int, code: Code) -> None:
    request = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=[])
    assert code_of(commit_checks.check_fetch, committing()[0], request) is code


# Assignments.


def test_one_assignment_contains_or_meets_another() -> None:
    whole = {T: frozenset((0, 1)), U: frozenset((2,))}
    assert contains(whole, {})
    assert contains(whole, {T: frozenset((1,)), U: frozenset((2,))})
    assert not contains(whole, {T: frozenset((1, 2))})
    assert not contains(whole, {V: frozenset((0,))})
    assert intersects(whole, {T: frozenset((1, 5))})
    assert not intersects(whole, {T: frozenset((2,)), V: frozenset((0,))})


def test_partitions_stay_with_the_first_that_has_them_and_wants_them() -> None:
    members = {
        "a": AssignableMember(frozenset((T,)), {T: frozenset((0, 9)), U: frozenset((0,))}),
        "b": AssignableMember(frozenset((T, U)), {T: frozenset((0, 1)), V: frozenset((0,))}),
        "c": AssignableMember(frozenset((T, U)), {T: frozenset((1, 3)), U: frozenset((1,))}),
    }
    owners = finished(kept_owners(["a", "b", "c"], members, {T: 4, U: 2}, Pace()))
    assert owners == {T: [0, 1, -1, 2], U: [-1, 2]}
    assert list(owners) == [T, U]


def test_an_assignment_begins_from_members_and_from_each_name_that_one_of_them_says() -> None:
    group = group_of(
        a=ConsumerSubscription("c", "h", topic_names=("t", "u")), b=ConsumerSubscription("c", "h", topic_names=("u",))
    )
    change = GroupChange(group, known(), SETTINGS)
    assert change.names_count == 2 + len("tu")
    change.subscribe("c", ConsumerSubscription("c", "h", topic_names=("v", "w", "x")))
    change.remove("a")
    assert change.names_count == 2 + len("tu") + 1 + len("vwx"), "it may be somewhat more than there are"


def test_the_assignor_is_that_of_most_members_or_stands_first() -> None:
    assert preferred_assignor(Counter(), ("uniform", "range")) == "uniform"
    assert preferred_assignor(Counter({"range": 1, None: 5}), ("uniform", "range")) == "range"
    assert preferred_assignor(Counter({"range": 1, "uniform": 1}), ("range", "uniform")) == "range"


def test_a_static_member_that_comes_back_is_assigned_from_what_its_former_self_was_to_have() -> None:
    group = group_of(a=plain("i"), b=plain())
    group.set_target("a", {T: frozenset((0, 1))})
    group.set_target("b", {T: frozenset((2,))})
    change = GroupChange(group, known(t=3), SETTINGS)
    change.replace_static("a", "c")
    change.subscribe("c", plain("i"))
    wanted = change.assignment_input()
    assert set(wanted.subscriptions) == {"b", "c"}
    assert wanted.targets["c"] == {T: frozenset((0, 1))}
    assert wanted.targets["b"] == {T: frozenset((2,))}


def test_an_assignment_is_made_from_the_topics_that_a_pattern_matches_now() -> None:
    group = group_of(a=plain())
    group.set_matched("p", MatchedTopics(frozenset("t"), 1, 2))
    group.set_matched("q", MatchedTopics(frozenset("v"), 1, 2))
    change = GroupChange(group, known(t=1, u=1), SETTINGS)
    change.match("p", MatchedTopics(frozenset("u"), 2, 3))
    matched = change.assignment_input().matched
    assert {pattern: set(one.topics) for pattern, one in matched.items()} == {"p": {"u"}, "q": {"v"}}


# Classic members.


def test_a_classic_member_says_what_it_wants_in_a_version() -> None:
    for version in (0, 1, 3):
        wanted = ConsumerProtocolSubscription(topics=["u", "t", "u"], user_data=None)
        metadata = version.to_bytes(2) + encode(wanted, version)
        assert read_subscription(metadata).topics == ["u", "t", "u"]
    newer = (9).to_bytes(2) + encode(ConsumerProtocolSubscription(topics=["t"], user_data=None), 3) + b"more"
    assert read_subscription(newer).topics == ["t"]
    for damaged in (b"", b"\0", b"\xff\xff" + newer[2:], b"\0\0\0"):
        with pytest.raises(MalformedMessageError):
            read_subscription(damaged)
    kept = classic_subscription(
        wanted,
        (("range", b"1"), ("uniform", b"2")),
        client_id="c",
        client_host="h",
        instance_id="i",
        rebalance_timeout_ms=5,
        session_timeout_ms=6,
    )
    assert (kept.topic_names, kept.instance_id, kept.rebalance_timeout_ms) == (("t", "u"), "i", 5)
    assert kept.classic is not None
    assert kept.classic.session_timeout_ms == 6
    assert protocols_of(kept.classic) == (("range", b"1"), ("uniform", b"2"))


@pytest.mark.parametrize("more", [0, 1])
def test_a_classic_member_names_as_many_topics_as_others_may(more: int) -> None:
    names = [f"t{number}" for number in range(TOPIC_NAMES_MAX + more)]
    metadata = b"\0\0" + encode(ConsumerProtocolSubscription(topics=names, user_data=None), 0)
    if more:
        with pytest.raises(MalformedMessageError, match="may name 10000"):
            read_subscription(metadata)
    else:
        assert read_subscription(metadata).topics == names


@pytest.mark.parametrize(("said", "version"), [(0, 0), (1, 1), (3, 3), (4, 3), (32_767, 3), (-1, 0)])
def test_a_part_is_told_in_the_version_of_the_member_and_of_topics_that_exist(said: int, version: int) -> None:
    part = {U: frozenset((1, 0)), T: frozenset((2,)), V: frozenset((0,))}
    told = encoded_assignment(part, known(t=3, u=2), said.to_bytes(2, signed=True) + b"rest")
    assert int.from_bytes(told[:2]) == version
    read = decode(ConsumerProtocolAssignment, told, version, 2)
    assert [(one.topic, one.partitions) for one in read.assigned_partitions] == [("t", [2]), ("u", [0, 1])]


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        (MigrationPolicy.DISABLED, False, False),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.BIDIRECTIONAL, True, True),
    ],
)
def test_a_policy_says_which_way_a_group_may_go(policy: MigrationPolicy, upgrades: bool, downgrades: bool) -> None:
    assert (policy.upgrades, policy.downgrades) == (upgrades, downgrades)


def test_the_settings_are_at_first_as_in_kafka() -> None:
    assert ConsumerGroupSettings() == ConsumerGroupSettings(
        45_000, 5_000, 1_000, 2_147_483_647, ("uniform", "range"), MigrationPolicy.BIDIRECTIONAL
    )


# Topics.


def test_the_hash_of_topics_changes_with_their_partitions_and_the_racks_of_these() -> None:
    hashes = [
        one.hash_of(("t", "u", "missing")).recorded
        for one in (
            known(t=1, u=1),
            known(t=2, u=1),
            known(t=1),
            known({1: "x", 2: None}, t=1, u=1),
            known({1: "x", 2: "y"}, t=1, u=1),
            known({1: None, 2: "x"}, t=1, u=1),
        )
    ]
    assert len(set(hashes)) == len(hashes) - 1, "it does not matter which broker is in the rack"
    assert hashes[3] == hashes[5]
    assert all(-(2**63) <= one < 2**63 for one in hashes)
    assert TopicsHash(1, 2**63 - 1).recorded == 2**63 - 1
    assert TopicsHash(1, 2**63).recorded == -(2**63)
    assert TopicsHash(1, 2**64 + 5).recorded == 5


def test_a_hash_follows_the_topics_that_changed() -> None:
    topics = known(t=1, u=1)
    before = topics.hash_of(("t", "v"))
    topics.on_changed(image(t=2, u=2, v=1), 2, ("t", "u", "v"))
    now = topics.hash_now(before, ("t", "v"))
    assert now == topics.hash_of(("t", "v"))
    assert now is not None
    assert topics.hash_with(now, ("u",), ("v",)) == topics.hash_of(("t", "u"))
    topics.on_changed(image(t=3, u=2), 3, ("t", "v"))
    assert topics.hash_now(now, ("t", "v")) == topics.hash_of(("t", "v"))
    assert topics.hash_now(before, ("t", "v")) == topics.hash_of(("t", "v"))
    assert topics.hash_now(topics.hash_of(("t",)), ("t",)) == topics.hash_of(("t",))
    assert topics.hash_now(None, ("t",)) is None
    topics.on_changed(image({1: "x"}, t=3, u=2), 4, None)
    assert topics.hash_now(now, ("t",)) is None


def test_a_hash_that_nobody_knew_before_a_change_is_taken_anew() -> None:
    topics = known(t=1, u=1)
    before = topics.hash_of(("t",))
    topics.on_changed(image(t=1, u=2), 2, ("u",))
    assert topics.hash_now(before, ("t", "u")) is None
    assert topics.hash_now(before, ("t",)) == topics.hash_of(("t",))


def test_topics_may_differ_that_changed_since_or_any_where_much_did() -> None:
    topics = known(t=1, u=1)
    assert not topics.may_differ(("t",), 1)
    assert topics.may_differ((), 0)
    topics.on_changed(image(t=2, u=1), 2, ("t",))
    assert [topics.may_differ((name,), 1) for name in "tu"] == [True, False]
    assert not topics.may_differ(("t",), 2)
    topics.on_changed(image(t=2, u=2), 3, ("u",))
    assert [topics.may_differ((name,), 2) for name in "tu"] == [False, True]
    topics.on_changed(image(t=2, u=2), 4, None)
    assert topics.may_differ((), 3)
    assert not topics.may_differ(("t",), 4)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("more", [0, 1])
def test_so_many_changes_are_kept_and_no_more(more: int, at_once: bool) -> None:
    topics = known(t=1)
    names = [f"n{number}" for number in range(CHANGED_MAX + more)]
    version = 1
    for some in [names] if at_once else [names[:400], names[400:]]:
        version += 1
        topics.on_changed(image(t=1), version, some)
    assert topics.may_differ(("t",), version - 1) == (more > 0)
    assert not topics.may_differ(("t",), version)
    topics.on_changed(image(t=1), version + 1, ["u"])
    assert topics.may_differ(("t",), version) == (more == 0), "with one more there are too many"
    if more == 0:
        topics.on_changed(image(t=1), version + 2, names)
        assert not topics.may_differ(("t",), version + 1), "as many are kept again"
        topics.on_changed(image(t=1), version + 3, ["u"])
        assert topics.may_differ(("t",), version + 2)


def test_topics_are_known_by_name_and_by_id() -> None:
    topics = known(t=2, u=1)
    assert topics.ids(("t", "v")) == finished(topics.ids_in_pieces(("t", "v"), Pace())) == {T}
    assert [topics.partition_count(one) for one in (T, U, V)] == [2, 1, 0]
    assert [topics.name(one) for one in (T, V)] == ["t", None]
    assert list(topics.matchable()) == ["t", "u"]
    assert topics.still_matchable({"u", "v"}) == {"u"}
