"""Keeps what clients were told of transactions, and holds it against the logs of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.client.core.values import ConsumerRecord, PositionReset
from tidelog.client.options import Isolation
from tidelog.sim.checkers.copies import (
    CommittedIsRead,
    CopiedOnce,
    CopyTransaction,
    Fate,
    LastOfEachKey,
    NoAbortedRead,
    OffsetsFollowTransactions,
    TransactionOutcomes,
    copy_of,
    latest_key,
    parse_copy,
)
from tidelog.sim.checkers.transactional_logs import decided, first_undecided
from tidelog.sim.checkers.views import Broken
from tidelog.sim.node import SimulatedNode
from tidelog.sim.runs.cluster_plan import OFFSETS
from tidelog.sim.runs.cluster_recorder import ClusterRecorder
from tidelog.sim.runs.cluster_views import hosted

NOTHING_STAYS_OPEN = "NothingStaysOpen"


class _Reader:
    """What a reader of copies was given of one partition, and not told to undo."""

    __slots__ = ("begins_at", "position", "records")

    def __init__(self) -> None:
        self.records: dict[int, bytes] = {}
        self.begins_at = 0
        self.position = 0


class TransactionRecorder:
    """See the module.

    Args:
        cluster: sees all else.
        nodes: all of them.
        latest: the compacted topic.
        state: what coordinators know.
    """

    def __init__(
        self,
        cluster: ClusterRecorder,
        nodes: Mapping[BrokerId, SimulatedNode],
        latest: TopicPartition,
        state: TopicPartition,
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._latest = latest
        self._state = state
        self._outputs: list[TopicPartition] = []
        self._transactions: dict[int, CopyTransaction] = {}
        self._isolation: dict[str, Isolation] = {}
        self._readers: dict[tuple[str, TopicPartition], _Reader] = {}

    @property
    def transactions(self) -> list[CopyTransaction]:
        """All that were begun, by number."""
        return [self._transactions[number] for number in sorted(self._transactions)]

    def watch(self, outputs: Iterable[TopicPartition]) -> None:
        """Look at the topics, once they are there."""
        self._outputs = list(outputs)
        for partition in self._outputs:
            self._cluster.watch(partition, is_transactional=True)
        self._cluster.keep_promises_of([self._latest, self._state])

    def expect(self, holds: bool, invariant: str, what: str) -> None:
        """As of the cluster's."""
        self._cluster.expect(holds, invariant, what)

    # What producers are told.

    def on_begun(self, one: CopyTransaction) -> None:
        """A producer is about to write."""
        self._transactions[one.number] = one

    def on_commit_asked(self, one: CopyTransaction) -> None:
        """It is about to ask for the commit."""
        one.fate = Fate.ASKED
        one.known_elections = {each: self._cluster.unclean_elections_known(each) for each in self._outputs}

    def last_committed(self, source: TopicPartition) -> int:
        """The number of the last transaction whose commit was answered; 0 if there is none."""
        numbers = (one.number for one in self._of(source) if one.fate is Fate.COMMITTED)
        return max(numbers, default=0)

    def on_offset(self, source: TopicPartition, offset: int | None, known_number: int) -> None:
        """A group was asked for its stable offset, when `last_committed` was `known_number`."""
        if self.keeps_offsets():
            found = OffsetsFollowTransactions().check(self._of(source), offset, known_number)
            self._note(source, OffsetsFollowTransactions.name, found)

    def keeps_offsets(self) -> bool:
        """Whether what transactions did to groups must be as it was; if not, some may stay open for ever."""
        return self._keeps(OFFSETS, self._state)

    def is_end(self, source: TopicPartition, position: int) -> bool:
        """Whether nothing is left to be copied."""
        records = self._cluster.watched[source].to_be_read()
        return records is not None and position >= len(records)

    # What readers are told.

    def on_reader(self, name: str, isolation: Isolation) -> None:
        """Somebody begins to read all copies."""
        self._isolation[name] = isolation
        for partition in self._outputs:
            self._readers[name, partition] = _Reader()

    def on_read(self, name: str, record: ConsumerRecord) -> None:
        """A reader was given a record."""
        partition, copy = TopicPartition(record.topic, PartitionIndex(record.partition)), bytes(record.value or b"")
        self._readers[name, partition].records[record.offset] = copy
        if self._isolation[name] == "read_committed" and self._keeps(partition, self._state):
            one = self._transactions.get(parse_copy(copy)[0])
            self._note(partition, NoAbortedRead.name, NoAbortedRead().check(name, one, copy))

    def on_reset(self, name: str, reset: PositionReset) -> None:
        """A reader was told that records are gone."""
        reader = self._readers[name, reset.topic_partition]
        kept = reset.divergent_offset
        if kept is None:
            reader.begins_at = reset.new_offset or 0
            kept = 0
        reader.records = {offset: copy for offset, copy in reader.records.items() if offset < kept}

    def on_position(self, name: str, partition: TopicPartition, position: int) -> None:
        """Where a reader stands."""
        self._readers[name, partition].position = position

    # What is checked at the end.

    def unstable(self) -> str | None:
        """Where a transaction is open still; None if there is none that somebody has to end."""
        if not self._keeps(self._state):
            return None
        for partition in (*self._outputs, self._latest, OFFSETS):
            if not self._keeps(partition):
                continue  # its marker may be lost, and its coordinator does not know
            state = self._cluster.latest.partition(partition.topic, partition.partition)
            if state is None:
                continue
            replica = None if state.leader is None else hosted(self._nodes[state.leader], partition)
            if replica is None or replica.replica is None:
                return f"nobody leads {partition}"
            stable, end = replica.last_stable_offset, replica.log.log_end_offset
            if stable < end:
                return f"{partition} is stable up to {stable} of {end}"
        return None

    def behind(self) -> list[str]:
        """What readers have still to read."""
        found = []
        for (name, partition), reader in self._readers.items():
            state = self._cluster.latest.partition(partition.topic, partition.partition)
            replica = None if state is None or state.leader is None else hosted(self._nodes[state.leader], partition)
            if replica is None:
                found.append(f"{name} reads {partition}, which nobody leads")
            else:
                is_all = self._isolation[name] == "read_uncommitted"
                end = replica.high_watermark if is_all else replica.last_stable_offset
                if reader.position < end:
                    found.append(f"{name} stands at {reader.position} of {end} in {partition}")
        return found

    def on_final_offset(self, source: TopicPartition, offset: int | None) -> None:
        """All is over, and a group was asked for its offset."""
        if self._keeps(OFFSETS, self._state, *self._outputs):
            numbers = {
                parse_copy(copy)[0] for partition in self._outputs for copy in self._committed(partition).values()
            }
            there = [one for one in self._of(source) if one.number in numbers]
            last = max(there, key=lambda one: one.number, default=None)
            if last is not None:
                last.fate = Fate.COMMITTED
            found = OffsetsFollowTransactions().check(filter(None, [last]), offset, 0 if last is None else last.number)
            self._note(source, OffsetsFollowTransactions.name, found)

    def check_latest(self, records: Iterable[ConsumerRecord]) -> None:
        """All is over, and the compacted topic was read."""
        last: dict[bytes, bytes] = {}
        for record in records:
            copy = bytes(record.value or b"")
            last[bytes(record.key or b"")] = copy
            if self._keeps(self._latest, self._state):
                one = self._transactions.get(parse_copy(copy)[0])
                self._note(self._latest, NoAbortedRead.name, NoAbortedRead().check("the last reader", one, copy))
        if self._keeps(self._latest, self._state, *self._outputs):
            wanted: dict[bytes, int] = {}
            for partition in self._outputs:
                for copy in self._committed(partition).values():
                    one = self._transactions[parse_copy(copy)[0]]
                    if self._latest in one.copies:
                        wanted[latest_key(one)] = max(one.number, wanted.get(latest_key(one), 0))
            self._note(self._latest, LastOfEachKey.name, LastOfEachKey().check(last, wanted))

    def check_books(self) -> None:
        """All is over: what was copied, and what readers have."""
        for (name, partition), reader in self._readers.items():
            self._note(partition, CommittedIsRead.name, self._check_reader(name, partition, reader))
        committed = {partition: set(self._committed(partition).values()) for partition in self._outputs}
        if not self._keeps(self._state):
            return
        has_lost = {partition: self._cluster.unclean_elections(partition) for partition in self._outputs}
        found = TransactionOutcomes().check(self._transactions.values(), committed, has_lost)
        self._cluster.note(TransactionOutcomes.names, found)
        copies = [copy for partition in self._outputs for copy in self._committed(partition).values()]
        for source in {one.source for one in self._transactions.values() if one.source not in self._outputs}:
            if self._keeps(OFFSETS, source, *self._outputs):
                records = self._cluster.watched[source].to_be_read() or ()
                names = (
                    copy_of(0, source, at, value) for at, (_, value) in enumerate(records) if isinstance(value, bytes)
                )
                wanted = [parse_copy(name)[1] for name in names]
                found = CopiedOnce().check(source, wanted, map(parse_copy, copies))
                self._note(source, CopiedOnce.name, found)

    def _check_reader(self, name: str, partition: TopicPartition, reader: _Reader) -> Iterator[Broken]:
        is_all, is_kept = self._isolation[name] == "read_uncommitted", self._cluster.keeps(partition)
        there = self._committed(partition) if is_kept and not is_all else self._all(partition)
        if not is_all and not is_kept:  # what is decided may be so no more: a marker may be lost
            there = {offset: copy for offset, copy in there.items() if offset in reader.records}
        begun = {offset: copy for offset, copy in there.items() if offset >= reader.begins_at}
        end_offset = None if is_all else self._first_undecided(partition)
        yield from CommittedIsRead().check(name, reader.records, begun, end_offset)

    # How.

    def _of(self, source: TopicPartition) -> list[CopyTransaction]:
        return [one for one in self._transactions.values() if one.source == source]

    def _keeps(self, *partitions: TopicPartition) -> bool:
        return all(map(self._cluster.keeps, partitions))

    def _committed(self, partition: TopicPartition) -> dict[int, bytes]:
        """By offset, what the leader's log has of committed transactions."""
        copies, stored = self._all(partition), self._cluster.watched[partition].leader()
        if stored is None:
            return {}
        return {
            offset: copies[offset]
            for batch, commits in decided(stored.transactional)
            for offset in range(batch.base_offset, batch.next_offset)
            if commits
        }

    def _first_undecided(self, partition: TopicPartition) -> int | None:
        """Where who reads what is committed waits: for ever, if the coordinator has lost what it knew."""
        stored = self._cluster.watched[partition].leader()
        return None if stored is None else first_undecided(stored.transactional)

    def _all(self, partition: TopicPartition) -> dict[int, bytes]:
        stored = self._cluster.watched[partition].leader()
        if stored is None:
            return {}
        numbered = enumerate(stored.records, stored.start_offset)
        return {offset: value for offset, (_, value) in numbered if isinstance(value, bytes)}

    def _note(self, partition: TopicPartition, invariant: str, found: Iterable[Broken]) -> None:
        self._cluster.note_of(partition, invariant, found)
