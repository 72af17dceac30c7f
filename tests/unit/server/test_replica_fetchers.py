"""What a fetcher makes of the answers to fetches of one session that were under way together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from support.fixtures.loop_steps import Steps
from support.fixtures.waiting import until
from tidelog.base.errors import Code, NetworkError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.records import BatchBuilder
from tidelog.replica import EpochEndRequest, FollowerRequest, RecordsRequest
from tidelog.server.replication.follower_driver import FollowerDriver
from tidelog.server.replication.leader_doubts import LeaderDoubts, Probes
from tidelog.server.replication.replica_fetchers import JOINING_MAX, ReplicaFetchers
from tidelog.server.replication.replication_throttles import Throttle
from tidelog.server.settings.replication_settings import ReplicaFetchSettings
from tidelog.server.tasks import Tasks
from tidelog.server.transport.turns import TURN_SIZE
from tidelog.wire.messages.api_01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

TOPIC_ID = UUID(int=7)
LEADER = BrokerId(2)


class ScriptedLeader:
    """Takes fetches, and answers each when the test says so: the connections, and who is behind them.

    Attributes:
        failures: attempts to connect that fail yet.
        bugs: attempts to connect that meet a bug yet.
    """

    versions: Any

    def __init__(self) -> None:
        self.versions = self
        self.failures = 0
        self.bugs = 0
        self.asked: list[FetchRequest] = []
        self.answers: list[asyncio.Future[FetchResponse]] = []

    async def connection(self, _target: BrokerId, _request_class: str = "") -> Any:
        if self.failures:
            self.failures -= 1
            raise NetworkError("it is away")
        if self.bugs:
            self.bugs -= 1
            raise ZeroDivisionError("a bug on the way")
        return self

    def version(self, _key: int, *, min_version: int, max_version: int) -> int:
        assert min_version <= max_version
        return max_version

    async def send(self, request: FetchRequest, _response: type[FetchResponse], **_: Any) -> FetchResponse:
        self.asked.append(request)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    async def until_asked(self, count: int) -> FetchRequest:
        await until(lambda: len(self.asked) >= count)
        return self.asked[count - 1]

    async def until_named(self, count: int) -> None:
        """Answer with nothing what names partitions that begin to be followed, until so many were named."""
        while sum(map(len, map(named, self.asked))) < count:
            asked = len(self.asked)
            self.answer(asked)
            await self.until_asked(asked + 1)

    def refuse(self, number: int, code: Code) -> None:
        self.answers[number - 1].set_result(FetchResponse(error_code=code))

    def answer(self, number: int, *rows: PartitionData) -> None:
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(rows))] if rows else []
        self.answers[number - 1].set_result(FetchResponse(session_id=9, responses=topics))


class Follower:
    """Stands for a partition that follows, and notes what it is told: the first offset of the records that came."""

    topic_id = TOPIC_ID

    def __init__(self, index: int) -> None:
        self.partition = self
        self.topic_partition = TopicPartition("t", PartitionIndex(index))
        self.fetched: list[tuple[int, int | None, int | None]] = []
        self.refused: list[Code] = []
        self.unanswered: list[int] = []

    def on_unanswered(self, number: int) -> None:
        self.unanswered.append(number)

    def on_refused(self, number: int, code: Code) -> None:
        self.refused.append(code)

    def on_fetched(self, number: int, *, records: bytes = b"", high_watermark: int | None = None, **_: object) -> None:
        first = int.from_bytes(records[:8], "big") if len(records) else None
        self.fetched.append((number, first, high_watermark))

    def ask(self, fetchers: ReplicaFetchers, number: int, fetch_offset: int) -> None:
        request = RecordsRequest(
            number, LEADER, LeaderEpoch(1), Offset(fetch_offset), LeaderEpoch(1) if fetch_offset else None, Offset(0)
        )
        fetchers.send(cast(FollowerDriver, self), request)


def fetchers_of(leader: ScriptedLeader, doubts: LeaderDoubts | None = None) -> ReplicaFetchers:
    """Those of broker 1, which nothing throttles."""
    settings = ReplicaFetchSettings.from_properties({"node.id": "1"})
    unlimited = Throttle(lambda: 0, lambda who, due_ms: None)
    return ReplicaFetchers(
        BrokerId(1),
        leader,
        settings,
        broker_epoch=lambda: BrokerEpoch(3),
        throttle=unlimited,
        doubts=doubts or LeaderDoubts(BrokerId(1), 0, cast(Probes, None)),
        tasks=Tasks("replication"),
    )


async def two_under_way(
    fetchers: ReplicaFetchers, leader: ScriptedLeader, first: Follower, second: Follower
) -> FetchRequest:
    """Return the third fetch, which names `second` because it begins to follow; the second one is not answered yet."""
    first.ask(fetchers, 1, 0)
    await leader.until_asked(1)
    leader.answer(1, row(0))
    await until(lambda: first.fetched)
    first.ask(fetchers, 2, 0)
    await leader.until_asked(2)
    second.ask(fetchers, 1, 0)
    return await leader.until_asked(3)


def named(request: FetchRequest) -> list[int]:
    """The partitions that a fetch names."""
    return [one.partition for topic in request.topics for one in topic.partitions]


def batch(offset: int) -> bytes:
    builder = BatchBuilder()
    builder.append(0, None, b"x")
    return builder.build(offset, 1)


def row(index: int, offset: int | None = None, high_watermark: int = 0) -> PartitionData:
    records = None if offset is None else batch(offset)
    return PartitionData(index, high_watermark=high_watermark, log_start_offset=0, records=records)


def test_an_answer_to_an_earlier_fetch_says_nothing_to_a_later_question() -> None:
    """The leader reads a session's partitions from where the last request that named them asked.

    A second fetch goes out because another partition begins to follow. When records come meanwhile, both answers hold
    them; the first is taken, and the partition has asked for what comes next by the time of the second.
    """

    async def story() -> None:
        leader, first, second = ScriptedLeader(), Follower(0), Follower(1)
        fetchers = fetchers_of(leader)
        assert named(await two_under_way(fetchers, leader, first, second)) == [1]
        leader.answer(2, row(0, 0))
        await until(lambda: len(first.fetched) >= 2)
        first.ask(fetchers, 3, 1)
        await leader.until_asked(4)
        leader.answer(3, row(0, 0, high_watermark=1), row(1))
        await until(lambda: second.fetched)
        assert first.fetched == [(1, None, 0), (2, 0, 0)]
        leader.answer(4)
        await until(lambda: len(first.fetched) >= 3)
        assert first.fetched[2] == (3, None, 1), "what the leader told once, it does not repeat"
        await fetchers.stop()

    asyncio.run(story())


def test_what_is_under_way_answers_the_same_question_asked_once_more() -> None:
    """The leader tells a high watermark once: told to nobody, it would be known here with the next record alone."""

    async def story() -> None:
        leader, first, second = ScriptedLeader(), Follower(0), Follower(1)
        fetchers = fetchers_of(leader)
        await two_under_way(fetchers, leader, first, second)
        leader.answer(2, row(0, high_watermark=1))
        await until(lambda: len(first.fetched) >= 2)
        first.ask(fetchers, 3, 0)
        leader.answer(3, row(0, high_watermark=2), row(1))
        await until(lambda: second.fetched)
        assert first.fetched == [(1, None, 0), (2, None, 1), (3, None, 2)]
        await fetchers.stop()

    asyncio.run(story())


def test_who_wants_nothing_at_present_is_taken_out_of_the_session_and_named_anew() -> None:
    async def story() -> None:
        leader, first, second = ScriptedLeader(), Follower(0), Follower(1)
        fetchers = fetchers_of(leader)
        first.ask(fetchers, 1, 0)
        second.ask(fetchers, 1, 0)
        await leader.until_asked(1)
        leader.answer(1, row(0), row(1))
        await until(lambda: second.fetched)
        second.ask(fetchers, 2, 0)
        without = await leader.until_asked(2)
        assert [one.partitions for one in without.forgotten_topics_data] == [[0]]
        assert not without.topics, "what is asked as before is not named"
        first.ask(fetchers, 2, 0)
        again = await leader.until_asked(3)
        assert named(again) == [0]
        assert not again.forgotten_topics_data
        await fetchers.stop()

    asyncio.run(story())


def test_a_refusal_by_a_code_that_only_newer_releases_know_is_told_as_one() -> None:
    async def story() -> None:
        leader, follower = ScriptedLeader(), Follower(0)
        fetchers = fetchers_of(leader)
        follower.ask(fetchers, 1, 0)
        await leader.until_asked(1)
        leader.answer(1, PartitionData(0, error_code=9_999, high_watermark=-1))
        await until(lambda: follower.refused)
        assert follower.refused == [Code.UNKNOWN_SERVER_ERROR]
        await fetchers.stop()

    asyncio.run(story())


class ManyFollowers:
    """As many as follow one broker."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.all = [_Counting(self, index) for index in range(5 * TURN_SIZE)]
        self.told = 0

    def ask(self, fetchers: ReplicaFetchers) -> None:
        for one in self.all:
            one.ask(fetchers, 1, 0)

    def on_told(self) -> None:
        self.told += 1
        self.steps.count()


