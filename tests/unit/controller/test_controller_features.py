"""Features: going up with all nodes, going down only on demand, and what each level has words for."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from support.fixtures.controlled_cluster import ONE, THREE, TWO, Cluster, leadership
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId
from tidelog.controller import (
    METADATA_VERSION,
    ControllerSettings,
    ControllerState,
    FeatureToUpdate,
    QuorumControllers,
    UpdatedFeature,
    UpgradeType,
)
from tidelog.controller.values import FirstMetadata
from tidelog.journal import Decision
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.difference import records_between
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.features import first_levels, knows_eligible_leaders, own_features
from tidelog.metadata.image import ControllerImage, MetadataImage, RegisteredEndpoint
from tidelog.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    decode_record,
)

NAME = "metadata.version"
ELIGIBLE = "eligible.leader.replicas.version"
UP, SAFELY, UNSAFELY = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
DIRECTORY = UUID(int=7)


def at(level: int, *brokers: BrokerId) -> Cluster:
    """A cluster at this level, with these brokers of this release."""
    cluster = Cluster()
    cluster.write(FeatureLevelRecord(name=NAME, feature_level=level))
    for broker in brokers:
        start(cluster, broker)
    cluster.begin_sessions()
    return cluster


def start(cluster: Cluster, broker_id: BrokerId, previous: BrokerEpoch | None = None) -> None:
    registration = replace(
        cluster.registration(broker_id),
        features=own_features(),
        log_dirs=(DIRECTORY,),
        previous_broker_epoch=previous,
    )
    cluster.epochs[broker_id] = cluster.run(cluster.decide_register(registration)).broker_epoch
    cluster.unfence(broker_id)


def update(cluster: Cluster, *updates: FeatureToUpdate, validate_only: bool = False) -> tuple[UpdatedFeature, ...]:
    results: tuple[UpdatedFeature, ...] = cluster.run(
        cluster.state.decide_update_features(updates, validate_only=validate_only).at_once()
    )
    return results


def level_of(cluster: Cluster) -> int:
    return cluster.image.features[NAME]


# Beginning.


def test_a_controller_that_becomes_active_says_what_the_metadata_does_not_say_yet() -> None:
    settings = ControllerSettings(broker=BrokerSettings.of({"min.insync.replicas": "2"}))
    state = ControllerState(settings)
    records = state.decide_bootstrap().records
    assert records == (
        FeatureLevelRecord(name=NAME, feature_level=METADATA_VERSION),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name=ELIGIBLE, feature_level=1),
        FeatureLevelRecord(name="share.version", feature_level=1),
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
    )
    for record in records:
        state.apply(record)
    assert state.decide_bootstrap().records == ()
    other = ControllerState(
        ControllerSettings(broker=BrokerSettings.of({"min.insync.replicas": "3"})), state.metadata.image(None)
    )
    assert other.decide_bootstrap().records == (), "the files of two controllers differ: the metadata counts"


def test_a_new_cluster_can_begin_at_an_older_level() -> None:
    (record,) = ControllerState(ControllerSettings()).decide_bootstrap(FirstMetadata(first_levels({NAME: 19}))).records
    assert record == FeatureLevelRecord(name=NAME, feature_level=19)


def test_a_new_cluster_begins_at_what_its_operator_says_and_at_the_highest_levels_otherwise() -> None:
    newest = {NAME: METADATA_VERSION, ELIGIBLE: 1, "share.version": 1}
    assert first_levels({}) == {**newest, "transaction.version": 2, "group.version": 1}
    assert first_levels({"transaction.version": 0}) == {**newest, "group.version": 1}
    assert first_levels({"transaction.version": 1, "group.version": 0}) == {**newest, "transaction.version": 1}
    assert first_levels({NAME: 21}) == {NAME: 21}, "a release before 4.0 knows neither"
    assert first_levels({NAME: 25})[NAME] == 25
    assert ELIGIBLE not in first_levels({NAME: 25}), "metadata.version gives them there"
    assert first_levels({ELIGIBLE: 0})[ELIGIBLE] == 0, "they stay off"
    assert first_levels({NAME: 21, ELIGIBLE: 0}) == {NAME: 21}


# Going up and down.


def test_going_up() -> None:
    cluster = at(21, ONE, TWO)
    assert update(cluster, FeatureToUpdate(NAME, 27), validate_only=True) == (UpdatedFeature(NAME, Code.NONE),)
    assert level_of(cluster) == 21
    assert update(cluster, FeatureToUpdate(NAME, 27)) == (UpdatedFeature(NAME, Code.NONE),)
    assert level_of(cluster) == 27
    end_offset = cluster.journal.next_offset
    assert update(cluster, FeatureToUpdate(NAME, 27)) == (UpdatedFeature(NAME, Code.NONE),)
    assert cluster.journal.next_offset == end_offset


def test_going_down_safely_where_the_records_are_the_same() -> None:
    cluster = at(27, ONE)
    assert update(cluster, FeatureToUpdate(NAME, 23, SAFELY))[0].code == Code.NONE
    assert level_of(cluster) == 23


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (FeatureToUpdate(NAME, 23), "is at 25 .4.0-IV3.: to go down to 23 .4.0-IV1., ask for a downgrade"),
        (FeatureToUpdate(NAME, 27, SAFELY), "would be an upgrade"),
        (FeatureToUpdate(NAME, 27, UNSAFELY), "would be an upgrade"),
        (FeatureToUpdate(NAME, 22, SAFELY), "only an unsafe downgrade"),
        (FeatureToUpdate(NAME, 9, UNSAFELY), "below the lowest level, 10 .3.5-IV1."),
        (FeatureToUpdate(NAME, 0, UNSAFELY), "below the lowest level"),
        (FeatureToUpdate(NAME, -1, UNSAFELY), "below the lowest level"),
        (FeatureToUpdate(NAME, 31), "the active controller supports 10 .3.5-IV1. to 30 .4.3-IV0."),
        (FeatureToUpdate(NAME, 26, 0), "upgrade type 0 is none of"),
        (FeatureToUpdate("metadata.versoin", 26), "no feature 'metadata.versoin'; there is metadata.version"),
    ],
)
def test_what_is_refused(wanted: FeatureToUpdate, says: str) -> None:
    cluster = at(25, ONE)
    (result,) = update(cluster, wanted)
    assert result.code == Code.INVALID_UPDATE_VERSION
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(result.message)
    assert level_of(cluster) == 25


def test_a_broker_that_cannot_follow_holds_all_back_even_fenced() -> None:
    cluster = at(21, ONE)
    old = replace(cluster.registration(TWO), features=((NAME, 10, 23),))
    cluster.run(cluster.decide_register(old))
    (result,) = update(cluster, FeatureToUpdate(NAME, 27))
    assert result.code == Code.INVALID_UPDATE_VERSION
    assert result.message == (
        "metadata.version 27 (4.1-IV1): broker 2 supports 10 (3.5-IV1) to 23 (4.0-IV1); upgrade it, or unregister it"
    )
    assert update(cluster, FeatureToUpdate(NAME, 23))[0].code == Code.NONE


def test_all_are_updated_or_none() -> None:
    cluster = at(21, ONE)
    good, bad = update(cluster, FeatureToUpdate(NAME, 27), FeatureToUpdate("other", 1))
    assert (good.code, bad.code) == (Code.FEATURE_UPDATE_FAILED, Code.INVALID_UPDATE_VERSION)
    assert good.message == "nothing was changed, because of other"
    twice = update(cluster, FeatureToUpdate(NAME, 27), FeatureToUpdate(NAME, 27))
    assert [one.code for one in twice] == [Code.INVALID_REQUEST] * 2
    assert level_of(cluster) == 21


@pytest.mark.parametrize("upgrade_type", [UP, SAFELY, UNSAFELY])
def test_a_feature_that_is_not_served_is_at_level_0_and_stays_there(upgrade_type: UpgradeType) -> None:
    """Kafka's tools name all features of a release at once, each with a level."""
    cluster = at(27, ONE)
    cluster.run(cluster.decide_register(replace(cluster.registration(TWO), features=((NAME, 10, 27),))))
    before = cluster.journal.next_offset
    off = [FeatureToUpdate(name, 0, upgrade_type) for name in ("transaction.version", "streams.version")]
    assert [one.code for one in update(cluster, FeatureToUpdate(NAME, 27), *off)] == [Code.NONE] * 3
    assert cluster.journal.next_offset == before, "nobody finalizes a feature at level 0"
    _, on = update(cluster, off[0], FeatureToUpdate("streams.version", 1))
    assert on.code == Code.INVALID_UPDATE_VERSION
    assert on.message == "streams.version 1: the active controller does not serve it"
    assert set(cluster.image.features) == {NAME}


