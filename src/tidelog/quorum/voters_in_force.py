"""The voter set that counts: the latest in a node's log, committed or not (KIP-853).

Kafka: `VoterSetHistory`, `KRaftControlRecordStateMachine`.
"""

from __future__ import annotations

from tidelog.base.ids import BrokerId, Offset
from tidelog.quorum.values import ReplicaKey, VoterSet

START = Offset(0)


class VotersInForce:
    """The voters, as one node has them in its log.

    Attributes:
        latest: the set that counts.
        end_offset: exclusive, of the record that it comes from; 0 from the configuration.
        is_leaving: whether we voted until a change that is not committed yet. Such a node may have the only log to lead
            with: until the change is committed, it may be needed for that.
    """

    __slots__ = ("_committed", "_key", "end_offset", "is_leaving", "latest")

    def __init__(self, key: ReplicaKey, latest: VoterSet, end_offset: Offset, previous: VoterSet | None) -> None:
        """Nothing is known to be committed.

        Args:
            key: of the node.
            previous: the set before `latest`; None if there is none.
        """
        self._key = key
        self._committed = START
        self.latest = latest
        self.end_offset = end_offset
        self.is_leaving = self._leaves(previous)

    @property
    def has_us(self) -> bool:
        """Whether the node votes."""
        return self.latest.is_voter(self._key)

    @property
    def others(self) -> tuple[BrokerId, ...]:
        """The other voters."""
        return tuple(voter for voter in self.latest.ids if voter != self._key.node_id)

    @property
    def is_change_pending(self) -> bool:
        """Whether the set counts already and is not committed yet: no other change may be begun."""
        return self.end_offset > self._committed

    def on_voters(self, voters: VoterSet, end_offset: Offset) -> None:
        """Another set counts: it was appended, or the one after it was truncated away."""
        previous, self.latest, self.end_offset = self.latest, voters, end_offset
        self.is_leaving = self._leaves(previous)

    def on_committed(self, high_watermark: Offset) -> None:
        """All below it is committed, and with it the set that comes from there."""
        self._committed = high_watermark
        self.is_leaving &= self.is_change_pending

    def clone(self) -> VotersInForce:
        copy = VotersInForce.__new__(VotersInForce)
        for name in VotersInForce.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for those that make a node behave alike."""
        return (self.latest, self.end_offset, self.is_leaving)

    def _leaves(self, previous: VoterSet | None) -> bool:
        was_voter = previous is not None and previous.is_voter(self._key)
        return was_voter and not self.has_us and self.is_change_pending
