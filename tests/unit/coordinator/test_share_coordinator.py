"""The share coordinator: who may read and write a state, what is kept of it, and when its log is written anew."""

from __future__ import annotations

from uuid import UUID

import pytest

from support.fixtures.coordinated_share import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    KEY,
    OTHER,
    TOPIC,
    WALL_START_MS,
    CoordinatedShare,
    batch,
    change,
)
from tidelog.base.errors import Code, CorruptLogError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.coordinator.share import ShareCoordinator, ShareCoordinatorSettings
from tidelog.coordinator.share.coordinator import SNAPSHOT_STEP_MAX
from tidelog.coordinator.share.records import (
    ShareRecordType,
    ShareSnapshotValue,
    ShareStateBatch,
    ShareUpdateValue,
    read_batches,
    read_key,
    snapshot_key,
    update_key,
)
from tidelog.coordinator.share.settings import BATCHES_MAX
from tidelog.coordinator.share.state import BATCH_BYTES, STATE_BYTES, RecordedShareStates
from tidelog.journal import RequestId
from tidelog.share.key import ShareKey
from tidelog.share.state import ShareState, raised_to
from tidelog.share.summary import ShareSummary

COLD_MS = ShareCoordinatorSettings().cold_snapshot_interval_ms


def kinds(world: CoordinatedShare) -> list[str]:
    """Of the records of the log, in their order: S and U, in lower case for the other partition; T: a tombstone."""
    found = []
    for _, (raw_key, value) in world.log:
        read = read_key(raw_key)
        assert read is not None
        kind = "T" if value is None else "S" if read[0] is ShareRecordType.SNAPSHOT else "U"
        found.append(kind if read[1] == KEY else kind.lower())
    return found


def test_a_state_is_begun_read_and_written() -> None:
    world = CoordinatedShare()
    world.initialized(start=5)
    assert world.kept() == ShareState(1, Offset(5))
    assert world.summary() == ShareSummary(1, LeaderEpoch(0), Offset(5), 0)
    world.written(batch(5, 6, epoch=2), batch(8, 8, AVAILABLE, 2, epoch=2))
    world.written(batch(8, 9, ARCHIVED, 3, epoch=2))
    assert world.kept() == ShareState(1, Offset(5), batches=(batch(5, 6, epoch=2), batch(8, 9, ARCHIVED, 3, epoch=2)))
    accepted = world.write(change(start=9, start_epoch=2, complete=1))
    assert world.answers[accepted] is Code.NONE
    assert world.kept() == ShareState(1, Offset(9), LeaderEpoch(2), (batch(9, 9, ARCHIVED, 3, epoch=2),))
    assert world.summary() == ShareSummary(1, LeaderEpoch(1), Offset(9), 1)


def test_what_was_not_initialized_is_neither_read_nor_written() -> None:
    world = CoordinatedShare()
    assert world.refused(world.read()) is Code.INVALID_REQUEST
    assert world.refused(world.write(change())) is Code.INVALID_REQUEST
    assert world.summary() == ShareSummary(0, LeaderEpoch(0), None, -1)
    assert world.answers[world.delete()] is Code.NONE
    assert world.log == []


def test_a_partition_that_is_not_there_is_refused() -> None:
    world = CoordinatedShare()
    for request in (world.initialize, world.summarize, world.delete):
        assert world.refused(request(is_known=False)) is Code.UNKNOWN_TOPIC_OR_PARTITION
    world.initialized()
    assert world.refused(world.read(is_known=False)) is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert world.refused(world.write(change(), is_known=False)) is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert world.refused(world.write(raised_to(3), is_known=False)) is Code.UNKNOWN_TOPIC_OR_PARTITION
    negative = KEY._replace(partition=PartitionIndex(-1))
    for request in (world.initialize, world.read, world.summarize, world.delete):
        assert world.refused(request(negative, is_known=False)) is Code.INVALID_REQUEST


def test_a_read_fences_the_leaders_before_also_after_a_failover() -> None:
    world = CoordinatedShare()
    world.initialized()
    assert world.taken(world.read(leader_epoch=4), ShareState).state_epoch == 1
    world.fail_over()
    for stale in (world.read(leader_epoch=3), world.write(change(leader_epoch=3))):
        assert world.refused(stale) is Code.FENCED_LEADER_EPOCH
    assert kinds(world) == ["S", "U", "U"]
    world.read(leader_epoch=4)
    world.read(leader_epoch=-1)
    assert kinds(world) == ["S", "U", "U"], "nothing is new"
    assert world.answers[world.write(change(leader_epoch=-1))] is Code.NONE
    assert world.summary().leader_epoch == 4
    assert world.answers[world.write(change(leader_epoch=6))] is Code.NONE
    assert world.refused(world.write(change(leader_epoch=5))) is Code.FENCED_LEADER_EPOCH


