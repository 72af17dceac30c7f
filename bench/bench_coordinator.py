"""The group coordinator alone, without a wire or a disk: what its own work costs."""

from __future__ import annotations

import time

from harness import LONG, figure, median, say

from support.fixtures.coordinated import Coordinated, CountingRng
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.coordinator.groups import GroupCoordinator, GroupSettings
from tidelog.coordinator.groups.records import encode_offset, offset_key
from tidelog.journal import RequestId
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse

ROUNDS = 7 if LONG else 5
COMMITS = 50_000
OFFSETS = 1_000_000
MEMBERS = 50
WALL_MS = 1_700_000_000_000

SHAPES = {"1,000 groups": 1_000, "100,000 groups": 100_000, "1,000,000 groups": 1_000_000}
"""How many groups share the offsets."""


def commit_rate() -> float:
    """Commits per second of one partition each, each committed and answered before the next."""
    coordinator = GroupCoordinator(0, GroupSettings(), rng=CountingRng())
    coordinator.become_active(LeaderEpoch(1), Offset(0), now_ms=0, wall_ms=WALL_MS)
    requests = [
        OffsetCommitRequest(
            group_id=f"group-{number % 100}",
            topics=[
                OffsetCommitRequestTopic(
                    name="topic",
                    partitions=[OffsetCommitRequestPartition(partition_index=number % 10, committed_offset=number)],
                )
            ],
        )
        for number in range(1_000)
    ]
    started = time.perf_counter()
    for number in range(COMMITS):
        request = requests[number % len(requests)]
        coordinator.on_offset_commit(RequestId(number), request, api_version=7, now_ms=number, wall_ms=WALL_MS)
        coordinator.on_committed(coordinator.take_ready().batches[-1].end_offset)
        assert coordinator.take_ready().answers
    return COMMITS / (time.perf_counter() - started)


def load_seconds(groups: int) -> float:
    """Seconds to replay all offsets, as records that were decoded already."""
    records = [
        (offset_key(f"group-{number % groups}", "topic", number // groups), encode_offset(number, 5, "", WALL_MS))
        for number in range(OFFSETS)
    ]
    coordinator = GroupCoordinator(0, GroupSettings(), rng=CountingRng())
    started = time.perf_counter()
    for number, (key, value) in enumerate(records):
        coordinator.replay(key, value, Offset(number))
    coordinator.become_active(LeaderEpoch(1), Offset(OFFSETS), now_ms=0, wall_ms=WALL_MS)
    assert coordinator.offsets_count == OFFSETS
    return time.perf_counter() - started


def rebalance_seconds() -> float:
    """Seconds until all members of a stable group, and one more, are in the next generation and have their parts."""
    world = Coordinated()
    members = world.stable_group(*(f"c{number}" for number in range(MEMBERS - 1)))
    started = time.perf_counter()
    joins = [world.join(one) for one in (*members, world.member_id_required())]
    answers = [world.taken(join, JoinGroupResponse) for join in joins]
    world.synced([one.member_id for one in answers], 2, leader=answers[0].leader)
    return time.perf_counter() - started


def main() -> None:
    rates = [commit_rate() for _ in range(ROUNDS)]
    figure("coordinator alone: commits of one partition each", median(rates), "commits/s", at_least=40_000)
    times = [rebalance_seconds() for _ in range(ROUNDS)]
    figure("coordinator alone: rebalance of 50 members", median(times) * 1_000, "ms")
    for name, groups in SHAPES.items():
        say(f"{name} ...")
        figure(f"coordinator alone: 1,000,000 offsets of {name}", load_seconds(groups), "s", at_most=5)


if __name__ == "__main__":
    main()
