"""Fetch sessions against the truth: whatever is appended, deleted, lost or evicted, a reader knows it a round later."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.examples import examples
from support.fixtures.fetch_model import SessionReader, ToyNode, View
from tidelog.base.errors import Code
from tidelog.server.api import fetch_reading
from tidelog.server.api.handlers import api_01_fetch

PARTITIONS = 3
INDEXES = st.integers(0, PARTITIONS - 1)
TINY = 100
"""Bytes: one batch of the model, and no second."""


class SessionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = ToyNode(PARTITIONS)
        self.reader = SessionReader()
        self.gone: dict[int, object] = {}

    # What happens at the broker.
    @rule(index=INDEXES, count=st.integers(1, 3))
    def append(self, index: int, count: int) -> None:
        partition = self.node.broker.partitions.get(index)
        if partition is not None and partition.replica is not None:
            self.node.broker.append(index, count)

    @rule(index=INDEXES, left=st.integers(0, 2))
    def delete_records(self, index: int, left: int) -> None:
        partition = self.node.broker.partitions.get(index)
        if partition is not None and partition.replica is not None:
            self.node.broker.delete_before(index, max(partition.high_watermark - left, 0))

    @rule(index=INDEXES)
    def stop_leading(self, index: int) -> None:
        partition = self.node.broker.partitions.get(index)
        if partition is not None:
            partition.stop()

    @rule(index=INDEXES)
    def lead(self, index: int) -> None:
        if index in self.node.broker.partitions:
            self.node.broker.lead(index)

    @rule(index=INDEXES)
    def go_offline(self, index: int) -> None:
        partition = self.node.broker.partitions.pop(index, None)
        if partition is not None:
            self.gone[index] = partition
            partition.stop()

    @rule(index=INDEXES)
    def come_back(self, index: int) -> None:
        if index in self.gone:
            self.node.broker.partitions[index] = self.gone.pop(index)  # type: ignore[assignment]
            self.node.broker.lead(index)

    @rule()
    def evict(self) -> None:
        self.node = self._with_sessions_forgotten()

    def _with_sessions_forgotten(self) -> ToyNode:
        node = self.node
        for session_id in list(node.fetch_sessions._sessions):
            node.fetch_sessions._remove(node.fetch_sessions._sessions[session_id])
        return node

    # What the reader does.
    @rule(index=INDEXES)
    def follow(self, index: int) -> None:
        self.reader.followed.setdefault(index, View())

    @rule()
    def follow_all(self) -> None:
        for index in range(PARTITIONS):
            self.reader.followed.setdefault(index, View())

    @rule(index=INDEXES)
    def forget(self, index: int) -> None:
        self.reader.followed.pop(index, None)

    @rule(index=INDEXES)
    def forget_and_follow_again(self, index: int) -> None:
        view = self.reader.followed.pop(index, None)
        if view is not None:
            self.reader.request()  # built, and never sent
            self.reader.on_lost()
            self.reader.followed[index] = View(position=view.position)

    @precondition(lambda self: self.reader.followed)
    @rule(max_bytes=st.sampled_from([TINY, 1 << 20]))
    def fetch(self, max_bytes: int) -> None:
        answer = self.node.fetch_now(self.reader.request(max_bytes=max_bytes))
        if not self.reader.on_answer(answer):
            assert self.reader.on_answer(self.node.fetch_now(self.reader.request(max_bytes=max_bytes)))
        self.check()

    @precondition(lambda self: self.reader.followed)
    @rule()
    def lose_an_answer(self) -> None:
        self.node.fetch_now(self.reader.request())
        self.reader.on_lost()

    @precondition(lambda self: self.reader.followed and self.reader.epoch > 0)
    @rule()
    def repeat_a_request_whose_answer_was_lost(self) -> None:
        request = self.reader.request()
        if not self.node.fetch_now(request).error_code and len(self.node.fetch_sessions):
            again = self.node.fetch_now(request)
            assert again.error_code == Code.INVALID_FETCH_SESSION_EPOCH
            assert not again.responses
        self.reader.on_lost()

    def check(self) -> None:
        """After a round the reader's view is the truth."""
        for index, view in self.reader.followed.items():
            partition = self.node.broker.partitions.get(index)
            if partition is None:
                assert view.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
            elif partition.replica is None:
                assert view.error_code == Code.NOT_LEADER_OR_FOLLOWER
            elif view.error_code == Code.OFFSET_OUT_OF_RANGE:
                assert view.position < partition.log.log_start_offset
                view.position = partition.log.log_start_offset  # which ListOffsets would tell
            else:
                assert view.error_code == 0, Code(view.error_code).name
                assert view.high_watermark == partition.high_watermark
                assert view.log_start_offset == partition.log.log_start_offset

    @invariant()
    def sessions_are_bounded(self) -> None:
        assert len(self.node.fetch_sessions) <= 10

    def teardown(self) -> None:
        """In the end everything is read, however little an answer may hold: none starves."""
        if not self.reader.followed:
            return
        left = sum(partition.high_watermark for partition in self.node.broker.partitions.values())
        for _ in range(left + 20):
            if not self.reader.on_answer(self.node.fetch_now(self.reader.request(max_bytes=TINY))):
                continue
            self.check()
        for index, view in self.reader.followed.items():
            partition = self.node.broker.partitions.get(index)
            if partition is not None and partition.replica is not None:
                assert view.position >= partition.high_watermark


class SessionInTurnsModel(SessionModel):
    """The same, where a turn of the loop is for one partition and no more, and every request is a long one."""

    def __init__(self) -> None:
        super().__init__()
        self.node.is_long = True
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(fetch_reading, "READ_AT_ONCE_MAX", 1)
        self._patch.setattr(api_01_fetch, "BY_PARTS", api_01_fetch.BY_PARTS._replace(weight_max=2))

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self._patch.undo()


SessionModel.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=30)
TestSessions = SessionModel.TestCase
SessionInTurnsModel.TestCase.settings = SessionModel.TestCase.settings
TestSessionsInTurns = SessionInTurnsModel.TestCase
