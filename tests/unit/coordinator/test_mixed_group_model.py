"""Groups of classic and of consumer members (KIP-848) in any order: online upgrades and downgrades, back and forth.

The classic members are cooperative: one that is told to give a partition up reads the others meanwhile. Checked after
every step: no two members of the group read the same partition. At the end, once everybody asks again and again, every
partition is read by exactly one member.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.examples import examples
from support.fixtures.coordinated_consumers import Consumers, topic_id
from tidelog.base.errors import Code, KafkaError
from tidelog.coordinator.deadlines import Cause
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.journal import RequestId
from tidelog.wire.compile import decode, encode
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_14_sync_group import SyncGroupResponse
from tidelog.wire.messages.api_68_consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
    assigned_partitions,
)

CLIENTS = 4
T = topic_id("t")
VERSION = b"\0\2"
ROUNDS = 60
SESSION_MS = 10_000


@dataclass
class Client:
    """A client as it sees itself.

    Attributes:
        epoch: its generation, or its member epoch; 0 or less where it is no member.
        must_join: whether a classic one is to join again.
    """

    name: str
    is_classic: bool
    instance_id: str | None
    member_id: str = ""
    epoch: int = -1
    reads: set[int] = field(default_factory=set)
    must_join: bool = True
    waiting: RequestId | None = None

    def lose(self) -> None:
        self.epoch, self.reads, self.must_join, self.waiting = -1, set(), True, None


class MixedGroupMachine(RuleBasedStateMachine):
    """Four clients of one group, two of them static ones, each of either protocol at a time."""

    @initialize(classic=st.lists(st.booleans(), min_size=CLIENTS, max_size=CLIENTS))
    def start(self, classic: list[bool]) -> None:
        consumer = ConsumerGroupSettings(assignment_interval_ms=0)
        self.world = Consumers(GroupSettings(consumer=consumer), topics={"t": 5})
        self.born = 0
        self.clients = [
            self.client(is_classic, f"i{number}" if number % 2 else None) for number, is_classic in enumerate(classic)
        ]

    def client(self, is_classic: bool, instance_id: str | None) -> Client:
        self.born += 1
        name = f"m{self.born}"
        return Client(name, is_classic, instance_id, "" if is_classic else name)

    # What happens.

    @rule(numbers=st.lists(st.integers(0, CLIENTS - 1), min_size=1, max_size=8))
    def act(self, numbers: list[int]) -> None:
        for number in numbers:
            self.ask(self.clients[number])

    @rule(number=st.integers(0, CLIENTS - 1))
    def lose_an_answer(self, number: int) -> None:
        """Of a member of the consumer protocol, or of a classic one that joins such a group."""
        client = self.clients[number]
        if client.waiting is not None or "g" in self.world.coordinator.groups or client.epoch <= 0:
            return
        if client.is_classic:
            self.join(client)
        else:
            self.beat(client)
        client.waiting, client.must_join = None, True

    @rule(number=st.integers(0, CLIENTS - 1), is_classic=st.booleans())
    def restart(self, number: int, is_classic: bool) -> None:
        """It leaves, and comes back, with the other protocol or the same."""
        client = self.clients[number]
        if client.epoch > 0 and client.is_classic and client.instance_id is None:
            self.world.leave((client.member_id, None))
        elif client.epoch > 0 and not client.is_classic:
            self.world.beat(client.member_id, -1 if client.instance_id is None else -2, instance_id=client.instance_id)
        self.clients[number] = self.client(is_classic, client.instance_id)
        self.deliver()

    @rule(number=st.integers(0, CLIENTS - 1))
    def crash(self, number: int) -> None:
        client = self.clients[number]
        self.clients[number] = self.client(client.is_classic, client.instance_id)

    @rule(ms=st.sampled_from([10, 1_000, 5_000, 11_000]))
    def let_time_pass(self, ms: int) -> None:
        self.world.pass_ms(ms)
        self.deliver()

    @rule()
    def fail_over(self) -> None:
        self.world.fail_over()
        self.deliver()
        for client in self.clients:
            if client.waiting is not None:  # its connection is gone
                client.waiting = None
                client.must_join = True

    @rule()
    def settle(self) -> None:
        for _ in range(ROUNDS):
            self.world.pass_ms(1_000)
            self.deliver()
            for client in self.clients:
                self.ask(client)
                self.no_partition_is_read_twice()
        read = [partition for client in self.clients for partition in client.reads]
        assert sorted(read) == list(range(5)), [(one, self.world.now_ms) for one in self.clients]

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
        group = self.world.consumers.groups.get("g")
        classic = self.world.coordinator.groups.get("g")
        members = set() if group is None else set(group.subscriptions)
        members |= set() if classic is None else set(classic.members)
        read: set[int] = set()
        for client in self.clients:
            if client.member_id in members and client.epoch > 0:
                assert not read & client.reads, self.clients
                read |= client.reads

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.settle()

    # Clients.

    def ask(self, client: Client) -> None:
        self.deliver()
        if client.waiting is None:
            if not client.is_classic:
                self.beat(client)
            elif client.must_join:
                self.join(client)
            else:
                client.waiting = self.world.heartbeat(client.member_id, client.epoch, instance_id=client.instance_id)
        self.deliver()

    def beat(self, client: Client) -> None:
        client.waiting = self.world.beat(
            client.member_id,
            max(client.epoch, 0),
            topics=["t"],
            owned={"t": client.reads} if client.reads else {},
            instance_id=client.instance_id,
            rebalance_ms=20_000,
        )

    def join(self, client: Client) -> None:
        wanted = ConsumerProtocolSubscription(
            topics=["t"],
            owned_partitions=[ConsumerProtocolPartitions("t", sorted(client.reads))] if client.reads else [],
            generation_id=client.epoch,
        )
        client.waiting = self.world.join(
            client.member_id,
            instance_id=client.instance_id,
            protocols=(("cooperative-sticky", VERSION + encode(wanted, 2)),),
            session_ms=SESSION_MS,
            rebalance_ms=20_000,
        )

    def deliver(self) -> None:
        """All hear what they were answered, and do as told at once."""
        is_told = True
        while is_told:
            is_told = False
            for client in self.clients:
                if client.waiting is not None and client.waiting in self.world.answers:
                    request_id, client.waiting = client.waiting, None
                    self.hear(client, self.world.answers[request_id])
                    is_told = True

    def hear(self, client: Client, outcome: object) -> None:
        if isinstance(outcome, KafkaError):
            if outcome.code in (Code.REBALANCE_IN_PROGRESS, Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS):
                client.must_join = True
            elif outcome.code is Code.UNRELEASED_INSTANCE_ID:
                pass  # until the session of its former self ends
            elif outcome.code is Code.ILLEGAL_GENERATION:
                client.lose()
            else:
                assert outcome.code in (
                    Code.UNKNOWN_MEMBER_ID,
                    Code.FENCED_MEMBER_EPOCH,
                    Code.FENCED_INSTANCE_ID,
                    Code.GROUP_ID_NOT_FOUND,
                ), outcome
                client.lose()
                client.member_id = "" if client.is_classic else client.member_id
        elif isinstance(outcome, ConsumerGroupHeartbeatResponse):
            client.epoch = outcome.member_epoch
            told = self.world.told(outcome)
            if told is not None:
                client.reads = set(told.get("t", ()))
        elif isinstance(outcome, JoinGroupResponse):
            client.member_id = outcome.member_id
            if outcome.error_code == Code.MEMBER_ID_REQUIRED:
                return
            client.epoch, client.must_join = outcome.generation_id, False
            is_leader = outcome.leader == outcome.member_id and outcome.members
            client.waiting = self.world.sync(
                client.member_id,
                client.epoch,
                assigned(outcome) if is_leader else None,
                instance_id=client.instance_id,
            )
        elif isinstance(outcome, SyncGroupResponse):
            part = {int(one.partition) for one in assigned_partitions(outcome.assignment)}
            client.must_join = bool(client.reads - part)
            client.reads = part


def assigned(answer: JoinGroupResponse) -> dict[str, bytes]:
    """What a leader makes of it: a partition goes to another member once nobody reads it."""
    owned = {
        one.member_id: {
            partition
            for topic in decode(ConsumerProtocolSubscription, one.metadata, 2, 2).owned_partitions
            for partition in topic.partitions
        }
        for one in answer.members
    }
    wanted: dict[str, set[int]] = {member_id: set() for member_id in owned}
    for member_id, partition in zip(cycle(sorted(owned)), range(5), strict=False):
        wanted[member_id].add(partition)
    found = {}
    for member_id, partitions in wanted.items():
        free = partitions - set().union(*(one for other, one in owned.items() if other != member_id))
        rows = [ConsumerProtocolPartitions("t", sorted(free))] if free else []
        found[member_id] = VERSION + encode(ConsumerProtocolAssignment(assigned_partitions=rows), 2)
    return found


TestMixedGroups = MixedGroupMachine.TestCase
TestMixedGroups.settings = settings(
    max_examples=examples(30), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