@pytest.mark.parametrize(("level", "upgrade_type"), [(30, UP), (29, UNSAFELY)])
def test_a_release_is_asked_for_whole_and_what_is_not_served_of_it_stays_off(level: int, upgrade_type: int) -> None:
    cluster = at(25 if upgrade_type == UP else 30, ONE)
    named = {NAME: level, "streams.version": 1}
    results = update(cluster, *(FeatureToUpdate(name, level, upgrade_type) for name, level in named.items()))
    assert [one.code for one in results] == [Code.NONE] * 2
    assert results[1].message == "streams.version stays at 0: this release does not serve it"
    assert level_of(cluster) == level
    assert "streams.version" not in cluster.image.features
    (refused,) = update(cluster, FeatureToUpdate("streams.version", 1))
    assert refused.message == "streams.version 1: the active controller does not serve it"
    _, unknown = update(cluster, FeatureToUpdate(NAME, level, UP), FeatureToUpdate("streams.version", 2))
    assert unknown.code == Code.INVALID_UPDATE_VERSION, "Kafka has no such level"


def test_a_downgrade_to_a_release_raises_nothing() -> None:
    cluster = at(29, ONE)
    results = update(cluster, FeatureToUpdate(NAME, 27, SAFELY), FeatureToUpdate("group.version", 1, SAFELY))
    assert [one.code for one in results] == [Code.NONE] * 2
    assert results[1].message == "group.version stays at 0: a downgrade raises nothing"
    assert cluster.image.features.get("group.version") is None
    (alone,) = update(cluster, FeatureToUpdate("group.version", 1, SAFELY))
    assert alone.code == Code.INVALID_UPDATE_VERSION


