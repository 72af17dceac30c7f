"""Who is to hold which partitions: spread evenly over brokers and racks, with as few replicas moved as that takes.

```
 1. a replica on a broker that may hold it stays, as far as there are not too many
 2. what is missing goes to the broker that holds least, first on a rack that the partition does not use
 3. a partition that uses a rack twice gives one of the two to a rack that it does not use
 4. the broker that holds most gives to the one that holds least, until they differ by one at most
 5. the first replicas, who are to lead, change places: that moves no record
```
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog.base.errors import ConfigError
from tidelog.base.ids import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]
"""Who holds each partition, the preferred leader first."""


def plan(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    *,
    replication_factor: int | None = None,
) -> Assignment:
    """Where partitions are to go. The same for the same input.

    Args:
        current: who holds each now; all of them are spread together.
        racks: the brokers that may hold them, and where each stands; None for all that do not say.
        replication_factor: how many replicas each is to have; None for as many as it has.

    Returns:
        Those that are to change, in the order of their names.

    Raises:
        ConfigError: there are not enough brokers.
    """
    if not racks:
        raise ConfigError("no broker is left to hold the partitions")
    planning = _Planning(racks)
    wanted = {partition: replication_factor or len(current[partition]) for partition in sorted(current)}
    for partition, factor in wanted.items():
        if factor > len(racks):
            raise ConfigError(
                f"{partition} is to have {factor} replicas, and may be held by {len(racks)} brokers: {_listed(racks)}"
            )
        planning.keep(partition, current[partition], factor)
    for partition, factor in wanted.items():
        planning.fill(partition, factor)
    for partition in wanted:
        planning.use_more_racks(partition)
    planning.level()
    planning.level_leaders()
    return {
        partition: tuple(replicas)
        for partition, replicas in planning.replicas.items()
        if tuple(replicas) != tuple(current[partition])
    }


class _Planning:
    """The plan as far as it goes.

    Attributes:
        replicas: of each partition, in place.
    """

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.replicas: dict[TopicPartition, list[int]] = {}
        self._racks = racks
        self._load: Counter[int] = Counter(dict.fromkeys(sorted(racks), 0))

    def keep(self, partition: TopicPartition, current: Sequence[int], factor: int) -> None:
        kept = [broker for broker in dict.fromkeys(current) if broker in self._racks]
        while len(kept) > factor:
            uses = Counter(self._racks[broker] for broker in kept)
            # The last of those that stand where others of it stand too; else the last.
            spare = [broker for broker in kept if uses[self._racks[broker]] > 1] or kept
            kept.remove(spare[-1])
        self.replicas[partition] = kept
        self._load.update(kept)

    def fill(self, partition: TopicPartition, factor: int) -> None:
        replicas = self.replicas[partition]
        while len(replicas) < factor:
            broker = self._best(replicas)
            replicas.append(broker)
            self._load[broker] += 1

    def use_more_racks(self, partition: TopicPartition) -> None:
        replicas = self.replicas[partition]
        while True:
            uses = Counter(self._racks[broker] for broker in replicas)
            doubled = [broker for broker in replicas if uses[self._racks[broker]] > 1]
            better = self._best(replicas)
            if not doubled or better in replicas or self._racks[better] in uses:
                return
            self._replace(partition, max(reversed(doubled), key=self._load.__getitem__), better)

    def level(self) -> None:
        while True:
            by_load = sorted(self._load, key=lambda broker: (self._load[broker], broker))
            if not any(self._give_one(most, by_load) for most in reversed(by_load)):
                return

    def level_leaders(self) -> None:
        leads = Counter(dict.fromkeys(self._load, 0))
        leads.update(replicas[0] for replicas in self.replicas.values())
        is_changed = True
        while is_changed:
            is_changed = False
            for replicas in self.replicas.values():
                other = min(replicas, key=lambda broker: leads[broker])
                if leads[replicas[0]] - leads[other] > 1:
                    leads[replicas[0]] -= 1
                    leads[other] += 1
                    replicas.remove(other)
                    replicas.insert(0, other)
                    is_changed = True

    def _give_one(self, most: int, by_load: Sequence[int]) -> bool:
        """Have a broker give one replica to one that holds less by two, or more, and can take it."""
        for least in by_load:
            if self._load[most] - self._load[least] < 2:
                return False
            for partition, replicas in self.replicas.items():
                if most in replicas and least not in replicas and self._can_change(replicas, most, least):
                    self._replace(partition, most, least)
                    return True
        return False

    def _can_change(self, replicas: Sequence[int], old: int, new: int) -> bool:
        """Whether the partition uses as many racks afterwards."""
        others = {self._racks[broker] for broker in replicas if broker != old}
        return self._racks[new] not in others or self._racks[old] in others

    def _best(self, replicas: Sequence[int]) -> int:
        """Of the brokers without a replica of it, on a rack that it does not use if there is one, who holds least."""
        used = {self._racks[broker] for broker in replicas}
        free = [broker for broker in self._load if broker not in replicas] or list(replicas)
        return min(free, key=lambda broker: (self._racks[broker] in used, self._load[broker], broker))

    def _replace(self, partition: TopicPartition, old: int, new: int) -> None:
        replicas = self.replicas[partition]
        replicas[replicas.index(old)] = new
        self._load[old] -= 1
        self._load[new] += 1


def _listed(brokers: Mapping[int, object]) -> str:
    return ", ".join(map(str, sorted(brokers)))