def test_a_read_tells_nothing_before_its_leader_epoch_is_there_to_stay() -> None:
    world = CoordinatedShare()
    world.initialized()
    world.commits_at_once = False
    pending = world.read(leader_epoch=4)
    assert pending not in world.answers
    world.fail_over()
    assert world.refused(pending) is Code.NOT_COORDINATOR
    world.commits_at_once = True
    assert world.answers[world.write(change(leader_epoch=3))] is Code.NONE


def test_a_change_that_comes_once_more_after_the_next_one_takes_nothing_back() -> None:
    """Its answer was lost, so its leader sent it again; and the first copy was on its way all the time."""
    world = CoordinatedShare()
    world.initialized(start=0)
    world.read(leader_epoch=1)
    released, accepted = change(batch(3, 4, AVAILABLE, 1), start=0, number=7), change(batch(4, 4), start=3, number=8)
    for one in (released, released, accepted):
        assert world.answers[world.write(one)] is Code.NONE
    kept = world.kept()
    assert kept == ShareState(1, Offset(3), batches=(batch(3, 3, AVAILABLE, 1), batch(4, 4)))
    for _ in range(2):
        assert world.refused(world.write(released)) is Code.INVALID_REQUEST
        assert world.kept() == kept
        world.fail_over()
    for _ in range(5):  # among them is a snapshot
        world.written(batch(9, 9))
    assert kinds(world)[-1] == "U"
    assert "S" in kinds(world)[-5:]
    world.fail_over()
    assert world.refused(world.write(released)) is Code.INVALID_REQUEST


def test_the_next_leader_numbers_its_changes_anew_and_one_of_kafka_does_not() -> None:
    world = CoordinatedShare()
    world.initialized(start=0)
    world.write(change(start=1, number=8))
    world.read(leader_epoch=2)
    for one in (change(start=2, leader_epoch=2, number=1), change(start=3, leader_epoch=2)):
        assert world.answers[world.write(one)] is Code.NONE
    assert world.refused(world.write(change(start=2, leader_epoch=2, number=0))) is Code.INVALID_REQUEST
    assert world.kept().start == 3


def test_a_state_that_is_initialized_anew_fences_who_read_the_one_before() -> None:
    world = CoordinatedShare()
    world.initialized(start=0)
    world.written(batch(0, 3))
    world.initialized(state_epoch=3, start=2)
    assert world.kept() == ShareState(3, Offset(2))
    assert world.refused(world.write(change(state_epoch=1))) is Code.FENCED_STATE_EPOCH
    assert world.refused(world.initialize(state_epoch=2)) is Code.FENCED_STATE_EPOCH
    assert world.answers[world.write(change(state_epoch=-1))] is Code.NONE
    assert world.refused(world.write(change(state_epoch=3, leader_epoch=0))) is Code.FENCED_LEADER_EPOCH


def test_a_state_that_is_begun_twice_with_one_epoch_is_begun_once() -> None:
    """The answer was lost, so it was asked for again; and the first request may come after the second."""
    world = CoordinatedShare()
    for start in (None, 5):
        world.initialized(start=start)
        appended = world.next_offset
        assert world.answers[world.initialize(start=start)] is Code.NONE
        assert world.next_offset == appended
        world.written(batch(5, 6), start=5)
        assert world.refused(world.initialize(start=start)) is Code.FENCED_STATE_EPOCH
        assert world.refused(world.initialize(start=4)) is Code.FENCED_STATE_EPOCH, "it is not said that it is done"
        assert world.kept() == ShareState(1, Offset(5), batches=(batch(5, 6),))
        world.delete()


def test_a_state_that_is_begun_elsewhere_with_the_same_epoch_is_not_begun() -> None:
    world = CoordinatedShare()
    for start, other in ((0, 4), (0, None), (None, 0)):
        assert world.answers[world.initialize(start=start)] is Code.NONE
        assert world.refused(world.initialize(start=other)) is Code.FENCED_STATE_EPOCH
        assert world.kept().start == start
        world.delete()


def test_a_raised_epoch_fences_who_knows_a_lower_one_and_leaves_the_rest() -> None:
    world = CoordinatedShare()
    assert world.refused(world.write(raised_to(3))) is Code.INVALID_REQUEST
    world.initialized()
    world.read(leader_epoch=4)
    world.write(change(batch(2, 3), leader_epoch=4, start=1, complete=2))
    for _ in range(2):
        assert world.answers[world.write(raised_to(3))] is Code.NONE
    assert world.refused(world.write(raised_to(2))) is Code.FENCED_STATE_EPOCH
    assert world.refused(world.initialize(state_epoch=2, start=9)) is Code.FENCED_STATE_EPOCH
    assert world.refused(world.write(change(leader_epoch=4))) is Code.FENCED_STATE_EPOCH
    world.fail_over()
    assert world.kept() == ShareState(3, Offset(1), batches=(batch(2, 3),))
    assert world.summary() == ShareSummary(3, LeaderEpoch(4), Offset(1), 2)


