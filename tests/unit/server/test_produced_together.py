"""Produce requests that arrive together: appended with one write, and each answered as if it had come alone."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from support.clients.token_client import OneNode, play
from support.clients.wire_client import batch_of
from support.fixtures.heard_connection import VERSION, Peer, framed, produce
from support.fixtures.loop_steps import Steps
from support.fixtures.ticking_clock import TickingClock
from tidelog.base.errors import DiskError
from tidelog.log.append import AppendRules
from tidelog.server.api import dispatch, gathering, repeated_produce
from tidelog.server.api.handlers import api_00_produce
from tidelog.server.api.request_context import RequestContext
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.metrics import RequestMetrics
from tidelog.server.transport.turns import TURN_MS_MAX, Turn
from tidelog.wire import ApiKey, compiled_split_produce
from tidelog.wire.messages.api_00_produce import (
    ProduceRequest,
)
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

PRODUCER = (4_000, 0)
LATEST = -1


def latest_offset() -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="flights", partitions=partitions)])


def sequenced(sequence: int, *, epoch: int = 0) -> bytes:
    return batch_of(b"idempotent", producer=(PRODUCER[0], epoch), base_sequence=sequence)


def alone(story: Callable[[Peer], None]) -> None:
    """Have it told on a node that has the topics `flights` and `delays`."""

    async def told(one: OneNode) -> None:
        story(Peer(one))

    async def run(one: OneNode) -> None:
        await one.make("delays")
        await one.simulated.machine.do(lambda: told(one))

    play(run)


def test_what_comes_at_one_time_is_written_at_one_time() -> None:
    def story(peer: Peer) -> None:
        peer.hear(*(produce(number, batch_of(b"%d" % number)) for number in range(20)))
        assert peer.writes == [20]
        assert peer.transport.writes == 1
        assert [(row.error_code, row.base_offset) for row in peer.rows] == [(0, number) for number in range(20)]
        peer.hear(produce(20, batch_of(b"20")))
        assert peer.writes == [20, 1]

    alone(story)


def test_what_was_answered_is_freed_at_once() -> None:
    def story(peer: Peer) -> None:
        gc.collect()
        others = {id(one) for one in gc.get_objects() if isinstance(one, (RequestContext, ProduceRequest))}
        gc.disable()
        try:
            peer.hear(*(produce(number, batch_of(b"x")) for number in range(20)))
            peer.hear(produce(20, batch_of(b"x")), produce(21, batch_of(b"x")), b"\x7f\xff\xff\xff")
            left = [one for one in gc.get_objects() if isinstance(one, (RequestContext, ProduceRequest))]
            assert not [one for one in left if id(one) not in others]
        finally:
            gc.enable()

    alone(story)


def test_requests_that_are_timed_share_what_was_done_at_once() -> None:
    metrics = RequestMetrics()

    async def told(one: OneNode) -> None:
        Peer(one, metrics).hear(*(produce(number, batch_of(b"x")) for number in range(5)))

    async def run(one: OneNode) -> None:
        await one.simulated.machine.do(lambda: told(one))

    play(run)
    times = metrics.by_api[ApiKey.PRODUCE][1][VERSION]
    assert times.count == 5
    assert 0 <= times.handle_ns <= times.total_ns


def test_a_disk_that_refuses_is_told_to_each_whose_batch_is_not_there() -> None:
    def story(peer: Peer) -> None:
        file: Any = peer.partition("flights").log.segments.active.file
        append = type(file).append

        def refusing(self: Any, data: Any) -> None:
            if self is file:
                raise DiskError(self.path, "no space", errno=28)
            append(self, data)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(file), "append", refusing)
            peer.hear(*(produce(number, batch_of(b"x")) for number in range(3)))
        assert [(row.error_code, row.base_offset) for row in peer.rows] == [(56, -1)] * 3
        peer.hear(*(produce(number, batch_of(b"x")) for number in range(3)))
        assert [(row.error_code, row.base_offset) for row in peer.rows[3:]] == [(0, 0), (0, 1), (0, 2)]

    alone(story)


repeats = pytest.mark.skipif(compiled_split_produce is None, reason="the kernel is not compiled")


@repeats
def test_a_request_that_repeats_another_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def story(peer: Peer) -> None:
        peer.hear(*(produce(number, batch_of(b"x")) for number in range(3)))
        peer.hear(produce(3, batch_of(b"x")))
        monkeypatch.setattr(dispatch, "decode", None)
        peer.hear(*(produce(number, batch_of(b"y")) for number in range(4, 8)))
        peer.hear(produce(8, batch_of(b"z")))
        assert [(row.error_code, row.base_offset) for row in peer.rows] == [(0, number) for number in range(9)]
        assert peer.writes == [3, 1, 4, 1]

    alone(story)


@repeats
def test_requests_that_repeat_others_are_timed_and_their_errors_counted() -> None:
    metrics = RequestMetrics()

    async def told(one: OneNode) -> None:
        peer = Peer(one, metrics)
        for number in range(3):
            peer.hear(produce(number, batch_of(b"x")), produce(number, sequenced(5 * number)))

    async def run(one: OneNode) -> None:
        await one.simulated.machine.do(lambda: told(one))

    play(run)
    times = metrics.by_api[ApiKey.PRODUCE][1][VERSION]
    assert times.count == 6
    assert times.errors == {45: 2}
    assert 0 <= times.handle_ns <= times.total_ns


@repeats
def test_a_disk_that_refuses_is_told_to_those_that_repeat_others() -> None:
    def story(peer: Peer) -> None:
        for number in range(3):
            peer.hear(produce(number, batch_of(b"x")))
        file: Any = peer.partition("flights").log.segments.active.file

        def refusing(self: Any, data: Any) -> None:
            raise DiskError(self.path, "no space", errno=28)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(file), "append", refusing)
            peer.hear(*(produce(number, batch_of(b"x")) for number in range(3)))
        assert [(row.error_code, row.base_offset) for row in peer.rows[3:]] == [(56, -1)] * 3
        peer.hear(*(produce(number, batch_of(b"x")) for number in range(2)))
        assert [(row.error_code, row.base_offset) for row in peer.rows[6:]] == [(0, 3), (0, 4)]

    alone(story)


@repeats
def test_a_leadership_that_ends_is_told_to_a_request_that_repeats_another() -> None:
    def story(peer: Peer) -> None:
        for number in range(3):
            peer.hear(produce(number, batch_of(b"x")))
        peer.partition("flights").stop()
        peer.hear(produce(3, batch_of(b"x")))
        assert peer.rows[3].error_code == 6

    alone(story)


@repeats
def test_more_forms_than_are_kept_are_learnt_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_produce, "FORMS_MAX", 2)

    def story(peer: Peer) -> None:
        for number in range(12):
            peer.hear(produce(number, batch_of(b"x"), version=(9, 9, 9, 10, 11, 12)[number % 6]))
        forms = peer.connection._on_frame.__self__._repeated._forms  # type: ignore[attr-defined]
        assert len(forms) <= 2
        assert peer.partition("flights").log.log_end_offset == 12

    alone(story)


def met(story: Callable[[Peer, Peer], None]) -> None:
    """Have it told of two connections of a listener, on both of which the next request repeats one before it."""

    def told(peer: Peer) -> None:
        other = Peer(peer.one, beside=peer)
        for number, one in enumerate((peer, peer, other)):
            one.hear(produce(number, batch_of(b"before")))
            one.transport.written.clear()
        peer.writes.clear()
        story(peer, other)

    alone(told)


@repeats
def test_what_several_connections_send_in_one_turn_is_written_at_one_time() -> None:
    def story(peer: Peer, other: Peer) -> None:
        peer.hear_beside_others(produce(10, batch_of(b"a")), produce(11, batch_of(b"b")))
        other.hear_beside_others(produce(20, batch_of(b"c")))
        assert not peer.transport.written
        peer.end_turn()
        assert peer.writes == [3]
        assert [(row.error_code, row.base_offset) for row in peer.rows] == [(0, 3), (0, 4)]
        assert [(row.error_code, row.base_offset) for row in other.rows] == [(0, 5)]

    met(story)


@repeats
def test_a_request_of_another_kind_finds_done_what_other_connections_sent() -> None:
    def story(peer: Peer, other: Peer) -> None:
        peer.hear_beside_others(produce(10, batch_of(b"a")))
        other.hear_beside_others(framed(20, latest_offset(), ApiKey.LIST_OFFSETS, 7))
        assert (4).to_bytes(8) in other.transport.written
        assert not peer.transport.written
        peer.end_turn()
        assert [row.base_offset for row in peer.rows] == [3]

    met(story)


@repeats
def test_what_is_staged_is_appended_before_more_is_read_to_where_it_lies() -> None:
    def story(peer: Peer, other: Peer) -> None:
        for number in range(3):
            peer.hear_beside_others(produce(number, batch_of(b"%d" % number)))
        peer.end_turn()
        file = peer.partition("flights").log.segments.active.file
        stored = bytes(file.read_at(0, file.size()))
        assert [stored.count(b"%d" % number + b"\0") for number in range(3)] == [1, 1, 1]
        assert [row.base_offset for row in peer.rows] == [3, 4, 5]

    met(story)


@repeats
def test_a_connection_that_ends_before_its_turn_leaves_the_others_their_answers() -> None:
    def story(peer: Peer, other: Peer) -> None:
        peer.hear_beside_others(produce(10, batch_of(b"a")))
        other.hear_beside_others(produce(20, batch_of(b"b")))
        peer.connection.connection_lost(None)
        other.end_turn()
        assert not peer.transport.written
        assert [row.base_offset for row in other.rows] == [4]

    met(story)


@repeats
def test_a_clean_stop_answers_what_came_in_its_turn() -> None:
    def story(peer: Peer, other: Peer) -> None:
        peer.hear_beside_others(produce(10, batch_of(b"a")))
        peer.connection.close_when_answered()
        assert [(row.error_code, row.base_offset) for row in peer.rows] == [(0, 3)]
        assert peer.transport.is_closed
        peer.end_turn()
        assert len(peer.rows) == 1

    met(story)


@repeats
def test_a_leadership_that_ends_before_the_turn_is_told_to_all_of_it() -> None:
    def story(peer: Peer, other: Peer) -> None:
        peer.hear_beside_others(produce(10, batch_of(b"a")), produce(11, batch_of(b"b")))
        other.hear_beside_others(produce(20, batch_of(b"c")))
        peer.partition("flights").stop()
        peer.end_turn()
        assert [(row.error_code, row.base_offset) for row in (*peer.rows, *other.rows)] == [(6, -1)] * 3

    met(story)


@repeats
def test_replicas_that_join_before_the_turn_ends_have_acks_all_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waited for none when it came would have to wait for them now. It is not appended, so it is no duplicate."""

    def story(peer: Peer, other: Peer) -> None:
        for number in range(2):
            peer.hear(produce(number, batch_of(b"x"), acks=-1))
        peer.hear_beside_others(produce(10, batch_of(b"a"), acks=-1))
        monkeypatch.setattr(Partition, "answers_at_append", lambda self, *, acks_all: not acks_all)
        peer.end_turn()
        assert (peer.rows[2].error_code, peer.rows[2].base_offset) == (6, -1)
        assert peer.partition("flights").log.log_end_offset == 5

    met(story)