def test_down_to_the_lowest_level_of_all() -> None:
    cluster = at(27, ONE)
    assert update(cluster, FeatureToUpdate(NAME, 10, UNSAFELY))[0].code is Code.NONE
    assert level_of(cluster) == 10


def test_a_downgrade_to_a_release_lowers_what_it_has_at_a_lower_level() -> None:
    cluster = at(30, ONE)
    update(cluster, FeatureToUpdate("transaction.version", 2))
    of_release = (FeatureToUpdate(NAME, 29, UNSAFELY), FeatureToUpdate("transaction.version", 1, SAFELY))
    assert {one.code for one in update(cluster, *of_release)} == {Code.NONE}
    assert (level_of(cluster), cluster.image.features["transaction.version"]) == (29, 1)


def test_the_quorum_says_whether_its_voters_can_go_into_the_log() -> None:
    """It is no record of the controller's: here it is only judged."""
    cluster = at(30, ONE)
    can, cannot = QuorumControllers((ONE,)), QuorumControllers((ONE,), why_not_in_log="voter 3 has not fetched")
    there = QuorumControllers((ONE,), kraft_version=1)
    up, down = FeatureToUpdate("kraft.version", 1), FeatureToUpdate("kraft.version", 0, UNSAFELY)
    assert cluster.state.decide_update_features([up], of_quorum=can).at_once() == Decision(
        (FeatureLevelRecord(name=ELIGIBLE, feature_level=1),), (UpdatedFeature("kraft.version", Code.NONE),)
    )
    assert ask(cluster, cannot, up) == UpdatedFeature(
        "kraft.version", Code.INVALID_UPDATE_VERSION, "voter 3 has not fetched"
    )
    assert ask(cluster, cannot, FeatureToUpdate("group.version", 1)).code == Code.NONE, "which has no part in that"
    assert ask(cluster, there, up).code == Code.NONE
    assert ask(cluster, replace(there, why_not_in_log="it is there"), up).code == Code.NONE
    assert ask(cluster, there, down).code is Code.INVALID_UPDATE_VERSION
    assert "do not go back into the settings" in (ask(cluster, there, down).message or "")
    assert ask(cluster, can, down).code == Code.NONE, "nothing changes"
    of_release = (FeatureToUpdate(NAME, 29, UNSAFELY), FeatureToUpdate("kraft.version", 1, SAFELY))
    assert ask(cluster, can, *of_release).message == "kraft.version stays at 0: a downgrade raises nothing"
    old = replace(cluster.registration(TWO), features=((NAME, 10, 30), (ELIGIBLE, 0, 1), ("kraft.version", 0, 0)))
    cluster.run(cluster.decide_register(old))
    assert ask(cluster, can, up).message == "kraft.version 1: broker 2 does not serve it; upgrade it, or unregister it"


