"""The slots of fetch sessions, what ends a session, and what a fetch that waits costs and is woken by."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from support.fixtures.fetch_model import TOPIC, SessionReader, ToyNode, View
from support.fixtures.loop_steps import Steps
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import Offset
from tidelog.io.rng import SystemRng
from tidelog.log import NotCachedError
from tidelog.server.api import fetch_reading, fetch_sessions
from tidelog.server.api.fetch_sessions import (
    EVICTION_MS,
    INT32_MAX,
    FetchedPartition,
    FetchSession,
    FetchSessions,
    next_epoch,
)
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.partition_listeners import PartitionListeners
from tidelog.wire.messages.api_01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

SECONDS_MAX = 60.0
WAIT_MS = 90_000


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), SECONDS_MAX)

    asyncio.run(bounded())


def request(
    size: int, *, session_id: int = 0, epoch: int = 0, follower: bool = False, wait_ms: int = 0
) -> FetchRequest:
    partitions = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1) for i in range(size)]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)] if size else [],
        replica_state=ReplicaState(replica_id=2, replica_epoch=1) if follower else None,
    )


def begin(sessions: FetchSessions, size: int, *, now_ms: int = 0, follower: bool = False) -> FetchSession:
    return sessions.begin(request(size, follower=follower), is_by_id=False, now_ms=now_ms)


def goes_on(sessions: FetchSessions, session: FetchSession, *, now_ms: int) -> bool:
    """Whether the session is still there."""
    again = request(0, session_id=session.session_id, epoch=session.epoch)
    try:
        sessions.begin(again, is_by_id=False, now_ms=now_ms)
    except KafkaError as error:
        return error.code is not Code.FETCH_SESSION_ID_NOT_FOUND
    return True


def new_sessions(slots: int, partitions_max: int = 1_000) -> FetchSessions:
    return FetchSessions(slots, partitions_max, SystemRng())


# Who gets a slot.


def test_without_a_free_slot_a_fetch_is_served_without_a_session() -> None:
    sessions = new_sessions(1)
    first = begin(sessions, 3)
    assert first.session_id > 0
    assert begin(sessions, 30).session_id == 0  # larger, but the other is young
    assert len(new_sessions(0)._sessions) == 0
    assert begin(new_sessions(0), 1).session_id == 0
    assert goes_on(sessions, first, now_ms=1)


def test_all_sessions_together_follow_no_more_partitions_than_are_allowed() -> None:
    sessions = new_sessions(10, partitions_max=20)
    first, second = begin(sessions, 12), begin(sessions, 8)
    assert (first.session_id > 0, second.session_id > 0, sessions.partition_count) == (True, True, 20)
    assert begin(sessions, 1).session_id == 0
    assert begin(sessions, 21).session_id == 0
    assert goes_on(sessions, first, now_ms=1)
    same = request(12, session_id=first.session_id, epoch=first.epoch)
    assert sessions.begin(same, is_by_id=False, now_ms=1) is first  # nothing that it did not follow before
    more = request(13, session_id=first.session_id, epoch=first.epoch)
    with pytest.raises(KafkaError, match="would follow 1 partitions more") as refused:
        sessions.begin(more, is_by_id=False, now_ms=1)
    assert refused.value.code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partition_count) == (1, 8)
    old = EVICTION_MS + 2
    assert goes_on(sessions, second, now_ms=EVICTION_MS + 1)
    assert begin(sessions, 20, now_ms=old).session_id > 0  # the smaller one gives way to it
    assert not goes_on(sessions, second, now_ms=old)
    assert sessions.partition_count == 20


def test_who_asks_for_no_session_gets_none() -> None:
    sessions = new_sessions(2)
    assert sessions.begin(request(2, epoch=-1), is_by_id=False, now_ms=0).session_id == 0
    assert len(sessions) == 0


def test_a_session_that_nobody_used_gives_way() -> None:
    sessions = new_sessions(2)
    unused, used = begin(sessions, 5), begin(sessions, 5)
    assert goes_on(sessions, used, now_ms=EVICTION_MS)
    newcomer = begin(sessions, 1, now_ms=EVICTION_MS + 1)
    assert newcomer.session_id > 0
    assert not goes_on(sessions, unused, now_ms=EVICTION_MS + 1)
    assert goes_on(sessions, used, now_ms=EVICTION_MS + 1)


def test_the_smallest_of_the_old_gives_way_to_a_larger_one() -> None:
    sessions = new_sessions(2)
    small, large = begin(sessions, 3), begin(sessions, 9)
    for session in (small, large):
        assert goes_on(sessions, session, now_ms=EVICTION_MS + 1)
    assert begin(sessions, 3, now_ms=EVICTION_MS + 2).session_id == 0  # no larger
    assert begin(sessions, 4, now_ms=EVICTION_MS + 2).session_id > 0
    assert not goes_on(sessions, small, now_ms=EVICTION_MS + 2)
    assert goes_on(sessions, large, now_ms=EVICTION_MS + 2)


def test_a_consumer_gives_way_to_a_follower_but_not_the_other_way_round() -> None:
    sessions = new_sessions(1)
    consumer = begin(sessions, 9)
    follower = begin(sessions, 1, follower=True)
    assert follower.session_id > 0
    assert not goes_on(sessions, consumer, now_ms=0)
    assert goes_on(sessions, follower, now_ms=EVICTION_MS + 1)
    assert begin(sessions, 9, now_ms=EVICTION_MS + 1).session_id == 0


# Its protocol.


def test_epochs_wrap_around_what_has_a_meaning_of_its_own() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(INT32_MAX - 1) == INT32_MAX
    assert next_epoch(INT32_MAX) == 1


def test_refusals_of_a_session_leave_it_as_it_was() -> None:
    node = ToyNode(2)
    first = node.fetch_now(request(2), version=7)
    session_id = first.session_id
    assert node.fetch_now(request(0, session_id=session_id + 1, epoch=1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    for wrong in (2, -2, INT32_MAX):
        refused = node.fetch_now(request(0, session_id=session_id, epoch=wrong))
        assert (refused.error_code, refused.session_id) == (Code.INVALID_FETCH_SESSION_EPOCH, 0)
    by_id = node.fetch_now(request(0, session_id=session_id, epoch=1), version=13)
    assert by_id.error_code == Code.FETCH_SESSION_TOPIC_ID_ERROR
    again = node.fetch_now(request(0, session_id=session_id, epoch=1))
    assert (again.error_code, again.session_id, again.responses) == (0, session_id, [])


def test_a_full_fetch_ends_the_session_that_it_names() -> None:
    node = ToyNode(2)
    first = node.fetch_now(request(2))
    second = node.fetch_now(request(1, session_id=first.session_id))
    assert second.session_id not in (0, first.session_id)
    assert len(node.fetch_sessions) == 1
    last = node.fetch_now(request(1, session_id=second.session_id, epoch=-1))
    assert last.session_id == 0
    assert len(last.responses[0].partitions) == 1
    assert len(node.fetch_sessions) == 0


def test_a_session_that_lost_its_last_partition_is_over() -> None:
    node = ToyNode(2)
    first = node.fetch_now(request(2))
    empty = request(0, session_id=first.session_id, epoch=1)
    empty.forgotten_topics_data = [ForgottenTopic(topic=TOPIC, partitions=[0, 1, 7])]
    assert node.fetch_now(empty) == FetchResponse()
    assert len(node.fetch_sessions) == 0


def test_nobody_watches_for_those_who_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    watching: list[object] = []
    monkeypatch.setattr(PartitionListeners, "add", lambda _, one: watching.append(one))
    monkeypatch.setattr(PartitionListeners, "remove", lambda _, one: watching.remove(one))
    node = ToyNode(3)
    node.fetch_now(request(3, epoch=-1))
    assert not watching
    first = node.fetch_now(request(3))
    assert len(watching) == 3
    node.fetch_now(request(3, session_id=first.session_id, epoch=-1))
    assert not watching


@pytest.mark.parametrize("waits", [False, True])
def test_an_ended_fetch_leaves_nothing_to_the_collector(waits: bool) -> None:
    """What it followed knew the session, and the session it: a node that is busy looked at all again and again."""

    def followed() -> int:
        return sum(isinstance(one, FetchedPartition) for one in gc.get_objects())

    async def scenario() -> None:
        node = ToyNode(3)
        before = followed()
        if waits:
            waiting = asyncio.ensure_future(node.fetch(request(3, epoch=-1, wait_ms=1)))
            await waiting
            del waiting
        else:
            node.fetch_now(request(3, epoch=-1))
        assert followed() == before

    gc.collect()
    gc.disable()
    try:
        run(scenario)
    finally:
        gc.enable()


def test_a_large_session_that_ended_is_let_go_of_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "LET_GO_AT_ONCE_MAX", 2)
    steps = Steps()
    remove = PartitionListeners.remove

    def counted(listeners: PartitionListeners[FetchedPartition], one: FetchedPartition) -> None:
        steps.count()
        remove(listeners, one)

    monkeypatch.setattr(PartitionListeners, "remove", counted)

    async def scenario() -> None:
        node = ToyNode(7)
        first = await asyncio.ensure_future(node.fetch(request(7, wait_ms=1)))
        session = node.fetch_sessions._sessions[first.session_id]
        node.fetch_now(request(1, session_id=first.session_id, epoch=-1))
        for _ in range(8):
            await asyncio.sleep(0)
        assert (len(session.partitions), node.fetch_sessions.let_go()) == (0, False)

    run(scenario)
    assert sum(steps.counts) == 7 + 1
    assert max(steps.counts) <= 2 + 2 + 1, "of the one, of the other, and of what is left of an earlier one"
    assert len(steps.counts) > 2


# What is told.


def test_a_log_start_that_moved_is_news_by_itself() -> None:
    node = ToyNode(2)
    node.broker.append(0, 3)
    reader = SessionReader(followed={0: View(position=3), 1: View()})
    assert reader.on_answer(node.fetch_now(reader.request()))
    node.broker.delete_before(0, 2)
    answer = node.fetch_now(reader.request())
    (row,) = answer.responses[0].partitions
    assert (row.partition_index, row.log_start_offset, row.high_watermark, row.records) == (0, 2, 3, b"")
    assert reader.on_answer(answer)
    assert node.fetch_now(reader.request()).responses == []


def test_what_does_not_fit_comes_first_next_time_and_its_high_watermark_at_once() -> None:
    node = ToyNode(3)
    reader = SessionReader(followed={0: View(), 1: View(), 2: View()})
    assert reader.on_answer(node.fetch_now(reader.request()))
    for index in (0, 1):
        node.broker.append(index, 2)
    for _ in range(2):
        assert reader.on_answer(node.fetch_now(reader.request(max_bytes=100)))
        assert [reader.followed[index].high_watermark for index in (0, 1)] == [2, 2]
    assert reader.read == {0: [0], 1: [0]}  # not twice from the first
    node.broker.append(0, 5)
    for _ in range(2):
        assert reader.on_answer(node.fetch_now(reader.request(max_bytes=100)))
    assert reader.read == {0: [0, 1], 1: [0, 1]}


def test_of_what_is_forgotten_nothing_is_told() -> None:
    node = ToyNode(2)
    reader = SessionReader(followed={0: View(), 1: View()})
    assert reader.on_answer(node.fetch_now(reader.request()))
    node.broker.append(0)
    node.broker.append(1)
    del reader.followed[0]
    (row,) = node.fetch_now(reader.request()).responses[0].partitions
    assert row.partition_index == 1


def test_the_leader_epoch_that_a_session_remembers_is_fenced() -> None:
    node = ToyNode(1)
    asked = request(1)
    asked.topics[0].partitions[0].current_leader_epoch = 1
    first = node.fetch_now(asked)
    assert first.responses[0].partitions[0].error_code == 0
    node.broker.lead(0)
    second = node.fetch_now(request(0, session_id=first.session_id, epoch=1))
    assert second.responses[0].partitions[0].error_code == Code.FENCED_LEADER_EPOCH


def test_after_an_error_all_is_told_again() -> None:
    node = ToyNode(1)
    reader = SessionReader(followed={0: View()})
    assert reader.on_answer(node.fetch_now(reader.request()))
    node.broker.partitions[0].stop()
    for _ in range(2):  # for as long as it lasts
        answer = node.fetch_now(reader.request())
        assert answer.responses[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert reader.on_answer(answer)
    node.broker.lead(0)
    answer = node.fetch_now(reader.request())
    assert answer.responses[0].partitions[0].error_code == 0  # though its offsets are what they were
    assert reader.on_answer(answer)
    assert node.fetch_now(reader.request()).responses == []


# What it costs, and who is woken.


def test_what_did_not_change_is_not_looked_at() -> None:
    node = ToyNode(100)
    reader = SessionReader(followed={i: View() for i in range(100)})
    assert reader.on_answer(node.fetch_now(reader.request()))
    for _ in range(3):
        node.broker.append(42)
        node.broker.look_ups = 0
        assert reader.on_answer(node.fetch_now(reader.request()))
        assert node.broker.look_ups == 1
    assert reader.read == {42: [0, 1, 2]}


@pytest.mark.parametrize("has_session", [True, False])
def test_a_fetch_that_waits_looks_only_at_what_changed(has_session: bool) -> None:
    async def scenario() -> None:
        node = ToyNode(100)
        reader = SessionReader(followed={i: View() for i in range(100)})
        asked = reader.request(wait_ms=WAIT_MS, min_bytes=150)
        if not has_session:
            asked.session_epoch = -1
        waiting = asyncio.ensure_future(node.fetch(asked))
        await asyncio.sleep(0)
        node.broker.look_ups = 0
        for index in (7, 8, 7):
            assert not waiting.done()
            node.broker.append(index)
            for _ in range(3):
                await asyncio.sleep(0)
        answer = await waiting
        assert node.broker.look_ups == 3
        assert bool(answer.session_id) is has_session
        assert reader.on_answer(answer)
        assert reader.read == {7: [0, 1], 8: [0]}

    run(scenario)


def test_a_fetch_of_nothing_is_answered_at_once() -> None:
    node = ToyNode(1)
    empty = request(0, epoch=-1)
    empty.max_wait_ms = WAIT_MS
    assert node.fetch_now(empty) == FetchResponse()


@pytest.mark.parametrize("has_session", [True, False])
def test_waits_end_when_the_broker_stops(has_session: bool) -> None:
    async def scenario() -> None:
        node = ToyNode(2)
        asked = request(2, epoch=0 if has_session else -1)
        asked.max_wait_ms = WAIT_MS
        waiting = asyncio.ensure_future(node.fetch(asked))
        await asyncio.sleep(0)
        node.broker.partitions[1].stop()
        answer = await asyncio.wait_for(waiting, SECONDS_MAX / 2)
        codes = {row.partition_index: row.error_code for row in answer.responses[0].partitions}
        assert codes == {0: 0, 1: Code.NOT_LEADER_OR_FOLLOWER}

    run(scenario)


def test_deleting_what_a_fetch_waits_for_is_told_at_once() -> None:
    async def scenario() -> None:
        node = ToyNode(1)
        node.broker.append(0, 3)
        asked = request(1)
        asked.topics[0].partitions[0].fetch_offset = 3
        asked.max_wait_ms = WAIT_MS
        waiting = asyncio.ensure_future(node.fetch(asked))
        await asyncio.sleep(0)
        node.broker.delete_before(0, 2)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()  # its place is there; the log start alone is nothing to hurry for
        node.broker.append(0)
        row = (await waiting).responses[0].partitions[0]
        assert (row.log_start_offset, row.high_watermark) == (2, 4)

    run(scenario)


def test_a_later_request_of_the_session_overtakes_one_that_waits() -> None:
    async def scenario() -> None:
        node = ToyNode(2)
        reader = SessionReader(followed={0: View(), 1: View()})
        assert reader.on_answer(node.fetch_now(reader.request()))
        overtaken = asyncio.ensure_future(node.fetch(reader.request(wait_ms=WAIT_MS)))
        await asyncio.sleep(0)
        reader.epoch += 1
        waiting = asyncio.ensure_future(node.fetch(reader.request(wait_ms=WAIT_MS)))
        await asyncio.sleep(0)
        node.broker.append(1)
        assert reader.on_answer(await waiting)
        assert reader.read == {1: [0]}
        overtaken.cancel()  # its connection is gone, or it hears of it when its time is up

    run(scenario)


@pytest.mark.parametrize("is_follower", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_followers_fetch_is_answered_when_something_comes_behind_it(is_follower: bool, is_there: bool) -> None:
    """It would hold it up. A consumer's waits on: two long polls on one connection would end each other for ever."""

    async def scenario() -> None:
        node = ToyNode(1)
        reader = SessionReader(followed={0: View()})
        assert reader.on_answer(node.fetch_now(reader.request()))
        (session,) = node.fetch_sessions._sessions.values()
        session.is_follower = is_follower
        node.connection.has_more = is_there
        waiting = asyncio.ensure_future(node.fetch(reader.request(wait_ms=WAIT_MS)))
        await asyncio.sleep(0)
        if not is_there and node.connection.on_more is not None:
            node.connection.on_more()
        for _ in range(5):
            await asyncio.sleep(0)
        assert waiting.done() == is_follower
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run(scenario)