@repeats
def test_a_bug_in_an_append_ends_the_connections_alone_that_sent_to_that_partition() -> None:
    def story(peer: Peer, other: Peer) -> None:
        for number in range(2):
            other.hear(produce(number, batch_of(b"x"), topic="delays"))
        append = Partition.append_together

        def failing(self: Partition, *given: Any, **more: Any) -> Any:
            if self is peer.partition("flights"):
                raise RuntimeError("a bug")
            return append(self, *given, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Partition, "append_together", failing)
            peer.hear_beside_others(produce(10, batch_of(b"a")))
            other.hear_beside_others(produce(20, batch_of(b"b"), topic="delays"))
            peer.end_turn()
        assert peer.transport.is_closed
        assert not peer.transport.written
        assert [(row.error_code, row.base_offset) for row in other.rows] == [(0, 0), (0, 1), (0, 2)]

    met(story)


@repeats
def test_a_connection_that_is_alone_does_not_wait_for_others() -> None:
    def story(peer: Peer, other: Peer) -> None:
        for number in range(repeated_produce.RUNS_ALONE + 1):
            peer.hear(produce(number, batch_of(b"a")))
        answered = len(peer.rows)
        peer.hear_beside_others(produce(20, batch_of(b"b")))
        assert len(peer.rows) == answered + 1
        other.hear_beside_others(produce(30, batch_of(b"c")))
        assert not other.transport.written
        peer.hear_beside_others(produce(21, batch_of(b"d")))
        assert len(peer.rows) == answered + 1
        peer.end_turn()
        assert peer.writes[-2:] == [1, 2]

    met(story)