# Who joins.


def test_an_old_node_does_not_join_what_has_gone_on_without_it() -> None:
    cluster = at(27, ONE)
    old = replace(cluster.registration(TWO), features=((NAME, 7, 21),))
    with pytest.raises(KafkaError, match=r"broker 2 cannot join: the cluster is at metadata\.version 27") as error:
        cluster.decide_register(old)
    assert error.value.code == Code.UNSUPPORTED_VERSION
    assert cluster.decide_register(replace(old, features=own_features())).records


# What each level has words for.


def test_below_its_level_no_record_tells_of_eligible_leaders_and_the_last_one_in_sync_keeps_its_seat() -> None:
    cluster = at(22, ONE, TWO)
    cluster.create("a", [ONE, TWO])
    cluster.fence(ONE)
    cluster.fence(TWO)
    assert leadership(cluster.partition("a")) == (None, 2, (2,))
    cluster.unfence(ONE)
    assert leadership(cluster.partition("a")) == (None, 2, (2,)), "it is not in sync"
    start(cluster, TWO)
    assert leadership(cluster.partition("a")) == (2, 3, (2,)), "a new incarnation leads in an epoch of its own"
    assert cluster.partition("a").eligible_leader_replicas == ()
    for _, value in cluster.log:
        record = decode_record(value)
        if isinstance(record, PartitionChangeRecord):
            assert record.eligible_leader_replicas is None
            assert value[2] < 2, "the version of the record"


def test_who_kept_a_seat_for_want_of_words_is_eligible_once_there_are() -> None:
    cluster = at(22, ONE, TWO)
    cluster.create("gone", [TWO])
    cluster.create("led", [ONE])
    cluster.fence(TWO)
    assert leadership(cluster.partition("gone")) == (None, 1, (2,))
    update(cluster, FeatureToUpdate(NAME, 23))
    assert leadership(cluster.partition("gone")) == (None, 1, ())
    assert cluster.partition("gone").eligible_leader_replicas == (TWO,)
    assert leadership(cluster.partition("led")) == (1, 0, (1,))


def test_below_its_level_no_record_names_directories() -> None:
    cluster = at(16, ONE)
    cluster.create("a", [ONE])
    assert cluster.partition("a").directories == ()
    assert cluster.image.brokers[ONE].log_dirs == ()
    assert {value[1]: value[2] for _, value in cluster.log} == {12: 0, 0: 1, 17: 1, 2: 0, 3: 0}
    again = replace(
        cluster.registration(ONE),
        incarnation_id=cluster.image.brokers[ONE].incarnation_id,
        features=own_features(),
        log_dirs=(DIRECTORY,),
    )
    assert cluster.decide_register(again).records == ()


def test_what_comes_and_goes_as_before_writes_no_newer_records() -> None:
    """Whoever restarts alone, the records of its partitions tell of eligible leaders only where that changes."""
    cluster = at(27, ONE, TWO)
    cluster.create("a", [ONE, TWO])
    begin = len(cluster.log)
    cluster.fence(TWO)
    cluster.unfence(TWO)
    start(cluster, TWO)
    assert all(value[2] < 2 for _, value in cluster.log[begin:] if value[1] == 5)


