"""Consumer groups (KIP-848) under everything that members, clocks, topics and failovers do, in any order.

Checked after every step: no two members of the group read the same partition, nor did two ever read it in the same
epoch; epochs only grow; a coordinator that loads the log, compacted or not, knows what the live one knows; memory is
counted. At the end, once everybody sends heartbeats again, every partition is read by exactly one member that wants it.
Target assignments are made at once, or in pieces with all of that in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.examples import examples
from support.fixtures.coordinated import CountingRng
from support.fixtures.coordinated_consumers import Consumers
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import Offset, TopicId
from tidelog.coordinator.deadlines import Cause
from tidelog.coordinator.groups import GroupCoordinator, GroupSettings
from tidelog.coordinator.groups.consumer import (
    assignment,
    consumer_groups,
    consumer_members,
    long_records,
    target_assignments,
)
from tidelog.coordinator.groups.consumer.group import ConsumerGroupState
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.journal import KeyValue, RequestId
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitResponse
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CLIENTS = 4
SETTLED_ROUNDS = 6
"""Of heartbeats: each that gives a partition up takes one, and so does each that gets it."""
TOPICS = ("t", "u")
WANTED = [(("t",), None), (("u",), None), (("t", "u"), None), ((), "[tu]"), (("t",), "u.*"), ((), None)]
REJOIN = (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND, Code.FENCED_INSTANCE_ID)

Partitions = set[tuple[TopicId, int]]


@dataclass
class Client:
    """A member as it sees itself."""

    instance_id: str | None
    member_id: str
    epoch: int = 0
    assignor: str | None = None
    topics: tuple[str, ...] = ("t",)
    pattern: str | None = None
    assigned: Partitions = field(default_factory=set)
    reads: Partitions = field(default_factory=set)
    says_all: bool = True
    waiting: RequestId | None = None

    @property
    def identity(self) -> str:
        """A static member that comes back under another id is the same one."""
        return self.instance_id or self.member_id


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Four clients of one group, two of them static ones, and one coordinator after another."""

    @initialize(
        interval_ms=st.sampled_from([0, 1_000]),
        size_max=st.sampled_from([3, 10]),
        batch_bytes=st.sampled_from([600, 1 << 20]),
        in_pieces=st.booleans(),
    )
    def start(self, interval_ms: int, size_max: int, batch_bytes: int, in_pieces: bool) -> None:
        self.patch = pytest.MonkeyPatch()
        if in_pieces:
            self.patch.setattr(consumer_members, "AT_ONCE_MAX", 0)
            self.patch.setattr(consumer_groups, "NAMES_AT_ONCE", 0)
            self.patch.setattr(target_assignments, "TOPICS_AT_ONCE", 0)
            self.patch.setattr(long_records, "ELEMENTS_AT_ONCE", 1)
            self.patch.setattr(assignment, "PIECE", 1)
        self.in_pieces = in_pieces
        self.readers: dict[tuple[TopicId, int, int], str] = {}
        consumer = ConsumerGroupSettings(assignment_interval_ms=interval_ms, group_size_max=size_max)
        self.world = Consumers(GroupSettings(consumer=consumer), topics={"t": 3, "u": 2}, batch_bytes=batch_bytes)
        self.size_max = size_max
        self.incarnation = 0
        self.clients = [self.born(f"i{number}" if number % 2 else None) for number in range(CLIENTS)]

    def born(self, instance_id: str | None) -> Client:
        self.incarnation += 1
        return Client(instance_id, f"m{self.incarnation}")

    # What clients do.

    @rule(number=st.integers(0, CLIENTS - 1), wanted=st.sampled_from(WANTED), assignor=st.sampled_from([None, "range"]))
    def want(self, number: int, wanted: tuple[tuple[str, ...], str | None], assignor: str | None) -> None:
        client = self.clients[number]
        client.topics, client.pattern = wanted
        client.assignor = assignor
        client.says_all = True

    @rule(number=st.integers(0, CLIENTS - 1), is_lost=st.booleans())
    def beat(self, number: int, is_lost: bool) -> None:
        self.exchange(self.clients[number], is_lost=is_lost)

    @rule(numbers=st.lists(st.integers(0, CLIENTS - 1), min_size=1, max_size=8))
    def beat_and_read(self, numbers: list[int]) -> None:
        """Some do as they are told at once."""
        for number in numbers:
            client = self.clients[number]
            self.exchange(client)
            self.read(client)
            self.no_partition_is_read_twice()

    @precondition(lambda self: self.in_pieces)
    @rule(count=st.integers(1, 12))
    def do_pieces(self, count: int) -> None:
        """What takes long goes on for a while."""
        world = self.world
        for _ in range(count):
            if world.coordinator.next_deadline_ms() == 0:
                world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
                world.drive()

    @rule(number=st.integers(0, CLIENTS - 1))
    def read_late(self, number: int) -> None:
        self.read(self.clients[number])

    @rule()
    def settle(self) -> None:
        """All send heartbeats for a while: unless it waits for somebody who crashed, the group comes to rest."""
        rounds = 0  # in which nobody was in the group who does not send heartbeats
        for _ in range(2 * SETTLED_ROUNDS):
            self.world.pass_ms(1_000)
            for client in self.clients:
                self.exchange(client)
                self.world.pass_ms(0)
                self.catch_up(client)
                self.read(client)
                self.no_partition_is_read_twice()
            is_alone = set(self.world.group.subscriptions) <= {one.member_id for one in self.clients}
            rounds = rounds + 1 if is_alone else 0
            if rounds == SETTLED_ROUNDS:
                self.check_all_read()
                break

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.epoch > 0:
            self.world.beat(client.member_id, -1, instance_id=client.instance_id)
        self.give_up(client)

    @rule(number=st.integers(0, CLIENTS - 1), keeps_id=st.booleans())
    def leave_for_a_while(self, number: int, keeps_id: bool) -> None:
        client = self.clients[number]
        if client.instance_id is None or client.epoch <= 0:
            return
        self.world.beat(client.member_id, -2, instance_id=client.instance_id)
        self.give_up(client)
        if not keeps_id:
            self.clients[number] = self.born(client.instance_id)

    @rule(number=st.integers(0, CLIENTS - 1))
    def crash(self, number: int) -> None:
        self.give_up(self.clients[number])
        self.clients[number] = self.born(self.clients[number].instance_id)

    @rule(number=st.integers(0, CLIENTS - 1), behind=st.integers(0, 2), partition=st.integers(0, 3))
    def commit(self, number: int, behind: int, partition: int) -> None:
        """Who commits with an epoch had the partition in that epoch already, and has it still."""
        client = self.clients[number]
        epoch = max(client.epoch - behind, 0)
        request_id = self.world.commit(
            {("t", partition): 7}, client.member_id, epoch, instance_id=client.instance_id, api_version=9
        )
        outcome = self.world.answers[request_id]
        if isinstance(outcome, OffsetCommitResponse):
            current = self.world.group.current(client.member_id)
            assert current.member_epoch >= epoch
            if current.member_epoch != epoch:
                topic = self.world.image.topics_by_name["t"].topic_id
                since = current.assignment_epoch(topic, partition)
                assert since is not None
                assert since <= epoch

    # What else happens.

    @rule(ms=st.sampled_from([10, 1_000, 5_000, 20_000, 45_000]))
    def let_time_pass(self, ms: int) -> None:
        self.world.pass_ms(ms)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(0, 5))
    def alter(self, topic: str, count: int) -> None:
        if count > self.world.topics.get(topic, 0):
            self.world.make(**{topic: count})
        elif topic in self.world.topics and count == 0:
            self.world.delete(topic)

    @rule()
    def fail_over(self) -> None:
        if "g" not in self.world.consumers.groups:
            self.fail_over_to_another()
            return
        before = self.world.group.clone().canonical()
        self.fail_over_to_another()
        assert self.world.group.canonical() == before

    def fail_over_to_another(self) -> None:
        self.world.fail_over()
        for client in self.clients:
            if not self.catch_up(client):  # nobody answers it any more
                client.waiting, client.says_all = None, True

    @rule(number=st.integers(0, CLIENTS - 1), survives=st.integers(0, 3))
    def fail_over_within(self, number: int, survives: int) -> None:
        """A heartbeat is written, and not committed; some of its batches survive, and nobody was answered."""
        world, client = self.world, self.clients[number]
        if not self.catch_up(client):
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
        self.fail_over_to_another()

    # Checks.

    @invariant()
    def no_alarm_is_left_of_who_is_gone(self) -> None:
        coordinator = self.world.coordinator
        for cause, group_id, member_id in coordinator._journal.deadlines._due_ms:
            if cause in (Cause.CONSUMER_SESSION, Cause.CONSUMER_REVOCATION):
                assert member_id in self.world.consumers.groups[group_id].subscriptions
            else:
                assert group_id in coordinator.groups

    @invariant()
    def no_partition_is_read_twice(self) -> None:
        members = self.world.consumers.groups["g"].subscriptions if "g" in self.world.consumers.groups else {}
        read: Partitions = set()
        for client in self.clients:
            if client.member_id in members and client.epoch > 0:
                assert not client.reads & read
                read |= client.reads
                for topic, partition in client.reads:
                    reader = self.readers.setdefault((topic, partition, client.epoch), client.identity)
                    assert reader == client.identity, "two read it in one epoch"

    @invariant()
    def epochs_grow(self) -> None:
        group = self.world.consumers.groups.get("g")
        if group is None or group.recorded_epoch is None:
            return
        assert group.epoch >= group.target_epoch
        known = self.world.consumers.members.known
        if group.topics_hash is not None and group.topics_hash.version == known.version:
            assert group.topics_hash.recorded == known.hash_of(group.topics).recorded
        for member_id, current in group.currents.items():
            assert current.member_epoch <= group.target_epoch
            assert member_id in group.subscriptions
            for holding in (current.assigned, current.revoking):
                for topic, partitions in holding.items():
                    assert all(group.owner(topic, one) == member_id for one in partitions)
                    assert all(0 < epoch <= group.target_epoch for epoch in partitions.values())
        assert set(group.targets) <= set(group.subscriptions)
        assert set(group.matched) <= set(group.patterns)
        assert len(group.subscriptions) <= self.size_max

    @invariant()
    def the_log_tells_everything(self) -> None:
        world = self.world
        live = {group_id: group.canonical() for group_id, group in world.consumers.groups.items()}
        compacted: dict[bytes, tuple[Offset, KeyValue]] = {}
        for offset, record in world.log:
            compacted.pop(record[0], None)
            compacted[record[0]] = (offset, record)
        tombless = [(offset, record) for offset, record in compacted.values() if record[1] is not None]
        for log in (world.log, list(compacted.values()), tombless):
            coordinator = GroupCoordinator(0, world.settings, rng=CountingRng())
            for offset, (key, value) in log:
                coordinator.replay(key, value, offset)
            groups = coordinator.consumer_groups.groups
            assert {group_id: group.canonical() for group_id, group in groups.items()} == live

    @invariant()
    def memory_is_counted(self) -> None:
        world = self.world
        assert world.memory.used_bytes == sum(group.size_bytes for group in world.consumers.groups.values())

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.finish()
            self.patch.undo()

    def finish(self) -> None:
        for _ in range(10):
            self.settle()  # by now those are out who crashed
        group = self.world.group
        assert set(group.subscriptions) <= {one.member_id for one in self.clients}
        assert len(group.subscriptions) == min(self.size_max, CLIENTS)

    def check_all_read(self) -> None:
        """Whoever is in the group reads all that it is to read, and nothing is left over."""
        group = self.world.group
        assert group.state is ConsumerGroupState.STABLE, group.canonical()
        wanted: Partitions = set()
        image = self.world.image
        for name in group.topics.keys() & image.topics_by_name.keys():
            topic = image.topics_by_name[name]
            wanted |= {(topic.topic_id, one) for one in range(len(topic.partitions))}
        members = [one for one in self.clients if one.member_id in group.subscriptions]
        read = [one for client in members for one in client.reads]
        assert len(read) == len(set(read))
        assert set(read) == wanted
        for client in members:
            assert client.topics == group.subscriptions[client.member_id].topic_names
            ids = {
                image.topics_by_name[name].topic_id
                for name in group.topics_of(group.subscriptions[client.member_id])
                if name in image.topics_by_name
            }
            assert {topic for topic, _ in client.reads} <= ids

    # A client.

    def exchange(self, client: Client, *, is_lost: bool = False) -> None:
        """Send a heartbeat, unless it waits for an answer, and hear the answer if there is one already."""
        if not self.catch_up(client):
            return
        request_id = self.send(client)
        if is_lost:
            client.says_all = True
        elif request_id in self.world.answers:
            self.hear(client, request_id)
        else:
            client.waiting = request_id

    def catch_up(self, client: Client) -> bool:
        """Hear the answer that it waits for. Returns whether it waits for none any more."""
        if client.waiting is not None and client.waiting in self.world.answers:
            request_id, client.waiting = client.waiting, None
            self.hear(client, request_id)
        return client.waiting is None

    def send(self, client: Client) -> RequestId:
        owned: dict[TopicId, set[int]] = {}
        for topic, partition in client.reads:
            owned.setdefault(topic, set()).add(partition)
        is_joining = client.epoch == 0
        says_all = client.says_all or is_joining
        client.says_all = False
        return self.world.send(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=client.member_id,
                member_epoch=client.epoch,
                instance_id=client.instance_id,
                subscribed_topic_names=list(client.topics) if says_all else None,
                subscribed_topic_regex=(client.pattern or "") if says_all else None,
                server_assignor=client.assignor,
                rebalance_timeout_ms=20_000 if says_all else -1,
                topic_partitions=[ConsumerGroupHeartbeatPartitions(one, sorted(owned[one])) for one in sorted(owned)],
            )
        )

    def hear(self, client: Client, request_id: RequestId) -> None:
        outcome = self.world.answers[request_id]
        if isinstance(outcome, KafkaError):
            assert outcome.code in (
                *REJOIN,
                Code.UNRELEASED_INSTANCE_ID,
                Code.GROUP_MAX_SIZE_REACHED,
                Code.NOT_COORDINATOR,
            ), outcome
            client.says_all = True
            if outcome.code in REJOIN:
                self.give_up(client)
            return
        assert isinstance(outcome, ConsumerGroupHeartbeatResponse)
        assert outcome.member_epoch >= client.epoch, "an epoch went back"
        client.epoch = outcome.member_epoch
        if outcome.assignment is not None:
            client.assigned = {
                (TopicId(one.topic_id), partition)
                for one in outcome.assignment.topic_partitions
                for partition in one.partitions
            }

    def read(self, client: Client) -> None:
        """Give up first, then read what is new."""
        client.reads &= client.assigned
        client.reads |= client.assigned

    def give_up(self, client: Client) -> None:
        client.epoch, client.waiting = 0, None
        client.assigned, client.reads = set(), set()


TestConsumerGroups = ConsumerGroupMachine.TestCase
TestConsumerGroups.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
