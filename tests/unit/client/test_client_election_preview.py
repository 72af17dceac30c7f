"""What an unclean election would do: who would lead, what would be lost, and which groups have read it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import Code, KafkaError, NetworkError
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionEpoch
from tidelog.client.admin.cluster_descriptions import EpochSpan, ReplicaLineage
from tidelog.client.admin.descriptions import PartitionDescription
from tidelog.client.admin.election_preview import election_preview, would_lead
from tidelog.controller.partition_changes import elected
from tidelog.metadata.image import PartitionImage


def partition(
    *replicas: int, isr: tuple[int, ...] = (), eligible: tuple[int, ...] = (), known: tuple[int, ...] = ()
) -> PartitionDescription:
    return PartitionDescription(0, None, 7, replicas, isr, (), eligible, known)


def log(broker_id: int, *spans: tuple[int, int, int]) -> ReplicaLineage:
    return ReplicaLineage(broker_id, tuple(EpochSpan(*span) for span in spans))


def down(broker_id: int) -> ReplicaLineage:
    return ReplicaLineage(broker_id, (), NetworkError("it is down"))


brokers = st.permutations([1, 2, 3, 4])
some = st.sets(st.sampled_from([1, 2, 3, 4]))


@given(brokers, some, some, some, some)
def test_who_would_lead_is_who_the_controller_elects(
    replicas: list[int], isr: set[int], eligible: set[int], known: set[int], alive: set[int]
) -> None:
    def ids(found: set[int]) -> tuple[BrokerId, ...]:
        return tuple(BrokerId(one) for one in replicas if one in found)

    image = PartitionImage(
        replicas=ids(set(replicas)),
        isr=ids(isr),
        leader=None,
        leader_epoch=LeaderEpoch(7),
        partition_epoch=PartitionEpoch(3),
        eligible_leader_replicas=ids(eligible - isr),
        last_known_eligible_leader_replicas=ids(known - isr - eligible),
    )
    state = partition(
        *image.replicas,
        isr=image.isr,
        eligible=image.eligible_leader_replicas,
        known=image.last_known_eligible_leader_replicas,
    )
    led = elected(image, min_insync_replicas=2, is_active=lambda one: one in alive, is_unclean_allowed=True)
    assert would_lead(state, alive) == (None if led is None else led.leader)


def test_what_a_candidate_lacks_is_lost_if_it_leads() -> None:
    replicas = {1: log(1, (3, 0, 10)), 2: log(2, (3, 0, 10), (5, 10, 20)), 3: down(3)}
    found = election_preview(partition(1, 2, 3, isr=(3,)), replicas, [1, 2], {"shop": 15, "slow": 10}, None)
    assert (found.would_lead, found.unknown) == (1, (3,))
    stale, longest, away = found.candidates
    assert (stale.end_offset, stale.last_epoch, stale.lost_from, stale.lost_end_offset) == (10, 3, 10, 20)
    assert (stale.lost_count, stale.groups) == (10, {"shop": 15})
    assert (longest.end_offset, longest.lost_count, longest.groups) == (20, 0, {})
    assert not away.is_alive
    assert (away.end_offset, away.groups) == (None, None)


def test_a_candidate_whose_history_differs_loses_from_there_on() -> None:
    """It is longer than the other one, and lacks five records all the same."""
    replicas = {1: log(1, (3, 0, 10), (5, 10, 30)), 2: log(2, (3, 0, 12), (6, 12, 15))}
    found = election_preview(partition(1, 2), replicas, [1, 2], {"shop": 11}, None)
    first, second = found.candidates
    assert (first.lost_from, first.lost_end_offset, first.groups) == (10, 15, {"shop": 11})
    assert (second.lost_from, second.lost_end_offset) == (10, 30)


def test_who_is_in_sync_or_eligible_loses_nothing() -> None:
    replicas = {1: log(1, (3, 0, 10)), 2: log(2, (3, 0, 12))}
    found = election_preview(partition(1, 2, eligible=(1,)), replicas, [1, 2], {}, None)
    assert found.elected is found.candidates[0]
    assert found.elected.is_clean
    assert found.elected.lost_count == 0


def test_an_empty_log_lacks_all_that_others_still_have() -> None:
    replicas = {1: log(1), 2: log(2, (3, 40, 50))}
    found = election_preview(partition(1, 2), replicas, [1], {"shop": 45}, None)
    assert (found.candidates[0].lost_from, found.candidates[0].lost_end_offset) == (40, 50)
    assert (found.candidates[0].end_offset, found.candidates[0].groups) == (0, {"shop": 45})


def test_a_replica_in_a_failed_directory_cannot_lead() -> None:
    failed = ReplicaLineage(1, (), KafkaError("offline", code=Code.KAFKA_STORAGE_ERROR))
    found = election_preview(partition(1, 2), {1: failed, 2: log(2, (3, 0, 9))}, [1, 2], {}, None)
    assert found.would_lead == 2