class _Counting(Follower):
    def __init__(self, many: ManyFollowers, index: int) -> None:
        super().__init__(index)
        self._many = many

    def on_unanswered(self, number: int) -> None:
        self._many.on_told()

    def on_fetched(self, number: int, *, records: bytes = b"", high_watermark: int | None = None, **_: object) -> None:
        self._many.on_told()


@pytest.mark.parametrize("is_answered", [False, True])
def test_thousands_that_follow_one_broker_are_told_in_turns(is_answered: bool) -> None:
    async def story() -> None:
        leader, many = ScriptedLeader(), ManyFollowers(Steps())
        fetchers = fetchers_of(leader)
        many.ask(fetchers)
        await leader.until_asked(1)
        if is_answered:
            await leader.until_named(len(many.all))
            leader.answer(len(leader.asked), *map(row, range(len(many.all))))
        else:
            leader.answers[0].set_exception(NetworkError("it is gone"))
        await until(lambda: many.told == len(many.all))
        assert max(many.steps.counts) <= TURN_SIZE
        await fetchers.stop()

    asyncio.run(story())


def test_who_is_to_ask_somewhere_else_is_told_though_others_had_their_turn() -> None:
    async def story() -> None:
        leader, many = ScriptedLeader(), ManyFollowers(Steps())
        fetchers = fetchers_of(leader)
        many.ask(fetchers)
        await leader.until_asked(1)
        leader.answers[0].set_exception(NetworkError("it is gone"))
        while not many.told:
            await asyncio.sleep(0)
        assert many.told < len(many.all)
        fetchers.resize(7)
        assert many.told == len(many.all)
        await fetchers.stop()

    asyncio.run(story())


