"""The leader's side: who holds what of the metadata log, hence what is committed, and which fetches wait for news.

```
 log start        high watermark        epoch start         log end
     ├──────────────────┼───────────────────┼──────────────────┤
                         committed only with a record beyond ──┘
```

Kafka: `LeaderState`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum.ballot import is_same_replica
from tidelog.quorum.log import QuorumLog
from tidelog.quorum.progress import ReplicaDescription, ReplicaProgress
from tidelog.quorum.values import (
    FetchAnswer,
    QuorumFetch,
    QuorumReply,
    QuorumSettings,
    ReplicaKey,
    SnapshotId,
    Voter,
    VoterSet,
)

OBSERVER_SESSION_MS = 300_000
"""An observer that asked for nothing for so long is forgotten."""

REPLICAS_MAX = 10_000
"""Of so many is remembered how far they are, of voters always; others are served all the same."""

PARKED_MAX = 10_000
"""Fetches that wait; beyond that they are answered at once."""


class Parked(NamedTuple):
    """A fetch that waits.

    Attributes:
        is_judged: whether it was found to be a prefix of ours. It is not before our epoch is open.
    """

    ticket: int
    fetch: QuorumFetch
    deadline_ms: int
    is_judged: bool


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader and its epoch, as all answers name them."""

    key: ReplicaKey
    leader_epoch: LeaderEpoch


