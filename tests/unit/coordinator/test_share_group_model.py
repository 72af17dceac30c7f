"""Share groups (KIP-932) under everything that members, clocks, topics, share coordinators and failovers do.

Checked after every step: epochs only grow; nothing is assigned that there is no state of; a state that the group works
with is begun anew by nobody but an administrator; a coordinator that loads the log, compacted or not, knows what the
live one knows; memory is counted. At the end, once everybody sends heartbeats again and share coordinators answer, all
partitions that members want are read, and each member reads as many as the others, or one more.
Target assignments are made at once, or in pieces with all of that in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.fixtures.coordinated import CountingRng
from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import Offset, PartitionIndex
from tidelog.coordinator.groups import GroupCoordinator, GroupSettings
from tidelog.coordinator.groups.consumer import assignment
from tidelog.coordinator.groups.share import group_states, share_groups
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.share.states import StateId
from tidelog.journal import KeyValue, RequestId
from tidelog.wire.messages.api_76_share_group_heartbeat import ShareGroupHeartbeatResponse

CLIENTS = 4
TOPICS = ("t", "u")
WANTED = [("t",), ("u",), ("t", "u")]
REJOIN = (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND)


@dataclass
class Client:
    """A member as it sees itself.

    Attributes:
        asked: its heartbeat that is not answered yet.
        is_lost: whether the answer to that is.
    """

    member_id: str
    epoch: int = 0
    topics: tuple[str, ...] = ("t",)
    says_all: bool = True
    asked: RequestId | None = None
    is_lost: bool = False


class ShareGroupMachine(RuleBasedStateMachine):
    """Four clients of one group, one coordinator after another, and share coordinators that take their time."""

    @initialize(
        interval_ms=st.sampled_from([0, 1_000]),
        size_max=st.sampled_from([3, 10]),
        batch_bytes=st.sampled_from([400, 1 << 20]),
        at_once=st.sampled_from([2, 1_000]),
        in_pieces=st.booleans(),
    )
    def start(self, interval_ms: int, size_max: int, batch_bytes: int, at_once: int, in_pieces: bool) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(group_states, "BEGUN_AT_ONCE_MAX", at_once)
        if in_pieces:
            self.patch.setattr(share_groups, "AT_ONCE_MAX", 0)
            self.patch.setattr(assignment, "PIECE", 1)
        self.in_pieces = in_pieces
        share = ShareGroupSettings(assignment_interval_ms=interval_ms, group_size_max=size_max)
        self.world = Sharers(
            GroupSettings(share=share), topics={"t": 3, "u": 2}, batch_bytes=batch_bytes, answers_at_once=False
        )
        self.size_max = size_max
        self.incarnation = 0
        self.works: dict[StateId, int] = {}  # states that were initialized, and how often they were begun then
        self.clients = [self.born() for _ in range(CLIENTS)]

    def born(self) -> Client:
        self.incarnation += 1
        return Client(f"m{self.incarnation}")

    # What clients do.

    @rule(number=st.integers(0, CLIENTS - 1), wanted=st.sampled_from(WANTED))
    def want(self, number: int, wanted: tuple[str, ...]) -> None:
        self.clients[number].topics = wanted
        self.clients[number].says_all = True

    @rule(number=st.integers(0, CLIENTS - 1), is_lost=st.booleans())
    def beat(self, number: int, is_lost: bool) -> None:
        self.exchange(self.clients[number], is_lost=is_lost)

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.asked is not None:
            return
        if client.epoch > 0:
            self.world.share_beat(client.member_id, -1)
        client.epoch = 0

    @rule(number=st.integers(0, CLIENTS - 1))
    def crash(self, number: int) -> None:
        self.clients[number] = self.born()

    # What administrators do.

    @rule(topic=st.sampled_from(TOPICS), start=st.integers(0, 9))
    def alter(self, topic: str, start: int) -> None:
        before = "g" in self.world.shares.groups and bool(self.world.share_group.subscriptions)
        self.world.alter({topic: {0: start}})
        if not before:
            self.works.pop(self.world.state_id(topic, 0), None)

    @rule(topic=st.sampled_from(TOPICS))
    def forget(self, topic: str) -> None:
        self.world.forget(topic)

    @rule()
    def delete_group(self) -> None:
        self.world.delete_group()

    # What else happens.

    @precondition(lambda self: self.world.pending)
    @rule(place=st.integers(0, 9), is_lost=st.booleans())
    def share_coordinator_answers(self, place: int, is_lost: bool) -> None:
        index = place % len(self.world.pending)
        if is_lost:
            self.world.lose_answer(index)
        else:
            self.world.answer_send(index)
        self.world.drive()

    @precondition(lambda self: self.in_pieces)
    @rule(count=st.integers(1, 12))
    def do_pieces(self, count: int) -> None:
        world = self.world
        for _ in range(count):
            if world.coordinator.next_deadline_ms() == 0:
                world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
                world.drive()

    @rule(ms=st.sampled_from([10, 1_000, 20_000, 45_000]))
    def let_time_pass(self, ms: int) -> None:
        self.world.pass_ms(ms)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(0, 5))
    def alter_topic(self, topic: str, count: int) -> None:
        if count > self.world.topics.get(topic, 0):
            self.world.make(**{topic: count})
        elif topic in self.world.topics and count == 0:
            self.world.delete(topic)

    @rule()
    def fail_over(self) -> None:
        self.world.fail_over()
        self.lose_answers()

    def lose_answers(self) -> None:
        """Those who wait are answered by nobody."""
        for client in self.clients:
            self.take(client)
            if client.asked is not None:
                client.asked, client.says_all = None, True

    @rule(number=st.integers(0, CLIENTS - 1), survives=st.integers(0, 3))
    def fail_over_within(self, number: int, survives: int) -> None:
        """A heartbeat is written, and not committed; some of its batches survive, and nobody was answered."""
        world, client = self.world, self.clients[number]
        self.take(client)
        if client.asked is not None:
            return
        end, batches = len(world.log), len(world.batches)
        world.commits_at_once = False
        request_id = self.send(client)
        world.commits_at_once = True
        if request_id in world.answers:
            self.hear(client, request_id)
            return
        client.says_all = True
        kept = sum(map(len, world.batches[batches : batches + survives]))
        del world.log[end + kept :]
        world.fail_over()
        self.lose_answers()

    # Checks.

    @invariant()
    def nothing_is_kept_of_what_was_answered(self) -> None:
        assert not self.world.shares._work._droppable.keys() & self.world.answers.keys()

    @invariant()
    def no_alarm_is_left_of_who_is_gone(self) -> None:
        for _, group_id, member_id in self.world.coordinator._journal.deadlines._due_ms:
            assert member_id in self.world.shares.groups[group_id].subscriptions

    @invariant()
    def epochs_grow(self) -> None:
        group = self.world.shares.groups.get("g")
        if group is None:
            return
        assert group.epoch >= group.target_epoch
        assert len(group.subscriptions) <= self.size_max
        assert set(group.targets) | set(group.currents) <= set(group.subscriptions)
        for current in group.currents.values():
            assert current.previous_epoch <= current.member_epoch <= group.target_epoch

    @invariant()
    def what_is_worked_on_is_not_begun_anew(self) -> None:
        group = self.world.shares.groups.get("g")
        states = {} if group is None else group.known_states.initialized
        topics = self.world.image.topics_by_id  # what is kept of others goes with them, and the group learns of it
        there = {
            (topic_id, PartitionIndex(partition))
            for topic_id, one in states.items()
            for partition in one.partitions
            if (group is None or topic_id not in group.known_states.initializing) and topic_id in topics
        }
        for state_id in there:
            assert ("g", state_id) in self.world.kept, "it is assigned, and its leader finds no state"
            count = self.world.begun["g", state_id]
            assert self.works.setdefault(state_id, count) == count
        for state_id in list(self.works.keys() - there):
            del self.works[state_id]

    @invariant()
    def the_log_tells_everything(self) -> None:
        world = self.world
        live = {group_id: group.canonical() for group_id, group in world.shares.groups.items()}
        compacted: dict[bytes, tuple[Offset, KeyValue]] = {}
        for offset, record in world.log:
            compacted.pop(record[0], None)
            compacted[record[0]] = (offset, record)
        tombless = [(offset, record) for offset, record in compacted.values() if record[1] is not None]
        for log in (world.log, list(compacted.values()), tombless):
            coordinator = GroupCoordinator(0, world.settings, rng=CountingRng())
            for offset, (key, value) in log:
                coordinator.replay(key, value, offset)
            groups = coordinator.share_groups.groups
            assert {group_id: group.canonical() for group_id, group in groups.items()} == live

    @invariant()
    def memory_is_counted(self) -> None:
        world = self.world
        assert world.memory.used_bytes == sum(group.size_bytes for group in world.shares.groups.values())

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.finish()
            self.patch.undo()

    def finish(self) -> None:
        world = self.world
        self.make_missing_topics()
        for _ in range(60):  # so long that those are out who crashed
            for client in self.clients:
                self.exchange(client)
            world.answer_sends()
            world.pass_ms(1_000)
        group = world.share_group
        members = [one for one in self.clients if one.member_id in group.subscriptions]
        assert len(members) == len(group.subscriptions) == min(self.size_max, CLIENTS)
        assert group.epoch == group.target_epoch, "it comes to rest"
        read: dict[str, set[int]] = {}
        for client in members:
            reads = world.reads(client.member_id)
            assert reads.keys() <= set(client.topics)
            for name, partitions in reads.items():
                read.setdefault(name, set()).update(partitions)
        wanted = {name for client in members for name in client.topics}
        assert read == {name: set(range(world.topics[name])) for name in wanted}, group.canonical()
        for name in wanted:
            assert world.starts(name).keys() == read[name]

    def make_missing_topics(self) -> None:
        for name in TOPICS:
            if name not in self.world.topics:
                self.world.make(**{name: 2})

    # A client.

    def exchange(self, client: Client, *, is_lost: bool = False) -> None:
        """Ask, unless it was asked before and is not answered yet."""
        self.take(client)
        if client.asked is None:
            client.asked, client.is_lost = self.send(client), is_lost
            self.take(client)

    def take(self, client: Client) -> None:
        """Hear the answer, if it is there."""
        request_id = client.asked
        if request_id is None or request_id not in self.world.answers:
            return
        client.asked = None
        if client.is_lost:
            client.says_all = True
        else:
            self.hear(client, request_id)

    def send(self, client: Client) -> RequestId:
        says_all = client.says_all or client.epoch == 0
        client.says_all = False
        return self.world.share_beat(client.member_id, client.epoch, topics=client.topics if says_all else None)

    def hear(self, client: Client, request_id: RequestId) -> None:
        outcome = self.world.answers[request_id]
        if isinstance(outcome, KafkaError):
            assert outcome.code in (*REJOIN, Code.GROUP_MAX_SIZE_REACHED, Code.NOT_COORDINATOR), outcome
            client.says_all = True
            client.epoch = 0
            return
        assert isinstance(outcome, ShareGroupHeartbeatResponse)
        assert outcome.member_epoch >= client.epoch, "an epoch went back"
        client.epoch = outcome.member_epoch


TestShareGroups = ShareGroupMachine.TestCase
TestShareGroups.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
