"""Whatever happens in whatever order: a coordinator that lived through it and one that read the log agree.

A third one reads the log after compaction, and a fourth is a model of ten lines: of all that was said of a position and
counts, what stands last in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.coordinated import Coordinated
from tidelog.base.ids import Offset
from tidelog.coordinator.groups import GroupCoordinator
from tidelog.coordinator.groups.state import RecordedGroups
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequestGroup
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


class Commit(NamedTuple):
    group_id: str
    offsets: dict[tuple[str, int], int]


class TxnCommit(NamedTuple):
    producer_id: int
    group_id: str
    offsets: dict[tuple[str, int], int]


class End(NamedTuple):
    producer_id: int
    is_commit: bool


class DeleteGroup(NamedTuple):
    group_id: str


class DeleteOffset(NamedTuple):
    group_id: str
    topic: str
    partition: int


class DeleteTopic(NamedTuple):
    topic: str


class FailOver(NamedTuple):
    pass


Step = Commit | TxnCommit | End | DeleteGroup | DeleteOffset | DeleteTopic | FailOver
KINDS: tuple[tuple[type[Step], int], ...] = (
    (TxnCommit, 18),
    (End, 12),
    (Commit, 2),
    (DeleteGroup, 1),
    (DeleteOffset, 1),
    (DeleteTopic, 1),
    (FailOver, 2),
)
"""With how often each comes: most of what happens is to happen within transactions."""


def step(kind: type[Step], producer_id: int, group_id: str, topics: tuple[str, ...], number: int) -> Step:
    offsets = {(topic, 0): number for topic in topics}
    if kind is Commit:
        return Commit(group_id, offsets)
    if kind is TxnCommit:
        return TxnCommit(producer_id, group_id, offsets)
    if kind is End:
        return End(producer_id, number % 4 != 0)
    if kind is DeleteGroup:
        return DeleteGroup(group_id)
    if kind is DeleteOffset:
        return DeleteOffset(group_id, topics[0], 0)
    return DeleteTopic(topics[0]) if kind is DeleteTopic else FailOver()


STEPS = st.builds(
    step,
    st.sampled_from([kind for kind, weight in KINDS for _ in range(weight)]),
    st.integers(0, 2),
    st.sampled_from("gggggggh"),
    st.sampled_from((("t",), ("t",), ("t",), ("t", "u"))),
    st.integers(0, 99),
)
STORIES = st.lists(STEPS, min_size=12, max_size=40)


def take(world: Coordinated, step: Step) -> None:
    match step:
        case Commit(group_id, offsets):
            world.commit(offsets, group_id=group_id)
        case TxnCommit(producer_id, group_id, offsets):
            world.txn_commit(offsets, producer_id, group_id=group_id)
        case End(producer_id, is_commit):
            world.end_transaction(producer_id, is_commit=is_commit)
        case DeleteGroup(group_id):
            world.delete_group(group_id)
        case DeleteOffset(group_id, topic, partition):
            named = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])]
            world.coordinator.on_offset_delete(
                world.request_id(),
                OffsetDeleteRequest(group_id=group_id, topics=named),
                now_ms=world.now_ms,
                wall_ms=world.wall_ms,
            )
            world.drive()
        case DeleteTopic(topic):
            world.coordinator.on_topics_deleted([topic], now_ms=world.now_ms, wall_ms=world.wall_ms)
            world.drive()
        case FailOver():
            world.fail_over()


# What is compared.


def state_of(coordinator: GroupCoordinator) -> RecordedGroups:
    return coordinator._journal.state


def canonical(state: RecordedGroups) -> object:
    """All of a state; of what is pending for a position the order counts as well."""
    pending = {
        (group_id, topic, partition): tuple(by_producer.items())
        for group_id, topics in state.pending.groups.items()
        for topic, positions in topics.items()
        for partition, by_producer in positions.items()
    }
    by_producer = {producer_id: set(positions) for producer_id, positions in state.pending._positions.items()}
    return state.offsets, state.groups, state.offsets_count, pending, by_producer, state.pending.size_bytes


@dataclass
class Said:
    """Something that was said of a position, at an offset of the log.

    Attributes:
        producer_id: within whose transaction; None once that is committed, or if there was none.
    """

    at: Offset
    value: bytes | None
    producer_id: int | None


def expected(world: Coordinated) -> dict[bytes, bytes]:
    """The model: by the keys of positions, what counts."""
    said: dict[bytes, list[Said]] = {}
    for offset, (key, value) in world.log:
        part = world.transactions.get(offset)
        if part is None or part.end is None:
            said.setdefault(key, []).append(Said(offset, value, None if part is None else part.producer_id))
            continue
        for all_said in said.values():
            for one in [one for one in all_said if one.producer_id == part.producer_id]:
                if part.end.is_committed:
                    one.producer_id = None
                else:
                    all_said.remove(one)
    latest = {
        key: max((one for one in all_said if one.producer_id is None), key=lambda one: one.at, default=None)
        for key, all_said in said.items()
    }
    return {key: one.value for key, one in latest.items() if one is not None and one.value is not None}


def told(state: RecordedGroups) -> dict[tuple[str, str, int], bytes]:
    return {
        (group_id, topic, partition): value
        for group_id in state.offsets
        for topic, partition, value in state.positions_of(group_id)
    }


def compacted(world: Coordinated) -> Iterator[Offset]:
    """The offsets that compaction leaves: of each key the last record that is decided and not aborted, and all that is
    not decided. Where a transaction is open nothing after its start is touched.
    """
    open_at: dict[int, Offset] = {}
    part_of: dict[int, list[Offset]] = {}
    aborted: set[Offset] = set()
    for offset, _ in world.log:
        part = world.transactions.get(offset)
        if part is None:
            continue
        if part.end is None:
            open_at.setdefault(part.producer_id, offset)
            part_of.setdefault(part.producer_id, []).append(offset)
        else:
            open_at.pop(part.producer_id, None)
            offsets = part_of.pop(part.producer_id, [])
            if not part.end.is_committed:
                aborted.update(offsets)
    last_stable_offset = min(open_at.values(), default=Offset(world.next_offset))
    is_marker = {offset for offset, part in world.transactions.items() if part.end is not None}
    last: dict[bytes, Offset] = {}
    for offset, (key, _) in world.log:
        if offset < last_stable_offset and offset not in aborted and offset not in is_marker:
            last[key] = offset
    for offset, (key, _) in world.log:
        if offset >= last_stable_offset or offset in is_marker or last.get(key) == offset:
            yield offset


def reader(world: Coordinated) -> GroupCoordinator:
    return GroupCoordinator(0, world.settings, rng=world.rng)


@given(STORIES)
def test_living_and_reading_come_to_the_same(steps: list[Step]) -> None:
    world = Coordinated()
    for step in steps:
        take(world, step)
        lived = state_of(world.coordinator)
        read = reader(world)
        world.replay_into(read)
        assert canonical(state_of(read)) == canonical(lived)
        assert canonical(lived.clone()) == canonical(lived)
        model = RecordedGroups()
        for key, value in expected(world).items():
            model.apply((key, value))
        assert told(lived) == told(model)
        assert lived.offsets_count == len(told(lived))
        assert world.memory.used_bytes == lived.pending.size_bytes


@given(STORIES)
def test_a_compacted_log_says_the_same(steps: list[Step]) -> None:
    world = Coordinated()
    for step in steps:
        take(world, step)
    read = reader(world)
    kept = set(compacted(world))
    world.log = [one for one in world.log if one[0] in kept]
    world.replay_into(read)
    assert told(state_of(read)) == told(state_of(world.coordinator))
    for producer_id in range(3):  # whatever becomes of what is open
        world.end_transaction(producer_id, is_commit=producer_id % 2 == 0)
        read.replay_end(producer_id, is_committed=producer_id % 2 == 0)
    assert told(state_of(read)) == told(state_of(world.coordinator))


@given(STORIES)
def test_a_clone_goes_its_own_way(steps: list[Step]) -> None:
    world = Coordinated()
    for step in steps:
        take(world, step)
    state = state_of(world.coordinator)
    before, clone = canonical(state.clone()), state.clone()
    for offset, record in world.log:
        if offset not in world.transactions:
            clone.apply(record)
    for producer_id in range(3):
        clone.pending.end(producer_id, is_committed=True)
    assert canonical(state) == before


@given(STORIES)
def test_what_is_told_as_stable_is_what_no_open_transaction_moves(steps: list[Step]) -> None:
    """Whichever transactions commit, a position that was told as stable stays as it was told."""
    for is_commit in (True, False):
        world = Coordinated()
        for step in steps:
            take(world, step)
        stable = {
            (group_id, *place): offset
            for group_id in ("g", "h")
            for place, (offset, code) in world.fetch(
                OffsetFetchRequestGroup(group_id=group_id), require_stable=True
            ).items()
            if code == 0
        }
        for producer_id in range(3):
            world.end_transaction(producer_id, is_commit=is_commit)
        after = {
            (group_id, *place): offset for group_id in ("g", "h") for place, offset in world.fetched(group_id).items()
        }
        assert stable.items() <= after.items()