def test_an_unsafe_downgrade_takes_out_what_the_lower_level_cannot_say() -> None:
    cluster = at(27, ONE, TWO, THREE)
    cluster.write(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    cluster.create("gone", [ONE, TWO])
    cluster.create("led", [ONE, THREE])
    cluster.fence(ONE)
    cluster.fence(TWO)
    before = cluster.partition("gone"), cluster.partition("led")
    assert (before[0].isr, set(before[0].eligible_leader_replicas)) == ((), {ONE, TWO})
    assert (before[1].isr, before[1].eligible_leader_replicas) == ((THREE,), (ONE,))
    assert update(cluster, FeatureToUpdate(NAME, 16, UNSAFELY))[0].code == Code.NONE
    after = cluster.partition("gone"), cluster.partition("led")
    assert (set(after[0].isr), after[0].leader) == ({ONE, TWO}, None)
    assert (after[1].isr, after[1].leader, after[1].leader_epoch) == ((THREE,), THREE, before[1].leader_epoch)
    assert all(not one.eligible_leader_replicas and not one.directories for one in after)
    cluster.unfence(TWO)
    assert cluster.partition("gone").leader == TWO


@pytest.mark.parametrize(
    ("level", "lower", "kept"), [(27, 20, (DIRECTORY,)), (20, 16, ()), (27, 16, ())], ids=["eligible", "dirs", "both"]
)
def test_a_downgrade_takes_out_only_what_the_lower_level_cannot_say(
    level: int, lower: int, kept: tuple[UUID, ...]
) -> None:
    cluster = at(level, ONE)
    cluster.create("a", [ONE])
    before = cluster.partition("a")
    assert before.directories == (DIRECTORY,)
    rewritten = [] if kept else [PartitionChangeRecord]
    records = batch_of(cluster, FeatureToUpdate(NAME, lower, UNSAFELY))
    assert [type(record) for record in records] == [*rewritten, FeatureLevelRecord]
    update(cluster, FeatureToUpdate(NAME, lower, UNSAFELY))
    assert cluster.partition("a").directories == kept
    assert leadership(cluster.partition("a")) == leadership(before)


def test_where_no_directory_is_known_a_downgrade_says_nothing_of_partitions() -> None:
    cluster = at(20)
    two_directories = replace(
        cluster.registration(ONE), features=own_features(), log_dirs=(DIRECTORY, UUID(int=DIRECTORY.int + 1))
    )
    cluster.epochs[ONE] = cluster.run(cluster.decide_register(two_directories)).broker_epoch
    cluster.unfence(ONE)
    cluster.create("a", [ONE])
    assert cluster.partition("a").directories == ()
    (record,) = batch_of(cluster, FeatureToUpdate(NAME, 16, UNSAFELY))
    assert isinstance(record, FeatureLevelRecord)


def test_who_is_there_keeps_its_seat_once_there_are_words_for_those_who_are_not() -> None:
    cluster = at(22, ONE, TWO, THREE)
    cluster.create("a", [ONE, TWO, THREE])
    before = cluster.partition("a")
    update(cluster, FeatureToUpdate(NAME, 27))
    assert cluster.partition("a") == before


def test_who_is_about_to_go_keeps_its_seat_where_there_were_words_before() -> None:
    cluster = at(27, ONE, TWO)
    cluster.create("a", [ONE, TWO])
    cluster.write(
        BrokerRegistrationChangeRecord(broker_id=TWO, broker_epoch=cluster.epochs[TWO], in_controlled_shutdown=1)
    )
    before = cluster.partition("a")
    update(cluster, FeatureToUpdate(NAME, 29))
    assert cluster.partition("a") == before


# Eligible leaders, a feature of their own.


def with_eligible(level: int) -> Cluster:
    """A cluster whose partition has one broker in sync and one that is eligible beside it."""
    cluster = at(level, ONE, TWO)
    cluster.write(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    cluster.create("a", [ONE, TWO])
    cluster.create("gone", [TWO])
    cluster.fence(TWO)
    assert cluster.partition("a").eligible_leader_replicas == (TWO,)
    assert leadership(cluster.partition("gone")) == (None, 1, ())
    return cluster


def batch_of(cluster: Cluster, *updates: FeatureToUpdate) -> tuple[object, ...]:
    return tuple(cluster.state.decide_update_features(updates).at_once().records)


@pytest.mark.parametrize("level", [28, 29, 30])
@pytest.mark.parametrize("before", [22, 23, 27])
def test_what_a_level_gave_is_said_in_the_batch_of_the_upgrade(before: int, level: int) -> None:
    cluster = at(before, ONE)
    assert batch_of(cluster, FeatureToUpdate(NAME, level)) == (
        FeatureLevelRecord(name=NAME, feature_level=level),
        FeatureLevelRecord(name=ELIGIBLE, feature_level=1),
    )
    update(cluster, FeatureToUpdate(NAME, level))
    assert cluster.image.features[ELIGIBLE] == 1


def test_what_a_level_gave_is_said_with_the_next_change_of_any_feature() -> None:
    cluster = at(30, ONE)
    cluster.write(FeatureLevelRecord(name="transaction.version", feature_level=2))
    assert batch_of(cluster, FeatureToUpdate("transaction.version", 1, SAFELY)) == (
        FeatureLevelRecord(name="transaction.version", feature_level=1),
        FeatureLevelRecord(name=ELIGIBLE, feature_level=1),
    )


def test_to_levels_that_older_releases_know_nothing_is_said_of_it() -> None:
    """They do not know the feature, and could not join again; they go by metadata.version, and so does this one."""
    cluster = at(23, ONE)
    assert batch_of(cluster, FeatureToUpdate(NAME, 27)) == (FeatureLevelRecord(name=NAME, feature_level=27),)
    of_4_0 = (FeatureToUpdate(NAME, 25), FeatureToUpdate(ELIGIBLE, 0))
    assert batch_of(cluster, *of_4_0) == (FeatureLevelRecord(name=NAME, feature_level=25),)
    of_4_1 = (FeatureToUpdate(NAME, 27), FeatureToUpdate(ELIGIBLE, 1))
    assert batch_of(cluster, *of_4_1)[1:] == (FeatureLevelRecord(name=ELIGIBLE, feature_level=1),)


@pytest.mark.parametrize("upgrade_type", [SAFELY, UNSAFELY])
@pytest.mark.parametrize(("level", "is_said"), [(23, False), (27, True), (30, True)])
def test_lowering_it_clears_who_is_eligible_in_the_same_batch(
    level: int, upgrade_type: UpgradeType, *, is_said: bool
) -> None:
    cluster = with_eligible(level)
    if is_said:
        update(cluster, FeatureToUpdate(ELIGIBLE, 1))
    lowered = FeatureToUpdate(ELIGIBLE, 0, upgrade_type)
    assert [type(record) for record in batch_of(cluster, lowered)] == [PartitionChangeRecord] * 2 + [FeatureLevelRecord]
    assert update(cluster, lowered)[0].code == Code.NONE
    assert cluster.partition("a").eligible_leader_replicas == ()
    assert leadership(cluster.partition("gone")) == (None, 1, (TWO,)), "it holds all that is committed"
    cluster.fence(ONE)
    assert leadership(cluster.partition("a")) == (None, 1, (ONE,)), "an ISR keeps its last member"
    snapshot = MetadataDraft(MetadataImage.empty())
    for record in records_between(MetadataImage.empty(), cluster.image):
        snapshot.apply(record)
    assert snapshot.features == cluster.image.features
    assert not knows_eligible_leaders(snapshot.features)
    assert update(cluster, FeatureToUpdate(ELIGIBLE, 1))[0].code == Code.NONE
    assert cluster.partition("gone").eligible_leader_replicas == (TWO,)
    assert cluster.partition("a").eligible_leader_replicas == (ONE,)


def test_below_its_level_nobody_is_known_to_have_been_eligible_either() -> None:
    cluster = at(27, ONE, TWO)
    cluster.create("a", [ONE, TWO])
    topic_id = cluster.image.topics_by_name["a"].topic_id
    cluster.write(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[ONE], last_known_elr=[TWO]))
    update(cluster, FeatureToUpdate(NAME, 22, UNSAFELY))
    assert cluster.partition("a").last_known_eligible_leader_replicas == ()
    assert leadership(cluster.partition("a")) == (1, 0, (1,))


def test_below_its_level_nothing_is_said_of_it_and_above_nothing_is_remembered() -> None:
    cluster = with_eligible(30)
    update(cluster, FeatureToUpdate(ELIGIBLE, 1))
    update(cluster, FeatureToUpdate(NAME, 22, UNSAFELY))
    assert cluster.image.features == {NAME: 22}
    assert leadership(cluster.partition("gone")) == (None, 1, (TWO,))
    stale = cluster.journal.committed.metadata.image(None)
    update(cluster, FeatureToUpdate(NAME, 27))
    assert cluster.image.features == {NAME: 27}
    assert cluster.partition("gone").eligible_leader_replicas == (TWO,)
    for base in (stale, replace(stale, features={NAME: 27, ELIGIBLE: 1}), replace(stale, features={ELIGIBLE: 0})):
        draft = MetadataDraft(base)
        for record in records_between(base, cluster.image):
            draft.apply(record)
        assert draft.features == {NAME: 27}, "a node that takes up a snapshot"


def test_down_to_the_level_that_it_began_with_it_stays_as_it_was_said() -> None:
    cluster = at(27, ONE)
    update(cluster, FeatureToUpdate(ELIGIBLE, 1))
    update(cluster, FeatureToUpdate(NAME, 23, SAFELY))
    assert cluster.image.features == {NAME: 23, ELIGIBLE: 1}


@pytest.mark.parametrize(
    ("updates", "says"),
    [
        (
            (FeatureToUpdate(NAME, 22, UNSAFELY), FeatureToUpdate(ELIGIBLE, 1)),
            "needs metadata.version 23 .4.0-IV1. or abo",
        ),
        ((FeatureToUpdate(ELIGIBLE, 0),), "is at 1: to go down to 0, ask for a downgrade"),
        ((FeatureToUpdate(NAME, 30), FeatureToUpdate(ELIGIBLE, 0)), "is at 1: to go down to 0, ask for a downgrade"),
        ((FeatureToUpdate(ELIGIBLE, 2),), "the active controller supports 0 to 1"),
    ],
)
def test_what_is_refused_of_eligible_leaders(updates: tuple[FeatureToUpdate, ...], says: str) -> None:
    cluster = at(28, ONE)
    update(cluster, FeatureToUpdate(ELIGIBLE, 1))
    result = update(cluster, *updates)[-1]
    assert result.code == Code.INVALID_UPDATE_VERSION
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(result.message)
    assert cluster.image.features == {NAME: 28, ELIGIBLE: 1}


def test_to_say_that_it_is_as_high_as_it_is_raises_nothing() -> None:
    cluster = at(27, ONE)
    assert update(cluster, FeatureToUpdate(ELIGIBLE, 1, SAFELY))[0].code is Code.NONE
    assert cluster.image.features == {NAME: 27, ELIGIBLE: 1}


def test_who_knows_nothing_of_it_does_not_keep_it_from_going_with_the_metadata_version() -> None:
    cluster = at(27, ONE)
    old = replace(cluster.registration(TWO), features=((NAME, 10, 27), (ELIGIBLE, 0, 0)))
    cluster.run(cluster.decide_register(old))
    results = update(cluster, FeatureToUpdate(NAME, 22, UNSAFELY), FeatureToUpdate(ELIGIBLE, 0, SAFELY))
    assert [one.code for one in results] == [Code.NONE] * 2
    assert cluster.image.features == {NAME: 22}


@pytest.mark.parametrize("level", [23, 27])
@pytest.mark.parametrize("wanted", [FeatureToUpdate(ELIGIBLE, 1), FeatureToUpdate(ELIGIBLE, 0, SAFELY)])
def test_a_broker_that_knows_nothing_of_it_goes_by_the_metadata_version(wanted: FeatureToUpdate, level: int) -> None:
    cluster = at(level, ONE)
    old = replace(cluster.registration(TWO), features=((NAME, 10, 27), (ELIGIBLE, 0, 0)))
    cluster.run(cluster.decide_register(old))
    (result,) = update(cluster, wanted)
    assert result.code == Code.INVALID_UPDATE_VERSION
    assert result.message == f"{ELIGIBLE} 1: broker 2 does not serve it; upgrade it, or unregister it"


@pytest.mark.parametrize("level", [22, 16])
def test_what_a_level_rewrites_comes_in_portions_that_are_as_they_would_be_at_once(level: int) -> None:
    """Each is worked out when those before it are applied; from 13 on they are a transaction of the metadata log."""
    cluster = at(27, ONE, TWO)
    cluster.write(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    cluster.create("a", *[[ONE, TWO]] * 7)
    cluster.create("b", *[[ONE]] * 3)
    cluster.fence(TWO)
    for state in (cluster.state, cluster.journal.committed):
        state.settings = replace(state.settings, partition_changes_max=2)
    down, up = FeatureToUpdate(NAME, level, UNSAFELY), FeatureToUpdate(NAME, 27)
    for step in (down, up):
        at_once = cluster.state.decide_update_features([step]).at_once()
        whole = cluster.state.decide_update_features([step])
        assert whole.is_divisible
        records: list[object] = []
        sizes = []
        for portion in whole.portions:
            sizes.append(len(portion))
            cluster.write(*portion)
            records += portion
        assert max(sizes) == (2 if step is down else 1)
        assert tuple(records) == at_once.records
    assert level_of(cluster) == 27


def test_a_level_without_transactions_is_set_in_one_batch() -> None:
    cluster = at(27, ONE)
    assert not cluster.state.decide_update_features([FeatureToUpdate(NAME, 12, UNSAFELY)]).is_divisible
    cluster = at(12, ONE)
    assert not cluster.state.decide_update_features([FeatureToUpdate(NAME, 27)]).is_divisible


# Controllers that are no brokers.


def controller(controller_id: int, highest: int = METADATA_VERSION, incarnation: int = 1) -> ControllerImage:
    ranges = tuple((name, low, min(high, highest)) for name, low, high in own_features())
    endpoints = (RegisteredEndpoint("CONTROLLER", "host", 9093),)
    return ControllerImage(BrokerId(controller_id), UUID(int=incarnation), endpoints, ranges)


def ask(cluster: Cluster, of_quorum: QuorumControllers, *updates: FeatureToUpdate) -> UpdatedFeature:
    return cluster.state.decide_update_features(updates, of_quorum=of_quorum).at_once().reply[-1]


@pytest.mark.parametrize("level", [27, 28])
def test_the_metadata_tells_of_controllers_from_the_level_on_that_all_can_read_it(level: int) -> None:
    cluster = at(level, ONE)
    before = cluster.journal.next_offset
    cluster.run(cluster.state.decide_register_controller(controller(9), members={BrokerId(9)}))
    assert cluster.image.controllers == ({9: controller(9)} if level >= 28 else {})
    again = cluster.state.decide_register_controller(controller(9), members={BrokerId(9)})
    assert again.records == ()
    assert cluster.journal.next_offset == before + (level >= 28)
    cluster.run(cluster.state.decide_register_controller(controller(9, incarnation=2), members={BrokerId(9)}))
    update(cluster, FeatureToUpdate(NAME, 27, SAFELY))
    assert cluster.image.controllers == {}, "an older release could not read it"


def test_a_controller_that_cannot_follow_holds_all_back_however_it_is_known() -> None:
    cluster = at(28, ONE)
    cluster.run(cluster.state.decide_register_controller(controller(9, 29), members={BrokerId(9)}))
    up = FeatureToUpdate(NAME, 30)
    says = (
        "metadata.version 30 (4.3-IV0): controller 9 supports 10 (3.5-IV1) to 29 (4.2-IV1); upgrade it, or take it out"
    )
    told = QuorumControllers((ONE, BrokerId(9)))
    for of_quorum in (told, QuorumControllers((ONE,), (BrokerId(9),))):
        refused = ask(cluster, of_quorum, up)
        assert refused.code is Code.INVALID_UPDATE_VERSION
        assert (refused.message or "").startswith(says)
    assert ask(cluster, QuorumControllers((ONE,)), up).code == Code.NONE, "it left the quorum"
    upgraded = replace(told, registered={BrokerId(9): controller(9)})
    assert ask(cluster, upgraded, up).code == Code.NONE, "what it told last counts"


def test_a_voter_that_nobody_knows_holds_a_level_back_and_no_downgrade() -> None:
    cluster = at(27, ONE)
    told = QuorumControllers((ONE, BrokerId(9)))
    refused = ask(cluster, told, FeatureToUpdate("group.version", 1))
    assert refused.code is Code.INVALID_UPDATE_VERSION
    assert "controller 9 votes and has not registered, so what it can work at is not known" in (refused.message or "")
    assert ask(cluster, told, FeatureToUpdate(NAME, 25, SAFELY)).code == Code.NONE
    assert ask(cluster, told, FeatureToUpdate(ELIGIBLE, 0, SAFELY)).code == Code.NONE
    assert ask(cluster, told, FeatureToUpdate(NAME, 27)).code == Code.NONE, "that is no change"
    own = replace(cluster.state.settings, node_id=BrokerId(9))
    cluster.state.settings = own
    assert ask(cluster, told, FeatureToUpdate(NAME, 30)).code == Code.NONE, "it is this one"


@pytest.mark.parametrize(
    ("registers", "code"),
    [
        (controller(8), Code.UNKNOWN_CONTROLLER_ID),
        (replace(controller(9), endpoints=()), Code.INVALID_REQUEST),
        (controller(9, 29), Code.UNSUPPORTED_VERSION),
    ],
)
def test_a_controller_that_does_not_belong_here_is_refused(registers: ControllerImage, code: Code) -> None:
    cluster = at(30, ONE)
    with pytest.raises(KafkaError) as refused:
        cluster.state.decide_register_controller(registers, members={BrokerId(9)})
    assert refused.value.code == code
