"""Random requests, failovers, prunings: the living coordinator and one that reads its log know the same."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.coordinated_share import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    KEY,
    OTHER,
    CoordinatedShare,
    batch,
    change,
)
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import Offset, TopicId
from tidelog.coordinator.share.state import RecordedShareStates
from tidelog.share.key import ShareKey
from tidelog.share.state import StateBatch

keys = st.sampled_from([KEY, OTHER, KEY._replace(group_id="other")])
batches = st.builds(
    lambda first, length, state, count, epoch: batch(first, first + length, state, count, epoch=epoch),
    st.integers(0, 20),
    st.integers(0, 5),
    st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
    st.integers(1, 2),
    st.integers(-1, 3),
)


class Oracle:
    """What is kept, record by record, of each key."""

    def __init__(self) -> None:
        self.records: dict[ShareKey, dict[int, tuple[object, ...]]] = {}
        self.starts: dict[ShareKey, int | None] = {}
        self.leader_epochs: dict[ShareKey, int] = {}
        self.state_epochs: dict[ShareKey, int] = {}

    def initialize(self, key: ShareKey, state_epoch: int, start: int | None) -> Code:
        if key in self.records and -1 != state_epoch < self.state_epochs[key]:
            return Code.FENCED_STATE_EPOCH
        if key in self.records and state_epoch == self.state_epochs[key]:
            is_as_begun = start == self.starts[key] and not self.records[key]
            return Code.NONE if is_as_begun else Code.FENCED_STATE_EPOCH
        self.records[key] = {}
        self.starts[key] = start
        self.state_epochs[key] = state_epoch
        self.leader_epochs.setdefault(key, -1)
        return Code.NONE

    def write(
        self, key: ShareKey, leader_epoch: int, state_epoch: int, start: int | None, written: list[StateBatch]
    ) -> Code:
        refused = self.read(key, leader_epoch, records=False)
        if refused is not Code.NONE:
            return refused
        if leader_epoch == -1 and state_epoch != -1 and start is None and not written:
            if state_epoch < self.state_epochs[key]:
                return Code.FENCED_STATE_EPOCH
            self.state_epochs[key] = state_epoch
            return Code.NONE
        if self.leader_epochs[key] == -1 or state_epoch not in (-1, self.state_epochs[key]):
            return Code.FENCED_STATE_EPOCH
        self.leader_epochs[key] = max(self.leader_epochs[key], leader_epoch)
        if start is not None:
            self.starts[key] = start
        records = self.records[key]
        for one in written:
            for offset in range(one.first, one.last + 1):
                records[offset] = one.state, one.delivery_count, one.leader_epoch
        first = self.starts[key]
        self.records[key] = {offset: said for offset, said in records.items() if first is None or offset >= first}
        return Code.NONE

    def read(self, key: ShareKey, leader_epoch: int, *, records: bool = True) -> Code:
        if key not in self.records:
            return Code.INVALID_REQUEST
        if -1 != leader_epoch < self.leader_epochs[key]:
            return Code.FENCED_LEADER_EPOCH
        if records:
            self.leader_epochs[key] = max(self.leader_epochs[key], leader_epoch)
        return Code.NONE

    def delete(self, key: ShareKey) -> Code:
        if key in self.records:
            del self.records[key], self.starts[key], self.leader_epochs[key], self.state_epochs[key]
        return Code.NONE


def code_of(outcome: object) -> object:
    return outcome.code if isinstance(outcome, KafkaError) else Code.NONE


Step = Callable[[CoordinatedShare, Oracle], None]


def initialize(key: ShareKey, state_epoch: int, start: int | None) -> Step:
    def step(world: CoordinatedShare, oracle: Oracle) -> None:
        asked = world.initialize(key, state_epoch=state_epoch, start=start)
        assert code_of(world.answers[asked]) is oracle.initialize(key, state_epoch, start)

    return step


def write(key: ShareKey, epochs: tuple[int, int], start: int | None, written: list[StateBatch]) -> Step:
    leader_epoch, state_epoch = epochs
    changed = change(*written, leader_epoch=leader_epoch, state_epoch=state_epoch, start=start, start_epoch=2)

    def step(world: CoordinatedShare, oracle: Oracle) -> None:
        asked = world.write(changed, key)
        assert code_of(world.answers[asked]) is oracle.write(key, leader_epoch, state_epoch, start, written)

    return step


def read(key: ShareKey, leader_epoch: int) -> Step:
    def step(world: CoordinatedShare, oracle: Oracle) -> None:
        asked = world.read(key, leader_epoch=leader_epoch)
        assert code_of(world.answers[asked]) is oracle.read(key, leader_epoch)

    return step


def delete(key: ShareKey) -> Step:
    def step(world: CoordinatedShare, oracle: Oracle) -> None:
        assert world.answers[world.delete(key)] is oracle.delete(key)

    return step


def wait(ms: int) -> Step:
    return lambda world, oracle: world.pass_ms(ms)


def prune(world: CoordinatedShare, oracle: Oracle) -> None:
    world.prune()


def fail_over(world: CoordinatedShare, oracle: Oracle) -> None:
    before = dict(world.states)
    world.fail_over()
    assert world.states == before


epochs = st.integers(-1, 3)
starts = st.none() | st.integers(0, 20)
steps = st.lists(
    st.one_of(
        st.builds(initialize, keys, epochs, starts),
        st.builds(write, keys, st.tuples(epochs, epochs), starts, st.lists(batches, max_size=3)),
        st.builds(read, keys, epochs),
        st.builds(delete, keys),
        st.builds(wait, st.integers(1, 400_000)),
        st.just(prune),
        st.just(fail_over),
    ),
    max_size=40,
)


@given(steps)
def test_living_and_reading_come_to_the_same_and_to_what_each_record_says(taken: list[Step]) -> None:
    world, oracle = CoordinatedShare(), Oracle()
    for step in taken:
        step(world, oracle)
        check(world, oracle)


def check(world: CoordinatedShare, oracle: Oracle) -> None:
    assert world.states.keys() == oracle.records.keys()
    for key, kept in world.states.items():
        said = {
            offset: (one.state, one.delivery_count, one.leader_epoch)
            for one in kept.batches
            for offset in range(one.first, one.last + 1)
        }
        assert said == oracle.records[key]
        assert kept.told_start == oracle.starts[key]
        assert (kept.leader_epoch, kept.state_epoch) == (oracle.leader_epochs[key], oracle.state_epochs[key])
    read = RecordedShareStates()
    for _, record in world.log:
        read.apply(record)
    assert read.states == world.states
    assert read.record_count == sum(1 + one.update_count for one in world.states.values())
    assert read.size_bytes == world.memory.used_bytes
    assert read.clone().states == read.states
    by_topic: dict[TopicId, dict[ShareKey, None]] = {}
    for key in world.states:
        by_topic.setdefault(key.topic_id, {})[key] = None
    assert read.by_topic == by_topic
    assert world.coordinator.redundant_before <= Offset(world.committed_end)
