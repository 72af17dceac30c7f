"""Share sessions (KIP-932): which partitions a member of a share group fetches from this broker, and which are due.

Pure. A request speaks of changes only, and so does its answer. A partition with nothing for the member is watched, and
due again when something changes; so a fetch looks at what changed, however many partitions its session has.

```
 request ──► due ──► looked at ──┬─ nothing to acquire ──► watched: it or its share partition marks it due
              ▲                  └─ records, an error ──► told
              └──────────────────── stays due: there may be more ───┘
```

Kafka: `ShareSession`, `ShareSessionContext`, `ShareSessionCache`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from tidelog.base.errors import Code, refusal

if TYPE_CHECKING:
    from tidelog.server.share_fetching.share_driver import ShareDriver

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
INT32_MAX = 0x7FFF_FFFF

LET_GO_AT_ONCE_MAX = 500
"""Partitions, of sessions that ended: each takes about a microsecond."""

PartitionId = tuple[UUID, int]


class ShareListeners(Protocol):
    """Those that are told once of the next change. `PartitionListeners` are some."""

    def add(self, listener: SharedPartition, /) -> None: ...

    def remove(self, listener: SharedPartition, /) -> None: ...


class SharedPartition:
    """One partition that a member fetches.

    Attributes:
        driver: of the share partition that was looked at last.
        watched: whoever tells of its changes.
    """

    __slots__ = ("driver", "index", "session", "topic_id", "watched")

    def __init__(self, session: ShareSession, topic_id: UUID, index: int) -> None:
        self.session = session
        self.topic_id = topic_id
        self.index = index
        self.driver: ShareDriver | None = None
        self.watched: tuple[ShareListeners, ...] = ()

    def watch(self, *listeners: ShareListeners) -> None:
        """Be due again when one of them has news."""
        if self.watched != listeners:
            self.unwatch()
        self.watched = listeners
        for one in listeners:
            one.add(self)
        self.session.due.pop(self, None)

    def unwatch(self) -> None:
        for one in self.watched:
            one.remove(self)
        self.watched = ()

    def on_changed(self) -> None:
        """See `PartitionListener`."""
        self.session.on_due_again(self)


class ShareSession:
    """What one member fetches from this broker.

    Attributes:
        epoch: of the next request.
        partitions: all of them.
        due: those that are to be looked at, in their turn.
        on_due: called when one becomes due, while a fetch waits.
        connection: which it was last used on; the session ends with it.
    """

    __slots__ = ("connection", "due", "epoch", "group_id", "member_id", "on_due", "partitions")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 1
        self.partitions: dict[PartitionId, SharedPartition] = {}
        self.due: dict[SharedPartition, None] = {}
        self.on_due: Callable[[], None] | None = None
        self.connection: object = None

    def on_due_again(self, one: SharedPartition) -> None:
        self.due[one] = None
        if self.on_due is not None:
            self.on_due()

    def add(self, topic_id: UUID, index: int) -> None:
        """Fetch a partition too."""
        if (topic_id, index) not in self.partitions:
            one = self.partitions[topic_id, index] = SharedPartition(self, topic_id, index)
            self.due[one] = None

    def remove(self, topic_id: UUID, index: int) -> None:
        """Do not fetch a partition any more."""
        one = self.partitions.pop((topic_id, index), None)
        if one is not None:
            one.unwatch()
            self.due.pop(one, None)


class ShareSessions:
    """Those of one broker.

    Args:
        partitions_max: of all of them together.

    Attributes:
        count_max: `group.share.max.share.sessions`.
        partition_count: how many partitions they have.
        refused: how often there was no room for a session, or for what it follows.
    """

    def __init__(self, partitions_max: int) -> None:
        self.count_max = 0
        self.partition_count = 0
        self.refused = 0
        self._partitions_max = partitions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._ended: list[ShareSession] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def members(self, group_id: str) -> int:
        """How many members of a group fetch from here."""
        return len(self._members.get(group_id, ()))

    def find(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def begin(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session that a request belongs to, if its epoch is the next one. The final one changes nothing yet.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH: the member begins anew.
                SHARE_SESSION_LIMIT_REACHED.
        """
        if epoch == INITIAL_EPOCH:
            return self._new(group_id, member_id)
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise refusal(
                Code.SHARE_SESSION_NOT_FOUND, f"member {member_id} of share group {group_id} has no session here"
            )
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise refusal(
                Code.INVALID_SHARE_SESSION_EPOCH,
                f"member {member_id} of share group {group_id} sent epoch {epoch}; {session.epoch} is the next",
            )
        session.epoch = 1 if epoch == INT32_MAX else epoch + 1
        return session

    def _new(self, group_id: str, member_id: str) -> ShareSession:
        before = self._sessions.get((group_id, member_id))
        if before is not None:
            self.remove(before)
        elif len(self._sessions) >= self.count_max:
            self.refused += 1
            raise refusal(
                Code.SHARE_SESSION_LIMIT_REACHED,
                f"{self.count_max} members of share groups fetch from this broker, and no more may "
                "(group.share.max.share.sessions)",
            )
        session = ShareSession(group_id, member_id)
        self._sessions[group_id, member_id] = session
        self._members.setdefault(group_id, {})[member_id] = None
        return session

    def add(self, session: ShareSession, topic_id: UUID, indexes: Iterable[int]) -> None:
        """Have a session fetch partitions too.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED: those of all sessions are too many. SHARE_SESSION_NOT_FOUND: it has
                ended meanwhile.
        """
        if self.find(session.group_id, session.member_id) is not session:
            raise refusal(Code.SHARE_SESSION_NOT_FOUND, f"the session of member {session.member_id} has ended")
        before = len(session.partitions)
        for index in indexes:
            if self.partition_count + len(session.partitions) - before >= self._partitions_max:
                self.partition_count += len(session.partitions) - before
                self.refused += 1
                raise refusal(
                    Code.SHARE_SESSION_LIMIT_REACHED,
                    f"{self._partitions_max} partitions are fetched by members of share groups, and no more may "
                    "(max.incremental.fetch.session.cache.partitions)",
                )
            session.add(topic_id, index)
        self.partition_count += len(session.partitions) - before

    def forget(self, session: ShareSession, topic_id: UUID, indexes: Iterable[int]) -> None:
        """Have a session fetch partitions no more."""
        if self.find(session.group_id, session.member_id) is not session:
            return
        before = len(session.partitions)
        for index in indexes:
            session.remove(topic_id, index)
        self.partition_count -= before - len(session.partitions)

    def remove(self, session: ShareSession) -> bool:
        """End a session. Returns whether it was one."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        members = self._members[session.group_id]
        del members[session.member_id]
        if not members:
            del self._members[session.group_id]
        self.partition_count -= len(session.partitions)
        self._ended.append(session)
        if session.on_due is not None:
            session.on_due()  # a fetch that waits learns that it is over
        return True

    def let_go(self) -> bool:
        """Have sessions that ended part with some of what they watch. Returns whether there is more."""
        count = LET_GO_AT_ONCE_MAX
        while self._ended and count > 0:
            partitions = self._ended[-1].partitions
            while partitions and count > 0:
                partitions.popitem()[1].unwatch()
                count -= 1
            if not partitions:
                self._ended.pop().due.clear()
        return bool(self._ended)
