"""The books of the ledger: what was acknowledged and told, held against what is in the logs. Values in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.demo.evidence import ReplicaLog

Place = tuple[int, int]
"""Partition and offset."""


class LostRange(NamedTuple):
    """What somebody was told to be gone: the offsets from `first_offset`, up to but not with `end_offset`.

    `first_offset` is None where only the end could be told: it holds all below.
    """

    partition: int
    first_offset: int | None
    end_offset: int

    def holds(self, place: Place) -> bool:
        return place[0] == self.partition and (self.first_offset or 0) <= place[1] < self.end_offset

    def __str__(self) -> str:
        which = "up to" if self.first_offset is None else f"{self.first_offset:,} to"
        return f"partition {self.partition}, offsets {which} {self.end_offset - 1:,}"


@dataclass(frozen=True)
class History:
    """What the clients of the ledger saw, each for itself.

    Attributes:
        acknowledged: where each number was said to be; the offset is None where the answer did not say.
        refused: how many numbers the writer was told of that they may not be there.
        told_producer: what the writer was told to be gone.
        told_reader: what the consumer was told.
        kept_by_reader: what it has read and was not told to be gone.
        told_query: what the Spark query said.
        kept_by_query: as of the reader.
        read_twice: how often the consumer was given a record again without a word.
        account: what the cluster's account of losses says was cut off.
    """

    acknowledged: Mapping[int, tuple[int, int | None]]
    refused: int
    told_producer: Sequence[LostRange]
    told_reader: Sequence[LostRange]
    kept_by_reader: Mapping[Place, int]
    read_twice: int
    told_query: Sequence[LostRange] = ()
    kept_by_query: Mapping[Place, int] | None = None
    account: Sequence[LostRange] = ()


class Balance(NamedTuple):
    """What became of the numbers. All are counts of records, but `differing_replicas`.

    Attributes:
        acknowledged: to the writer.
        truncated: of those, how many are in no replica's log any more.
        told_readers: of the truncated, how many lie in a range that the consumer or the query named.
        told_consumer, told_query, told_producer: likewise, each by itself.
        unreported: of the truncated, how many nobody was told of.
        unaccounted: of the truncated, how many the cluster's account of losses does not name.
        duplicated: numbers that are in the log more than once, and records that were read again without a word.
        refused: the writer was told that they may not be there.
        consumer_differs: what the consumer has kept and is not in the log, and the other way round.
        query_differs: likewise.
        differing_replicas: whose files are not the same as those of the others.
        inexact: reports that do not begin where, by the files, the logs part.
    """

    acknowledged: int
    truncated: int
    told_readers: int
    told_consumer: int
    told_query: int
    told_producer: int
    unreported: int
    unaccounted: int
    duplicated: int
    refused: int
    consumer_differs: int
    query_differs: int
    differing_replicas: int
    inexact: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing is missing that was not told, and nobody has what is not there."""
        wrong = self.unreported + self.unaccounted + self.duplicated + self.consumer_differs + self.query_differs
        return not (wrong or self.differing_replicas or self.inexact)


def balance(
    history: History,
    replicas: Mapping[int, Sequence[ReplicaLog]],
    lost: Mapping[Place, int],
    parted_at: Mapping[int, int],
) -> Balance:
    """Hold what was seen against the files.

    Args:
        history: of the clients.
        replicas: the logs of each partition's replicas, in the end.
        lost: what the files held before and do not hold any more, by its place.
        parted_at: for each partition that was truncated, the first offset of it, by the files.
    """
    logs = {index: of[0].numbers for index, of in replicas.items()}
    there = {(index, offset): number for index, numbers in logs.items() for offset, number in numbers.items()}
    counts = Counter(there.values())
    was_at = {number: place for place, number in lost.items()}
    truncated = {
        was_at.get(number) or (partition, -1 if offset is None else offset)
        for number, (partition, offset) in history.acknowledged.items()
        if number not in counts
    }
    by_consumer = _told(truncated, history.told_reader)
    by_query = _told(truncated, history.told_query)
    by_producer = _told(truncated, history.told_producer)
    told = [*history.told_reader, *history.told_query, *history.told_producer]
    return Balance(
        acknowledged=len(history.acknowledged),
        truncated=len(truncated),
        told_readers=len(by_consumer | by_query),
        told_consumer=len(by_consumer),
        told_query=len(by_query),
        told_producer=len(by_producer),
        unreported=len(truncated - by_consumer - by_query - by_producer),
        unaccounted=len(truncated - _told(truncated, history.account)),
        duplicated=sum(count - 1 for count in counts.values()) + history.read_twice,
        refused=history.refused,
        consumer_differs=_differences(history.kept_by_reader, there),
        query_differs=0 if history.kept_by_query is None else _differences(history.kept_by_query, there),
        differing_replicas=sum(one != of[0] for of in replicas.values() for one in of),
        inexact=sum(one.first_offset is not None and one.first_offset != parted_at.get(one.partition) for one in told),
    )


def lost_between(
    before: Mapping[int, Sequence[ReplicaLog]], after: Mapping[int, Sequence[ReplicaLog]]
) -> dict[Place, int]:
    """What any replica held, and the first of them holds no more: its places, with the numbers there."""
    lost: dict[Place, int] = {}
    for index, replicas in before.items():
        left = after[index][0].numbers
        for replica in replicas:
            lost |= {
                (index, offset): number for offset, number in replica.numbers.items() if left.get(offset) != number
            }
    return lost


def without(kept: dict[Place, int], gone: LostRange) -> int:
    """Forget what came from records that are gone, those read past the end of the range included. Returns how many."""
    undone = [place for place in kept if place[0] == gone.partition and place[1] >= (gone.first_offset or 0)]
    for place in undone:
        del kept[place]
    return len(undone)


def _told(truncated: Iterable[Place], ranges: Collection[LostRange]) -> set[Place]:
    return {place for place in truncated if any(one.holds(place) for one in ranges)}


def _differences(kept: Mapping[Place, int], there: Mapping[Place, int]) -> int:
    return len(kept.items() ^ there.items())