def test_a_leader_that_read_a_state_that_was_deleted_writes_nothing_of_the_one_that_was_begun_since() -> None:
    """A group that is made anew counts its epochs from the start: the same ones may come again."""
    world = CoordinatedShare()
    for stale in (change(start=110, state_epoch=2, leader_epoch=4), change(start=110, state_epoch=9, leader_epoch=4)):
        world.initialized(state_epoch=2)
        world.read(leader_epoch=4)
        world.write(change(start=100, state_epoch=2, leader_epoch=4))
        world.delete()
        assert world.answers[world.initialize(state_epoch=2)] is Code.NONE
        assert world.refused(world.write(stale)) is Code.FENCED_STATE_EPOCH
        world.fail_over()
        assert world.refused(world.write(stale)) is Code.FENCED_STATE_EPOCH
        assert world.taken(world.read(leader_epoch=4), ShareState).start == 0
    assert world.refused(world.write(stale)) is Code.FENCED_STATE_EPOCH, "it had a higher epoch"
    accepted = world.write(change(start=1, state_epoch=2, leader_epoch=4))
    assert world.answers[accepted] is Code.NONE


def test_an_acknowledgement_of_before_says_nothing_of_the_record_that_has_its_offset_now() -> None:
    """KIP-932 keeps offsets alone. An unclean election let offsets 2 and 3 be used again, in leader epoch 5."""
    world = CoordinatedShare()
    world.initialized()
    world.written(batch(0, 3, ACKNOWLEDGED, 1, epoch=4))
    assert world.answers[world.write(change(batch(2, 2, ACKNOWLEDGED, 1, epoch=5), leader_epoch=5))] is Code.NONE
    world.fail_over()
    assert world.kept().batches == (batch(0, 1, epoch=4), batch(2, 2, epoch=5), batch(3, 3, epoch=4))


def test_enough_updates_are_followed_by_a_snapshot() -> None:
    world = CoordinatedShare()
    world.initialized()
    for offset in range(7):
        world.written(batch(offset, offset))
    assert kinds(world) == ["S", "U", "U", "U", "S", "U", "U", "U", "S"]
    before = world.kept()
    world.prune()
    assert kinds(world) == ["S"]
    world.fail_over()
    assert world.kept() == before


def test_without_updates_every_write_is_a_snapshot() -> None:
    world = CoordinatedShare(settings=ShareCoordinatorSettings(updates_per_snapshot=0))
    world.initialized()
    world.written(batch(0, 0))
    world.written(batch(1, 1))
    assert kinds(world) == ["S", "S", "S", "S"]
    assert world.kept().batches == (batch(0, 1),)


def test_a_deleted_state_is_gone_and_may_be_begun_again() -> None:
    world = CoordinatedShare()
    world.initialized()
    world.initialized(OTHER)
    world.written(batch(0, 0))
    assert world.answers[world.delete()] is Code.NONE
    assert kinds(world) == ["S", "U", "s", "u", "U", "T"]
    world.fail_over()
    assert list(world.states) == [OTHER]
    world.initialized(start=None)
    assert world.kept() == ShareState(1, None)
    assert world.summary() == ShareSummary(1, LeaderEpoch(0), None, -1)


def test_a_deletion_that_comes_late_spares_what_was_begun_since() -> None:
    world = CoordinatedShare()
    world.initialized(state_epoch=6)
    assert world.answers[world.delete(state_epoch=5)] is Code.NONE
    assert world.kept().state_epoch == 6
    assert world.answers[world.delete(state_epoch=6)] is Code.NONE
    assert not world.states


def test_states_of_topics_that_are_no_more_go_in_steps() -> None:
    world = CoordinatedShare()
    survivor = KEY._replace(topic_id=TopicId(UUID(int=8)))
    for number in range(200):
        world.initialized(KEY._replace(partition=PartitionIndex(number)))
    world.initialized(survivor)
    appended = world.next_offset
    world.forget_all_but(survivor.topic_id)
    assert 0 < world.next_offset - appended < 100
    world.pass_ms(1)
    assert list(world.states) == [survivor]
    world.fail_over()
    assert list(world.states) == [survivor]
    world.coordinator.on_topics_deleted([survivor.topic_id, TOPIC], now_ms=0, wall_ms=0)
    world.drive()
    assert not world.states
    assert world.memory.used_bytes == 0