def test_a_session_that_takes_the_place_of_another_overtakes_what_waits_in_it() -> None:
    """What is read there would be of before: of a follower, that it has less than it has shown since."""

    async def scenario() -> None:
        node = ToyNode(1)
        reader = SessionReader(followed={0: View()})
        assert reader.on_answer(node.fetch_now(reader.request()))
        overtaken = asyncio.ensure_future(node.fetch(reader.request(wait_ms=WAIT_MS)))
        await asyncio.sleep(0)
        reader.start_anew()
        assert reader.on_answer(node.fetch_now(reader.request()))
        assert (await overtaken).error_code == Code.INVALID_FETCH_SESSION_EPOCH

    run(scenario)


def test_what_was_found_for_a_reader_that_vanished_is_found_again() -> None:
    async def scenario() -> None:
        node = ToyNode(1)
        reader = SessionReader(followed={0: View()})
        assert reader.on_answer(node.fetch_now(reader.request()))
        waiting = asyncio.ensure_future(node.fetch(reader.request(wait_ms=WAIT_MS, min_bytes=1_000)))
        await asyncio.sleep(0)
        node.broker.append(0)
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        reader.epoch += 1  # against the rules: it never saw the answer
        assert reader.on_answer(node.fetch_now(reader.request()))
        assert reader.read == {0: [0]}

    run(scenario)


