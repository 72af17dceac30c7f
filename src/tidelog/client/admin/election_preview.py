"""What an unclean election of a partition without a leader would do: plain values, and how they follow from others.

```
 broker 1    m0 m1 m2                       in the order of the controller's rule the first one that lives leads
 broker 2    m0 m1 m2 m3 m4                 if 1 leads, m3 and m4 are lost, and what a group committed beyond 3
 broker 3    (down)                         nobody knows what it holds
```

Kafka: none. `kafka-leader-election.sh` elects and shows nothing before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.client.admin.cluster_descriptions import ReplicaLineage, first_difference
from tidelog.client.admin.descriptions import PartitionDescription


@dataclass(frozen=True, slots=True)
class LeaderCandidate:
    """One replica, and what follows if it leads.

    Attributes:
        is_alive: whether it could be elected now.
        is_clean: whether it is in sync or eligible. It then holds all that is committed, and loses nothing of it.
        end_offset: exclusive, of its log; None where it does not tell.
        last_epoch: of its last record; None where it has none, or does not tell.
        lost_from: the first offset that another replica holds and this one does not; None where none is known.
        lost_end_offset: exclusive; up to there some replica holds records that this one does not.
        groups: committed offsets above what it shares with all others, by group.
        error: why it does not tell.
    """

    broker_id: int
    is_alive: bool
    is_clean: bool
    end_offset: int | None = None
    last_epoch: int | None = None
    lost_from: int | None = None
    lost_end_offset: int | None = None
    groups: Mapping[str, int] | None = None
    error: TidelogError | None = None

    @property
    def lost_count(self) -> int:
        """Offsets that are known to be lost if it leads."""
        return 0 if self.lost_from is None or self.lost_end_offset is None else self.lost_end_offset - self.lost_from


@dataclass(frozen=True, slots=True)
class ElectionPreview:
    """What an unclean election of one partition would do, as far as can be known now.

    Attributes:
        leader_epoch: the last one that there was.
        would_lead: the broker that the controller would elect; None where no replica lives.
        candidates: all replicas, in their preferred order.
        unknown: replicas that do not tell what they hold.
        groups_unknown: why committed offsets of some groups are not known; None where all were asked.
    """

    leader_epoch: int | None
    would_lead: int | None
    candidates: tuple[LeaderCandidate, ...]
    unknown: tuple[int, ...]
    groups_unknown: str | None

    @property
    def elected(self) -> LeaderCandidate | None:
        """Whoever would lead."""
        return next((one for one in self.candidates if one.broker_id == self.would_lead), None)

    @property
    def loses_less(self) -> LeaderCandidate | None:
        """Whoever is alive, is not elected, and would lose fewer offsets, as far as known; None where nobody would.

        The controller's rule asks nobody what it holds. So a replica that came back empty is elected before another
        one that has records, if it is the first of the replicas.
        """
        elected = self.elected
        if elected is None or elected.is_clean or elected.error is not None:
            return None
        others = [one for one in self.candidates if one.is_alive and one.error is None and one is not elected]
        best = min(others, key=lambda one: one.lost_count, default=elected)
        return best if best.lost_count < elected.lost_count else None


def would_lead(state: PartitionDescription, alive: Collection[int]) -> int | None:
    """Who is elected where any leader is better than none, by the controller's rule.

    The first that lives in the preferred order: of those in sync, else of those eligible, else of those that were last
    known to be eligible, else of all.
    """
    ranks = (state.isr, state.eligible_leader_replicas, state.last_known_eligible_leader_replicas, state.replicas)
    return next((one for rank in ranks for one in state.replicas if one in (rank or ()) and one in alive), None)


def election_preview(
    state: PartitionDescription,
    replicas: Mapping[int, ReplicaLineage],
    up: Collection[int],
    groups: Mapping[str, int],
    groups_unknown: str | None,
) -> ElectionPreview:
    """What an election would do.

    Args:
        replicas: what each replica holds.
        up: brokers that are alive.
        groups: committed offsets in the partition, by group.
    """
    alive = [
        one
        for one in state.replicas
        if one in up and one not in state.offline_replicas and not _is_storage_failed(replicas[one].error)
    ]
    clean = {*state.isr, *(state.eligible_leader_replicas or ())}
    return ElectionPreview(
        state.leader_epoch,
        would_lead(state, alive),
        tuple(_candidate(one, replicas, one in alive, one in clean, groups) for one in state.replicas),
        tuple(one for one in state.replicas if replicas[one].error is not None),
        groups_unknown,
    )


def _is_storage_failed(error: TidelogError | None) -> bool:
    return isinstance(error, KafkaError) and error.code is Code.KAFKA_STORAGE_ERROR


def _candidate(
    broker_id: int, replicas: Mapping[int, ReplicaLineage], is_alive: bool, is_clean: bool, groups: Mapping[str, int]
) -> LeaderCandidate:
    own = replicas[broker_id]
    if own.error is not None:
        return LeaderCandidate(broker_id, is_alive, is_clean, error=own.error)
    end = own.spans[-1].end_offset if own.spans else 0
    last_epoch = own.spans[-1].leader_epoch if own.spans else None
    lost = [found for other in replicas.values() if (found := _lacks(own, other)) is not None]
    kept_up_to = min([end, *(start for start, _ in lost)])
    beyond = {group: offset for group, offset in sorted(groups.items()) if offset > kept_up_to}
    if is_clean or not lost:
        return LeaderCandidate(broker_id, is_alive, is_clean, end, last_epoch, groups=beyond)
    first, last = min(start for start, _ in lost), max(end for _, end in lost)
    return LeaderCandidate(broker_id, is_alive, is_clean, end, last_epoch, first, last, beyond)


def _lacks(own: ReplicaLineage, other: ReplicaLineage) -> tuple[int, int] | None:
    """What another replica holds and this one does not, up to but not with the second offset."""
    if not other.spans:
        return None
    other_end = other.spans[-1].end_offset
    differs_from = first_difference(own.spans, other.spans)
    if differs_from is None:
        differs_from = max(own.spans[-1].end_offset if own.spans else 0, other.spans[0].start_offset)
    return (differs_from, other_end) if differs_from < other_end else None