def test_a_cold_partition_is_written_anew_so_that_the_log_may_go() -> None:
    world = CoordinatedShare()
    world.initialized(OTHER)
    world.written(batch(3, 3), key=OTHER)
    world.initialized()
    for offset in range(20):
        world.written(batch(offset, offset))
    before = world.kept(OTHER)
    assert world.coordinator.redundant_before == world.log[0][0]
    world.pass_ms(COLD_MS)
    world.written(batch(20, 20))
    world.pass_ms(COLD_MS)
    assert world.coordinator.redundant_before > 20
    world.prune()
    assert len(world.log) < 10
    world.fail_over()
    assert world.kept(OTHER) == before
    assert world.states[OTHER].snapshot_epoch == 1


def test_a_snapshot_has_the_next_epoch_and_says_when_the_state_was_begun() -> None:
    world = CoordinatedShare(settings=ShareCoordinatorSettings(updates_per_snapshot=1))

    def told() -> tuple[int, int, int]:
        one = world.states[KEY]
        return one.snapshot_epoch, one.created_ms - WALL_START_MS, one.snapshot_ms - WALL_START_MS

    world.initialized()  # and an update: its leader reads it
    assert told() == (0, 0, 0)
    world.pass_ms(10)
    world.written(batch(1, 1))
    assert told() == (1, 0, 10)
    world.written(batch(3, 3))
    assert told() == (1, 0, 10)
    world.pass_ms(10)
    assert world.answers[world.write(raised_to(2))] is Code.NONE
    assert told() == (2, 0, 20)
    world.pass_ms(10)
    world.initialized(state_epoch=3)
    assert told() == (3, 30, 30)
    world.fail_over()
    assert told() == (3, 30, 30)
    world.delete()
    world.initialized()
    assert told() == (0, 30, 30)


def test_a_read_leaves_what_is_kept_as_it_was() -> None:
    world = CoordinatedShare()
    world.initialized(start=3)
    world.write(change(batch(5, 6), start=4, start_epoch=7, complete=2))
    before = world.kept()
    for leader_epoch in range(2, 9):  # by updates, and by snapshots
        assert world.taken(world.read(leader_epoch=leader_epoch), ShareState) == before
        assert world.summary() == ShareSummary(1, LeaderEpoch(leader_epoch), Offset(4), 2)
    assert before == ShareState(1, Offset(4), LeaderEpoch(7), (batch(5, 6),))


def test_a_leader_that_was_fenced_stays_so_when_a_state_is_initialized_anew() -> None:
    world = CoordinatedShare()
    assert world.answers[world.initialize()] is Code.NONE
    assert world.summary() == ShareSummary(1, LeaderEpoch(0), Offset(0), 0), "nobody has read it yet"
    world.read(leader_epoch=4)
    world.initialized(state_epoch=2)
    assert world.refused(world.read(leader_epoch=3)) is Code.FENCED_LEADER_EPOCH


def test_what_says_that_it_is_of_a_transaction_is_skipped() -> None:
    world = CoordinatedShare()
    world.initialized()
    coordinator = ShareCoordinator(0, ShareCoordinatorSettings())
    coordinator.replay(*world.log[0][1], Offset(0), transaction_of=7)
    assert not coordinator.states
    coordinator.replay(*world.log[0][1], Offset(0))
    assert list(coordinator.states) == [KEY]


@pytest.mark.parametrize("more", [1, 2])
def test_a_log_is_not_written_anew_before_half_of_it_is_of_no_use(more: int) -> None:
    """Two records tell of the two states; three or four lie from the older snapshot on."""
    world = CoordinatedShare(settings=ShareCoordinatorSettings(updates_per_snapshot=0))
    world.initialized(OTHER)
    world.initialized()
    for _ in range(more - 1):
        world.written(batch(1, 1))
    appended = world.next_offset
    world.pass_ms(COLD_MS)
    assert world.next_offset - appended == more - 1
    assert world.states[OTHER].snapshot_ms == world.wall_ms - (0 if more > 1 else COLD_MS)


def test_a_snapshot_is_cold_once_it_is_as_old_as_the_interval() -> None:
    world = CoordinatedShare(settings=ShareCoordinatorSettings(updates_per_snapshot=0))
    world.initialized()
    world.initialized(OTHER)
    for _ in range(8):
        world.written(batch(1, 1), key=OTHER)
    world.pass_ms(COLD_MS)
    assert world.states[KEY].snapshot_ms == world.wall_ms
    world.pass_ms(1)
    world.written(batch(1, 1))
    for _ in range(8):
        world.written(batch(1, 1), key=OTHER)
    world.pass_ms(COLD_MS - 1)
    assert world.states[KEY].snapshot_ms == world.wall_ms - COLD_MS + 1, "it is a millisecond too young"
    world.pass_ms(COLD_MS)
    assert world.states[KEY].snapshot_ms == world.wall_ms


