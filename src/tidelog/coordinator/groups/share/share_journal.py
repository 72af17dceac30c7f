"""Where the share groups of one coordinator are written: in one batch where that fits, and counted in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.base.errors import Code, refusal
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.journal import KeyValue

BATCH_ROOM_BYTES = 128
"""More than a batch with a record takes, without the name of the group and what the record says."""


class ShareJournal:
    """See the module.

    Args:
        topics: of the cluster; None until they are known.

    Attributes:
        journal: of all groups.
    """

    def __init__(self, journal: GroupJournal, topics: Callable[[], KnownTopics | None]) -> None:
        self.journal = journal
        self._topics = topics
        self._charged_bytes = 0

    @property
    def groups(self) -> dict[str, ShareGroup]:
        """By id. Nothing but a record changes them."""
        return self.journal.state.share_groups

    @property
    def topics(self) -> KnownTopics | None:
        """Of the cluster; None until they are known."""
        return self._topics()

    @property
    def known(self) -> KnownTopics:
        """The topics of the cluster. Raises COORDINATOR_LOAD_IN_PROGRESS until they are known."""
        found = self._topics()
        if found is None:
            raise refusal(Code.COORDINATOR_LOAD_IN_PROGRESS, "the topics of the cluster are not known yet")
        return found

    def write(self, group_id: str, records: Sequence[KeyValue]) -> None:
        """Write a change, in one batch if it fits: then it is there as a whole or not at all.

        Any beginning of the records, without the rest, has to leave a group that goes on from there.

        Raises:
            KafkaError: INVALID_REQUEST for a record that no batch holds; nothing was written.
        """
        journal = self.journal
        if journal.fits(records):
            if records:
                journal.write(tuple(records))
        elif all(journal.fits((one,)) for one in records):
            journal.write_in_parts(records)
        else:
            raise refusal(
                Code.INVALID_REQUEST,
                f"group {group_id!r}: it has more topics, or more partitions, than a batch of "
                f"{journal.batch_size_bytes_max} bytes holds: divide them between groups",
            )
        self.settle_memory()

    @property
    def bytes_left(self) -> int:
        """How many bytes more may be kept; below 0 where there are too many already."""
        memory = self.journal.memory
        return memory.limit_bytes - memory.used_bytes

    def record_bytes_left(self, group_id: str, size_bytes: int) -> int:
        """How many bytes more a batch holds with a record of so many."""
        return self.journal.batch_size_bytes_max - BATCH_ROOM_BYTES - len(group_id.encode()) - size_bytes

    def has_room(self, more_bytes: int) -> bool:
        """Whether that much more may be kept. What takes no more than it did goes on, whatever others have taken."""
        return more_bytes <= 0 or self.journal.memory.has_room(more_bytes)

    def settle_memory(self) -> None:
        """Have what the groups take count, after records of them were written."""
        more_bytes = self.journal.state.share_groups_bytes - self._charged_bytes
        self.journal.memory.used_bytes += more_bytes
        self._charged_bytes += more_bytes

    def release(self) -> None:
        """The coordinator resigned: what the groups took counts no more."""
        self.journal.memory.used_bytes -= self._charged_bytes