@repeats
def test_many_connections_of_one_turn_are_answered_in_turns() -> None:
    async def told(one: OneNode) -> None:
        first = Peer(one)
        peers = [first, *(Peer(one, beside=first) for _ in range(39))]
        for peer in peers:
            peer.hear(produce(1, batch_of(b"x")), produce(2, batch_of(b"x")))
            peer.transport.written.clear()
        dispatcher: Any = peers[0].connection._on_frame.__self__  # type: ignore[attr-defined]
        repeated = dispatcher._repeated
        repeated._turn = Turn(HastyClock())
        for peer in peers:
            peer.hear_beside_others(produce(3, batch_of(b"y")))
        repeated._answer()
        assert 0 < sum(bool(peer.transport.written) for peer in peers) < 40
        while repeated._runs:
            await asyncio.sleep(0)
        assert [len(peer.rows) for peer in peers] == [1] * 40

    async def run(one: OneNode) -> None:
        await one.simulated.machine.do(lambda: told(one))

    play(run)


def test_a_bug_beside_those_before_gives_the_next_ones_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """More came than are carried out together, so the next ones have begun to gather when their connection closes."""
    metrics = RequestMetrics()
    monkeypatch.setattr(gathering, "REQUESTS_MAX", 8)

    async def told(one: OneNode) -> None:
        peer = Peer(one, metrics)
        other = Peer(one, metrics, beside=peer)
        on_frame: Any = peer.connection._on_frame
        with pytest.MonkeyPatch.context() as patch:

            def failing(*_: object) -> Any:
                raise RuntimeError("a bug")

            patch.setattr(on_frame.__self__, "_times_of", failing)
            peer.hear(*(produce(number, batch_of(b"x")) for number in range(10)))
        assert peer.transport.is_closed
        assert not peer.transport.written
        other.hear(*(produce(number, batch_of(b"x")) for number in range(3)))
        assert [row.base_offset for row in other.rows] == [8, 9, 10]

    async def run(one: OneNode) -> None:
        await one.simulated.machine.do(lambda: told(one))

    play(run)