@pytest.mark.parametrize(("batch_count", "at_once"), [(0, SNAPSHOT_STEP_MAX), (400, 2), (500, 2), (1_001, 1)])
def test_cold_snapshots_are_written_some_at_a_time(batch_count: int, at_once: int) -> None:
    world = CoordinatedShare(settings=ShareCoordinatorSettings(updates_per_snapshot=0))
    keys = [KEY._replace(partition=PartitionIndex(number)) for number in range(at_once + 3)]
    for key in keys:
        world.initialized(key)
        world.written(*(batch(2 * number, 2 * number) for number in range(batch_count)), key=key)
    for _ in range(3 * len(keys)):
        world.written(batch(0, 0), key=OTHER)
    world.now_ms += COLD_MS
    steps = []
    while (due_ms := world.coordinator.next_deadline_ms()) is not None and due_ms <= world.now_ms:
        before = world.next_offset
        world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()
        steps.append(world.next_offset - before)
    assert steps[0] == at_once
    assert max(steps) == at_once
    assert sum(steps) == len(keys) - 1, "all but the one that was written all the time"
    assert due_ms == world.now_ms + COLD_MS


def test_time_does_nothing_before_it_is_due_nor_once_another_leads() -> None:
    world = CoordinatedShare(settings=ShareCoordinatorSettings(updates_per_snapshot=0))
    world.initialized(OTHER)
    world.initialized()
    for _ in range(9):
        world.written(batch(1, 1))
    assert world.coordinator.next_deadline_ms() == COLD_MS
    before = world.next_offset
    world.coordinator.on_time(now_ms=COLD_MS - 1, wall_ms=world.wall_ms + COLD_MS)
    world.drive()
    assert world.next_offset == before
    world.coordinator.on_topics_deleted([TOPIC], now_ms=0, wall_ms=0)
    old = world.fail_over()
    assert old.next_deadline_ms() is None
    old.on_time(now_ms=COLD_MS, wall_ms=world.wall_ms + COLD_MS)
    assert not old.take_ready()


@pytest.mark.parametrize("count", [SNAPSHOT_STEP_MAX, SNAPSHOT_STEP_MAX + 1, 2 * SNAPSHOT_STEP_MAX + 1])
def test_deleted_topics_are_forgotten_some_states_at_a_time(count: int) -> None:
    world = CoordinatedShare()
    for number in range(count):
        world.initialized(KEY._replace(partition=PartitionIndex(number)))
    world.initialized(KEY._replace(topic_id=TopicId(UUID(int=8))))
    world.coordinator.on_topics_deleted([TOPIC], now_ms=0, wall_ms=0)
    left = [len(world.states) - 1]
    while world.coordinator.next_deadline_ms() == 0:
        world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
        left.append(len(world.states) - 1)
    world.drive()
    assert left == [count - done for done in range(SNAPSHOT_STEP_MAX, count, SNAPSHOT_STEP_MAX)] + [0]
    assert kinds(world).count("T") + kinds(world).count("t") == count


def test_a_topic_that_is_deleted_twice_is_forgotten_once() -> None:
    world = CoordinatedShare()
    world.initialized()
    world.coordinator.on_topics_deleted([TOPIC, TOPIC], now_ms=0, wall_ms=0)
    world.drive()
    assert kinds(world).count("T") == 1


def test_where_there_is_no_state_nothing_is_written_anew() -> None:
    world = CoordinatedShare()
    world.pass_ms(3 * COLD_MS)
    assert world.log == []


def test_a_state_that_was_deleted_meanwhile_is_not_forgotten_twice() -> None:
    world = CoordinatedShare()
    for number in range(SNAPSHOT_STEP_MAX + 2):
        world.initialized(KEY._replace(partition=PartitionIndex(number)))
    world.coordinator.on_topics_deleted([TOPIC], now_ms=0, wall_ms=0)
    world.delete(KEY._replace(partition=PartitionIndex(SNAPSHOT_STEP_MAX)))
    world.pass_ms(1)
    assert not world.states
    assert kinds(world).count("T") + kinds(world).count("t") == SNAPSHOT_STEP_MAX + 2


def test_where_nothing_is_written_nothing_is_written_anew() -> None:
    world = CoordinatedShare()
    world.initialized(OTHER)
    world.initialized()
    world.written(batch(0, 0))
    appended = world.next_offset
    world.pass_ms(10 * COLD_MS)
    assert world.next_offset == appended


def test_a_snapshot_that_is_not_committed_makes_nothing_redundant() -> None:
    world = CoordinatedShare()
    world.initialized()
    for offset in range(2):
        world.written(batch(offset, offset))
    before = world.coordinator.redundant_before
    world.commits_at_once = False
    world.write(change(batch(3, 3)))
    assert kinds(world)[-1] == "S"
    assert world.coordinator.redundant_before == before
    world.prune()
    world.fail_over()
    world.commits_at_once = True
    assert world.kept().batches == (batch(0, 1),)


