"""Fetch sessions (KIP-227): what a reader follows is kept here, so that requests and answers speak of changes only.

Pure. A session holds the partitions that its reader follows, what it was last told of each, and which of them are due:

    request ──► due ──► read ──┬─ nothing new ──► watched: its partition marks it due when something changes
                 ▲             └─ records, an error ──► found ──► told
                 └──────────────── stays due: there may be more ───┘

Whoever reads for a fetch (`FetchReading`) says what there is of a partition; the session alone knows whose turn it is.

So a fetch looks at what changed, however many partitions its session has. `due` is a queue: who was given records goes
to its end, and none starves. A fetch without a session is one that is forgotten with its answer.

No answer may be lost unnoticed. Each request carries the session's next epoch, and a reader that did not get an answer
cannot have that: it is refused, or starts anew, and is then told everything.

Kafka: `FetchSession`, `FetchContext`, `FetchManager`, `FetchSessionCache`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from tidelog.base.errors import Code, refusal
from tidelog.base.ports import Rng

if TYPE_CHECKING:
    from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
INT32_MAX = 0x7FFF_FFFF

PARTITION_BYTES = 430
"""About what a session takes for a partition, of which half is what the request said of it."""

LET_GO_AT_ONCE_MAX = 500
"""Partitions, of a session that ended: each takes a few microseconds."""

EVICTION_MS = 120_000
"""Sessions that were not used for so long give way; those that are older give way to larger ones."""


class FetchListeners(Protocol):
    """Those that are told once of the next change. `PartitionListeners` are some."""

    def add(self, listener: FetchedPartition, /) -> None: ...

    def remove(self, listener: FetchedPartition, /) -> None: ...


class Watchable(Protocol):
    """A partition. `Partition` is one."""

    @property
    def listeners(self) -> FetchListeners: ...

    @property
    def follower_listeners(self) -> FetchListeners: ...


class Throttling(Protocol):
    """Tells once when there is room. `Throttle` is one."""

    def wait(self, waiter: FetchedPartition) -> None: ...

    def forget(self, waiter: FetchedPartition) -> None: ...


@dataclass(slots=True, eq=False)
class FetchedPartition:
    """One partition that a reader follows.

    Attributes:
        topic: its name; empty where the reader speaks of ids.
        wanted: from where on, and what the reader believes, as it said last.
        high_watermark: as the reader was last told; None if it is to be told again, whatever it is.
        log_start_offset: likewise.
        is_throttled: whether the bytes that were found count towards the throttle of replication.
        throttle: what holds it back, until there is room.
    """

    session: FetchSession
    topic: str
    topic_id: UUID
    wanted: FetchPartition
    high_watermark: int | None = None
    log_start_offset: int | None = None
    watched: Watchable | None = None
    is_throttled: bool = False
    throttle: Throttling | None = None

    def watch(self, partition: Watchable) -> None:
        """Be due again when the partition changes."""
        if self.watched is not partition:
            self.unwatch()
            self.watched = partition
            self._listeners_of(partition).add(self)

    def hold_back(self, throttle: Throttling) -> None:
        """Be due again when there is room."""
        self.throttle = throttle
        throttle.wait(self)

    def on_room(self) -> None:
        """The throttle has room again: the partition is due."""
        self.throttle = None
        self.session.on_due_again(self)

    def unwatch(self) -> None:
        if self.throttle is not None:
            self.throttle.forget(self)
            self.throttle = None
        watched, self.watched = self.watched, None
        if watched is not None:
            self._listeners_of(watched).remove(self)

    def _listeners_of(self, partition: Watchable) -> FetchListeners:
        return partition.follower_listeners if self.session.is_follower else partition.listeners

    def on_changed(self) -> None:
        """The partition changed. Its listener has to be registered again for the next change."""
        self.watched = None
        self.session.on_due_again(self)

    def on_committed(self) -> None:
        """The high watermark moved, which a follower is told with its next answer, and is not answered for."""
        self.session.keep_due(self)

    def is_update(self, row: PartitionData) -> bool:
        """Whether the answer holds anything that the reader does not know yet."""
        return bool(
            row.error_code
            or row.records
            or row.diverging_epoch is not None
            or row.preferred_read_replica >= 0
            or row.high_watermark != self.high_watermark
            or row.log_start_offset != self.log_start_offset
        )


class FetchSession:
    """What one reader follows. Attributes are only to be read, but for `on_due`.

    Args:
        ended: it enters itself here once it is closed, if it follows more than it can let go of at once.

    Attributes:
        session_id: 0 for a fetch without a session.
        epoch: that the next request must carry.
        found_bytes: of the records that were read and not told yet.
        throttled_bytes: those of them that count towards the throttle of replication.
        on_due: called when something becomes due; set by the fetch that waits for it.
    """

    __slots__ = (
        "_due",
        "_ended",
        "_found",
        "_is_closed",
        "_knows_all",
        "_unread",
        "created_ms",
        "epoch",
        "eviction_key",
        "found_bytes",
        "is_by_id",
        "is_follower",
        "on_due",
        "partitions",
        "session_id",
        "throttled_bytes",
        "used_ms",
    )

    def __init__(
        self, request: FetchRequest, ended: list[FetchSession], *, is_by_id: bool, is_follower: bool, now_ms: int
    ) -> None:
        self._ended = ended
        self.session_id = NO_SESSION
        self.epoch = FINAL_EPOCH
        self.is_by_id = is_by_id
        self.is_follower = is_follower
        self.created_ms = self.used_ms = now_ms
        self.partitions: dict[tuple[str | UUID, int], FetchedPartition] = {}
        self.found_bytes = self.throttled_bytes = 0
        self._due: dict[FetchedPartition, None] = {}  # in this order
        self._unread: list[FetchedPartition] = []  # those of them whose turn it is, the next one last
        self._found: dict[FetchedPartition, PartitionData] = {}  # read, and not told yet
        self.on_due: Callable[[], None] | None = None
        self.eviction_key: tuple[bool, int, int] | None = None
        self._knows_all = False  # the first answer speaks of every partition
        self._is_closed = False
        self.update(request)

    def update(self, request: FetchRequest) -> None:
        """Take in what a request says: partitions that are new or read from elsewhere, and those no longer wanted."""
        partitions, due = self.partitions, self._due
        due.update(dict.fromkeys(reversed(self._unread)))  # a fetch that ended before its time
        self._unread.clear()
        due.update(dict.fromkeys(self._take_found()))  # an answer that was never given
        is_by_id = self.is_by_id
        for topic in request.topics:
            name, topic_id = topic.topic, topic.topic_id
            of_topic: str | UUID = topic_id if is_by_id else name
            for wanted in topic.partitions:
                fetched = partitions.get((of_topic, wanted.partition))
                if fetched is None:
                    fetched = FetchedPartition(self, name, topic_id, wanted)
                    partitions[of_topic, wanted.partition] = fetched
                else:
                    fetched.wanted = wanted
                due[fetched] = None
        for forgotten in request.forgotten_topics_data:
            of_topic = forgotten.topic_id if is_by_id else forgotten.topic
            for index in forgotten.partitions:
                removed = partitions.pop((of_topic, index), None)
                if removed is not None:
                    removed.unwatch()
                    due.pop(removed, None)

    def on_due_again(self, fetched: FetchedPartition) -> None:
        """Queue the partition to be read, and wake a waiting fetch."""
        self._due[fetched] = None
        if self.on_due is not None:
            self.on_due()

    def keep_due(self, fetched: FetchedPartition) -> None:
        """It is to be read when the session is looked at next; no fetch is woken for it."""
        self._due[fetched] = None

    @property
    def has_due(self) -> bool:
        """Whether anything is to be read."""
        return bool(self._due or self._unread)

    @property
    def is_partway(self) -> bool:
        """Whether `read_due` left some for another turn."""
        return bool(self._unread)

    @property
    def found_count(self) -> int:
        """Of how many partitions something is to be told."""
        return len(self._found)

    def read_due(self, read: Callable[[FetchedPartition], PartitionData | None], count_max: int) -> None:
        """Read what is due by now, or what an earlier turn left of it.

        Kafka: `FetchContext.foreachPartition`.

        Args:
            read: returns what is there; None if that cannot be told yet, and it has seen to it that the partition is
                due again.
            count_max: partitions, before others have their turn.
        """
        unread, found = self._unread, self._found
        if not unread:
            unread.extend(reversed(self._due))
            self._due.clear()
        for _ in range(min(len(unread), count_max)):
            fetched = unread.pop()
            before = found.pop(fetched, None)
            if before is not None and before.records:
                self._count(fetched, -len(before.records))
            row = read(fetched)
            if row is None:
                continue
            found[fetched] = row
            if row.records:
                self._count(fetched, len(row.records))

    def _count(self, fetched: FetchedPartition, size_bytes: int) -> None:
        self.found_bytes += size_bytes
        if fetched.is_throttled:
            self.throttled_bytes += size_bytes

    def _take_found(self) -> dict[FetchedPartition, PartitionData]:
        found, self._found = self._found, {}
        self.found_bytes = self.throttled_bytes = 0
        return found

    def take_updates(self) -> Iterator[tuple[FetchedPartition, PartitionData]]:
        """What was found and the reader does not know yet; it counts as told.

        Kafka: `FetchContext.updateAndGenerateResponseData`.
        """
        for fetched, row in self._take_found().items():
            if not self._knows_all or fetched.is_update(row):
                yield fetched, row
            if row.error_code:
                fetched.high_watermark = fetched.log_start_offset = None
            else:
                fetched.high_watermark, fetched.log_start_offset = row.high_watermark, row.log_start_offset
            if row.error_code or row.records or row.diverging_epoch is not None or row.preferred_read_replica >= 0:
                self._due[fetched] = None  # unless the reader says something new, it gets the same again
        self._knows_all = True

    def close(self) -> None:
        """Nobody comes back to it. A fetch that waits in it waits on, then calls this again."""
        self._is_closed = True
        if self.on_due is None:
            self._unread.clear()
            if self.let_go():
                self._ended.append(self)

    def let_go(self) -> bool:
        """Part with what it follows, as far as one turn of the loop allows; whether there is more.

        They know the session, and it them: otherwise only the collector would free them, and late.
        """
        partitions = self.partitions
        for _ in range(min(len(partitions), LET_GO_AT_ONCE_MAX)):
            _, fetched = partitions.popitem()
            self._due.pop(fetched, None)
            self._found.pop(fetched, None)
            fetched.unwatch()
        return bool(partitions)

    def overtake(self) -> None:
        """Its reader began another in its place, and waits for nothing of this one."""
        self.epoch = FINAL_EPOCH
        if self.on_due is not None:
            self.on_due()

    def on_fetch_ended(self) -> None:
        """A fetch in this session is over, answered or not."""
        self.on_due = None
        if self._is_closed or self.session_id == NO_SESSION:
            self.close()


class FetchSessions:
    """All sessions of a broker, a bounded number of them.

    Args:
        slots: `max.incremental.fetch.session.cache.slots`.
        partitions_max: `max.incremental.fetch.session.cache.partitions`, of all sessions together.
        rng: makes ids that nobody guesses.

    Attributes:
        slots: as above.
        partitions_max: as above.
        partition_count: of all sessions together.
        without_room: how often there was no room for a session, or for what it follows.
    """

    def __init__(self, slots: int, partitions_max: int, rng: Rng) -> None:
        self.partition_count = 0
        self.slots = slots
        self.without_room = 0
        self.partitions_max = partitions_max
        self._rng = rng
        self._ended: list[FetchSession] = []  # closed, with more than one turn may let go of
        self._sessions: dict[int, FetchSession] = {}  # the least recently used first
        self._evictable: list[tuple[bool, int, int]] = []  # keys of those older than EVICTION_MS, the smallest first

    def __len__(self) -> int:
        return len(self._sessions)

    def let_go(self) -> bool:
        """Part with what ended sessions follow, as far as one turn of the loop allows; whether there is more."""
        if self._ended and not self._ended[-1].let_go():
            self._ended.pop()
        return bool(self._ended)

    def followed(self, session_id: int) -> Iterable[FetchedPartition]:
        """What a session follows; nothing if there is none."""
        session = self._sessions.get(session_id)
        return () if session is None else session.partitions.values()

    def begin(self, request: FetchRequest, *, is_by_id: bool, now_ms: int) -> FetchSession:
        """The session that a request belongs to, up to date with it.

        Args:
            is_by_id: whether the request names topics by their ids.
            now_ms: monotonic.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR: the
                reader has to start anew.
        """
        if begins_anew(request):
            return self.begin_anew(request, self.new(request, is_by_id=is_by_id, now_ms=now_ms), now_ms)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise refusal(Code.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if request.session_epoch != session.epoch:
            raise refusal(
                Code.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.session_id}: epoch {request.session_epoch} came, {session.epoch} is next",
            )
        if is_by_id != session.is_by_id:
            raise refusal(
                Code.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session.session_id} speaks of topics by {'id' if session.is_by_id else 'name'}",
            )
        self._update(session, request)
        session.epoch = next_epoch(session.epoch)
        if session.on_due is not None:
            session.on_due()  # an earlier fetch of the session waits: its reader does not wait for it any more
        if session.partitions:
            self._touch(session, now_ms)
        else:
            self._remove(session)
            session.session_id = NO_SESSION
        return session

    def go_on(self, session: FetchSession, request: FetchRequest, now_ms: int) -> None:
        """Take in more of a request that is taken in by parts; `begin` was given the first one.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND: there is no room, or the session ended meanwhile.
        """
        if self._sessions.get(session.session_id) is not session:
            raise refusal(Code.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session.session_id} ended meanwhile")
        self._update(session, request)
        self._touch(session, now_ms)

    def _update(self, session: FetchSession, request: FetchRequest) -> None:
        before = len(session.partitions)
        if self.partition_count + sum(len(topic.partitions) for topic in request.topics) > self.partitions_max:
            self._check_growth(session, request)
        session.update(request)
        self.partition_count += len(session.partitions) - before

    def new(self, request: FetchRequest, *, is_by_id: bool, now_ms: int) -> FetchSession:
        """What a request wants that begins anew, on any thread: see `begin_anew`."""
        state = request.replica_state
        is_follower = (request.replica_id if state is None else state.replica_id) >= 0
        return FetchSession(request, self._ended, is_by_id=is_by_id, is_follower=is_follower, now_ms=now_ms)

    def begin_anew(self, request: FetchRequest, session: FetchSession, now_ms: int) -> FetchSession:
        """Keep a new session, if it is to be one and there is room; the one that its reader had ends."""
        replaced = self._sessions.get(request.session_id)
        if replaced is not None:
            self._remove(replaced)
            replaced.overtake()
        size = len(session.partitions)
        if request.session_epoch != INITIAL_EPOCH or not size:
            return session
        if self._has_room(session.is_follower, size, now_ms):
            session.session_id = self._new_id()
            session.epoch = next_epoch(INITIAL_EPOCH)
            self._sessions[session.session_id] = session
            self.partition_count += size
            self._touch(session, now_ms)
        else:
            self.without_room += 1
        return session

    def _check_growth(self, session: FetchSession, request: FetchRequest) -> None:
        """Raises KafkaError: the session would take more than there is room for; its reader is to start anew."""
        added_count = sum(
            ((topic.topic_id if session.is_by_id else topic.topic), wanted.partition) not in session.partitions
            for topic in request.topics
            for wanted in topic.partitions
        )
        if added_count and self.partition_count + added_count > self.partitions_max:
            self.without_room += 1
            self._remove(session)
            session.overtake()
            raise refusal(
                Code.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session.session_id} would follow {added_count} partitions more, and all sessions "
                f"follow {self.partitions_max} at the most (max.incremental.fetch.session.cache.partitions)",
            )

    def _new_id(self) -> int:
        while True:
            drawn = self._rng.randrange(1, INT32_MAX)
            if drawn not in self._sessions:
                return drawn

    def _has_room(self, is_follower: bool, size: int, now_ms: int) -> bool:
        """Whether there is room for one more of so many partitions, after others had to give way or not."""
        if size > self.partitions_max:
            return False
        while len(self._sessions) >= self.slots or self.partition_count + size > self.partitions_max:
            gives_way = self._giving_way(is_follower, size, now_ms)
            if gives_way is None:
                return False
            self._remove(gives_way)
        return True

    def _giving_way(self, is_follower: bool, size: int, now_ms: int) -> FetchSession | None:
        sessions = self._sessions
        oldest = next(iter(sessions.values()), None)
        if oldest is None:
            return None
        if now_ms - oldest.used_ms > EVICTION_MS:
            return oldest
        smallest = self._evictable[0] if self._evictable else None
        if is_follower:  # a consumer gives way to a follower at any age
            consumers = (
                (False, len(one.partitions), one.session_id) for one in sessions.values() if not one.is_follower
            )
            smallest = min(consumers, default=smallest)
        if smallest is None or (is_follower, size) <= smallest[:2]:
            return None
        return sessions[smallest[2]]

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session_id = session.session_id
        self._sessions[session_id] = self._sessions.pop(session_id)
        session.used_ms = now_ms
        if now_ms - session.created_ms > EVICTION_MS:
            key = (session.is_follower, len(session.partitions), session_id)
            if key != session.eviction_key:
                self._forget_key(session)
                session.eviction_key = key
                insort(self._evictable, key)

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self.partition_count -= len(session.partitions)
        self._forget_key(session)
        session.close()

    def _forget_key(self, session: FetchSession) -> None:
        if session.eviction_key is not None:
            del self._evictable[bisect_left(self._evictable, session.eviction_key)]
            session.eviction_key = None


def begins_anew(request: FetchRequest) -> bool:
    """Whether a request goes on with no session."""
    return request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)


def next_epoch(epoch: int) -> int:
    """What follows in a session: beyond the largest comes 1, as 0 and -1 have a meaning of their own."""
    return 1 if epoch == INT32_MAX else epoch + 1