def test_what_was_not_read_yet_when_a_fetch_ended_is_read_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_reading, "READ_AT_ONCE_MAX", 1)

    async def scenario() -> None:
        node = ToyNode(3)
        node.is_long = True
        reader = SessionReader(followed={index: View() for index in range(3)})
        assert reader.on_answer(await node.fetch(reader.request()))
        for index in range(3):
            node.broker.append(index)
        partway = asyncio.ensure_future(node.fetch(reader.request()))
        for _ in range(2):
            await asyncio.sleep(0)
        partway.cancel()
        await asyncio.gather(partway, return_exceptions=True)
        reader.epoch += 1  # against the rules: it never saw the answer
        del reader.followed[1]
        assert reader.on_answer(await node.fetch(reader.request()))
        assert reader.read == {0: [0], 2: [0]}

    run(scenario)


def test_what_an_overtaken_fetch_did_not_read_is_answered_by_the_fetch_that_overtook_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_reading, "READ_AT_ONCE_MAX", 1)

    async def scenario() -> None:
        node = ToyNode(3)
        for index in range(3):
            node.broker.append(index)
        reader = SessionReader(followed={index: View() for index in range(3)})
        assert reader.on_answer(await node.fetch(reader.request()))
        node.broker.append(2)
        partway = asyncio.ensure_future(node.fetch(reader.request(wait_ms=WAIT_MS)))
        await asyncio.sleep(0)
        reader.epoch += 1  # against the rules: it never saw the answer
        assert reader.on_answer(await node.fetch(reader.request(wait_ms=WAIT_MS)))
        assert (await partway).error_code == Code.INVALID_FETCH_SESSION_EPOCH
        assert reader.read == {0: [0], 1: [0], 2: [0, 1]}

    run(scenario)