def test_tombstones_make_nothing_redundant_before_they_are_committed() -> None:
    world = CoordinatedShare()
    keys = [KEY._replace(partition=PartitionIndex(number)) for number in range(3)]
    for key in keys:
        world.initialized(key)
    world.initialized(keys[0], state_epoch=2)
    before = world.coordinator.redundant_before
    assert before == world.log[2][0], "there is the first snapshot of the second state"
    world.commits_at_once = False
    world.write(change(batch(1, 1)), keys[2])
    written = world.next_offset
    world.coordinator.on_topics_deleted([TOPIC], now_ms=0, wall_ms=0)
    world.drive()
    world.coordinator.on_committed(Offset(written))
    assert world.coordinator.redundant_before == before
    world.commit_log()
    assert world.coordinator.redundant_before == world.next_offset


def test_tombstones_of_two_batches_are_committed_one_after_the_other() -> None:
    world = CoordinatedShare()
    keys = [KEY._replace(partition=PartitionIndex(number)) for number in range(20)]
    for key in keys:
        world.initialized(key)
    snapshots = [offset for offset, (raw_key, _) in world.log if read_key(raw_key) in snapshots_of(keys)]
    world.coordinator.batch_size_bytes_max = 300
    first_offset = world.next_offset
    world.coordinator.on_topics_deleted([TOPIC], now_ms=0, wall_ms=0)
    batches = world.coordinator.take_ready().batches
    assert len(batches) > 1
    world.coordinator.on_committed(batches[1].base_offset)
    assert world.coordinator.redundant_before == snapshots[batches[1].base_offset - first_offset]


def snapshots_of(keys: list[ShareKey]) -> list[tuple[ShareRecordType, ShareKey]]:
    return [(ShareRecordType.SNAPSHOT, key) for key in keys]


@pytest.mark.parametrize("name", ["g", "g" * 100, "\N{CAT FACE}" * 400])
def test_a_state_of_a_group_of_any_name_fits_the_log_as_long_as_it_grows(name: str) -> None:
    world, key = CoordinatedShare(), KEY._replace(group_id=name)
    world.coordinator.batch_size_bytes_max = 4_000
    world.initialized(key)
    accepted = 0
    while world.answers[world.write(change(batch(2 * accepted, 2 * accepted, epoch=4)), key)] is Code.NONE:
        accepted += 1
    assert accepted > 30
    for _ in range(4):  # of the same size: among them is a snapshot
        world.written(batch(0, 0, ARCHIVED, epoch=4), key=key)
        world.written(batch(0, 0, epoch=4), key=key)
    assert max(len(raw_key) + len(value or b"") for _, (raw_key, value) in world.log) < 4_000


def test_a_log_without_states_is_redundant_as_a_whole() -> None:
    world = CoordinatedShare()
    world.initialized()
    world.delete()
    assert world.coordinator.redundant_before == world.next_offset
    world.prune()
    world.fail_over()
    assert not world.states


def test_states_share_the_memory_of_the_node() -> None:
    world = CoordinatedShare(memory_bytes=4_000)
    world.initialized()
    world.initialized(OTHER)
    third = KEY._replace(group_id="third")
    world.initialized(third)
    fourth = world.initialize(KEY._replace(group_id="fourth"))
    assert world.refused(fourth) is Code.THROTTLING_QUOTA_EXCEEDED
    many = [batch(2 * number, 2 * number) for number in range(20)]
    assert world.refused(world.write(change(*many))) is Code.THROTTLING_QUOTA_EXCEEDED
    world.written(batch(0, 0))
    world.written(batch(0, 0, ARCHIVED))
    world.written(start=1)
    world.delete(OTHER)
    world.delete(third)
    world.delete()
    assert world.memory.used_bytes == 0


def room_of(batch_count: int, state_count: int = 1) -> CoordinatedShare:
    """A world with room for so many states, and for so many batches beside them."""
    memory_bytes = state_count * (STATE_BYTES + len(KEY.group_id)) + batch_count * BATCH_BYTES
    world = CoordinatedShare(memory_bytes=memory_bytes)
    world.initialized()
    return world


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_there_is_room_for_so_many_batches_and_no_more(count: int) -> None:
    world = room_of(count)
    many = [batch(2 * number, 2 * number) for number in range(count + 1)]
    assert world.refused(world.write(change(*many))) is Code.THROTTLING_QUOTA_EXCEEDED
    world.written(*many[:-1])
    assert world.memory.used_bytes == world.memory.limit_bytes
    assert world.refused(world.write(change(many[-1]))) is Code.THROTTLING_QUOTA_EXCEEDED
    assert world.refused(world.initialize(OTHER)) is Code.THROTTLING_QUOTA_EXCEEDED
    world.written(*(batch(one.first, one.last, ARCHIVED) for one in many[:-1]))
    world.written(batch(0, 2 * count))
    assert world.memory.used_bytes == world.memory.limit_bytes - (count - 1) * BATCH_BYTES
    assert world.answers[world.initialize(state_epoch=2)] is Code.NONE, "it takes the place of the one before"
    world.memory.limit_bytes = world.memory.used_bytes - 1
    assert world.answers[world.initialize(state_epoch=3)] is Code.NONE, "it takes no more than the one before"
    assert world.refused(world.initialize(OTHER)) is Code.THROTTLING_QUOTA_EXCEEDED


