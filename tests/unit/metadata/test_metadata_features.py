"""Levels of metadata.version: their names, and what they let be written and sent."""

from __future__ import annotations

import pytest

from tidelog.metadata.configs.min_insync import MIN_INSYNC, min_insync_replicas
from tidelog.metadata.features import (
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    METADATA_VERSIONS,
    changes_metadata,
    knows_directories,
    knows_eligible_leaders,
    level_in_force,
    level_name,
    metadata_version_named,
    own_features,
    release_levels,
    replica_fetch_version,
    unmet_need,
    unsupported,
)
from tidelog.metadata.image import ResourceKey, ResourceType


def at(level: int) -> dict[str, int]:
    return {"metadata.version": level}


def test_the_table_has_no_gaps() -> None:
    assert list(METADATA_VERSIONS) == list(range(METADATA_VERSION_MIN, METADATA_VERSION + 1))
    assert len({version.name for version in METADATA_VERSIONS.values()}) == len(METADATA_VERSIONS)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("27", 27),
        ("4.1-IV1", 27),
        ("4.1", 27),
        ("4.1.2", 27),
        ("4.1-IV0", 26),
        ("3.9", 21),
        ("3.7", 19),
        ("9", None),
        ("28", 28),
        ("4.2", 29),
        ("4.3", 30),
        ("31", None),
        ("4.4", None),
        ("4", None),
        ("3.4", None),
        ("4.1-IV", None),
        ("latest", None),
        ("", None),
    ],
)
def test_a_level_is_named_as_people_know_it(text: str, level: int | None) -> None:
    assert metadata_version_named(text) == level


def test_levels_show_their_names() -> None:
    assert level_name("metadata.version", 21) == "21 (3.9-IV0)"
    assert level_name("metadata.version", 99) == "99"
    assert level_name("group.version", 21) == "21"


def test_what_each_level_lets_be_said() -> None:
    assert min(level for level in METADATA_VERSIONS if knows_directories(at(level))) == 17
    assert min(level for level in METADATA_VERSIONS if knows_eligible_leaders(at(level))) == 23
    assert knows_eligible_leaders({}), "a log that says nothing was begun by this release"
    assert {level: replica_fetch_version(at(level)) for level in (10, 18, 19, 20, 21, 26, 27, 30)} == {
        10: 15, 18: 15, 19: 16, 20: 16, 21: 17, 26: 17, 27: 18, 30: 18
    }  # fmt: skip


def test_eligible_leaders_are_given_by_the_metadata_version_until_their_own_feature_is_said() -> None:
    feature = "eligible.leader.replicas.version"
    assert knows_eligible_leaders({**at(23), feature: 1})
    assert not knows_eligible_leaders({**at(27), feature: 0})
    assert not knows_eligible_leaders({**at(22), feature: 1})
    assert level_in_force(at(23), feature) == 1
    assert level_in_force(at(22), feature) == 0
    assert level_in_force({**at(30), feature: 0}, feature) == 0


def test_a_release_stands_for_the_levels_that_kafkas_does() -> None:
    """As `Feature.defaultLevel` of Kafka 4.3.1 has them, but for those that are not served."""
    transactions, groups, eligible = "transaction.version", "group.version", "eligible.leader.replicas.version"
    kraft = {"kraft.version": 1}
    named = {name: metadata_version_named(name) for name in ("3.9", "4.0", "4.1", "4.2", "4.3")}
    assert {name: release_levels(level) for name, level in named.items() if level} == {
        "3.9": {**at(21), **kraft},
        "4.0": {**at(25), **kraft, transactions: 2, groups: 1},
        "4.1": {**at(27), **kraft, transactions: 2, groups: 1, eligible: 1},
        "4.2": {**at(29), **kraft, transactions: 2, groups: 1, eligible: 1, "share.version": 1},
        "4.3": {**at(30), **kraft, transactions: 2, groups: 1, eligible: 1, "share.version": 1},
    }


def test_a_level_that_needs_another_says_so() -> None:
    feature = "eligible.leader.replicas.version"
    assert unmet_need({**at(23), feature: 1}) is None
    assert unmet_need({**at(22), feature: 0}) is None
    assert unmet_need({**at(22), feature: 1}) == (
        feature,
        "eligible.leader.replicas.version 1 needs metadata.version 23 (4.0-IV1) or above, and that would be 22 "
        "(4.0-IV0): raise it too, or set eligible.leader.replicas.version to 0",
    )


def test_between_which_levels_the_records_differ() -> None:
    assert not changes_metadata(23, 27)
    assert not changes_metadata(17, 22)
    assert changes_metadata(22, 23)
    assert not changes_metadata(23, 29)
    assert changes_metadata(29, 30)
    assert changes_metadata(10, 27)
    assert not changes_metadata(27, 27)


def test_every_feature_of_kafka_is_named_and_those_that_are_not_served_have_level_0_alone() -> None:
    lowest_and_highest = {name: levels for name, *levels in own_features()}
    assert lowest_and_highest.pop("metadata.version") == [METADATA_VERSION_MIN, METADATA_VERSION]
    assert lowest_and_highest.pop("transaction.version") == [0, 2]
    assert lowest_and_highest.pop("group.version") == [0, 1]
    assert lowest_and_highest.pop("eligible.leader.replicas.version") == [0, 1]
    assert lowest_and_highest.pop("kraft.version") == [0, 1]
    assert lowest_and_highest.pop("share.version") == [0, 1]
    assert lowest_and_highest == {"streams.version": [0, 0]}
    assert unsupported({"streams.version": 0}) is None
    assert unsupported({"streams.version": 1}) == "the cluster is at streams.version 1, and this node does not serve it"


def test_who_cannot_work_at_a_level_is_told_why() -> None:
    old = (("metadata.version", 10, 21),)
    assert unsupported({}, old) is None
    assert unsupported(at(21), old) is None
    assert unsupported(at(27)) is None
    assert unsupported(at(27), own_features()) is None
    assert unsupported(at(27), old) == (
        "the cluster is at metadata.version 27 (4.1-IV1), and this node supports 10 (3.5-IV1) to 21 (3.9-IV0)"
    )
    assert (
        unsupported({"share.version": 1}, old)
        == "the cluster is at share.version 1, and this node knows no share.version"
    )
    assert unsupported(at(99)) is not None


def test_how_many_must_be_in_sync_is_what_the_metadata_says() -> None:
    topic, shared, one = (
        ResourceKey(ResourceType.TOPIC, "t"),
        ResourceKey(ResourceType.BROKER, ""),
        ResourceKey(ResourceType.BROKER, "1"),
    )
    assert min_insync_replicas("t", {}) == 1
    assert min_insync_replicas("t", {one: {MIN_INSYNC: "3"}, topic: {"retention.ms": "1"}}) == 1
    assert min_insync_replicas("t", {shared: {MIN_INSYNC: "2"}}) == 2
    assert min_insync_replicas("t", {shared: {MIN_INSYNC: "2"}, topic: {MIN_INSYNC: "3"}}) == 3
    assert min_insync_replicas("u", {shared: {MIN_INSYNC: "2"}, topic: {MIN_INSYNC: "3"}}) == 2