def test_an_older_segment_is_answered_though_it_holds_less_than_was_asked_for() -> None:
    node = ToyNode(1)
    node.broker.append(0)
    node.broker.partitions[0].log.roll(0)
    node.broker.append(0, 5)
    reader = SessionReader(followed={0: View()})
    asked = reader.request(min_bytes=10_000, wait_ms=WAIT_MS)
    assert reader.on_answer(node.fetch_now(asked))
    assert reader.read == {0: [0]}


def test_what_is_not_in_memory_is_fetched_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        node = ToyNode(2)
        node.broker.append(0, 2)
        node.broker.append(1, 2)
        file = node.broker.disk.open("logs/flights-0/00000000000000000000.log")
        read = Partition.read
        brought: list[NotCachedError] = []

        async def bring_into_memory(missing: list[NotCachedError]) -> None:
            for one in missing:
                one.fetch()
            brought.extend(missing)

        def cold_read(self: Partition, offset: int, *, may_wait: bool, **rest: object) -> object:
            if self is node.broker.partitions[0] and not brought:
                assert not may_wait
                raise NotCachedError(file, 0, 100)
            return read(self, offset, may_wait=may_wait, **rest)  # type: ignore[arg-type]

        node.broker.bring_into_memory = bring_into_memory  # type: ignore[attr-defined]
        monkeypatch.setattr(Partition, "read", cold_read)
        reader = SessionReader(followed={0: View(), 1: View()})
        assert reader.on_answer(await node.fetch(reader.request()))
        assert len(brought) == 1
        assert reader.read == {0: [0, 1], 1: [0, 1]}
        assert node.broker.partitions[0].high_watermark == Offset(2)

    run(scenario)