def test_a_batch_that_divides_another_takes_the_room_of_two() -> None:
    for count in (2, 3):
        world = room_of(count)
        world.written(batch(0, 9))
        asked = world.write(change(batch(4, 5, ARCHIVED)))
        if count == 2:
            assert world.refused(asked) is Code.THROTTLING_QUOTA_EXCEEDED
        else:
            assert world.answers[asked] is Code.NONE


def test_a_second_state_finds_room_to_the_last_byte() -> None:
    world = room_of(0, 2)
    assert world.answers[world.initialize(OTHER)] is Code.NONE
    assert world.memory.used_bytes == world.memory.limit_bytes
    assert world.answers[world.initialize(state_epoch=3)] is Code.NONE


def test_a_state_of_too_many_batches_is_refused() -> None:
    world = CoordinatedShare()
    world.initialized()
    many = [batch(2 * number, 2 * number) for number in range(BATCHES_MAX + 1)]
    assert world.refused(world.write(change(*many))) is Code.MESSAGE_TOO_LARGE
    world.written(*many[:-1])
    assert world.refused(world.write(change(many[-1]))) is Code.MESSAGE_TOO_LARGE
    world.written(batch(0, 2 * BATCHES_MAX))
    assert len(world.kept().batches) == 1


def test_a_snapshot_fits_the_log_whatever_its_settings() -> None:
    world = CoordinatedShare()
    world.coordinator.batch_size_bytes_max = 1_000
    assert world.refused(world.initialize(KEY._replace(group_id="g" * 1_000))) is Code.INVALID_REQUEST
    world.initialized()
    accepted = 0
    while world.answers[world.write(change(batch(2 * accepted, 2 * accepted)))] is Code.NONE:
        accepted += 1
    assert accepted > 10
    assert max(len(key) + len(value or b"") for _, (key, value) in world.log) < 1_000


def test_a_state_that_has_more_than_it_may_by_now_goes_on_as_long_as_it_does_not_grow() -> None:
    world = CoordinatedShare(settings=ShareCoordinatorSettings(updates_per_snapshot=100))
    world.initialized()
    world.written(*(batch(2 * number, 2 * number) for number in range(20)))
    world.coordinator.batch_size_bytes_max = 500
    world.written(batch(0, 0, ARCHIVED))
    assert world.refused(world.write(change(batch(50, 50)))) is Code.MESSAGE_TOO_LARGE
    assert world.refused(world.write(change(batch(40, 40), batch(42, 42)))) is Code.MESSAGE_TOO_LARGE
    world.written(batch(0, 60))
    assert len(world.kept().batches) == 1


def test_it_is_active_between_becoming_so_and_resigning() -> None:
    world = CoordinatedShare()
    assert ShareCoordinator(0, ShareCoordinatorSettings()).is_active is False
    assert world.coordinator.is_active is True
    assert world.fail_over().is_active is False


def test_without_a_bound_there_is_always_room() -> None:
    coordinator = ShareCoordinator(0, ShareCoordinatorSettings())
    coordinator.become_active(LeaderEpoch(1), Offset(1), now_ms=0, wall_ms=0)
    coordinator.on_initialize(RequestId(1), KEY, state_epoch=1, start=Offset(0), is_known=True, now_ms=0, wall_ms=0)
    assert list(coordinator.states) == [KEY]


def test_updates_that_are_read_are_no_snapshots() -> None:
    world = CoordinatedShare()
    world.initialized()
    world.initialized(OTHER)
    world.written(batch(1, 1))
    world.fail_over()
    assert world.coordinator.redundant_before == world.log[0][0]


def test_who_raises_no_epoch_changes_nothing_but_needs_a_leader_that_has_read() -> None:
    world = CoordinatedShare()
    assert world.answers[world.initialize()] is Code.NONE
    nothing = change(state_epoch=-1, leader_epoch=-1)
    assert world.refused(world.write(nothing)) is Code.FENCED_STATE_EPOCH
    world.read(leader_epoch=1)
    assert world.answers[world.write(nothing)] is Code.NONE


