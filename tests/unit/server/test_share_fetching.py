"""Share groups at a real node: sessions, deliveries, acknowledgements, waits and errors (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from uuid import UUID

import pytest

from support.fixtures.logs import NOW_MS
from support.fixtures.sharing import Member, SharingNode, acquired_of, row_of, sharing_node
from support.fixtures.transactions import txn_batch
from support.fixtures.waiting import WAIT_SECONDS_MAX, until
from tidelog.base.errors import Code
from tidelog.records import end_transaction_batch
from tidelog.server.api.forwarding import create_topics_with_defaults
from tidelog.wire.messages.api_78_share_fetch import ACQUIRE_AT_MOST

Scenario = Callable[[SharingNode], Awaitable[None]]


def run(scenario: Scenario, **properties: str) -> None:
    async def bounded() -> None:
        node = sharing_node(**properties)
        await node.begin()
        await node.alter_group("g", auto_offset_reset="earliest")
        await scenario(node)
        await node.stop()

    asyncio.run(asyncio.wait_for(bounded(), WAIT_SECONDS_MAX))


def test_a_member_gets_records_and_what_it_accepted_is_done() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a", "b", "c")
        member = Member(node, "m")
        assert await member.acquire() == [(0, "a", 1), (1, "b", 1), (2, "c", 1)]
        assert await member.accept(0, 2) == Code.NONE
        state = node.kept.states["g", node.led().topic_id, 0]
        assert (state.start, state.batches) == (3, ())
        node.produce("d")
        assert await member.acquire() == [(3, "d", 1)]

    run(scenario)


def test_two_members_never_have_a_record_at_once_and_a_rejected_one_comes_to_nobody() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a", "b")
        node.produce("c", "d")
        first, second = Member(node, "1"), Member(node, "2")
        assert await first.acquire(max_records=1) == [(0, "a", 1), (1, "b", 1)]
        assert await second.acquire() == [(2, "c", 1), (3, "d", 1)]
        answer = await second.acknowledge({0: [(2, 3, [2, 3])]})
        assert answer.responses[0].partitions[0].error_code == Code.NONE
        assert await first.acquire() == [(2, "c", 2)]

    run(scenario)


def test_a_strict_limit_cuts_a_batch_and_a_soft_one_does_not() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a", "b", "c")
        member = Member(node, "m")
        assert await member.acquire(max_records=2, share_acquire_mode=ACQUIRE_AT_MOST) == [(0, "a", 1), (1, "b", 1)]
        assert await member.acquire(max_records=2, share_acquire_mode=ACQUIRE_AT_MOST) == [(2, "c", 1)]
        node.produce("d", "e", "f")
        assert await member.acquire(max_records=1, version=1) == [(3, "d", 1), (4, "e", 1), (5, "f", 1)]

    run(scenario)


def test_what_a_rotten_base_offset_hides_comes_after_the_repair() -> None:
    async def scenario(node: SharingNode) -> None:
        for pair in ("ab", "cd", "ef"):
            node.produce(*pair)
        log = node.led().log
        log.roll(NOW_MS)
        segment = log.segments.first
        last_byte = segment.position_of(2) + 7
        segment.file.write_at(last_byte, b"\x03")
        segment.release()
        member = Member(node, "m")
        row = row_of(await member.fetch(max_wait_ms=30_000))
        assert (row.error_code, row.acquired_records) == (Code.KAFKA_STORAGE_ERROR, [])
        segment.file.write_at(last_byte, b"\x02")
        segment.damages = ()
        given: list[str] = []
        while len(given) < 6:
            given += [value for _, value, _ in await member.acquire()]
        assert given == list("abcdef")

    run(scenario)


def test_acquired_batches_end_where_batches_of_the_log_do() -> None:
    async def scenario(node: SharingNode) -> None:
        for _ in range(5):
            node.produce("a", "b")
        answer = await Member(node, "m").fetch(max_wait_ms=30_000, batch_size=3)
        rows = row_of(answer).acquired_records
        assert [(one.first_offset, one.last_offset) for one in rows] == [(0, 3), (4, 7), (8, 9)]

    run(scenario)


def test_a_fetch_waits_for_records_and_for_those_that_another_member_releases() -> None:
    async def scenario(node: SharingNode) -> None:
        first, second = Member(node, "1"), Member(node, "2")
        waiting = asyncio.ensure_future(first.acquire())
        await until(lambda: len(node.share_fetching) == 1)
        node.produce("a")
        assert await waiting == [(0, "a", 1)]
        waiting = asyncio.ensure_future(second.acquire())
        await until(lambda: len(node.share_fetching.sessions) == 2)
        await first.acknowledge({0: [(0, 0, [2])]})
        assert await waiting == [(0, "a", 2)]
        answer = await first.fetch(max_wait_ms=1)
        assert answer.responses == []

    run(scenario)


def test_a_fetch_waits_until_there_is_as_much_as_it_asks_for() -> None:
    async def scenario(node: SharingNode) -> None:
        member = Member(node, "m")
        node.produce("a")
        waiting = asyncio.ensure_future(member.acquire(min_bytes=200))
        await until(lambda: len(node.share_fetching) == 1)
        node.produce("b" * 200)
        assert [offset for offset, _, _ in await waiting] == [0, 1]
        node.produce("c")
        assert acquired_of(row_of(await member.fetch(min_bytes=200, max_wait_ms=1))) == [(2, "c", 1)]

    run(scenario)


def test_acknowledgements_come_with_a_fetch_too_and_are_told_partition_by_partition() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a", "b")
        member = Member(node, "m")
        await member.acquire()
        row = row_of(await member.fetch({0: [(0, 1, [1])]}))
        assert (row.acknowledge_error_code, row.error_code, row.acquired_records) == (Code.NONE, Code.NONE, [])
        row = row_of(await member.fetch({0: [(0, 1, [1])]}))
        assert row.acknowledge_error_code == Code.NONE  # it is done, whoever says so again
        node.produce("c")
        row = row_of(await member.fetch({0: [(2, 2, [1])]}))
        assert row.acknowledge_error_code == Code.INVALID_RECORD_STATE
        assert acquired_of(row) == [(2, "c", 1)]
        wrong: list[list[tuple[int, int, list[int]]]] = [
            [(2, 2, [])],
            [(2, 2, [5])],
            [(2, 2, [4])],
            [(2, 1, [1])],
            [(2, 2, [1]), (2, 2, [1])],
        ]
        for batches in wrong:
            answer = await member.acknowledge({0: batches})
            assert answer.responses[0].partitions[0].error_code == Code.INVALID_REQUEST, batches

    run(scenario)


def test_sessions_count_their_requests_and_end_when_told() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a")
        member, other = Member(node, "m"), Member(node, "other")
        assert (await member.fetch(share_session_epoch=1)).error_code == Code.SHARE_SESSION_NOT_FOUND
        assert (await member.fetch(share_session_epoch=-1)).error_code == Code.SHARE_SESSION_NOT_FOUND
        assert await member.acquire() == [(0, "a", 1)]
        assert (await member.fetch(share_session_epoch=3)).error_code == Code.INVALID_SHARE_SESSION_EPOCH
        assert (await member.acknowledge({}, share_session_epoch=0)).error_code == Code.INVALID_SHARE_SESSION_EPOCH
        refused = await member.fetch({0: [(0, 0, [1])]}, share_session_epoch=0)
        assert refused.error_code == Code.INVALID_REQUEST
        waiting = asyncio.ensure_future(other.acquire())
        await until(lambda: len(node.share_fetching.sessions) == 2)
        assert (await member.acknowledge({}, share_session_epoch=-1)).error_code == Code.NONE
        assert await waiting == [(0, "a", 2)]
        assert len(node.share_fetching.sessions) == 1

    run(scenario)


def test_there_are_no_more_sessions_than_may_be() -> None:
    async def scenario(node: SharingNode) -> None:
        first, second = Member(node, "1"), Member(node, "2")
        assert (await first.fetch()).error_code == Code.NONE
        assert (await second.fetch()).error_code == Code.SHARE_SESSION_LIMIT_REACHED
        first.epoch = 0
        assert (await first.fetch()).error_code == Code.NONE  # it begins anew in its own place
        await first.hang_up()
        await until(lambda: len(node.share_fetching.sessions) == 0)
        assert (await second.fetch()).error_code == Code.NONE

    run(scenario, **{"group.share.max.share.sessions": "1"})


def test_what_a_member_had_is_for_others_when_it_hangs_up() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a")
        first, second = Member(node, "1"), Member(node, "2")
        assert await first.acquire() == [(0, "a", 1)]
        waiting = asyncio.ensure_future(second.acquire())
        await until(lambda: len(node.share_fetching.sessions) == 2)
        await first.hang_up()
        assert await waiting == [(0, "a", 2)]

    run(scenario)


def test_a_share_partition_that_nobody_uses_ends_once_all_of_it_is_kept() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a")
        member = Member(node, "m")
        await member.acquire()
        assert await member.acknowledge({0: [(0, 0, [2])]})
        await member.acquire()
        await member.hang_up()
        await until(lambda: len(node.share_fetching) == 0)
        assert await member.acquire() == [(0, "a", 3)]

    run(scenario)


def test_where_a_group_begins_is_kept_before_anything_is_delivered() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a")
        member = Member(node, "m", group_id="latest")
        answer = await member.fetch(max_wait_ms=10)
        assert answer.responses == []
        assert node.kept.states["latest", node.led().topic_id, 0].start == 1
        node.produce("b")
        assert await member.acquire() == [(1, "b", 1)]
        await node.alter_group("by-time", auto_offset_reset="by_duration:P1D")
        member = Member(node, "m", group_id="by-time")
        assert (await member.fetch(max_wait_ms=10)).responses == []  # the records are of long ago

    run(scenario)


def test_a_fetch_that_came_before_the_beginning_was_kept_is_answered_then() -> None:
    async def scenario(node: SharingNode) -> None:
        node.kept.open.clear()
        waiting = asyncio.ensure_future(Member(node, "m").acquire())
        await until(lambda: node.kept.states)
        node.produce("a")
        await asyncio.sleep(0)
        assert not waiting.done()
        node.kept.open.set()
        assert await waiting == [(0, "a", 1)]

    run(scenario)


def test_a_write_that_is_refused_leaves_the_records_with_their_member() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a", "b")
        member = Member(node, "m")
        await member.acquire()
        node.kept.refusals.append(Code.NOT_COORDINATOR)
        assert await member.accept(0, 0) == Code.COORDINATOR_NOT_AVAILABLE
        assert await member.accept(0, 0) == Code.NONE
        node.kept.refusals.append(Code.FENCED_STATE_EPOCH)
        assert await member.accept(1, 1) == Code.NOT_LEADER_OR_FOLLOWER
        await until(lambda: len(node.share_fetching) == 0)
        row = row_of(await member.fetch(max_wait_ms=30_000))
        assert row.error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader.leader_id == 1
        assert await member.acquire() == [(1, "b", 1)]

    run(scenario)


def test_where_the_state_is_gone_it_is_read_again_before_anything_is_written() -> None:
    """A group that was deleted may be made anew meanwhile: what was done for the old one says nothing of it."""

    async def scenario(node: SharingNode) -> None:
        node.produce("a", "b")
        member = Member(node, "m")
        await member.acquire()
        node.kept.refusals.append(Code.INVALID_REQUEST)
        assert await member.accept(0, 0) == Code.UNKNOWN_SERVER_ERROR
        await until(lambda: len(node.share_fetching) == 0)
        row = row_of(await member.fetch(max_wait_ms=30_000))
        assert row.error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert await member.acquire() == [(0, "a", 1), (1, "b", 1)]
        node.kept.refusals.append(Code.MESSAGE_TOO_LARGE)
        assert await member.accept(0, 0) == Code.UNKNOWN_SERVER_ERROR
        assert await member.accept(0, 0) == Code.NONE, "it has the record as before"

    run(scenario)


def test_a_coordinator_that_does_not_answer_is_told_and_asked_again() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a")
        node.kept.refusals.append(Code.COORDINATOR_LOAD_IN_PROGRESS)
        member = Member(node, "m")
        row = row_of(await member.fetch(max_wait_ms=30_000))
        assert row.error_code == Code.COORDINATOR_NOT_AVAILABLE
        assert len(node.share_fetching) == 0  # it is asked again when the member is back, and not before
        node.kept.refusals.append(Code.INVALID_REQUEST)
        row = row_of(await member.fetch(max_wait_ms=30_000))
        assert row.error_code == Code.UNKNOWN_SERVER_ERROR
        assert await member.acquire() == [(0, "a", 1)]

    run(scenario)


def test_topics_and_partitions_that_are_not_here() -> None:
    async def scenario(node: SharingNode) -> None:
        member = Member(node, "m")
        row = row_of(await member.fetch(partitions=[7]))
        assert row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        member = Member(node, "n")
        member.topic_id = UUID(int=5)
        row = row_of(await member.fetch())
        assert row.error_code == Code.UNKNOWN_TOPIC_ID
        answer = await member.acknowledge({0: [(0, 0, [1])]})
        assert answer.responses[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_ID

    run(scenario)


def test_a_member_is_told_who_leads_when_the_leadership_ends() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a")
        member = Member(node, "m")
        await member.acquire()
        waiting = asyncio.ensure_future(member.fetch(max_wait_ms=30_000))
        await until(lambda: node.share_fetching.sessions.find("g", "m").on_due)  # type: ignore[union-attr]
        node.broker.hosted.stop_serving(node.led())
        answer = await waiting
        row = row_of(answer)
        assert row.error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader.leader_id == 1
        assert [(one.node_id, one.port) for one in answer.node_endpoints] == [(1, node.listeners.first.port)]
        refused = (await member.acknowledge({0: [(0, 0, [1])]})).responses[0].partitions[0]
        assert (refused.error_code, refused.current_leader.leader_id) == (Code.NOT_LEADER_OR_FOLLOWER, 1)

    run(scenario)


def test_the_next_leader_goes_on_where_what_was_kept_ends() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a", "b", "c")
        member = Member(node, "m")
        await member.acquire()
        assert await member.accept(0, 0) == Code.NONE
        assert await member.accept(2, 2) == Code.NONE
        await node.lead_anew()
        assert await Member(node, "n").acquire() == [(1, "b", 1)]
        answer = await member.acknowledge({0: [(1, 1, [1])]})
        assert answer.responses[0].partitions[0].error_code == Code.INVALID_RECORD_STATE

    run(scenario)


def test_a_record_whose_offset_is_used_again_after_a_truncation_is_delivered_and_it_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a")
        node.produce("b")
        node.produce("c")
        member = Member(node, "m")
        assert await member.acquire() == [(0, "a", 1), (1, "b", 1), (2, "c", 1)]
        assert await member.accept(0, 2) == Code.NONE
        await node.lead_anew(truncate_to=1)
        node.produce("B")
        node.produce("C")
        assert await Member(node, "n").acquire() == [(1, "B", 1), (2, "C", 1)]
        assert node.share_fetching.forgotten_records == 2
        assert node.kept.states["g", node.led().topic_id, 0].start == 1

    run(scenario)
    (told,) = [one for one in caplog.records if "TRUNCATION" in one.message]
    assert told.levelname == "WARNING"
    assert "t-0: share group 'g'" in told.message
    assert "1 to 2 of leader epoch 0" in told.message


def test_deleted_records_are_passed_over() -> None:
    async def scenario(node: SharingNode) -> None:
        for value in "abcd":
            node.produce(value)
        member = Member(node, "m")
        await member.acquire(max_records=2)
        node.led().delete_records(3)
        assert await member.acquire() == [(3, "d", 1)]
        assert await member.accept(0, 3) == Code.NONE

    run(scenario)


def test_a_member_renews_what_it_has_unless_its_group_may_not() -> None:
    async def scenario(node: SharingNode) -> None:
        node.produce("a")
        member = Member(node, "m")
        await member.acquire()
        answer = await member.acknowledge({0: [(0, 0, [4])]}, is_renew_ack=True)
        assert answer.responses[0].partitions[0].error_code == Code.NONE
        assert answer.acquisition_lock_timeout_ms == 30_000
        nothing: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        row = row_of(await member.fetch({0: [(0, 0, [4])]}, is_renew_ack=True, **nothing))
        assert row.acknowledge_error_code == Code.NONE
        assert (await member.fetch({0: [(0, 0, [4])]}, is_renew_ack=True)).error_code == Code.INVALID_REQUEST
        await node.alter_group("g", renew_acknowledge_enable="false")
        answer = await member.acknowledge({0: [(0, 0, [4])]}, is_renew_ack=True)
        assert answer.responses[0].partitions[0].error_code == Code.INVALID_REQUEST

    run(scenario)


def test_forgotten_partitions_are_fetched_no_more() -> None:
    async def scenario(node: SharingNode) -> None:
        member = Member(node, "m")
        await member.fetch(partitions=[0], max_wait_ms=1)
        assert node.share_fetching.sessions.partition_count == 1
        node.produce("a")
        assert (await member.fetch(forgotten=[0])).responses == []
        assert node.share_fetching.sessions.partition_count == 0

    run(scenario)


def test_a_cluster_without_share_groups_refuses() -> None:
    async def scenario() -> None:
        node = sharing_node()
        await node.start()
        await create_topics_with_defaults(node, ["t"])
        await node.go_to_level(0)
        answer = await Member(node, "m").fetch()
        assert answer.error_code == Code.UNSUPPORTED_VERSION
        assert "share.version" in (answer.error_message or "")
        assert (await Member(node, "m").acknowledge({})).error_code == Code.UNSUPPORTED_VERSION
        await node.stop()

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS_MAX))


def test_records_of_an_aborted_transaction_are_delivered_to_nobody_who_wants_committed_ones() -> None:
    async def scenario(node: SharingNode) -> None:
        partition = node.led()

        def append(batch: bytes, origin: Literal["client", "coordinator"] = "client") -> None:
            leading = partition.role.leading()
            epoch = leading.replica.leader_epoch
            partition.log.append_as_leader(
                memoryview(bytearray(batch)), leader_epoch=epoch, now_ms=NOW_MS, origin=origin
            )
            leading.on_appended()

        def marker(*, committed: bool) -> bytes:
            return end_transaction_batch(
                committed=committed, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW_MS
            )

        await node.alter_group("g", isolation_level="read_committed")
        await node.alter_group("dirty", auto_offset_reset="earliest")
        append(bytes(txn_batch(7, "a")))
        member, dirty = Member(node, "m"), Member(node, "d", group_id="dirty")
        assert (await member.fetch(max_wait_ms=10)).responses == []
        assert await dirty.acquire() == [(0, "a", 1)]
        append(marker(committed=False), "coordinator")
        append(bytes(txn_batch(7, "b", sequence=1)))
        append(marker(committed=True), "coordinator")
        assert await member.acquire() == [(2, "b", 1)]
        assert await dirty.acquire() == [(2, "b", 1)]
        assert await member.accept(2, 2) == Code.NONE
        assert node.kept.states["g", partition.topic_id, 0].start == 4  # the marker is done too

    run(scenario)
