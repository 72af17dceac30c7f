"""Which brokers a new partition's replicas go to.

Brokers stand in a ring in which racks alternate. Leaders go round the ring from a random place; the other replicas of a
partition follow its leader at a distance that grows by one with each round, so that the followers of one leader are
spread as well. A partition uses every rack before it uses one twice.

Kafka: `StripedReplicaPlacer`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId
from tidelog.base.ports import Rng
from tidelog.metadata.image import BrokerImage


def place(
    brokers: Collection[BrokerImage],
    num_partitions: int,
    replication_factor: int,
    *,
    rng: Rng,
) -> list[tuple[BrokerId, ...]]:
    """The replicas of each partition, the leader first.

    Args:
        brokers: all that are registered. Those that may not lead now are used only when there are not enough others,
            and never as leaders.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR: there are not so many brokers, or none that may lead.
    """
    if replication_factor > len(brokers):
        raise refusal(
            Code.INVALID_REPLICATION_FACTOR,
            f"the replication factor, {replication_factor}, is above the number of registered brokers, {len(brokers)}",
        )
    if not any(broker.is_active for broker in brokers):
        raise refusal(Code.INVALID_REPLICATION_FACTOR, "all registered brokers are fenced: there is nobody to lead")
    ring = _ring([broker for broker in brokers if broker.is_active])
    racks = {broker.broker_id: broker.rack for broker in brokers}
    size = len(ring)
    start = rng.randrange(0, size)
    shift = rng.randrange(0, size)
    in_reserve = sorted(broker.broker_id for broker in brokers if not broker.is_active)
    assignments = []
    for index in range(num_partitions):
        if index and index % size == 0:
            shift += 1
        first = (start + index) % size
        leader = ring[first]
        others = [ring[(first + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
        chosen = [leader]
        _choose(chosen, others, racks, replication_factor)
        if len(chosen) < replication_factor:
            turn = index % len(in_reserve)
            _choose(chosen, in_reserve[turn:] + in_reserve[:turn], racks, replication_factor)
        assignments.append(tuple(chosen))
    return assignments


def _choose(
    chosen: list[BrokerId], candidates: list[BrokerId], racks: dict[BrokerId, str | None], replication_factor: int
) -> None:
    """Add candidates in order, first those on racks that are not used yet."""
    used = {racks[broker] for broker in chosen}
    for is_new_rack_needed in (True, False):
        for broker in candidates:
            if len(chosen) == replication_factor:
                return
            if broker in chosen or (is_new_rack_needed and racks[broker] in used):
                continue
            chosen.append(broker)
            used.add(racks[broker])


def _ring(brokers: Sequence[BrokerImage]) -> list[BrokerId]:
    """Broker ids by rack in turn, ascending within each rack."""
    by_rack: dict[str | None, list[BrokerId]] = {}
    for broker in sorted(brokers, key=lambda broker: (broker.rack or "", broker.broker_id)):
        by_rack.setdefault(broker.rack, []).append(broker.broker_id)
    ring: list[BrokerId] = []
    longest = max(len(ids) for ids in by_rack.values())
    for turn in range(longest):
        ring.extend(ids[turn] for ids in by_rack.values() if turn < len(ids))
    return ring