def test_those_that_begin_to_follow_are_named_in_portions_and_hold_up_nobody() -> None:
    async def story() -> None:
        leader, first, many = ScriptedLeader(), Follower(0), [Follower(index) for index in range(1, 251)]
        fetchers = fetchers_of(leader)
        first.ask(fetchers, 1, 0)
        await leader.until_asked(1)
        leader.answer(1, row(0, 0))
        await until(lambda: first.fetched)
        for one in many:
            one.ask(fetchers, 1, 0)
        portions = [named(await leader.until_asked(2)), named(await leader.until_asked(3))]
        assert [len(portion) for portion in portions] == [JOINING_MAX, JOINING_MAX]
        first.ask(fetchers, 2, 1)
        leader.answer(2)
        last = named(await leader.until_asked(4))
        assert last[0] == 0, "those of the session are named first"
        assert sorted(sum(portions, last)) == list(range(251))
        await fetchers.stop()

    asyncio.run(story())


def test_the_first_fetch_of_a_session_is_answered_before_another_is_sent() -> None:
    """The others would begin the session once more: they do not know its number yet."""

    async def story() -> None:
        leader, followers = ScriptedLeader(), [Follower(index) for index in range(JOINING_MAX + 1)]
        fetchers = fetchers_of(leader)
        for one in followers:
            one.ask(fetchers, 1, 0)
        await leader.until_asked(1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(leader.asked) == 1
        leader.answer(1)
        second = await leader.until_asked(2)
        assert (second.session_id, second.session_epoch) == (9, 1)
        await fetchers.stop()

    asyncio.run(story())


def test_a_leader_that_ends_a_session_is_told_all_of_the_next_one_at_once() -> None:
    """It may have had no room for those that joined: it is to decide by the size of the whole session."""

    async def story() -> None:
        leader, followers = ScriptedLeader(), [Follower(index) for index in range(3 * JOINING_MAX)]
        fetchers = fetchers_of(leader)
        for one in followers:
            one.ask(fetchers, 1, 0)
        await leader.until_asked(1)
        leader.answer(1)
        await leader.until_asked(3)
        leader.refuse(2, Code.FETCH_SESSION_ID_NOT_FOUND)
        leader.refuse(3, Code.FETCH_SESSION_ID_NOT_FOUND)
        await until(lambda: leader.asked[-1].session_epoch == 0)
        assert len(named(leader.asked[-1])) == len([one for one in followers if not one.fetched])
        await fetchers.stop()

    asyncio.run(story())


def test_nobody_asks_again_while_the_leader_cannot_be_reached() -> None:
    """Thousands that follow it would ask again and again, each by itself."""

    async def story() -> None:
        leader, followers = ScriptedLeader(), [Follower(index) for index in range(3)]
        leader.failures = 5
        fetchers = fetchers_of(leader)
        for one in followers:
            one.ask(fetchers, 1, 0)  # a Follower of this test cannot be told that there was no answer
        fetchers.forget(cast(FollowerDriver, followers[1]))
        assert named(await leader.until_asked(1)) == [0, 2]
        await fetchers.stop()

    asyncio.run(story())


def test_who_was_told_nothing_yet_waits_for_what_its_leader_says_first() -> None:
    """The leader's epoch has yet to begin there. After an error nothing was told either."""

    async def story() -> None:
        leader, first, second = ScriptedLeader(), Follower(0), Follower(1)
        fetchers = fetchers_of(leader)
        first.ask(fetchers, 1, 0)
        second.ask(fetchers, 1, 0)
        await leader.until_asked(1)
        leader.answer(1, row(0))
        await until(lambda: first.fetched)
        await leader.until_asked(2)
        leader.answer(2, PartitionData(1, error_code=Code.NOT_LEADER_OR_FOLLOWER))
        await until(lambda: second.refused)
        second.ask(fetchers, 2, 0)
        await leader.until_asked(3)
        leader.answer(3)
        await leader.until_asked(4)
        assert not second.fetched
        leader.answer(4, row(1, high_watermark=2))
        await until(lambda: second.fetched)
        assert second.fetched == [(2, None, 2)]
        await fetchers.stop()

    asyncio.run(story())


@pytest.mark.parametrize(
    "request_of",
    [
        lambda number: RecordsRequest(number, LEADER, LeaderEpoch(1), Offset(0), None, Offset(0)),
        lambda number: EpochEndRequest(number, LEADER, LeaderEpoch(1), LeaderEpoch(0)),
    ],
    ids=["records", "epoch end"],
)
def test_a_bug_is_logged_and_whoever_waited_may_ask_again(
    request_of: Callable[[int], FollowerRequest], caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        leader, first, second = ScriptedLeader(), Follower(0), Follower(1)
        fetchers = fetchers_of(leader)
        leader.bugs = 2

        async def ask_in_vain(number: int) -> None:
            for follower in (first, second):
                fetchers.send(cast(FollowerDriver, follower), request_of(number))
            await until(lambda: len(first.unanswered) == len(second.unanswered) == number)

        await ask_in_vain(1)
        await ask_in_vain(2)
        fetchers.send(cast(FollowerDriver, first), request_of(3))
        await leader.until_asked(1)
        assert first.unanswered == second.unanswered == [1, 2]
        await fetchers.stop()

    asyncio.run(story())
    bugs = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(bugs) == 2
    assert all(bug.startswith("fetcher of broker 2: ") for bug in bugs)


def test_who_was_refused_is_named_again_though_it_asks_the_same() -> None:
    """Else it may never be told: what the other fetch under way brought was told to nobody."""

    async def story() -> None:
        leader, first, second = ScriptedLeader(), Follower(0), Follower(1)
        fetchers = fetchers_of(leader)
        await two_under_way(fetchers, leader, first, second)
        leader.answer(2, PartitionData(0, error_code=Code.NOT_LEADER_OR_FOLLOWER))
        await until(lambda: first.refused)
        leader.answer(3, row(0, high_watermark=1), row(1))
        await until(lambda: second.fetched)
        first.ask(fetchers, 3, 0)
        assert named(await leader.until_asked(4)) == [0]
        await fetchers.stop()

    asyncio.run(story())