@pytest.mark.parametrize("is_hasty", [False, True])
def test_a_batch_that_takes_long_in_the_midst_keeps_the_order(is_hasty: bool) -> None:
    """It is checked on a thread: what came before it is answered first, what came behind it waits, in its bytes."""
    batches = [batch_of(b"%d" % number) for number in range(12)]
    for number in (3, 4, 8):
        batches[number] = batch_of(b"%d" % number, bytes(1 << 20), compression="zstd")

    async def told(one: OneNode) -> None:
        peer = Peer(one, clock=HastyClock() if is_hasty else None)
        peer.hear(*(produce(number, batch, acks=(1, -1)[number % 2]) for number, batch in enumerate(batches)))
        while peer.connection.is_waiting or peer.connection._turn.resting is not None:
            await asyncio.sleep(0.001)
        offsets = [0]
        for number in range(len(batches) - 1):
            offsets.append(offsets[-1] + (2 if number in (3, 4, 8) else 1))
        assert [(row.error_code, row.base_offset) for row in peer.rows] == [(0, offset) for offset in offsets]

    async def run(one: OneNode) -> None:
        await one.simulated.machine.do(lambda: told(one))

    play(run)


class HastyClock:
    """Whenever somebody looks, a millisecond is over."""

    def __init__(self) -> None:
        self._now_ms = 0

    def now_ms(self) -> int:
        self._now_ms += 1
        return self._now_ms

    def wall_ms(self) -> int:
        return self.now_ms()


