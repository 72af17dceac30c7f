"""How a change of the metadata gets to many nodes: the quorum's own machines on a virtual network, Fetch 17 beside 18.

Three voters, and so many observers, each of which fetches from the leader. A message takes a millisecond, a sync one
as well. What is counted is sent between the append at the leader and the moment when the last node knows that the
change is committed, and fetches again. Sizes are those of the messages as they are encoded, for a batch of 300 bytes.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from harness import LONG, figure, median, say

from support.worlds.quorum_world import Conditions, QuorumWorld, Sent
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, ClusterId, Offset
from tidelog.quorum import FetchAnswer, QuorumFetch
from tidelog.server.quorum.quorum_messages import fetch_response, request_of
from tidelog.wire import Piece
from tidelog.wire.frame import encode_request, encode_response

FETCH = 1
CLUSTER_ID = ClusterId("5L6g3nShT-eMCtK--X86sw")
CHANGE_SIZE_BYTES = 300
OBSERVERS = (10, 100, 1_000)
CHANGES = 25 if LONG else 10
DELAY_MS = SYNC_MS = 1
ROUND_TRIP_MS = 2 * DELAY_MS
PAUSE_MS = (1_000, 1_500)


class Change(NamedTuple):
    """What one change took."""

    messages: int
    size_bytes: int
    known_ms: int
    fetches_per_replica: float


def spread(observers: int, version: int) -> list[Change]:
    """Append one change after the other, at any moment of the fetches that wait."""
    conditions = Conditions(
        (DELAY_MS, DELAY_MS), (SYNC_MS, SYNC_MS), sends_high_watermark=version >= 18, sends_pre_votes=True
    )
    world = QuorumWorld(3, observers, seed=observers, conditions=conditions)
    world.start()
    world.run_until(lambda: world.active)
    leader = world.active
    assert leader is not None
    machines = list(world.machines.values())
    changes = []
    for number in range(CHANGES):
        world.run(world.draw(PAUSE_MS))
        world.sent = []
        began = world.now_ms
        offset = leader.propose(f"change {number}")
        while any(machine.high_watermark <= offset for machine in machines):
            world.run(1)
        known_ms = world.now_ms - began
        world.run(ROUND_TRIP_MS)
        sent = world.sent
        fetches = sum(isinstance(one.message, QuorumFetch) for one in sent)
        size_bytes = sum(size_of(one, version) for one in sent)
        changes.append(Change(len(sent), size_bytes, known_ms, fetches / (observers + 2)))
    return changes


def size_of(sent: Sent, version: int) -> int:
    """Of a frame on the wire, its size in front."""
    message = sent.message
    if isinstance(message, QuorumFetch):
        return fetch_size(message, version)
    assert isinstance(message, FetchAnswer)
    assert message.code is Code.NONE
    return answer_size(message, sent.records, version)


@cache
def fetch_size(fetch: QuorumFetch, version: int) -> int:
    request, _ = request_of(fetch, CLUSTER_ID, BrokerId(1), ())
    return _size(encode_request(FETCH, version, 0, str(fetch.replica.node_id), request))


@cache
def answer_size(answer: FetchAnswer, records: int, version: int) -> int:
    response = fetch_response(answer, bytes(records * CHANGE_SIZE_BYTES), Offset(0), None)
    return _size(encode_response(FETCH, version, 0, response))


def _size(pieces: list[Piece]) -> int:
    return sum(map(len, pieces))


def main() -> None:
    say(f"{CHANGES} changes each; a message takes {DELAY_MS} ms, a sync {SYNC_MS} ms")
    print("| observers | Fetch | messages a change | kB a change | last one knows after | fetches a replica |")
    print("|---|---|---|---|---|---|")
    for observers in OBSERVERS:
        found = {version: spread(observers, version) for version in (17, 18)}
        for version, changes in found.items():
            known_ms = [one.known_ms for one in changes]
            print(
                f"| {observers:,} | {version} | {median([one.messages for one in changes]):,.0f} "
                f"| {median([one.size_bytes for one in changes]) / 1e3:,.1f} "
                f"| {median(known_ms):,.0f} ms, at most {max(known_ms):,} "
                f"| {median([one.fetches_per_replica for one in changes]):.2f} |",
                flush=True,
            )
        new, old = found[18], found[17]
        name, peer = f"metadata change, {observers:,} observers", "Fetch 17"
        figure(
            f"{name}: the last one knows it (simulated)",
            max(one.known_ms for one in new),
            "ms",
            peer=peer,
            peer_value=max(one.known_ms for one in old),
            at_most=20,
        )
        figure(
            f"{name}: fetches a replica (simulated)",
            median([one.fetches_per_replica for one in new]),
            "fetches",
            peer=peer,
            peer_value=median([one.fetches_per_replica for one in old]),
            at_most=2,
        )


if __name__ == "__main__":
    main()