def test_who_does_not_lead_says_so() -> None:
    coordinator = ShareCoordinator(0, ShareCoordinatorSettings())
    coordinator.on_summarize(RequestId(1), KEY, is_known=True, now_ms=0, wall_ms=0)
    (answer,) = coordinator.take_ready().answers
    assert getattr(answer.outcome, "code", None) is Code.COORDINATOR_LOAD_IN_PROGRESS
    world = CoordinatedShare()
    world.initialized()
    old = world.fail_over()
    old.on_summarize(RequestId(99), KEY, is_known=True, now_ms=0, wall_ms=0)
    (answer,) = old.take_ready().answers
    assert getattr(answer.outcome, "code", None) is Code.NOT_COORDINATOR
    old.on_time(now_ms=0, wall_ms=0)
    assert not old.take_ready()
    assert old.next_deadline_ms() is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00", b""),
        (b"\x00\x00\x00", b""),
        (None, b"\x00\x07"),
        (None, b"\x00\x00\x00"),
    ],
)
def test_a_damaged_record_is_named(key: bytes | None, value: bytes) -> None:
    world = CoordinatedShare()
    world.initialized()
    coordinator = ShareCoordinator(3, ShareCoordinatorSettings())
    with pytest.raises(CorruptLogError, match="__share_group_state-3, offset 17"):
        coordinator.replay(world.log[0][1][0] if key is None else key, value, Offset(17))


def test_a_state_number_that_there_is_not_is_damage() -> None:
    world = CoordinatedShare()
    world.initialized()
    world.written(batch(0, 0))
    (raw_key, value) = world.log[-1][1]
    assert value is not None
    at = value.index(bytes(16)) + 16
    damaged = value[:at] + b"\x01" + value[at + 1 :]
    coordinator = ShareCoordinator(0, ShareCoordinatorSettings())
    coordinator.replay(*world.log[0][1], Offset(0))
    with pytest.raises(CorruptLogError, match="no such batch"):
        coordinator.replay(raw_key, damaged, Offset(1))


def test_a_batch_that_ends_before_it_begins_is_damage() -> None:
    def written(last: int) -> list[ShareStateBatch]:
        return [ShareStateBatch(first_offset=4, last_offset=last, delivery_state=2, delivery_count=1)]

    assert read_batches(written(4)) == [batch(4, 4)]
    with pytest.raises(CorruptLogError, match="offsets 4 to 3"):
        read_batches(written(3))


def test_what_a_record_does_not_say_is_not_known() -> None:
    snapshot = ShareSnapshotValue(
        snapshot_epoch=1, state_epoch=2, leader_epoch=3, start_offset=4, create_timestamp=5, write_timestamp=6
    )
    update = ShareUpdateValue(snapshot_epoch=1, leader_epoch=3, start_offset=4)
    for value in (snapshot, update):
        assert (value.delivery_complete_count, value.start_leader_epoch, value.write_number) == (-1, -1, -1)
        assert value.state_batches == []
    assert read_batches([ShareStateBatch(first_offset=1, last_offset=2, delivery_state=0, delivery_count=3)]) == [
        batch(1, 2, AVAILABLE, 3)
    ]


def test_a_record_whose_writer_says_what_it_means_is_not_read() -> None:
    world = CoordinatedShare()
    world.initialized()
    kept, unreadable = world.states[KEY].clone(), b"\0\7"
    states = RecordedShareStates()
    states.expect(kept)
    states.apply((snapshot_key(KEY), unreadable))
    assert states.states[KEY] is kept
    states.expect(change(batch(1, 2), leader_epoch=5))
    states.apply((update_key(KEY), unreadable))
    assert kept.batches == [batch(1, 2)]
    for key in (snapshot_key(KEY), update_key(KEY)):
        with pytest.raises(CorruptLogError):
            states.apply((key, unreadable))


def test_a_tombstone_of_an_update_says_nothing() -> None:
    world = CoordinatedShare()
    world.initialized()
    states = RecordedShareStates()
    for _, record in world.log:
        states.apply(record)
    states.apply((update_key(KEY), None))
    states.apply((update_key(OTHER), None))
    states.apply((snapshot_key(OTHER), None))
    assert states.states == world.states
    assert states.record_count == 2


def test_a_newer_leader_numbers_its_changes_anew_also_where_it_has_not_read() -> None:
    world = CoordinatedShare()
    world.initialized(start=0)
    world.write(change(start=1, number=8))
    for one in (change(start=2, leader_epoch=2, number=0), change(start=3, leader_epoch=-1, number=0)):
        assert world.answers[world.write(one)] is Code.NONE
    assert world.states[KEY].write_number == 0
    assert world.refused(world.write(change(start=2, leader_epoch=1, number=9))) is Code.FENCED_LEADER_EPOCH


def test_the_settings_are_at_first_as_in_kafka() -> None:
    assert ShareCoordinatorSettings() == ShareCoordinatorSettings(500, 300_000)


def test_records_of_kinds_to_come_are_skipped() -> None:
    coordinator = ShareCoordinator(0, ShareCoordinatorSettings())
    coordinator.replay(b"\x00\x09any", b"any", Offset(0))
    coordinator.replay(None, b"any", Offset(1))
    assert not coordinator.states
