"""A consumer against a partition whose brokers part ways at random: it neither skips nor keeps what is lost untold."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support.examples import examples
from support.old_rules.reader_rules import OLD_READER_RULES, ReaderRules
from support.worlds.reader_world import READER, PartitionWorld, ReadingClient
from tidelog.base.errors import LogTruncatedError
from tidelog.base.ids import LeaderEpoch, Offset, Position
from tidelog.client.core.needs import FetchFrom
from tidelog.client.core.values import ConsumerRecord, ResetPolicy
from tidelog.sim.checkers.views import Record

BROKERS = ["A", "B", "C"]


class CheckedClient(ReadingClient):
    """Notes of which epochs its session has read, and holds each divergence that is named against the logs."""

    def start(self) -> None:
        super().start()
        self.session_epochs: set[LeaderEpoch] = set()

    def give(self, record: ConsumerRecord) -> None:
        super().give(record)
        assert record.leader_epoch is not None
        self.session_epochs.add(LeaderEpoch(record.leader_epoch))

    def resume(self, position: Position) -> None:
        super().resume(position)
        if position.leader_epoch is not None:
            self.session_epochs.add(position.leader_epoch)

    def seek(self, position: Position) -> None:
        super().seek(position)
        self.session_epochs = set() if position.leader_epoch is None else {position.leader_epoch}

    def undo(self, divergent_offset: int | None, new_offset: int | None, *, is_recreated: bool) -> None:
        has: dict[int, Record] = self.checker.books[READER].records
        if has and not is_recreated and self.reader.topic_id == self.world.topic_id:
            self._check_divergence(has, divergent_offset)
        super().undo(divergent_offset, new_offset, is_recreated=is_recreated)
        if divergent_offset is None:
            self.session_epochs.clear()

    def _check_divergence(self, has: dict[int, Record], divergent_offset: int | None) -> None:
        log = self.world.led.records
        gone = [offset for offset, record in has.items() if log[offset : offset + 1] != [record]]
        first_gone = min(gone, default=max(has) + 1)
        can_tell = any(epoch in self.session_epochs for offset, (epoch, _) in has.items() if offset < first_gone)
        if divergent_offset is None:
            is_exact = not can_tell
        elif first_gone > min(has):
            is_exact = divergent_offset == first_gone
        else:  # nothing is left of what was read
            is_exact = divergent_offset <= first_gone
        if not is_exact:
            self.broken.append(f"DivergenceIsExact: the logs part at {first_gone}, and {divergent_offset} was named")


class ConsumerModel(RuleBasedStateMachine):
    """Brokers that take the lead whatever they lack, and a consumer that begins at the start of the log."""

    client_rules = ReaderRules()

    @initialize(policy=st.sampled_from(ResetPolicy))
    def begin(self, policy: ResetPolicy) -> None:
        self.world = PartitionWorld(BROKERS)
        self.events: list[str] = []
        self.written = 0
        self.client = CheckedClient(self.world, policy, self.client_rules, self.events)
        self.client.seek(Position(Offset(0), None))
        self.client.learn()

    # What happens to the log.
    @rule(count=st.integers(1, 4))
    def write(self, count: int) -> None:
        for _ in range(count):
            self.written += 1
            self.world.append(f"m{self.written}")

    @rule(broker=st.sampled_from(BROKERS), lag=st.integers(0, 4))
    def copy(self, broker: str, lag: int) -> None:
        if broker != self.world.leader:
            self.world.replicas[broker].copy_of(self.world.led, lag=lag)

    @rule(broker=st.sampled_from(BROKERS), count=st.integers(0, 3))
    def elect(self, broker: str, count: int) -> None:
        """Whatever it lacks."""
        self.world.elect(broker)
        if count:
            self.write(count)

    @rule(broker=st.sampled_from(BROKERS), lag=st.integers(1, 6), count=st.integers(0, 3), is_heard=st.booleans())
    def fall_back(self, broker: str, lag: int, count: int, is_heard: bool) -> None:
        """Some records at the end are lost, and those before them are not."""
        self.world.replicas[broker].copy_of(self.world.led, lag=lag)
        self.elect(broker, count)
        if is_heard:
            self.learn()

    @precondition(lambda self: self.written > 8)
    @rule(count=st.integers(0, 6))
    def recreate(self, count: int) -> None:
        self.world.recreate()
        if count:
            self.write(count)

    # What the consumer does.
    @rule()
    def learn(self) -> None:
        self.client.learn()
        self.go_on()

    @rule()
    def fetch(self) -> None:
        """Records come that are not delivered yet."""
        if isinstance(self.client.reader.need(self.client.now_ms), FetchFrom):
            self.client.fetch()
            self.go_on()

    @rule(count=st.integers(1, 6))
    def read(self, count: int) -> None:
        self.client.read(count)
        self.go_on()

    @rule()
    def read_to_the_end(self) -> None:
        self.client.read(1_000)
        self.go_on()

    @rule()
    def restart(self) -> None:
        """A new session goes on where the last one stood. That the topic was recreated between, no position tells."""
        self.learn()
        if self.client.reader.position is not None and self.client.reader.error is None:
            self.client.resume(self.client_rules.store(self.client.reader))
            self.client.learn()
            self.go_on()

    @rule(data=st.data())
    def seek_back(self, data: st.DataObject) -> None:
        """To a record that was read, with the epoch of the one before it."""
        has = self.client.checker.books[READER].records
        if has and self.client.reader.error is None:
            self.seek(data.draw(st.sampled_from(sorted(has)), label="offset"))

    def go_on(self) -> None:
        """Without a policy it is the caller's to undo what is lost, and to seek."""
        error = self.client.reader.error
        if isinstance(error, LogTruncatedError) and error.divergent_offset is not None:
            epoch = error.divergent_leader_epoch
            self.client.seek(Position(Offset(error.divergent_offset), None if epoch is None else LeaderEpoch(epoch)))
        elif error is not None:
            self.seek(0)

    def seek(self, offset: int) -> None:
        before = self.client.checker.books[READER].records.get(offset - 1)
        self.client.seek(Position(Offset(offset), None if before is None else before[0]))

    @invariant()
    def nothing_is_lost_untold(self) -> None:
        assert not self.client.broken, "; ".join(self.client.broken)


ConsumerModel.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestConsumerModel = ConsumerModel.TestCase


@pytest.mark.parametrize("name", sorted(OLD_READER_RULES.keys() - {"no-sequences", "resets-in-silence"}))
def test_the_model_finds_what_replaced_rules_cost(name: str) -> None:
    class Replaced(ConsumerModel):
        client_rules = OLD_READER_RULES[name]

    looking = settings(max_examples=500, stateful_step_count=40, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError, match=r"NoSilentLoss|OnlyLossIsTold|DivergenceIsExact"):
        run_state_machine_as_test(Replaced, settings=looking)