class LeaderState:
    """Leads the quorum in one epoch."""

    __slots__ = (
        "_directories",
        "_log",
        "_parked",
        "_parked_deadline_ms",
        "_progress",
        "_replies",
        "_settings",
        "_since_ms",
        "_who",
        "epoch_start",
        "high_watermark",
        "voters",
    )

    def __init__(
        self, who: Leadership, voters: VoterSet, log: QuorumLog, *, settings: QuorumSettings, now_ms: int
    ) -> None:
        """Begin to lead. Fetches wait until the epoch is open, `on_epoch_opened`."""
        self.epoch_start: Offset | None = None
        self.high_watermark: Offset | None = None
        self.voters = voters
        self._who = who
        self._log = log
        self._settings = settings
        self._since_ms = now_ms
        self._progress: dict[ReplicaKey, ReplicaProgress] = {}
        self._directories: dict[BrokerId, UUID] = {}
        self._parked: dict[ReplicaKey, Parked] = {}
        self._parked_deadline_ms: int | None = None
        self._replies: list[QuorumReply] = []

    # What is the case.

    def is_followed(self, now_ms: int) -> bool:
        """Whether a majority has fetched of late: who has none cannot know whether it leads."""
        deadline_ms = self._check_deadline_ms()
        return deadline_ms is None or now_ms < deadline_ms

    def preferred(self) -> tuple[ReplicaKey, ...]:
        """The other voters, those first who have most of the log."""
        others = [voter for voter in self.voters.voters if voter.key.node_id != self._who.key.node_id]
        return tuple(voter.key for voter in sorted(others, key=lambda voter: -(self._end_of(voter))))

    def progress_of(self, key: ReplicaKey) -> ReplicaProgress | None:
        return self._progress.get(self._canonical(key))

    def directory_of(self, node_id: BrokerId) -> UUID | None:
        """The directory of a configured voter, as its fetches in this epoch told it; None before the first."""
        return self._directories.get(node_id)

    def describe(self, now_ms: int | None) -> tuple[tuple[ReplicaDescription, ...], tuple[ReplicaDescription, ...]]:
        """The voters and the observers."""
        voters = tuple(self._description(voter.key, now_ms) for voter in self.voters.voters)
        keys = {voter.key for voter in self.voters.voters}
        others = tuple(self._description(key, now_ms) for key in self._progress if key not in keys)
        return voters, others

    # What happened.

    def on_epoch_opened(self, epoch_start: Offset, now_ms: int) -> None:
        """The first record of the epoch is written; those who waited can be judged."""
        self.epoch_start = epoch_start
        waiting, self._parked, self._parked_deadline_ms = self._parked, {}, None
        for parked in waiting.values():
            self._take_up(parked.ticket, parked.fetch, parked.deadline_ms, now_ms)

    def on_fetch(self, ticket: int, fetch: QuorumFetch, now_ms: int) -> None:
        """A fetch in our epoch. A newer one of a replica takes the place of the one that waits, which is answered."""
        key = self._admit(fetch.replica, now_ms)
        older = self._parked.pop(key, None)
        if older is not None:
            self._replies.append(QuorumReply(older.ticket, self._answer(older.fetch, is_judged=older.is_judged)))
        self._note_contact(key, now_ms)
        deadline_ms = now_ms + fetch.wait_ms_max
        if self.epoch_start is None:
            self._park(key, Parked(ticket, fetch, deadline_ms, is_judged=False))
        else:
            self._take_up(ticket, fetch, deadline_ms, now_ms)

    def on_snapshot_request(self, replica: ReplicaKey, now_ms: int) -> None:
        """It loads a snapshot of ours: it follows us, though it fetches nothing meanwhile."""
        self._note_contact(self._admit(replica, now_ms), now_ms)

    def on_requester_disconnected(self, ticket: int) -> None:
        """Nobody waits for that answer any more."""
        for key, parked in self._parked.items():
            if parked.ticket == ticket:
                del self._parked[key]
                return

    def on_log_moved(self) -> None:
        """Records were appended or synced: who waits for some has them, and more may be committed."""
        log_end_offset = self._log.log_end_offset
        self._complete([key for key, one in self._parked.items() if one.fetch.fetch_offset < log_end_offset])
        self._commit()

    def on_voters(self, voters: VoterSet) -> None:
        """Another set counts from now on; who is in both, or observed until now, has what it had."""
        known, self._progress = self._progress, {}
        self.voters = voters
        self._progress = {self._canonical(key): progress for key, progress in known.items()}
        self._parked = {self._canonical(key): parked for key, parked in self._parked.items()}
        self._commit()

    def on_tick(self, now_ms: int) -> None:
        """Fetches that waited long enough are answered with what holds now."""
        if self._parked_deadline_ms is None or now_ms < self._parked_deadline_ms:
            return
        self._complete([key for key, one in self._parked.items() if now_ms >= one.deadline_ms])
        waiting = [one.deadline_ms for one in self._parked.values() if one.is_judged]
        self._parked_deadline_ms = min(waiting, default=None)

    # What to do about it.

    def take_replies(self) -> list[QuorumReply]:
        replies, self._replies = self._replies, []
        return replies

    def take_parked(self) -> list[tuple[int, QuorumFetch]]:
        """Those who wait in vain: somebody else leads."""
        parked, self._parked = self._parked, {}
        return [(one.ticket, one.fetch) for one in parked.values()]

    def next_deadline_ms(self) -> int | None:
        known = [one for one in (self._parked_deadline_ms, self._check_deadline_ms()) if one is not None]
        return min(known, default=None)

    def clone(self, log: QuorumLog) -> LeaderState:
        copy = LeaderState(self._who, self.voters, log, settings=self._settings, now_ms=self._since_ms)
        copy.epoch_start, copy.high_watermark = self.epoch_start, self.high_watermark
        copy._progress = {key: progress.clone() for key, progress in self._progress.items()}
        copy._directories = self._directories.copy()
        copy._parked, copy._parked_deadline_ms = self._parked.copy(), self._parked_deadline_ms
        copy._replies = self._replies.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Clocks and tickets aside."""
        return (
            self.epoch_start,
            self.high_watermark,
            self.voters,
            tuple(sorted((key.node_id, progress.log_end_offset or 0) for key, progress in self._progress.items())),
            tuple(sorted((key.node_id, one.fetch.fetch_offset, one.is_judged) for key, one in self._parked.items())),
            tuple(sorted(self._directories.items())),
        )

    # How it is done.

    def _take_up(self, ticket: int, fetch: QuorumFetch, deadline_ms: int, now_ms: int) -> None:
        """Judge a fetch: what diverges proves nothing, and is told so at once (rule 3)."""
        correction = self._log.correction_of(fetch.fetch_offset, fetch.last_fetched_epoch)
        if isinstance(correction, SnapshotId):
            self._replies.append(QuorumReply(ticket, replace(self._answer(fetch), snapshot=correction)))
            return
        if correction is not None:
            self._replies.append(QuorumReply(ticket, replace(self._answer(fetch), diverging=correction)))
            return
        key = self._canonical(fetch.replica)
        self._note_contact(key, now_ms).on_fetch(fetch.fetch_offset, self._log.log_end_offset, now_ms)
        self._commit()
        has_records = fetch.fetch_offset < self._log.log_end_offset
        if has_records or self._has_update_for(fetch) or now_ms >= deadline_ms or len(self._parked) >= PARKED_MAX:
            self._reply(ticket, fetch)
        else:
            self._park(key, Parked(ticket, fetch, deadline_ms, is_judged=True))

    def _has_update_for(self, fetch: QuorumFetch) -> bool:
        """Whether our high watermark is above the follower's. Who does not tell its own waits for records (KIP-1166).

        A leader that knows none has none to tell.
        """
        if self.high_watermark is None or not fetch.sends_high_watermark:
            return False
        return fetch.high_watermark is None or fetch.high_watermark < self.high_watermark

    def _commit(self) -> None:
        """What a majority has on disk is committed, once that includes a record of this epoch."""
        if self.epoch_start is None:
            return
        ends = sorted((self._end_of(voter) for voter in self.voters.voters), reverse=True)
        held_by_majority = ends[self.voters.majority_size - 1]
        if held_by_majority <= self.epoch_start or held_by_majority <= (self.high_watermark or 0):
            return
        self.high_watermark = held_by_majority
        self._complete([key for key, one in self._parked.items() if self._has_update_for(one.fetch)])

    def _complete(self, keys: list[ReplicaKey]) -> None:
        """Answer those; but who was not judged yet could be given what does not fit what it has."""
        for key in keys:
            if self._parked[key].is_judged:
                parked = self._parked.pop(key)
                self._reply(parked.ticket, parked.fetch)

    def _reply(self, ticket: int, fetch: QuorumFetch) -> None:
        self._replies.append(QuorumReply(ticket, self._answer(fetch)))

    def _answer(self, fetch: QuorumFetch, *, is_judged: bool = True) -> FetchAnswer:
        code = Code.NONE if is_judged else Code.NOT_LEADER_OR_FOLLOWER
        who = self._who
        return FetchAnswer(code, who.leader_epoch, who.key.node_id, fetch.fetch_offset, self.high_watermark)

    def _park(self, key: ReplicaKey, parked: Parked) -> None:
        self._parked[key] = parked
        if not parked.is_judged:
            return  # it waits for the epoch
        deadline_ms = self._parked_deadline_ms
        self._parked_deadline_ms = parked.deadline_ms if deadline_ms is None else min(deadline_ms, parked.deadline_ms)

    def _admit(self, key: ReplicaKey, now_ms: int) -> ReplicaKey:
        """Its canonical key; where voters are configured, after its directory was noted as that of the voter.

        Of two processes with one id, the one that comes second observes while the first is heard of: else what either
        of them has would count for both.
        """
        voter = self.voters.voter(key.node_id)
        if voter is None or voter.key.directory_id is not None or key.directory_id is None:
            return self._canonical(key)
        if self._directories.get(key.node_id, key.directory_id) != key.directory_id:
            first = self._progress.get(voter.key)
            if first is not None and now_ms - first.last_contact_ms < self._settings.fetch_timeout_ms:
                return key
            self._progress.pop(voter.key, None)
            self._progress.pop(key, None)
        self._directories[key.node_id] = key.directory_id
        return voter.key

    def _canonical(self, key: ReplicaKey) -> ReplicaKey:
        """A voter under the name that the voter set has for it: with configured voters that says no directories."""
        voter = self.voters.voter(key.node_id)
        if voter is None:
            return key
        directory_id = voter.key.directory_id or self._directories.get(key.node_id)
        return voter.key if is_same_replica(ReplicaKey(key.node_id, directory_id), key) else key

    def _note_contact(self, key: ReplicaKey, now_ms: int) -> ReplicaProgress:
        progress = self._progress.get(key)
        if progress is None:
            self._forget_observers(now_ms)
            progress = ReplicaProgress(now_ms)
            if len(self._progress) < REPLICAS_MAX or key in {voter.key for voter in self.voters.voters}:
                self._progress[key] = progress
        progress.last_contact_ms = now_ms
        return progress

    def _forget_observers(self, now_ms: int) -> None:
        voters = {voter.key for voter in self.voters.voters}
        self._progress = {
            key: progress
            for key, progress in self._progress.items()
            if key in voters or now_ms - progress.last_contact_ms < OBSERVER_SESSION_MS
        }

    def _end_of(self, voter: Voter) -> Offset:
        if voter.key.node_id == self._who.key.node_id:
            return self._log.synced_end_offset
        progress = self._progress.get(voter.key)
        return Offset(0) if progress is None or progress.log_end_offset is None else progress.log_end_offset

    def _check_deadline_ms(self) -> int | None:
        """Until when a majority has to fetch: one and a half fetch time-outs after one did; None for a leader alone."""
        needed = self.voters.majority_size - (self._who.key.node_id in self.voters.ids)
        if needed <= 0:
            return None
        contacts_ms = [
            self._progress[voter.key].last_contact_ms if voter.key in self._progress else self._since_ms
            for voter in self.voters.voters
            if voter.key.node_id != self._who.key.node_id
        ]
        return sorted(contacts_ms, reverse=True)[needed - 1] + self._settings.fetch_timeout_ms * 3 // 2

    def _description(self, key: ReplicaKey, now_ms: int | None) -> ReplicaDescription:
        if key.node_id == self._who.key.node_id:
            return ReplicaDescription(key, self._log.synced_end_offset, now_ms, now_ms)
        progress = self._progress.get(key)
        if progress is None:
            return ReplicaDescription(key, None, None, None)
        return ReplicaDescription(key, progress.log_end_offset, progress.last_fetch_ms, progress.last_caught_up_ms)
