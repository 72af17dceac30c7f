"""Groups under everything that clients, clocks and failovers do, in any order.

Checked after every step: generations grow, at most one leads, all members of a generation agree on its protocol and
have their parts of one assignment, no answered commit is lost, and a coordinator that loads the log knows what the live
one knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.examples import examples
from support.fixtures.coordinated import Coordinated, CountingRng, subscription
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.coordinator.deadlines import Cause
from tidelog.coordinator.groups import GroupCoordinator, GroupSettings
from tidelog.coordinator.groups.group import GroupState
from tidelog.coordinator.groups.records import decode_group
from tidelog.journal import RequestId
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitResponse
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_14_sync_group import SyncGroupResponse

CLIENTS = 4
PROTOCOLS = ("range", "sticky")


@dataclass
class Client:
    """A member as it sees itself."""

    instance_id: str | None
    api_version: int
    member_id: str = ""
    generation_id: int = -1
    leader: str = ""
    members: tuple[str, ...] = ()
    joining: RequestId | None = None
    syncing: RequestId | None = None
    has_joined: bool = False


@dataclass(frozen=True)
class Pending:
    """A commit that is not answered yet."""

    request_id: RequestId
    offsets: dict[tuple[str, int], int]


class GroupMachine(RuleBasedStateMachine):
    """Four clients of one group, two of them static ones, and one coordinator after another."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size_max=st.sampled_from([2, 10]))
    def start(self, delay_ms: int, size_max: int) -> None:
        self.world = Coordinated(GroupSettings(initial_rebalance_delay_ms=delay_ms, group_size_max=size_max))
        self.clients = [Client(f"i{number}" if number % 2 else None, (2, 5, 9, 9)[number]) for number in range(CLIENTS)]
        self.commits: list[Pending] = []
        self.answered: dict[tuple[str, int], int] = {}
        self.sequence = 0
        self.last_generation = 0
        self.protocols: dict[int, set[str | None]] = {}
        self.leaders: dict[int, set[str]] = {}
        self.assigned: dict[int, set[bytes]] = {}  # what leaders sent for each
        self.parts: dict[int, set[bytes]] = {}  # which assignment each generation was told of

    # What clients do.

    @rule(number=st.integers(0, CLIENTS - 1), prefers=st.permutations(PROTOCOLS), topic=st.sampled_from("tu"))
    def join(self, number: int, prefers: list[str], topic: str) -> None:
        client = self.clients[number]
        client.has_joined, client.syncing = False, None
        client.joining = self.world.join(
            client.member_id,
            instance_id=client.instance_id,
            api_version=client.api_version,
            protocols=tuple((name, subscription(topic)) for name in prefers),
            rebalance_ms=20_000,
        )
        self.collect()

    @rule(number=st.integers(0, CLIENTS - 1))
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if not client.has_joined:
            return
        is_leader = client.leader == client.member_id
        self.sequence += 1
        parts = {one: f"{one} {self.sequence}".encode() for one in client.members} if is_leader else {}
        if is_leader:
            self.assigned.setdefault(client.generation_id, set()).add(str(self.sequence).encode())
        client.syncing = self.world.sync(client.member_id, client.generation_id, parts, instance_id=client.instance_id)
        self.collect()

    @rule(numbers=st.sets(st.integers(0, CLIENTS - 1), min_size=1), assigns=st.booleans())
    def go_through_a_round(self, numbers: set[int], assigns: bool) -> None:
        """What clients do when all is well: join, with an id and then in earnest, and sync."""
        for _ in range(2):
            for number in numbers:
                if self.clients[number].joining is None:
                    self.join(number, list(PROTOCOLS), "t")
        self.pass_time(9_000)
        if assigns:
            for number in sorted(numbers, key=lambda one: self.clients[one].leader == self.clients[one].member_id):
                self.sync(number)

    @rule()
    def go_on_all_together(self) -> None:
        for _ in range(2):
            self.go_through_a_round(set(range(CLIENTS)), assigns=True)

    @rule(number=st.sampled_from([1, 3]), waits_ms=st.sampled_from([0, 5_000]))
    def come_back(self, number: int, waits_ms: int) -> None:
        """A static member's process is replaced by another."""
        self.restart(number)
        self.pass_time(waits_ms)
        self.join(number, list(PROTOCOLS), "t")
        self.sync(number)

    @rule(number=st.integers(0, CLIENTS - 1))
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        self.world.heartbeat(client.member_id, client.generation_id, instance_id=client.instance_id)
        self.collect()

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        self.world.leave((client.member_id, client.instance_id))
        client.member_id, client.generation_id, client.has_joined = "", -1, False
        self.collect()

    @rule(number=st.integers(0, CLIENTS - 1))
    def restart(self, number: int) -> None:
        """The process starts anew: it has forgotten its id; static ones are known by their names."""
        client = self.clients[number]
        self.clients[number] = Client(client.instance_id, client.api_version)
        if client.joining is not None:
            self.world.coordinator.on_disconnected(client.joining, now_ms=self.world.now_ms, wall_ms=self.world.wall_ms)
            self.world.drive()
        self.collect()

    @rule(number=st.integers(0, CLIENTS), partition=st.integers(0, 2))
    def commit(self, number: int, partition: int) -> None:
        """The last number is somebody who is in no group."""
        self.sequence += 1
        offsets = {("t", partition): self.sequence, ("t", partition + 1): self.sequence}
        if number < CLIENTS:
            client = self.clients[number]
            request_id = self.world.commit(
                offsets, client.member_id, client.generation_id, instance_id=client.instance_id
            )
        else:
            request_id = self.world.commit(offsets)
        self.commits.append(Pending(request_id, offsets))
        self.collect()

    # What else happens.

    @rule(ms=st.sampled_from([1, 2_999, 9_999, 10_000, 30_000]))
    def pass_time(self, ms: int) -> None:
        self.world.pass_ms(ms)
        self.collect()

    @precondition(lambda self: self.world.commits_at_once)
    @rule()
    def stall(self) -> None:
        """The other replicas do not answer: nothing is committed."""
        self.world.commits_at_once = False

    @precondition(lambda self: not self.world.commits_at_once)
    @rule()
    def go_on(self) -> None:
        self.world.commits_at_once = True
        self.world.commit_log()
        self.world.drive()
        self.collect()

    @rule(keeps=st.booleans())
    def fail_over(self, keeps: bool) -> None:
        """Another one leads. What was not committed may be in the log, or not."""
        world = self.world
        journal = world.coordinator._journal
        committed = journal.committed_end_offset
        world.coordinator.resign()
        world.drive()
        self.collect()
        if not keeps and not world.commits_at_once:
            world.log = [one for one in world.log if one[0] < committed]
        world.commits_at_once = True
        world.fail_over()
        group = world.coordinator.groups.get("g")
        self.last_generation = group.generation_id if group is not None else 0
        self.protocols.clear()  # a generation whose assignment was not recorded may be counted again
        self.leaders.clear()
        self.parts.clear()  # while what was assigned stays true

    def collect(self) -> None:
        """Give each client the answer that has come."""
        for client in self.clients:
            if client.joining in self.world.answers:
                self.on_joined(client, self.world.answers[client.joining])
            if client.syncing in self.world.answers:
                outcome = self.world.answers[client.syncing]
                client.syncing = None
                if isinstance(outcome, SyncGroupResponse):
                    if outcome.assignment:  # a static member that came back has what its old id was given
                        self.parts.setdefault(client.generation_id, set()).add(outcome.assignment.split()[-1])
                    self.protocols.setdefault(client.generation_id, set()).add(outcome.protocol_name)
        for one in list(self.commits):
            if one.request_id in self.world.answers:
                self.commits.remove(one)
                if isinstance(self.world.answers[one.request_id], OffsetCommitResponse):
                    self.answered.update(one.offsets)

    def on_joined(self, client: Client, outcome: object) -> None:
        client.joining = None
        if isinstance(outcome, KafkaError):
            if outcome.code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID, Code.GROUP_MAX_SIZE_REACHED):
                client.member_id = ""
            return
        assert isinstance(outcome, JoinGroupResponse)
        client.member_id = outcome.member_id
        if outcome.error_code == Code.MEMBER_ID_REQUIRED:
            return
        assert outcome.error_code == 0
        client.has_joined = True
        client.generation_id, client.leader = outcome.generation_id, outcome.leader
        client.members = tuple(one.member_id for one in outcome.members)
        self.protocols.setdefault(outcome.generation_id, set()).add(outcome.protocol_name)
        assert outcome.leader == outcome.member_id or not outcome.members
        if outcome.leader == outcome.member_id:
            assert client.member_id in client.members
            self.leaders.setdefault(outcome.generation_id, set()).add(client.instance_id or outcome.member_id)

    # What must hold.

    @invariant()
    def generations_grow(self) -> None:
        group = self.world.coordinator.groups.get("g")
        if group is not None:
            assert group.generation_id >= self.last_generation
            self.last_generation = group.generation_id
        else:
            self.last_generation = 0

    @invariant()
    def at_most_one_leads(self) -> None:
        for generation_id, leaders in self.leaders.items():
            assert len(leaders) == 1, (generation_id, leaders)

    @invariant()
    def all_agree(self) -> None:
        for generation_id, names in self.protocols.items():
            assert len(names) == 1, (generation_id, names)
        for generation_id, parts in self.parts.items():
            assert len(parts) == 1, (generation_id, parts)
            assert parts <= self.assigned.get(generation_id, set())

    @invariant()
    def the_group_agrees_with_itself(self) -> None:
        group = self.world.coordinator.groups.get("g")
        if group is None:
            return
        assert set(group.static_members.values()) <= set(group.members)
        assert group.joined_count == sum(one.join_request is not None for one in group.members.values())
        assert group.unsynced <= set(group.members)
        assert not group.pending & set(group.members)
        assert len(group.members) <= max(group.generation_id + CLIENTS, self.world.settings.group_size_max + CLIENTS)
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.leader_id in group.members
            assert not any(one.join_request is not None for one in group.members.values())
        for member in group.members.values():
            assert member.session in self.world.coordinator._journal.deadlines or member.is_waiting

    @invariant()
    def no_answered_commit_is_lost(self) -> None:
        found = {(topic, partition): value for topic, partition, value in self.state_positions()}
        for key, offset in self.answered.items():
            assert key in found
            assert int.from_bytes(found[key][2:10]) >= offset

    @invariant()
    def loading_the_log_gives_what_the_live_one_knows(self) -> None:
        world = self.world
        live = world.coordinator._journal.state
        loaded = GroupCoordinator(0, world.settings, rng=CountingRng())
        for offset, (key, value) in world.log:
            loaded.replay(key, value, offset)
        assert loaded._journal.state.offsets == live.offsets
        assert loaded._journal.state.groups == live.groups
        count = sum(len(positions) for topics in live.offsets.values() for positions in topics.values())
        assert loaded.offsets_count == world.coordinator.offsets_count == count
        loaded.become_active(LeaderEpoch(99), Offset(world.next_offset), now_ms=0, wall_ms=0)
        group = world.coordinator.groups.get("g")
        if group is not None and group.state is GroupState.STABLE:
            again = loaded.groups["g"]
            assert decode_group(live.groups["g"]).generation == group.generation_id
            assert (again.state, again.leader_id, again.protocol_name, again.static_members) == (
                group.state,
                group.leader_id,
                group.protocol_name,
                group.static_members,
            )
            assert {one.member_id: one.assignment for one in again.members.values()} == {
                one.member_id: one.assignment for one in group.members.values()
            }

    @invariant()
    def no_alarm_is_left_of_what_is_gone(self) -> None:
        coordinator = self.world.coordinator
        for cause, group_id, member_id in coordinator._journal.deadlines._due_ms:
            group = coordinator.groups[group_id]
            assert cause is not Cause.SESSION or member_id in group.members.keys() | group.pending

    @invariant()
    def nothing_is_kept_of_what_was_answered(self) -> None:
        assert not self.world.coordinator._journal.pending_member_ids.keys() & self.world.answers.keys()

    def state_positions(self) -> list[tuple[str, int, bytes]]:
        return list(self.world.coordinator._journal.state.positions_of("g"))


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=examples(80), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