@pytest.mark.parametrize("beside", [None, "delays"])
def test_no_more_than_a_turn_is_spent_on_batches_that_take_long_to_check(
    beside: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of some kilobytes, compressed, may hold thousands of records. Each check takes a millisecond here."""
    steps = Steps()

    async def told(one: OneNode) -> None:
        clock = TickingClock()
        peer = Peer(one, clock=clock)
        check = AppendRules.check_for_leader

        def slow(*args: Any, **named: Any) -> Any:
            steps.count()
            clock.tenths += 10
            return check(*args, **named)

        monkeypatch.setattr(AppendRules, "check_for_leader", slow)
        batch = batch_of(*[b"x"] * 100, compression="zstd")
        for numbers in (range(2), range(2, 60)):
            peer.hear(*(produce(number, batch, beside=beside) for number in numbers))
            await peer.rest()
        assert [row.base_offset for row in peer.rows] == [100 * number for number in range(60)]

    async def run(one: OneNode) -> None:
        await one.make("delays")
        await one.simulated.machine.do(lambda: told(one))

    play(run)
    assert max(steps.counts) <= TURN_MS_MAX + (1 if beside is None else 2)


def _any_request(rng: random.Random, number: int, sequences: count[int]) -> bytes:
    """One of many kinds; most can be gathered."""
    kind = rng.randrange(16)
    plain = batch_of(b"%d" % number, b"more")
    if kind == 0:
        return produce(number, plain[:-1] + bytes([plain[-1] ^ 1]))  # its checksum is wrong
    if kind == 1:
        return produce(number, plain, topic="nowhere")
    if kind == 2:
        return produce(number, plain, acks=0)
    if kind == 3:
        return produce(number, plain, acks=2)
    if kind == 4:
        return framed(number, latest_offset(), ApiKey.LIST_OFFSETS, 7)
    if kind == 5:
        topics = [
            FetchTopic(
                topic="flights", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=500)]
            )
        ]
        return framed(number, FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), ApiKey.FETCH, 12)
    if kind in (6, 7, 8):
        return produce(number, sequenced(next(sequences)))
    if kind == 9:
        return produce(number, sequenced(rng.randrange(12)))  # a duplicate, or out of order
    if kind == 10:
        return produce(number, sequenced(0, epoch=rng.randrange(2)))
    if kind == 11:
        return produce(number, plain, beside="delays")
    if kind == 12:
        return produce(number, plain * 2)
    if kind == 13:
        return produce(number, plain, version=rng.choice((3, 5, 8, 12)))
    return produce(number, plain, acks=rng.choice((1, -1)), topic=rng.choice(("flights", "delays")))


@pytest.mark.parametrize("seed", range(12))
def test_together_or_one_by_one_the_answers_and_the_log_are_the_same(seed: int) -> None:
    rng, sequences = random.Random(seed), count()
    frames = [_any_request(rng, number, sequences) for number in range(60)]
    frames.append(b"\0\0\0\2\0\0" if seed % 2 else b"\x7f\xff\xff\xff")
    seen: list[tuple[bytes, bytes, bytes, bool]] = []
    writes: list[int] = []

    def note(peer: Peer) -> None:
        files = [peer.partition(topic).log.segments.active.file for topic in ("flights", "delays")]
        stored = [bytes(file.read_at(0, file.size())) for file in files]
        seen.append((bytes(peer.transport.written), stored[0], stored[1], peer.transport.is_closed))
        writes.append(len(peer.writes))

    def tell(peer: Peer, *, together: bool) -> None:
        if together:
            peer.hear(*frames)
        else:
            for frame in frames:
                peer.hear(frame)
        note(peer)

    async def tell_in_turns(one: OneNode) -> None:
        peer = Peer(one, clock=HastyClock())
        peer.hear(*frames)
        assert peer.connection._turn.resting is not None
        await peer.rest()
        note(peer)

    async def run(one: OneNode) -> None:
        await one.make("delays")
        await one.simulated.machine.do(lambda: tell_in_turns(one))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "compiled_split_produce", None)  # then each is decoded
        alone(lambda peer: tell(peer, together=False))
        alone(lambda peer: tell(peer, together=True))
        play(run)
    alone(lambda peer: tell(peer, together=False))
    alone(lambda peer: tell(peer, together=True))
    play(run)
    assert all(one == seen[0] for one in seen)
    assert writes[1] <= writes[2] <= writes[0] == writes[3]
    assert writes[4] <= writes[5] <= writes[3]


@pytest.mark.parametrize("seed", range(8))
def test_of_several_connections_the_answers_and_the_log_are_the_same(seed: int) -> None:
    """One request a turn, or many in one: each connection is sent the same, and the same is stored."""
    rng, sequences = random.Random(seed), count()
    frames = [(rng.randrange(3), _any_request(rng, number, sequences)) for number in range(90)]
    ends = {number for number in range(90) if rng.random() < 0.15}
    seen = []

    def tell(peer: Peer, *, together: bool) -> None:
        peers = [peer, Peer(peer.one, beside=peer), Peer(peer.one, beside=peer)]
        for number, (whose, frame) in enumerate(frames):
            peers[whose].hear_beside_others(frame)
            if not together or number in ends:
                peer.end_turn()
        peer.end_turn()
        files = [peer.partition(topic).log.segments.active.file for topic in ("flights", "delays")]
        seen.append(
            [bytes(one.transport.written) for one in peers] + [bytes(file.read_at(0, file.size())) for file in files]
        )

    alone(lambda peer: tell(peer, together=False))
    alone(lambda peer: tell(peer, together=True))
    assert seen[0] == seen[1]


class EndsAt:
    """A turn that is over once it was looked at so many times."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self.begun = 0

    def __call__(self, _: object) -> EndsAt:
        return self

    def begin(self) -> None:
        self.begun += 1

    @property
    def is_over(self) -> bool:
        self._looks -= 1
        return self._looks < 0


@pytest.mark.parametrize(("looks", "turns"), [(0, 2), (1, 1)])
def test_what_is_left_of_a_request_after_its_turn_has_turns_of_its_own(
    looks: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = told_later(looks, 0, monkeypatch)
    assert turn.begun == turns + 1, "one more is that of the second request"


@pytest.mark.parametrize("long", [1, 2])
def test_a_batch_that_takes_more_than_its_share_is_checked_on_another_thread(
    long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = [True] * long + [False] * (3 - long)
    monkeypatch.setattr(api_00_produce, "_takes_long", lambda _: verdicts.pop(0))
    told_later(9, long, monkeypatch)


def told_later(looks: int, checked_later: int, monkeypatch: pytest.MonkeyPatch) -> EndsAt:
    """Two batches of one request; the rows are those of a request that had all the time."""
    count, turn = 0, EndsAt(looks)
    check = api_00_produce._checked

    async def counted(*args: Any) -> Any:
        nonlocal count
        count += 1
        return await check(*args)

    monkeypatch.setattr(api_00_produce, "_checked", counted)
    monkeypatch.setattr(api_00_produce, "Turn", turn)

    async def told(one: OneNode) -> None:
        peer = Peer(one)
        peer.hear(produce(1, batch_of(b"one", b"two"), beside="delays"))
        await asyncio.sleep(1)  # of the world: the other thread has had its turn
        assert count == checked_later
        peer.hear(produce(2, batch_of(b"three"), topic="delays"))
        await asyncio.sleep(1)  # of the world: the other thread has had its turn
        assert [(row.error_code, row.base_offset) for row in peer.rows] == [(0, 0), (0, 2)]

    async def run(one: OneNode) -> None:
        await one.make("delays")
        await one.simulated.machine.do(lambda: told(one))

    play(run)
    return turn
