"""Members of consumer groups (KIP-848): how they join, move on, leave, and are thrown out."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated_consumers import Consumers, topic_id
from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.errors import Code
from tidelog.base.ids import Offset
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer import assignment, consumer_groups, consumer_members
from tidelog.coordinator.groups.consumer.consumer_groups import ANSWER_WAIT_MS, METADATA_WAIT_MS
from tidelog.coordinator.groups.consumer.recorded import member_tombstones
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.journal import RequestId

AT_ONCE = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0))
SESSION_MS = 45_000


@pytest.fixture(autouse=True, params=["at once", "in pieces"])
def in_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """What members see does not depend on whether it is done at once, or takes long."""
    if request.param == "at once":
        return False
    monkeypatch.setattr(assignment, "PIECE", 1)
    monkeypatch.setattr(consumer_members, "AT_ONCE_MAX", 0)
    monkeypatch.setattr(consumer_groups, "NAMES_AT_ONCE", 0)
    send, tell = Consumers.send, Consumers.tell

    def send_and_finish(self: Consumers, *args: object, **options: object) -> RequestId:
        request_id = send(self, *args, **options)  # type: ignore[arg-type]
        self.finish_pieces()
        return request_id

    def tell_and_finish(self: Consumers, *changed: str, **options: bool) -> None:
        tell(self, *changed, **options)
        if self.coordinator.is_active:
            self.finish_pieces()

    monkeypatch.setattr(Consumers, "send", send_and_finish)
    monkeypatch.setattr(Consumers, "tell", tell_and_finish)
    return True


def world_of(*members: str, **topics: int) -> Consumers:
    """A stable group whose members joined one after the other, each with all that it is to have."""
    world = Consumers(AT_ONCE, topics=topics or {"t": 4})
    for member_id in members:
        world.enter(member_id)
        settle(world, *members)
    return world


def settle(world: Consumers, *members: str) -> None:
    """Have members send heartbeats that give up what they are to give up, until nothing changes."""
    for _ in range(3):
        for member_id in members:
            if member_id in world.group.subscriptions:
                world.heard(beat(world, member_id))


def beat(world: Consumers, member_id: str) -> RequestId:
    """A heartbeat of a member that reads what it was assigned last."""
    current = world.group.current(member_id)
    owned = {"t": set(current.assigned.get(topic_id("t"), ()))}
    return world.beat(member_id, current.member_epoch, owned=owned)


def parts(world: Consumers, member_id: str) -> set[int]:
    return set(world.group.current(member_id).assigned.get(topic_id("t"), ()))


# Join.


def test_the_first_member_gets_everything() -> None:
    world = Consumers(AT_ONCE)
    answer = world.enter("a")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 1, 5_000)
    assert world.told(answer) == {"t": {0, 1, 2, 3}}
    assert world.told(world.heard(world.beat("a", 1))) is None, "nothing has changed"


def test_a_second_member_gets_its_share_when_the_first_gave_it_up() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    second = world.enter("b")
    assert (second.member_epoch, world.told(second)) == (2, {})
    first = world.heard(world.beat("a", 1))
    assert (first.member_epoch, world.told(first)) == (1, {"t": {0, 1}}), "it stays behind until it gave up"
    assert world.told(world.heard(world.beat("b", 2))) is None, "it is not given what another one may still read"
    assert world.told(world.heard(world.beat("a", 1, owned={"t": {0, 1, 2}}))) == {"t": {0, 1}}, "until it did"
    assert world.told(world.heard(world.beat("b", 2))) is None
    assert world.heard(world.beat("a", 1, owned={"t": {0, 1}})).member_epoch == 2
    assert world.told(world.heard(world.beat("b", 2))) == {"t": {2, 3}}
    assert world.consumer_group().group_state == "Stable"


def test_version_0_lets_the_coordinator_choose_the_id() -> None:
    world = Consumers(AT_ONCE)
    answer = world.enter("", api_version=0)
    assert answer.member_id
    assert world.heard(world.beat(answer.member_id, 1, api_version=0)).member_epoch == 1


def test_who_joins_again_gets_back_what_it_had() -> None:
    world = world_of("a", "b")
    epoch = world.group.epoch
    answer = world.enter("a")
    assert (answer.member_epoch, world.told(answer)) == (2, {"t": {0, 1}})
    assert world.group.epoch == epoch, "nobody need be reassigned"


def test_who_joins_again_has_what_it_has_since_it_has_it() -> None:
    world = world_of("a", "b")
    world.enter("c", topics=["u"])
    settle(world, "a", "b")
    before = world.group.current("a").assigned
    assert {epoch for held in before.values() for epoch in held.values()} == {1}
    world.enter("a")
    assert world.group.current("a").assigned == before
    commit = world.commit({("t", min(parts(world, "a"))): 1}, "a", 1, api_version=9)
    assert world.commit_codes(commit) == [Code.NONE]


def test_a_member_of_another_kind_of_group_is_told_so() -> None:
    world = Sharers(AT_ONCE)
    world.share_beat("a", 0, topics=["t"])
    world.pass_ms(0)
    for epoch in (0, 1, -1):
        request = world.beat("b", epoch, topics=["t"], owned={} if epoch == 0 else None, rebalance_ms=1)
        assert world.refused(request) == Code.GROUP_ID_NOT_FOUND
    assert not world.consumers.groups


def test_a_full_heartbeat_is_told_everything() -> None:
    world = world_of("a")
    answer = world.heard(world.beat("a", 1, topics=["t"], owned={}, rebalance_ms=1_000))
    assert world.told(answer) == {"t": {0, 1, 2, 3}}


@pytest.mark.parametrize(
    ("options", "api_version"),
    [
        ({"group_id": ""}, 1),
        ({"member_id": ""}, 1),
        ({"member_id": "", "epoch": 1}, 0),
        ({"member_id": "", "epoch": -1}, 0),
        ({"instance_id": ""}, 1),
        ({"rack_id": ""}, 1),
        ({"rebalance_ms": -1}, 1),
        ({"owned": None}, 1),
        ({"owned": {"t": {0}}}, 1),
        ({"topics": None}, 1),
        ({"epoch": -3}, 1),
        ({"epoch": -2}, 1),
        ({"member_id": "m" * 32_768}, 1),
        ({"group_id": "g" * 32_768}, 1),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], api_version: int) -> None:
    world = Consumers(AT_ONCE)
    request = {"member_id": "a", "epoch": 0, "topics": ["t"], "owned": {}, "rebalance_ms": 1_000, **options}
    assert world.refused(world.beat(**request, api_version=api_version)) == Code.INVALID_REQUEST  # type: ignore[arg-type]
    assert not world.log


def test_an_assignor_that_is_not_there_is_refused() -> None:
    world = Consumers(AT_ONCE)
    request = world.beat("a", 0, topics=["t"], owned={}, rebalance_ms=1, assignor="sticky")
    assert world.refused(request) == Code.UNSUPPORTED_ASSIGNOR


def test_a_group_that_is_full_takes_nobody_in() -> None:
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(group_size_max=1)))
    world.enter("a")
    request = world.beat("b", 0, topics=["t"], owned={}, rebalance_ms=1)
    assert world.refused(request) == Code.GROUP_MAX_SIZE_REACHED
    assert world.enter("a").member_epoch == 1


def test_a_node_that_is_full_takes_nobody_in() -> None:
    world = Consumers(AT_ONCE, memory_bytes=5_500)
    world.enter("a")
    request = world.beat("b", 0, topics=["t" * 249] * 20, owned={}, rebalance_ms=1)
    world.heard(request)  # a name counts once
    request = world.beat("c", 0, topics=[f"{one:0249}" for one in range(20)], owned={}, rebalance_ms=1)
    assert world.refused(request) == Code.GROUP_MAX_SIZE_REACHED
    assert world.heard(world.beat("a", 1, topics=["t"])), "who is in may stay"


def test_without_metadata_nobody_is_assigned_anything() -> None:
    world = Consumers(AT_ONCE)
    world.log.clear()
    super(Consumers, world).fail_over()
    request = world.beat("a", 0, topics=["t"], owned={}, rebalance_ms=1)
    assert world.refused(request) == Code.COORDINATOR_LOAD_IN_PROGRESS


def test_a_change_of_one_topic_is_none_of_others() -> None:
    world = Consumers(AT_ONCE, topics={"t": 1, "u": 1})
    known = world.consumers.members.known
    world.make(t=2)
    assert [known.may_differ((name,), world.version - 1) for name in "tu"] == [True, False]
    world.tell(has_moved=True)
    assert [known.may_differ((name,), world.version - 1) for name in "tu"] == [True, True]


def test_without_metadata_nobody_is_put_out() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    super(Consumers, world).fail_over()
    world.pass_ms(SESSION_MS + METADATA_WAIT_MS - 1)
    assert "a" in world.group.subscriptions
    world.tell()
    world.pass_ms(METADATA_WAIT_MS)
    assert "a" not in world.group.subscriptions


# Epochs.


def test_a_member_of_no_group_is_told_so() -> None:
    world = Consumers(AT_ONCE)
    assert world.refused(world.beat("a", 1)) == Code.GROUP_ID_NOT_FOUND
    assert world.refused(world.beat("a", -1)) == Code.GROUP_ID_NOT_FOUND
    world.enter("a")
    assert world.refused(world.beat("b", 1)) == Code.UNKNOWN_MEMBER_ID
    assert world.refused(world.beat("b", -1)) == Code.UNKNOWN_MEMBER_ID


def test_an_epoch_from_the_future_is_fenced() -> None:
    world = world_of("a")
    assert world.refused(world.beat("a", 2)) == Code.FENCED_MEMBER_EPOCH


def test_who_missed_an_answer_may_send_the_epoch_before() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.enter("b", topics=["u"])
    assert world.heard(world.beat("a", 1)).member_epoch == 2, "its answer is lost"
    assert world.refused(world.beat("a", 1)) == Code.FENCED_MEMBER_EPOCH, "it has to say what it reads"
    answer = world.heard(world.beat("a", 1, topics=["t"], rebalance_ms=1_000, owned={"t": {0, 1}}))
    assert (answer.member_epoch, world.told(answer)) == (2, {"t": {0, 1, 2, 3}})


def test_who_reads_what_is_anothers_is_fenced() -> None:
    world = world_of("a", "b", "c")
    epoch = world.group.current("a").member_epoch
    world.enter("d", topics=["u"])
    assert world.heard(world.beat("a", epoch)).member_epoch == epoch + 1
    assert world.refused(world.beat("a", epoch, owned={"t": {0, 1, 2, 3}})) == Code.FENCED_MEMBER_EPOCH
    assert world.refused(world.beat("a", epoch - 1, owned={})) == Code.FENCED_MEMBER_EPOCH


def test_an_answer_that_took_partitions_away_may_be_lost_too() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.enter("b")
    assert world.told(world.heard(world.beat("a", 1))) == {"t": {0, 1}}, "its answer is lost"
    answer = world.heard(world.beat("a", 1, topics=["t"], rebalance_ms=1, owned={"t": {0, 1, 2, 3}}))
    assert (answer.member_epoch, world.told(answer)) == (1, {"t": {0, 1}})


def test_who_does_not_know_that_it_missed_an_answer_is_told_again_what_to_give_up() -> None:
    """As librdkafka, which drops an answer that took longer than a heartbeat interval, and asks for nothing."""
    world = Consumers(AT_ONCE)
    world.enter("a", rebalance_ms=300_000)
    world.enter("b")
    assert world.told(world.heard(world.beat("a", 1))) == {"t": {0, 1}}, "its answer is lost"
    for _ in range(2):
        assert world.told(world.heard(world.beat("a", 1))) == {"t": {0, 1}}
    world.fail_over()
    for _ in range(2):
        world.pass_ms(SESSION_MS - 1)
        world.heard(world.beat("b", 2))
        assert world.told(world.heard(world.beat("a", 1))) == {"t": {0, 1}}, "another leader tells it too"
    assert world.heard(world.beat("a", 1, owned={"t": {0, 1}})).member_epoch == 2
    assert world.told(world.heard(world.beat("a", 2))) is None


def test_who_does_not_know_that_it_missed_an_answer_is_told_again_what_it_got() -> None:
    """Nobody else would ever read that."""
    world = waiting_for_partitions()
    assert world.told(world.heard(world.beat("a", 3))) == {"t": {0, 1, 2, 3}}, "its answer is lost"
    for _ in range(2):
        assert world.told(world.heard(world.beat("a", 3))) == {"t": {0, 1, 2, 3}}
    beat(world, "a")
    assert world.told(world.heard(world.beat("a", 3))) is None


def test_who_may_have_missed_what_a_former_leader_said_is_told_by_the_next_one() -> None:
    world = waiting_for_partitions()
    assert world.told(world.heard(world.beat("a", 3))) == {"t": {0, 1, 2, 3}}, "its answer is lost"
    world.fail_over()
    assert world.told(world.heard(world.beat("a", 3))) == {"t": {0, 1, 2, 3}}
    assert world.told(world.heard(world.beat("a", 3))) is None


def waiting_for_partitions() -> Consumers:
    """A group whose first member waited, with some partitions, for others that are free now."""
    world = world_of("a", "b")
    beat_as = {"owned": {"t": {2, 3}}, "topics": ["u"], "rebalance_ms": 1_000}
    assert world.told(world.heard(world.beat("b", 2, **beat_as))) == {}  # type: ignore[arg-type]
    assert world.told(world.heard(world.beat("a", 2))) is None
    assert world.group.current("a").member_epoch == 3
    world.heard(world.beat("b", 2, owned={}))
    return world


# Leave.


def test_what_a_member_had_that_left_is_given_on() -> None:
    world = world_of("a", "b")
    answer = world.heard(world.beat("a", -1))
    assert (answer.member_id, answer.member_epoch, answer.assignment) == ("a", -1, None)
    assert world.told(world.heard(world.beat("b", 2))) == {"t": {0, 1, 2, 3}}
    assert world.refused(world.beat("a", 2)) == Code.UNKNOWN_MEMBER_ID


def test_a_group_without_members_is_empty() -> None:
    world = world_of("a")
    world.heard(world.beat("a", -1))
    assert world.consumer_group().group_state == "Empty"
    assert not world.group.targets
    assert not world.group.currents
    answer = world.enter("b")
    assert (answer.member_epoch, world.told(answer)) == (3, {"t": {0, 1, 2, 3}}), "epochs go on"


def test_who_is_not_heard_of_is_out() -> None:
    world = world_of("a", "b")
    world.pass_ms(SESSION_MS - 1)
    world.heard(world.beat("a", 2))
    world.pass_ms(1)
    assert set(world.group.subscriptions) == {"a"}
    assert world.told(world.heard(world.beat("a", 2))) == {"t": {0, 1, 2, 3}}
    assert world.refused(world.beat("b", 2)) == Code.UNKNOWN_MEMBER_ID


def test_who_does_not_give_up_in_time_is_out() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", rebalance_ms=10_000)
    world.enter("b")
    world.heard(world.beat("a", 1))
    world.pass_ms(9_999)
    world.heard(world.beat("a", 1, owned={"t": {0, 1, 2, 3}}))
    assert set(world.group.subscriptions) == {"a", "b"}
    world.pass_ms(1)
    assert set(world.group.subscriptions) == {"b"}
    assert world.told(world.heard(world.beat("b", 2))) == {"t": {0, 1, 2, 3}}


@pytest.mark.parametrize("rebalance_ms", [0, 1])
def test_who_has_no_time_to_give_up_is_out_at_once(rebalance_ms: int, in_pieces: bool) -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", rebalance_ms=rebalance_ms)
    world.enter("b")
    world.heard(world.beat("a", 1))
    world.pass_ms(0)
    assert ("a" in world.group.subscriptions) == (rebalance_ms == 1 or in_pieces)
    world.pass_ms(ANSWER_WAIT_MS if in_pieces else 1)  # it was being answered when its time was over
    assert "a" not in world.group.subscriptions


def test_who_is_behind_and_has_nothing_to_give_up_is_not_hurried_by_another_leader() -> None:
    world = Consumers(AT_ONCE, topics={"t": 1, "u": 1})
    world.enter("a", rebalance_ms=10_000)
    world.enter("b", topics=["u"])
    assert world.group.current("a").member_epoch < world.group.target_epoch
    world.fail_over()
    world.pass_ms(SESSION_MS - 1)
    assert set(world.group.subscriptions) == {"a", "b"}


def test_who_gave_up_in_time_stays() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", rebalance_ms=10_000)
    world.enter("b")
    world.heard(world.beat("a", 1))
    world.heard(world.beat("a", 1, owned={"t": {0, 1}}))
    world.pass_ms(10_000)
    assert set(world.group.subscriptions) == {"a", "b"}


def test_who_waits_for_others_is_not_hurried() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.enter("b", rebalance_ms=1)
    world.pass_ms(1_000)
    assert set(world.group.subscriptions) == {"a", "b"}


def test_who_joins_later_has_a_whole_session() -> None:
    world = Consumers(AT_ONCE)
    world.pass_ms(30_000)
    world.enter("a")
    world.pass_ms(SESSION_MS - 1)
    assert "a" in world.group.subscriptions
    world.pass_ms(1)
    assert "a" not in world.group.subscriptions


def test_who_is_to_give_up_has_its_time_with_another_leader_too() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", rebalance_ms=10_000)
    world.enter("b")
    world.heard(world.beat("a", 1))
    world.pass_ms(9_000)
    world.fail_over()
    world.pass_ms(9_999)
    assert set(world.group.subscriptions) == {"a", "b"}
    world.pass_ms(1)
    assert set(world.group.subscriptions) == {"b"}


@pytest.mark.parametrize("gone", [(2,), (0, 2), (1, 2)])
def test_what_is_left_of_a_member_is_nobodys_with_the_next_leader(gone: tuple[int, ...]) -> None:
    world = world_of("a", "b")
    removals = member_tombstones("g", "a")
    for one in gone:
        world.log.append((Offset(world.log[-1][0] + 1), removals[one]))
    world.fail_over()
    assert set(world.group.currents) == set(world.group.targets) == {"b"}
    assert world.group.owner(topic_id("t"), 0) in (None, "b")


def test_a_topic_that_grows_is_noticed_after_any_other_change() -> None:
    world = world_of("a")
    world.tell(has_moved=True)
    assert world.told(world.heard(world.beat("a", 1))) is None
    world.make(t=6)
    assert world.told(world.heard(world.beat("a", 1))) == {"t": {0, 1, 2, 3, 4, 5}}
    world.topics["t"] = 7
    world.consumers.on_metadata(world.image, world.version, ("t",))
    beat(world, "a")
    assert world.told(world.heard(world.beat("a", 2))) is None, "that metadata was told already"


# Static members.


def test_a_static_member_comes_back_to_what_it_had() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i")
    world.enter("b")
    settle(world, "a", "b")
    had = parts(world, "a")
    epoch = world.group.epoch
    assert world.heard(world.beat("a", -2, instance_id="i")).member_epoch == -2
    assert world.told(world.heard(world.beat("b", 2))) is None, "its partitions are kept for it"
    answer = world.enter("c", instance_id="i")
    assert (answer.member_epoch, world.told(answer)) == (2, {"t": had})
    assert world.group.epoch == epoch, "nobody is reassigned"
    assert set(world.group.subscriptions) == {"b", "c"}
    assert world.refused(world.beat("a", 2, instance_id="i")) == Code.FENCED_INSTANCE_ID
    assert world.refused(world.beat("a", 2)) == Code.UNKNOWN_MEMBER_ID


def test_a_static_member_may_come_back_with_its_old_id() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i")
    world.heard(world.beat("a", -2, instance_id="i"))
    assert world.refused(world.beat("a", 1, instance_id="i")) == Code.FENCED_MEMBER_EPOCH
    answer = world.enter("a", instance_id="i")
    assert (answer.member_epoch, world.told(answer)) == (1, {"t": {0, 1, 2, 3}})


def test_what_a_static_member_was_to_give_up_does_not_wait_for_it() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i")
    world.enter("b")
    world.heard(world.beat("a", 1, instance_id="i"))
    world.heard(world.beat("a", -2, instance_id="i"))
    assert world.told(world.heard(world.beat("b", 2))) == {"t": {2, 3}}


def test_an_instance_id_in_use_is_not_given_away() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i")
    request = world.beat("b", 0, topics=["t"], owned={}, rebalance_ms=1, instance_id="i")
    assert world.refused(request) == Code.UNRELEASED_INSTANCE_ID
    assert world.enter("a", instance_id="i").member_epoch == 1, "the same one may join again"
    assert world.refused(world.beat("a", 1, instance_id="j")) == Code.UNKNOWN_MEMBER_ID
    world.heard(world.beat("a", -1, instance_id="i"))
    assert world.enter("b", instance_id="i").member_epoch == 3


def test_another_member_cannot_take_an_instance_over() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i")
    world.enter("b")
    world.heard(world.beat("a", -2, instance_id="i"))
    request = world.beat("b", 0, topics=["t"], owned={}, rebalance_ms=1, instance_id="i")
    assert world.refused(request) == Code.INVALID_REQUEST


def test_a_static_member_that_is_away_has_the_rest_of_its_session_to_come_back() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i", rebalance_ms=1_000)
    world.enter("b")
    world.heard(world.beat("a", 1, instance_id="i"))
    world.pass_ms(900)
    world.heard(world.beat("a", -2, instance_id="i"))
    world.pass_ms(SESSION_MS - 901)
    assert "a" in world.group.subscriptions, "it gives up nothing more"
    world.pass_ms(1)
    assert "a" not in world.group.subscriptions


def test_a_static_member_that_stays_away_is_out() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i")
    world.heard(world.beat("a", -2, instance_id="i"))
    world.pass_ms(SESSION_MS)
    assert not world.group.subscriptions
    assert not world.group.static_members


def test_a_static_member_that_comes_back_to_other_topics_is_reassigned() -> None:
    world = Consumers(AT_ONCE, topics={"t": 2, "u": 2})
    world.enter("a", instance_id="i")
    world.heard(world.beat("a", -2, instance_id="i"))
    answer = world.enter("b", topics=["u"], instance_id="i")
    assert (answer.member_epoch, world.told(answer)) == (2, {"u": {0, 1}})
